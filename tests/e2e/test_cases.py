"""Reports of users, with the values that their tables should have, worked out by hand."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.inspect.audit import run_audit
from medallion.runtime.rename import carry_out_renames
from medallion.sql import engine
from medallion.storage import locks
from medallion.storage.layout import LAYERS, PUBLISH
from tests.support import PROJECT
from tests.support.lakehouse import Lakehouse

CASES = PROJECT / "tests/data/cases"
KEYWORD_COLUMNS = (
    "select * exclude (_source_file, _source_position, _sequence, _ingested_at) from silver.kw31"
)
BRONZE_COLUMNS = (
    "select * exclude (_rescued_data, _corrupt_record, _source_file, _source_modified_at, "
    "_source_position, _ingested_at, t)"
)

# The folder of the case, and the rows of queries after its nightly runs.
Tables = dict[str, list[Any]]
EXPECTED: list[tuple[str, Tables]] = [
    (
        "01-keyonly-delete",
        {
            f"select person_id, name, plan from silver.{table}": [
                (1, "Ada", "gold"),
                (4, "Di", "gold"),
                (5, "Ed", "gold"),
            ]
            for table in ("people01", "people01b")
        }
        | {"select count(*) from quarantine.people01": [(0,)]},
    ),
    (
        "02-toast-placeholder",
        {
            "select doc_id, title, body, note from silver.docs02": [
                (1, "A2", "a long text", None),
                (2, "B", "b long text", "n2"),
            ],
            "select _unavailable from silver.docs02_changes where title = 'A2'": [(["body"],)],
        },
    ),
    (
        "03-truncate",
        {
            "select row_id, v from silver.tr03": [(10, "y10"), (11, "y11"), (9, "y9")],
            "select count(*) from quarantine.tr03": [(0,)],
        },
    ),
    (
        "04-ties-in-a-file",
        {"select id, items from silver.dms04": [(1, 63), (2, 6), (3, 9)]},
    ),
    (
        "09-dms-op-column",
        {
            "select id, name from silver.op09": [(1, "Ada"), (2, "Bo2"), (4, "Di")],
            "select id, name from silver.op09c": [(2, "Bo2"), (4, "Di")],
            # The lines of the full load, which has a field less: never shifted values.
            "select count(*) from quarantine.op09c": [(3,)],
        },
    ),
    (
        "10-daily-full-dump",
        {
            "select id, name, tier from silver.snap10": [
                (1, "Ada", "free"),
                (3, "Cy", "free"),
                (4, "Di", "free"),
                (5, "Ed", "gold"),  # its row of the second dump is in quarantine
            ],
            "select id, tier, valid_from::date::text, valid_to::date::text "
            "from silver.snap10_history": [
                (1, "free", "2026-05-01", None),
                (2, "free", "2026-05-01", "2026-05-02"),
                (3, "free", "2026-05-02", None),
                (3, "gold", "2026-05-01", "2026-05-02"),
                (4, "free", "2026-05-02", None),
                (5, "gold", "2026-05-01", None),
            ],
        },
    ),
    (
        "13-two-digit-years",
        {
            "select emp, born::text from silver.yy13": [
                ("E1", "1967-03-12"),
                ("E2", "1949-11-30"),
                ("E3", "2001-01-05"),
                ("E4", "1971-08-17"),
                ("E5", "1958-12-24"),
            ]
        },
    ),
    (
        "18-dynamic-keys",
        {
            f"select id, sku, price from silver.{table}": [
                ("p1", "sku-1", 1.5),
                ("p1", "sku-7", 2.0),
                ("p2", "sku-9", 3.25),
                ("p5", "sku-100", 4.0),
                ("p5", "sku-101", 5.0),
            ]
            for table in ("dk18_prices", "dk18b_prices")
        }
        # No column for each key.
        | {f"{BRONZE_COLUMNS} from bronze.dk18 where id = 'p4'": [(None, "p4")]},
    ),
    (
        "24-rules",
        {
            "select id from silver.gx24": [(1,), (2,), (4,), (5,)],
            "select id from silver.gx24n": [(1,), (2,), (4,), (6,)],
            "select id, _failed_rules[1] from quarantine.gx24n": [
                (3, "status_or_null"),
                (5, "zip_five"),
                (7, "status_or_null"),
            ],
        },
    ),
    (
        "31-debezium-keyword-columns",
        {
            KEYWORD_COLUMNS: [(1, *range(100, 143)), (2, *range(200, 243))],
            "select day, day_q, day_c, year, total from silver.kw31b": [
                (20574, 20574, 20574, 2026, 9.5)
            ],
        },
    ),
    (
        "32-nested-field-stops-silver",
        {
            "select id, account.name, account.plan from silver.ns32": [
                (1, "Ada", None),
                (2, "Bo", "gold"),
            ],
            "select id from silver.ns32b": [(1,), (2,)],
            "select id, pos, sku, qty from silver.ns32b_items": [(1, 0, "a", 1), (2, 0, "b", 2)],
            "select n from gold.ns32_n": [(2,)],
        },
    ),
    (
        "33-delete-flag-comes-later",
        {"select id, v from silver.df33": [(1, "a")]},
    ),
]


@pytest.mark.slow  # the parts of each case have quick tests
@pytest.mark.parametrize(("name", "tables"), EXPECTED, ids=[name for name, _ in EXPECTED])
def test_case(spark: SparkSession, tmp_path: Path, name: str, tables: Tables) -> None:
    lakehouse = Lakehouse(spark, tmp_path / "lakehouse")
    environment = {"MEDALLION_CONF": str(CASES / name), "MEDALLION_HOME": str(lakehouse.root)}
    lakehouse.config = load(environment, PROJECT)
    for landed in sorted((CASES / name).glob("night*")):
        shutil.copytree(landed, lakehouse.root / "landing", dirs_exist_ok=True)
        assert not lakehouse.nightly().errors
    for sql, rows in tables.items():
        assert sorted(engine.query(str(lakehouse.root), sql).rows, key=repr) == rows, sql
    audit = run_audit(lakehouse.config, everything=True)
    assert (audit.is_balanced, audit.findings) == (True, ())


@pytest.mark.slow  # tests/runtime/test_rename.py has quick tests
def test_case_of_a_renamed_source(spark: SparkSession, tmp_path: Path) -> None:
    """The new name has the rows of the old one, and a writer may still use the old folder."""
    case, lakehouse = CASES / "26-renamed-source", Lakehouse(spark, tmp_path / "lakehouse")
    pipeline, landing = tmp_path / "pipeline.yaml", lakehouse.root / "landing"
    older = (case / "pipeline.yaml").read_text()
    newer = older.replace("sales26", "orders26").replace(
        "  orders26:", "  orders26:\n    renamed_from: sales26", 1
    )
    for text, night in ((older, "night1"), (newer, "night2")):
        pipeline.write_text(text)
        lakehouse.config = load(lakehouse.environment | {"MEDALLION_CONF": str(tmp_path)}, PROJECT)
        shutil.copytree(case / night, landing, dirs_exist_ok=True)
        if text is newer:
            lakehouse.land("sales26", "c.csv", "id,amount,time", "4,5,2026-05-02T11:00:00Z")
        with locks.lock_layers(lakehouse.layout, (*LAYERS, PUBLISH), "test"):
            carry_out_renames(lakehouse.config, print)
        assert not lakehouse.nightly().errors
    rows = {
        "select id::int from silver.orders26": [(1,), (2,), (3,), (4,)],
        "select revenue from gold.revenue26": [(30.0,), (35.0,)],
    }
    for sql, expected in rows.items():
        assert sorted(engine.query(str(lakehouse.root), sql).rows) == expected, sql
    audit = run_audit(lakehouse.config, everything=True)
    assert (audit.is_balanced, audit.findings) == (True, ())

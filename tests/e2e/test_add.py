"""Sources written by `medallion add`, and one nightly run."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.cli import main
from medallion.config.loader import load
from medallion.sql import engine
from tests.support import PROJECT
from tests.support.lakehouse import Lakehouse

SAMPLES = Path(__file__).parents[1] / "discover/samples"
CASES = PROJECT / "tests/data/cases"
FILES = {
    "sales": "sales-semicolon.csv",
    "trail": "cloudtrail.json.gz",
    "conn": "zeek-conn.json",
}
CONTENTS = {
    "log.txt": "GET /health\n" * 20,
    "shops.csv": "at,shop,amount\n" + "2026-05-01,x,\n2026-05-01,x,1.5\n2026-05-01,x,1.5\n",
    "report.csv": 'Report, "x\n\n,id,at,at\n0,1,2026-05-01,a\n',
}


@pytest.fixture
def added(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lakehouse:
    """Return a lakehouse with a source for each file, which has landed."""
    lakehouse = Lakehouse(spark, tmp_path / "lake")
    conf = lakehouse.copy_of_conf(tmp_path)
    (conf / "pipeline.yaml").write_text(
        "sources:\n  other: {silver: {at: at}, event_time: at, keys: [at]}\n"
    )
    monkeypatch.setenv("MEDALLION_CONF", str(conf))
    monkeypatch.setenv("MEDALLION_HOME", str(lakehouse.root))
    for name, file in FILES.items():
        assert main.main(["add", name, str(SAMPLES / file), "--land"]) == 0
    for name, text in CONTENTS.items():
        path = tmp_path / name
        path.write_text(text)
        assert main.main(["add", path.stem, str(path), "--land"]) == 0
    lakehouse.config = load(None, PROJECT)
    return lakehouse


def check_silver(lakehouse: Lakehouse) -> None:
    for name in lakehouse.config.sources.keys() & FILES:
        assert len(lakehouse.rows(f"silver.{name}")) == 40
        assert lakehouse.rows(f"quarantine.{name}") == []
    sales = lakehouse.rows("silver.sales", "order_id", "datum", "amount", "note")
    assert sales[0][2:] == ("1.234,00", 'line1\nline2 "q"')
    assert str(sales[0][1]).startswith("2026-05-01 10:00")
    # Equal lines are no duplicates. Equal CSV rows are, unless they differ in a null.
    assert len(lakehouse.rows("silver.log")) == 20
    amounts = [amount for (amount,) in lakehouse.rows("silver.shops", "amount")]
    assert sorted(amounts, key=str) == [1.5, None]


def test_added_files_reach_gold(added: Lakehouse) -> None:
    added.keep_only("sales", "log", "shops", "sales_by_hour")
    added.fill()
    check_silver(added)
    assert sum(rows for (rows,) in added.rows("gold.sales_by_hour", "row_count")) == 40


@pytest.mark.slow
def test_all_added_files_reach_gold(added: Lakehouse) -> None:
    report = added.nightly()
    assert report.is_good, report
    check_silver(added)
    for name in FILES:
        assert sum(rows for (rows,) in added.rows(f"gold.{name}_by_hour", "row_count")) == 40
    assert added.rows("silver.report", "id", "at_3") == [(1, "a")]


def decimal_bytes(number: int) -> str:
    """Return a number as Kafka Connect writes the bytes of a decimal: the fewest that hold it."""
    size = (number if number >= 0 else -number - 1).bit_length() // 8 + 1
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


DECIMAL = "org.apache.kafka.connect.data.Decimal"
# Digits without the sign of the fraction, of decimal(18, 6) and of decimal(30, 10).
AMOUNTS = (0, 1, -1, 128, -129, 999_999_999_999_999_999, -999_999_999_999_999_999)
LONG_AMOUNTS = (0, 1, -1, 2**64, -(2**64), 10**30 - 1, 1 - 10**30)


def debezium_lines() -> str:
    columns: list[dict[str, Any]] = [{"field": "id", "type": "int32", "optional": False}]
    for name, precision, scale in (("amount", "18", "6"), ("total", "30", "10")):
        parameters = {"scale": scale, "connect.decimal.precision": precision}
        column = {"field": name, "type": "bytes", "name": DECIMAL, "parameters": parameters}
        columns.append(column)
    columns.append({"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"})
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": columns}]}
    rows = [
        {"id": n, "amount": decimal_bytes(amount), "total": decimal_bytes(total), "at": 1_000_001}
        for n, (amount, total) in enumerate(zip(AMOUNTS, LONG_AMOUNTS, strict=True))
    ]
    payloads = [{"after": row, "op": "c", "ts_ms": 1777629600000} for row in rows]
    return "".join(json.dumps({"schema": schema, "payload": each}) + "\n" for each in payloads)


def airbyte_lines() -> str:
    rows = (
        {"user_id": 1, "name": {"first": "Ada"}, "_ab_cdc_lsn": 9, "_ab_cdc_deleted_at": None},
        {"user_id": 2, "name": {"first": "Bo"}, "_ab_cdc_lsn": 10, "_ab_cdc_deleted_at": None},
        {"user_id": 1, "name": {"first": "Eve"}, "_ab_cdc_lsn": 11, "_ab_cdc_deleted_at": None},
        {"user_id": 2, "_ab_cdc_lsn": 12, "_ab_cdc_deleted_at": "2026-05-02T10:00:00Z"},
    )
    records = (
        {
            **{"_airbyte_raw_id": f"r{number}", "_airbyte_extracted_at": "1777629600000"},
            "_airbyte_data": {**row, "_ab_cdc_updated_at": "2026-05-01T10:00:00Z"},
        }
        for number, row in enumerate(rows)
    )
    return "".join(json.dumps(record) + "\n" for record in records)


def flattened_lines() -> str:
    """Rows of Debezium without an envelope; an update lacks a value that did not change."""
    rows: tuple[dict[str, Any], ...] = (
        {"id": 1, "city": "Bonn", "body": "a", "__deleted": "false"},
        {"id": 2, "city": "Jena", "body": "b", "__deleted": "false"},
        {"id": 2, "city": "Ulm", "body": "__debezium_unavailable_value", "__deleted": "false"},
        {"id": 1, "city": None, "body": None, "__deleted": "true"},
    )
    numbered = ({**row, "__op": "u", "__lsn": number} for number, row in enumerate(rows))
    return "".join(json.dumps(row) + "\n" for row in numbered)


FULL_LOAD = "id,name\n1,Ada\n2,Bo\n3,Cy\n"
DMS = "Op,id,name\nU,2,B\nU,2,Bo2\nD,3,Cy\nI,4,Di\n"
FIVETRAN = (
    "id,total,_fivetran_deleted,_fivetran_synced\n1,9.5,false,2026-05-01T10:00:00.123Z\n"
    "2,1.5,false,2026-05-01T10:00:00.123Z\n1,8.5,false,2026-05-02T10:00:00.123Z\n"
    "2,1.5,true,2026-05-02T10:00:00.123Z\n"
)
CHANGE_FILES = {
    "dms": {"LOAD00000001.csv": FULL_LOAD, "20260502-010101123.csv": DMS},
    "fivetran": {"a.csv": FIVETRAN},
    "airbyte": {"a.jsonl": airbyte_lines()},
    "flattened": {"a.json": flattened_lines()},
    "numbers": {"a.json": debezium_lines()},
    "db30": {"a.json": (CASES / "30-debezium-decimals/night1/db30/a.json").read_text()},
}
SECOND = datetime(1970, 1, 1, 0, 0, 1, 1, UTC)
LATEST: dict[str, list[tuple[Any, ...]]] = {
    "select id, name from silver.dms": [(1, "Ada"), (2, "Bo2"), (4, "Di")],
    "select id, total from silver.fivetran": [(1, 8.5)],
    "select user_id, name_first from silver.airbyte": [(1, "Eve")],
    "select id, city, body from silver.flattened": [(2, "Ulm", "b")],
    "select id, amount, total, at from silver.numbers": [
        (n, Decimal(amount).scaleb(-6), Context(prec=40).scaleb(Decimal(total), -10), SECOND)
        for n, (amount, total) in enumerate(zip(AMOUNTS, LONG_AMOUNTS, strict=True))
    ],
    "select id, price, day from silver.db30": [
        (1, Decimal("123.45"), date(2026, 5, 1)),
        (2, Decimal("-1.00"), date(2026, 5, 1)),
        (3, Decimal("0.05"), date(2026, 5, 1)),
    ],
    "select row_count from gold.dms_total": [(3,)],
}


@pytest.mark.slow
def test_added_change_data_gives_the_latest_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries are used as they are proposed."""
    lakehouse = Lakehouse(spark, tmp_path / "lake")
    conf = lakehouse.copy_of_conf(tmp_path)
    (conf / "pipeline.yaml").write_text("sources: {}\n")
    monkeypatch.setenv("MEDALLION_CONF", str(conf))
    monkeypatch.setenv("MEDALLION_HOME", str(lakehouse.root))
    for name, texts in CHANGE_FILES.items():
        (tmp_path / name).mkdir()
        for file, text in texts.items():
            (tmp_path / name / file).write_text(text)
        assert main.main(["add", name, str(tmp_path / name), "--land"]) == 0
    lakehouse.config = load(None, PROJECT)
    report = lakehouse.nightly()
    assert report.is_good, report
    for sql, rows in LATEST.items():
        assert sorted(engine.query(str(lakehouse.root), sql).rows) == rows, sql

"""Three dirty nights against the factory's own figures, and gold against another engine."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from medallion.factory import DataFactory, LandReport
from medallion.inspection.audit import audit
from medallion.lakehouse import tables
from medallion.lakehouse.columns import TECHNICAL
from tests.support.lakehouse import Lakehouse

ROWS = 35_000  # a source and night: 210,000 lines in all


@pytest.fixture(scope="module")
def nights(
    spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Lakehouse, dict[str, LandReport]]:
    lakehouse = Lakehouse(spark, tmp_path_factory.mktemp("nights") / "lakehouse")
    factory = DataFactory(lakehouse.root / "landing", seed=11, dirty=True)
    landed: dict[str, LandReport] = {}
    for _ in range(3):
        for source, report in factory.land(files=4, rows=ROWS).items():
            landed[source] = landed[source] + report if source in landed else report
        night = lakehouse.nightly()
        assert night.is_good, night
    return lakehouse, landed


@pytest.mark.parametrize("source", ["activity", "event"])
def test_every_row_is_where_the_factory_says(nights: Any, source: str) -> None:
    lakehouse, landed = nights
    expected = landed[source]
    found = audit(lakehouse.config)
    balance = found.balances[source]
    assert expected.lines == 3 * ROWS
    assert expected.duplicates > 0
    assert expected.late > 0
    assert balance.landed_lines == balance.bronze_rows == expected.lines
    assert balance.silver_rows == expected.expected_silver
    assert balance.quarantined_rows == expected.malformed + expected.invalid
    assert balance.duplicate_rows == expected.duplicates
    assert balance.late_rows == expected.late
    assert found.is_balanced


@pytest.mark.parametrize("source", ["activity", "event"])
def test_quarantine_by_rule(nights: Any, source: str) -> None:
    lakehouse, landed = nights
    rules = lakehouse.rows(f"quarantine.{source}", "_failed_rules")
    found = Counter(rule for (broken,) in rules for rule in broken)
    assert found == Counter(landed[source].expected_quarantine)


@pytest.mark.parametrize("source", ["activity", "event"])
def test_unknown_fields_are_rescued_and_then_columns(nights: Any, source: str) -> None:
    lakehouse, landed = nights
    declared = lakehouse.config.sources[source].schema
    table = lakehouse.spark.read.format("delta").load(
        str(lakehouse.config.layout.table(f"bronze.{source}"))
    )
    new = [name for name in table.columns if name not in {*declared, *TECHNICAL}]
    assert new
    rescued = columns = 0
    for row in table.select("_rescued_data", *new).collect():
        columns += any(row[name] is not None for name in new)
        rescued += row[0] is not None and not set(json.loads(row[0])) & set(declared)
    assert rescued
    assert columns
    assert rescued + columns == landed[source].unknown_fields


def strict(file: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file by Python's own parser."""
    objects = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            found = json.loads(line, parse_constant=lambda _: 1 / 0)
        except (ValueError, ZeroDivisionError):
            continue
        if isinstance(found, dict):
            objects.append(found)
    return objects


def is_recording(row: dict[str, Any]) -> bool:
    """Whether the values are of their types, and none of those that have to be there is missing."""
    numbers = [row.get(axis) for axis in "xyz"]
    return (
        isinstance(row.get("Recorded_At"), str)
        and isinstance(row.get("Device"), str)
        and bool(row["Device"].strip())
        and type(row.get("Index")) is int
        and all(type(number) in (int, float) for number in numbers)
    )


def test_gold_equals_a_recount_by_another_engine(nights: Any, tmp_path: Path) -> None:
    """From the landed files: Python reads the lines, DuckDB dates, deduplicates and counts them."""
    lakehouse, _ = nights
    listed = tmp_path / "recordings.jsonl"
    with listed.open("w") as out:
        for file in sorted((lakehouse.root / "archive/activity").glob("*.json")):
            for row in filter(is_recording, strict(file)):
                out.write(json.dumps([row["Recorded_At"], row["Device"], row["Index"]]) + "\n")
    duck = duckdb.connect()
    duck.execute("set timezone = 'UTC'")
    duck.execute(
        f"""create table silver as
        select distinct
            try_cast(json ->> 0 as timestamptz) as moment, json ->> 1 as device, json ->> 2
        from read_json_objects('{listed}', format = 'newline_delimited')"""
    )
    duck.execute("delete from silver where moment is null or moment > '2090-01-01'")
    counted = duck.execute(
        """select strftime(time_bucket(interval '10 minutes', moment), '%Y-%m-%d %H:%M:%S'),
                  device, count(*)
        from silver group by all"""
    ).fetchall()
    gold = lakehouse.rows("gold.device_counts", "window_start", "device", "total_recordings")
    assert gold == sorted(counted, key=repr)
    totals = duck.execute("select device, count(*) from silver group by all").fetchall()
    assert lakehouse.rows("gold.device_totals") == sorted(totals, key=repr)


def test_a_night_without_files_changes_no_table(nights: Any) -> None:
    lakehouse, _ = nights
    names = [
        f"{layer.parent.name}.{layer.name}"
        for layer in sorted(lakehouse.root.glob("*/*"))
        if (layer / "_delta_log").is_dir()
    ]
    before = {name: tables.version(lakehouse.config.layout.table(name)) for name in names}
    report = lakehouse.nightly()
    assert report.is_good
    assert len(before) >= 11
    assert {n: tables.version(lakehouse.config.layout.table(n)) for n in names} == before

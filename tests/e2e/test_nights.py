"""Three dirty nights against the factory's own figures, and gold against another engine."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from medallion.factory import DataFactory, Landed
from medallion.inspect.audit import run_audit
from medallion.storage import delta_tables
from medallion.storage.table_specs import FILE_ORIGIN_COLUMNS, TECHNICAL_COLUMNS
from tests.support.lakehouse import Lakehouse

# A source and night: 210,000 lines in all where it is long.
ROWS = [1_000, pytest.param(35_000, marks=pytest.mark.slow)]


@dataclass(frozen=True)
class Nights:
    """What three nights made of what landed."""

    lakehouse: Lakehouse
    landed: dict[str, Landed]
    lines: int
    """Of each source."""


@pytest.fixture(scope="module", params=ROWS)
def nights(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Nights:
    lakehouse = Lakehouse(spark, tmp_path_factory.mktemp("nights") / "lakehouse")
    factory = DataFactory(lakehouse.root / "landing", seed=11, dirty=True)
    landed: dict[str, Landed] = {}
    for number in range(3):
        for source, report in factory.land(files=4, rows=request.param).items():
            landed[source] = landed[source] + report if source in landed else report
        if number == 1:
            lakehouse.fill("bronze", "silver")  # gold takes two nights in one batch
        else:
            night = lakehouse.nightly() if number == 2 else lakehouse.run_without_gates()
            assert night.is_good, night
    return Nights(lakehouse, landed, 3 * request.param)


@pytest.mark.parametrize("source", ["activity", "event"])
def test_every_row_is_where_the_factory_says(nights: Nights, source: str) -> None:
    lakehouse, expected = nights.lakehouse, nights.landed[source]
    found = run_audit(lakehouse.config)
    balance = found.balances[source]
    assert expected.lines == nights.lines
    assert expected.duplicates > 0
    assert expected.late > 0
    assert balance.landed_lines == balance.bronze_rows == expected.lines
    assert balance.silver_rows == expected.expected_silver
    assert balance.quarantined_rows == expected.malformed + expected.invalid
    assert balance.duplicate_rows == expected.duplicates
    assert balance.late_rows == expected.late
    assert found.is_balanced


@pytest.mark.parametrize("source", ["activity", "event"])
def test_quarantine_by_rule(nights: Nights, source: str) -> None:
    lakehouse, landed = nights.lakehouse, nights.landed
    rules = lakehouse.rows(f"quarantine.{source}", "_failed_rules")
    found = Counter(rule for (broken,) in rules for rule in broken)
    assert found == Counter(landed[source].expected_quarantine)


@pytest.mark.parametrize("source", ["activity", "event"])
def test_unknown_fields_are_columns_from_their_first_batch(nights: Nights, source: str) -> None:
    lakehouse, landed = nights.lakehouse, nights.landed
    declared = lakehouse.config.sources[source].schema
    assert declared
    table = lakehouse.spark.read.format("delta").load(
        str(lakehouse.config.layout.table(f"bronze.{source}"))
    )
    new = [
        name
        for name in table.columns
        if name not in {*declared, *TECHNICAL_COLUMNS, *FILE_ORIGIN_COLUMNS}
    ]
    assert new
    rows = table.select("_rescued_data", *new).collect()
    columns = sum(any(row[name] is not None for name in new) for row in rows)
    assert columns == landed[source].unknown_fields
    assert not any(set(json.loads(row[0])) - set(declared) for row in rows if row[0])


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


def is_event(row: dict[str, Any]) -> bool:
    """Whether there is a time, as text or as seconds, and what happened then."""
    has_time = isinstance(row.get("ts"), str) or type(row.get("time")) is int
    return has_time and isinstance(row.get("action"), str)


def landed_rows(
    nights: Nights, source: str, to: Path, columns: tuple[str, ...]
) -> duckdb.DuckDBPyConnection:
    """DuckDB with the good rows of the landed files as its table `landed`, all columns as text."""
    is_good = {"activity": is_recording, "event": is_event}[source]
    listed = to / f"{source}.jsonl"
    with listed.open("w") as out:
        for file in sorted((nights.lakehouse.root / "archive" / source).glob("*.json")):
            for row in filter(is_good, strict(file)):
                out.write(json.dumps({name: row.get(name) for name in columns}) + "\n")
    duck = duckdb.connect()
    duck.execute("set timezone = 'UTC'")
    kinds = ", ".join(f"{name}: 'varchar'" for name in columns)
    duck.execute(
        f"create table landed as from read_json('{listed}', format = 'nd', columns = {{{kinds}}})"
    )
    return duck


def has_counts(nights: Nights, table: str, duck: duckdb.DuckDBPyConnection, sql: str) -> None:
    counted = duck.execute(sql).fetchall()
    assert counted
    assert nights.lakehouse.rows(f"gold.{table}") == sorted(counted, key=repr)


WINDOW = """strftime(start, '%Y-%m-%d %H:%M:%S'),
    strftime(start + interval '10 minutes', '%Y-%m-%d %H:%M:%S')"""


def test_gold_of_recordings_equals_a_recount_by_another_engine(
    nights: Nights, tmp_path: Path
) -> None:
    """From the landed files: Python reads the lines, DuckDB dates, deduplicates and counts them."""
    duck = landed_rows(nights, "activity", tmp_path, ("Recorded_At", "Device", "Index"))
    duck.execute(
        """create table silver as select *, time_bucket(interval '10 minutes', moment) as start
        from (
            select distinct try_cast(Recorded_At as timestamptz) as moment, Device, "Index"
            from landed
        ) where moment < '2090-01-01'"""
    )
    sql = f"select {WINDOW}, Device, count(*) from silver group by start, Device"
    has_counts(nights, "device_counts", duck, sql)
    has_counts(nights, "device_totals", duck, "select Device, count(*) from silver group by all")


def test_gold_of_events_equals_a_recount_by_another_engine(nights: Nights, tmp_path: Path) -> None:
    """As for recordings; events without a device are never duplicates."""
    duck = landed_rows(nights, "event", tmp_path, ("id", "action", "ts", "time"))
    duck.execute(
        """create table good as select * from (
            select
                coalesce(try_cast(ts as timestamptz), to_timestamp(try_cast("time" as bigint)))
                    as moment,
                case when trim(id) <> '' then id end as device,
                lower(action) as action,
            from landed
        ) where moment < '2090-01-01'"""
    )
    duck.execute(
        """create table silver as
        select *, time_bucket(interval '5 minutes', moment) as five from (
            select distinct * from good where device is not null
            union all select * from good where device is null
        )"""
    )
    duck.execute("alter table silver add column start timestamptz")
    duck.execute("update silver set start = time_bucket(interval '10 minutes', moment)")
    counts = f"select {WINDOW}, action, count(*)"
    by = "group by start, action"
    has_counts(nights, "action_counts", duck, f"{counts} from silver {by}")
    duck.execute(
        """create table twice as
        select five as start, action from silver
        union all select five - interval '5 minutes', action from silver"""
    )
    has_counts(nights, "user_activity", duck, f"{counts} from twice {by}")


def test_a_night_without_files_changes_no_table(nights: Nights) -> None:
    lakehouse = nights.lakehouse
    names = [
        f"{layer.parent.name}.{layer.name}"
        for layer in sorted(lakehouse.root.glob("*/*"))
        if (layer / "_delta_log").is_dir()
    ]
    before = {
        name: delta_tables.table_version(lakehouse.config.layout.table(name)) for name in names
    }
    report = lakehouse.nightly()
    assert report.is_good
    assert len(before) >= 11
    assert {
        n: delta_tables.table_version(lakehouse.config.layout.table(n)) for n in names
    } == before

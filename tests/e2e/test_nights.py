"""Runs over dirty data, compared with the factory's own figures and with another engine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from medallion.factory import DataFactory, Landed
from medallion.inspect.audit import run_audit
from medallion.runtime.outcome import Outcome
from medallion.storage import delta_tables
from medallion.storage.table_specs import FILE_ORIGIN_COLUMNS, TECHNICAL_COLUMNS
from tests.support.lakehouse import Lakehouse

pytestmark = pytest.mark.usefixtures("production_streams")

# Runs, and lines per source and run; the long form has 210,000 lines in all.
SIZES = [(2, 1_000), pytest.param((3, 35_000), marks=pytest.mark.slow)]


@dataclass(frozen=True)
class Runs:
    """The lakehouse after its runs, and the landed figures."""

    lakehouse: Lakehouse
    landed: dict[str, Landed]
    lines: int
    """Of each source."""
    nightly: Callable[[], Outcome]
    """A nightly run: in the short form without gates, which have tests of their own."""


@pytest.fixture(scope="module", params=SIZES, ids=["short", "long"])
def runs(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Runs:
    """Run bronze and silver each time; gold at the end, in the long form also at the start."""
    lakehouse = Lakehouse(spark, tmp_path_factory.mktemp("nights") / "lakehouse")
    factory = DataFactory(lakehouse.root / "landing", seed=11, dirty=True)
    landed: dict[str, Landed] = {}
    count, rows = request.param
    nightly = lakehouse.run_without_gates if rows == 1_000 else lakehouse.nightly
    for number in range(count):
        for source, report in factory.land(files=4, rows=rows).items():
            landed[source] = landed[source] + report if source in landed else report
        if number == count - 1:
            outcome = nightly()
            assert outcome.is_good, outcome
        elif number == count - 2:
            lakehouse.fill("bronze", "silver")
        else:
            lakehouse.fill()
    return Runs(lakehouse, landed, count * rows, nightly)


@pytest.mark.parametrize("source", ["activity", "event"])
def test_balance_equals_the_factory_figures(runs: Runs, source: str) -> None:
    lakehouse, expected = runs.lakehouse, runs.landed[source]
    audit = run_audit(lakehouse.config)
    balance = audit.balances[source]
    assert expected.lines == runs.lines
    assert expected.duplicates > 0
    assert expected.late > 0
    assert balance.landed_lines == balance.bronze_rows == expected.lines
    assert balance.silver_rows == expected.expected_silver
    assert balance.quarantined_rows == expected.malformed + expected.invalid
    assert balance.duplicate_rows == expected.duplicates
    assert balance.late_rows == expected.late
    assert audit.is_balanced


@pytest.mark.parametrize("source", ["activity", "event"])
def test_quarantine_by_rule(runs: Runs, source: str) -> None:
    lakehouse, landed = runs.lakehouse, runs.landed
    rules = lakehouse.rows(f"quarantine.{source}", "_failed_rules")
    actual = Counter(rule for (broken,) in rules for rule in broken)
    assert actual == Counter(landed[source].expected_quarantine)


@pytest.mark.parametrize("source", ["activity", "event"])
def test_unknown_fields_become_columns(runs: Runs, source: str) -> None:
    lakehouse, landed = runs.lakehouse, runs.landed
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


def json_objects(file: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of a file, read by Python's own parser."""
    objects = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            value = json.loads(line, parse_constant=lambda _: 1 / 0)
        except (ValueError, ZeroDivisionError):
            continue
        if isinstance(value, dict):
            objects.append(value)
    return objects


def is_recording(row: dict[str, Any]) -> bool:
    """Return whether the values have the correct types, and no required one is missing."""
    numbers = [row.get(axis) for axis in "xyz"]
    return (
        isinstance(row.get("Recorded_At"), str)
        and isinstance(row.get("Device"), str)
        and bool(row["Device"].strip())
        and type(row.get("Index")) is int
        and all(type(number) in (int, float) for number in numbers)
    )


def is_event(row: dict[str, Any]) -> bool:
    """Return whether there is a time (as a string or seconds) and an action."""
    has_time = isinstance(row.get("ts"), str) or type(row.get("time")) is int
    return has_time and isinstance(row.get("action"), str)


def landed_rows(
    runs: Runs, source: str, to: Path, columns: tuple[str, ...]
) -> duckdb.DuckDBPyConnection:
    """Return DuckDB with the valid rows of the landed files in the table `landed`, as strings."""
    is_good = {"activity": is_recording, "event": is_event}[source]
    jsonl = to / f"{source}.jsonl"
    with jsonl.open("w") as out:
        for file in sorted((runs.lakehouse.root / "archive" / source).glob("*.json")):
            for row in filter(is_good, json_objects(file)):
                out.write(json.dumps({name: row.get(name) for name in columns}) + "\n")
    duck = duckdb.connect()
    duck.execute("set timezone = 'UTC'")
    types = ", ".join(f"{name}: 'varchar'" for name in columns)
    duck.execute(
        f"create table landed as from read_json('{jsonl}', format = 'nd', columns = {{{types}}})"
    )
    return duck


def check_counts(runs: Runs, table: str, duck: duckdb.DuckDBPyConnection, sql: str) -> None:
    expected = duck.execute(sql).fetchall()
    assert expected
    assert runs.lakehouse.rows(f"gold.{table}") == sorted(expected, key=repr)


WINDOW = """strftime(start, '%Y-%m-%d %H:%M:%S'),
    strftime(start + interval '10 minutes', '%Y-%m-%d %H:%M:%S')"""


def test_gold_of_recordings_equals_duckdb_counts(runs: Runs, tmp_path: Path) -> None:
    """Python reads the landed lines; DuckDB dates, deduplicates and counts them."""
    duck = landed_rows(runs, "activity", tmp_path, ("Recorded_At", "Device", "Index"))
    duck.execute(
        """create table silver as select *, time_bucket(interval '10 minutes', moment) as start
        from (
            select distinct try_cast(Recorded_At as timestamptz) as moment, Device, "Index"
            from landed
        ) where moment < '2090-01-01'"""
    )
    sql = f"select {WINDOW}, Device, count(*) from silver group by start, Device"
    check_counts(runs, "device_counts", duck, sql)
    check_counts(runs, "device_totals", duck, "select Device, count(*) from silver group by all")


def test_gold_of_events_equals_duckdb_counts(runs: Runs, tmp_path: Path) -> None:
    """As for recordings; events without a device are never duplicates."""
    duck = landed_rows(runs, "event", tmp_path, ("id", "action", "ts", "time"))
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
    group_by = "group by start, action"
    check_counts(runs, "action_counts", duck, f"{counts} from silver {group_by}")
    duck.execute(
        """create table twice as
        select five as start, action from silver
        union all select five - interval '5 minutes', action from silver"""
    )
    check_counts(runs, "user_activity", duck, f"{counts} from twice {group_by}")


def test_run_without_files_changes_no_table(runs: Runs) -> None:
    lakehouse = runs.lakehouse
    names = [
        f"{layer.parent.name}.{layer.name}"
        for layer in sorted(lakehouse.root.glob("*/*"))
        if (layer / "_delta_log").is_dir()
    ]
    before = {
        name: delta_tables.table_version(lakehouse.config.layout.table(name)) for name in names
    }
    report = runs.nightly()
    assert report.is_good
    assert len(before) >= 11
    assert {
        n: delta_tables.table_version(lakehouse.config.layout.table(n)) for n in names
    } == before

"""The record of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from medallion.state import pending_work
from medallion.state.runs import (
    RUNS,
    GateRecord,
    QueryTotals,
    RescuedField,
    RescuedSummary,
    RunRecords,
)
from medallion.storage import delta_tables, locks, records
from medallion.storage.layout import Layout
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import TableSpec
from tests.support.home import Home
from tests.support.lakehouse import rows_of

NOON = 1_700_000_000_000_000


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def run(query: str, started_at: int = NOON, **more: Any) -> dict[str, Any]:
    base = {"kind": "query", "query": query, "state": "done", "seconds": 1.0, "run_id": "r"}
    return {**base, "started_at": started_at, **more}


def gate(table: str, started_at: int, state: str, version: int) -> dict[str, Any]:
    row = run(table, started_at, kind="gate", state=state, table_version=version)
    return {**row, "failed_expectations": "x_small" if state == "held" else None}


def numbers(layout: Layout) -> list[int]:
    return [
        at
        for (at,) in delta_tables.select_rows(layout.table("ops.runs"), "number", "order by number")
    ]


def test_runs_compact(layout: Layout) -> None:
    """Each query of the record opens all files, so a year of runs must not slow down a run."""
    with locks.lock_layers(layout, ["bronze"], "run"):
        for number in range(30):
            RunRecords(layout).write([run("bronze.a", rows_in=number)])
    assert len(DeltaTable(layout.table("ops.runs")).file_uris()) <= 25
    assert RunRecords(layout).run_state.sums["bronze.a"].rows_in == 29 * 30 // 2


def test_runs_write_without_compaction(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example on a full disk: an error would make the caller write the row again."""

    def fail_compaction(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deltalake.table.TableOptimizer.compact", fail_compaction)
    with locks.lock_layers(layout, ["bronze"], "run"):
        for number in range(26):
            RunRecords(layout).write([run("bronze.a", rows_in=number)])
    monkeypatch.undo()
    assert len(DeltaTable(layout.table("ops.runs")).file_uris()) == 26
    with locks.lock_layers(layout, ["bronze"], "run"):
        RunRecords(layout).write([run("bronze.a", rows_in=26)])
    assert len(DeltaTable(layout.table("ops.runs")).file_uris()) == 1
    assert RunRecords(layout).run_state.sums["bronze.a"].rows_in == 26 * 27 // 2


def test_runs_write_nothing(layout: Layout) -> None:
    RunRecords(layout).write([])
    assert not layout.table("ops.runs").local.exists()
    assert RunRecords(layout).run_state.sums == {}
    assert RunRecords(layout).last_batch("bronze.a") == -1


def test_runs_after_an_interrupted_creation(layout: Layout) -> None:
    """The directories exist, with a commit under its temporary name."""
    log = layout.table("ops.runs") / "_delta_log"
    log.local.mkdir(parents=True)
    (log / "00000000000000000000.json#1").local.touch()
    assert RunRecords(layout).run_state.sums == {}
    RunRecords(layout).write([run("bronze.a", rows_in=7)])
    assert RunRecords(layout).run_state.sums["bronze.a"].rows_in == 7


def test_run_state(layout: Layout) -> None:
    record = RunRecords(layout)
    record.write([run("silver.a", rows_in=5, duplicate_rows=2, last_batch=0, table_version=3)])
    record.write([run("silver.a", rows_in=4, late_rows=1, last_batch=2, quarantine_version=6)])
    record.write([run("silver.a", rows_in=0, state="failed", error="no disk")])
    assert record.run_state.sums == {"silver.a": QueryTotals(9, 2, 1, 2, 3, 6)}
    assert record.last_batch("silver.a") == 2
    assert record.run_state.last["silver.a"].error == "no disk"
    assert record.run_state.last_busy["silver.a"].rows_in == 4
    # Tables that were moved away restart at version 0; a failed run changes nothing.
    record.write([run("silver.a", table_version=1, quarantine_version=0)])
    record.write([run("silver.a", state="failed")])
    assert record.run_state.sums == {"silver.a": QueryTotals(9, 2, 1, 2, 1, 0)}


def test_run_state_is_read_once(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    record = RunRecords(layout)
    record.write([run("bronze.a", rows_in=1)])
    tables_read: list[Path] = []
    select = delta_tables.select_rows

    def select_and_count(table: Path, *expressions: str) -> list[tuple[Any, ...]]:
        tables_read.append(table)
        return select(StoragePath(table), *expressions)

    monkeypatch.setattr(delta_tables, "select_rows", select_and_count)
    for _ in range(5):
        assert record.run_state.sums["bronze.a"].rows_in == 1
        assert record.last_batch("bronze.a") == -1
    assert len(tables_read) == 1
    record.write([run("bronze.a", rows_in=2)])
    assert record.run_state.sums["bronze.a"].rows_in == 3
    RunRecords(layout).write([run("bronze.a", rows_in=4)])  # another process
    assert RunRecords(layout).run_state.sums["bronze.a"].rows_in == 7
    record.write([run("bronze.a"), run("bronze.a")])  # without reading in between
    assert numbers(layout) == [1, 2, 3, 4, 5]


def test_runs_of_an_earlier_release(layout: Layout) -> None:
    table, new = layout.table("ops.runs"), ("rescued_rows", "rescued_fields")
    old = {name: dtype for name, dtype in RUNS.items() if name not in new}
    records.append_records(table, TableSpec(old), [{**run("bronze.a", rows_in=2), "number": 1}])
    record = RunRecords(layout, run_id="r2")
    assert record.run_state.last["bronze.a"].rescued_rows is None
    assert record.rescued() == {}
    summary = RescuedSummary(3, {"amount": RescuedField(2, "12.5")})
    record.write([{**run("bronze.a", rows_in=5), **summary.record(), "run_id": "r2"}])
    assert record.run_state.last["bronze.a"].rescued_rows == 3
    assert record.run_state.sums["bronze.a"].rows_in == 7
    assert record.rescued() == {"bronze.a": summary}
    assert RunRecords(layout, run_id="r").rescued() == {}
    for _ in range(2):  # now the table has the columns
        record.write([run("bronze.a", rescued_rows=0)])
    assert delta_tables.select_rows(table, "rescued_rows", "order by number") == [
        (None,),
        (3,),
        (0,),
        (0,),
    ]


def test_run_state_ignores_clocks(layout: Layout) -> None:
    """The row written last counts, even if its time is earlier."""
    record = RunRecords(layout)
    record.write([gate("silver.a", NOON, "held", 4), run("gold.g", NOON, rows_in=1)])
    earlier = NOON - 3_600_000_000
    record.write([gate("silver.a", earlier, "passed", 5), run("gold.g", earlier, rows_in=2)])
    assert record.run_state.gates == {"silver.a": GateRecord("passed", 5, "")}
    assert record.run_state.last["gold.g"].rows_in == 2
    assert record.run_state.last_busy["gold.g"].rows_in == 2


def test_run_state_restarts_with_a_refresh(layout: Layout) -> None:
    record = RunRecords(layout)
    record.write([run("silver.a", NOON, rows_in=100, last_batch=7)])
    refreshed = run("silver.a", NOON - 5, state="refreshed", rows_in=3, last_batch=0, run_id="x")
    record.write([{**refreshed, "table_version": 9}])
    record.write([run("silver.a", NOON - 4, rows_in=4, last_batch=1)])
    assert record.run_state.sums["silver.a"].rows_in == 7
    assert record.last_batch("silver.a") == 1
    assert record.run_state.refreshed == {"silver.a": 9}


def test_write_once_with_the_versions_of_its_tables(layout: Layout) -> None:
    """A stream may rebuild a table twice, in one run."""
    record, tables = (
        RunRecords(layout),
        [layout.table(name) for name in ("silver.a", "quarantine.a")],
    )
    for table in tables:
        records.append_records(table, TableSpec({"n": "long"}), [{"n": 1}])
    records.append_records(tables[1], TableSpec({"n": "long"}), [{"n": 2}])
    first = run("silver.a", NOON, state="refreshed", rows_in=3, run_id="x")
    second = run("silver.a", NOON + 1, state="refreshed", rows_in=4, run_id="x")
    for row in (first, first, second, first):
        record.write_once(row, *tables)
    versions = [delta_tables.table_version(table) for table in tables]
    rows = rows_of(layout.table("ops.runs").local, "rows_in", "table_version", "quarantine_version")
    assert sorted(rows) == [(3, *versions), (4, *versions)]


def test_run_state_gate_of_a_refreshed_table(
    layout: Layout,
) -> None:
    """A table that was moved away restarts at version 0."""
    record = RunRecords(layout)
    record.write([gate("silver.a", NOON, "passed", 40), gate("gold.g", NOON, "passed", 40)])
    assert record.run_state.passed == {"silver.a": 40, "gold.g": 40}
    record.write([{**run("silver.a", NOON, state="refreshed"), "table_version": 1}])
    assert record.run_state.passed == {"gold.g": 40}
    record.write([gate("gold.g", NOON, "passed", 2), gate("silver.a", NOON, "held", 3)])
    assert record.run_state.passed == {"gold.g": 2}
    assert record.run_state.refreshed == {"silver.a": 1}


def test_validated_version_of_a_recreated_table(layout: Layout) -> None:
    table = layout.table("gold.g")
    RunRecords(layout).write([gate("gold.g", NOON, "passed", 2)])
    run_state = RunRecords(layout).run_state
    assert pending_work.validated_version(run_state, "gold.g", table) == 2  # no table yet
    for version, expected in ((1, -1), (2, 2), (3, 2)):
        records.append_records(table, TableSpec({"n": "long"}), [{"n": 1}])
        assert delta_tables.table_version(table) == version
        assert pending_work.validated_version(run_state, "gold.g", table) == expected


def test_forget_values_of_some_queries(home: Home) -> None:
    """Errors and examples are removed; metrics and other queries stay."""
    runs = RunRecords(home.layout, run_id="r", command="test")
    row = {"kind": "query", "state": "failed", "error": "Ada", "rescued_fields": "{}", "rows_in": 3}
    runs.write([row | {"query": "bronze.a"}, row | {"query": "bronze.b"}])
    runs.forget_values(["bronze.a", "silver.a"])
    last = runs.run_state.last
    assert (last["bronze.a"].error, last["bronze.a"].rescued_fields) == (None, None)
    assert last["bronze.a"].rows_in == 3
    assert (last["bronze.b"].error, last["bronze.b"].rescued_fields) == ("Ada", "{}")

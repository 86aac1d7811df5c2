"""Record tables: concurrent writers neither lose nor duplicate rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from medallion.storage import delta_tables, locks, records
from medallion.storage.layout import Layout
from medallion.storage.table_specs import TableSpec

SPEC = TableSpec({"number": "long", "writer": "string", "n": "long"})
COMMITS = 40
WRITE = f"""
import sys
from pathlib import Path
from medallion.storage import locks, records
from medallion.storage.layout import Layout
from medallion.storage.table_specs import TableSpec
root, writer, layer = Path(sys.argv[1]), *sys.argv[2:]
layout, spec = Layout(root), TableSpec({SPEC.columns})
with locks.lock_layers(layout, [layer], "run"):
    for n in range({COMMITS}):
        row = {{"writer": writer, "n": n}}
        records.append_records(layout.table("ops.runs"), spec, [row], numbered="number")
        both = [row, {{"writer": "shared", "n": n % 5}}]
        records.upsert_records(layout.table("ops.files"), spec, both, ("writer", "n"))
"""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def append(layout: Layout, n: int, table: str = "ops.runs") -> None:
    records.append_records(layout.table(table), SPEC, [{"writer": "a", "n": n}], numbered="number")


def rows(layout: Layout, table: str = "ops.runs") -> list[tuple[object, ...]]:
    return delta_tables.select_rows(layout.table(table), "number, writer, n", "order by number, n")


def test_two_processes_append_update_and_compact(layout: Layout) -> None:
    writers = [("one", "bronze"), ("two", "gold")]
    commands = [
        [sys.executable, "-c", WRITE, str(layout.root), *arguments] for arguments in writers
    ]
    processes = [subprocess.Popen(command) for command in commands]
    assert [process.wait() for process in processes] == [0, 0]
    numbers = [number for number, _, _ in rows(layout)]
    assert numbers == list(range(1, 2 * COMMITS + 1))
    expected = {(name, n) for name, _ in writers for n in range(COMMITS)}
    assert {(writer, n) for _, writer, n in rows(layout)} == expected
    updated = sorted((str(writer), n) for _, writer, n in rows(layout, "ops.files"))
    assert updated == sorted([*expected, *(("shared", n) for n in range(5))])
    history = DeltaTable(layout.table("ops.runs")).history()
    assert any(commit["operation"] == "OPTIMIZE" for commit in history)


def test_only_the_lock_holder_of_bronze_compacts(layout: Layout) -> None:
    with locks.lock_layers(layout, ["gold"], "run"):
        for n in range(30):
            append(layout, n)
    assert len(delta_tables.data_files(layout.table("ops.runs"))) == 30
    with locks.lock_layers(layout, ["bronze"], "run"):
        append(layout, 30)
    assert len(delta_tables.data_files(layout.table("ops.runs"))) == 1
    assert [n for _, _, n in rows(layout)] == list(range(31))


def test_commit_that_keeps_failing_is_raised(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def conflict(*_: object, **__: object) -> None:
        raise CommitFailedError("another process committed first")

    append(layout, 1)
    monkeypatch.setattr(records, "_LONGEST_PAUSE", 0)
    monkeypatch.setattr("deltalake.write_deltalake", conflict)
    with pytest.raises(CommitFailedError):
        append(layout, 2)
    monkeypatch.undo()
    assert rows(layout) == [(1, "a", 1)]


def test_delta_rs_duplicates_rows_by_stale_compactions(layout: Layout) -> None:
    """This is why bronze has a lock: if the test fails, delta-rs is fixed and the lock can go."""
    for n in range(3):
        append(layout, n)
    table = layout.table("ops.runs")
    stale = DeltaTable(table)
    DeltaTable(table).optimize.compact()
    stale.optimize.compact()
    assert delta_tables.row_count(table) == 6


def test_table_of_an_earlier_release_gets_new_columns(layout: Layout) -> None:
    table = layout.table("ops.files")
    records.append_records(table, TableSpec({"n": "long"}), [{"n": 1}])
    records.upsert_records(table, SPEC, [{"writer": "a", "n": 1}], ("n",))
    assert rows(layout, "ops.files") == [(None, "a", 1)]

"""The ledger on disk: entries are added, replaced, compacted and read."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from medallion.state import ledger
from medallion.state.ledger import Entry, Ledger, Reason, ReasonCode, State
from medallion.storage import delta_log, delta_tables, records, table_specs
from medallion.storage.layout import Layout
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import TableSpec
from tests.support.home import tree

NEW_COLUMNS = ("reason_code", "reported_at", "dismissed_at")
NOW = 1_700_000_000_123_456


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "lakehouse")


def entry(path: str = "landing/a/1.json", version: int = 1, **more: object) -> Entry:
    base = Entry("a", path, version, 10, NOW, NOW + version)
    return replace(base, **more)  # type: ignore[arg-type]


FULL = entry(
    "landing/a/it's “one” 100%\n.json",
    state=State.ARCHIVED,
    why="because",
    batch=3,
    committed_at=NOW + 5,
    rows=7,
    corrupt_rows=2,
    rescued_rows=1,
    moved_to="archive/a/x.json",
    reason_code="deleted",
    reported_at=NOW + 6,
    dismissed_at=NOW + 7,
)


def test_ledger_before_the_first_file(layout: Layout) -> None:
    assert ledger.read_entries(layout) == []
    assert ledger.read_entries(layout, "a", State.PENDING) == []
    assert Ledger(layout, "a").newest("landing/a/1.json") is None
    Ledger(layout, "a").write([])
    assert not layout.root.local.exists()


@pytest.mark.parametrize("written", [entry(), FULL], ids=["few fields", "all fields"])
def test_write_and_read(layout: Layout, written: Entry) -> None:
    Ledger(layout, "a").write([written])
    assert ledger.read_entries(layout) == [written]
    assert Ledger(layout, "a").newest(written.path) == written


def test_write_replaces_a_version(layout: Layout) -> None:
    ledger_a = Ledger(layout, "a")
    ledger_a.write([entry(), entry("landing/a/2.json")])
    done = entry(state=State.INGESTED, rows=4)
    ledger_a.write([done])
    ledger_a.write([done])  # repeated after an interrupted run
    assert set(ledger.read_entries(layout)) == {done, entry("landing/a/2.json")}
    assert ledger_a.newest(done.path) == done


def test_write_two_rows_of_one_version(layout: Layout) -> None:
    ledger_a = Ledger(layout, "a")
    ledger_a.write([entry(rows=1), entry(rows=2)])
    assert ledger.read_entries(layout) == [entry(rows=2)]
    assert ledger_a.newest(entry().path) == entry(rows=2)


def test_ledger_of_two_sources(layout: Layout) -> None:
    shared = "/elsewhere/1.json"
    first, second = entry(shared), replace(entry(shared), source="b", size=99)
    Ledger(layout, "a").write([first])
    Ledger(layout, "b").write([second])
    assert ledger.read_entries(layout, "a") == [first]
    assert ledger.read_entries(layout, "b") == [second]
    assert Ledger(layout, "a").newest_entries() == [first]


def test_ledger_versions_of_one_path(layout: Layout) -> None:
    ledger_a = Ledger(layout, "a")
    path = entry().path
    states = {
        1: State.REPLACED,
        2: State.INGESTED,
        3: State.REJECTED,
        4: State.VANISHED,
        5: State.PENDING,
    }
    rows = {v: entry(version=v, state=s, batch=v // 2) for v, s in states.items()}
    ledger_a.write(rows.values())
    for reader in (ledger_a, Ledger(layout, "a")):
        assert reader.newest(path) == rows[5]
        assert reader.version(path, 3) == rows[3]
        assert reader.version(path, 6) is None
        assert reader.newest_entries() == [rows[5]]
        assert reader.previous_ingested(rows[5]) == rows[2]
        assert reader.previous_ingested(rows[2]) == rows[1]
        assert reader.previous_ingested(rows[1]) is None


@pytest.mark.parametrize("state", list(State))
def test_read_entries_of_one_state(layout: Layout, state: str) -> None:
    rows = [entry(f"landing/a/{each}.json", state=each) for each in list(State)]
    Ledger(layout, "a").write(rows)
    (found,) = ledger.read_entries(layout, "a", state)
    assert found.path == f"landing/a/{state}.json"
    assert ledger.read_entries(layout, "b", state) == []
    assert ledger.read_entries(layout, state=state) == [found]


def test_read_entries_order(layout: Layout) -> None:
    rows = [entry(f"landing/a/{n}.json", first_seen_at=NOW - n) for n in range(5)]
    Ledger(layout, "a").write(rows)
    assert ledger.read_entries(layout) == rows[::-1]


def test_newest_versions_ignores_clocks(layout: Layout) -> None:
    ledger_a = Ledger(layout, "a")
    ledger_a.write([entry(first_seen_at=9), entry(version=2, first_seen_at=3), entry("b")])
    entries = ledger.newest_versions(ledger.read_entries(layout, "a"))
    assert {path: row.version for path, row in entries.items()} == {
        "landing/a/1.json": 2,
        "b": 1,
    }


def test_write_compacts(layout: Layout) -> None:
    ledger_a = Ledger(layout, "a")
    rows = [entry(f"landing/a/{number}.json") for number in range(30)]
    for row in rows:
        ledger_a.write([row])
    ledger_a.write([replace(row, state=State.INGESTED) for row in rows[::2]])
    states = {row.path: row.state for row in ledger.read_entries(layout)}
    assert len(states) == 30
    assert sum(state == State.INGESTED for state in states.values()) == 15
    assert len(DeltaTable(layout.table("ops.files")).file_uris()) <= 25


def test_write_five_thousand_files(layout: Layout) -> None:
    ledger_a = Ledger(layout, "a")
    rows = [entry(f"landing/a/{number}.json") for number in range(5000)]
    ledger_a.write(rows)
    ledger_a.write([replace(row, state=State.INGESTED, rows=1) for row in rows])
    assert len(Ledger(layout, "a").newest_entries()) == 5000
    assert DeltaTable(layout.table("ops.files")).version() == 2  # not one commit per file
    assert len(ledger.read_entries(layout, "a", State.INGESTED)) == 5000


def test_write_from_several_threads(layout: Layout) -> None:
    def write(source: str) -> None:
        source_ledger = Ledger(layout, source)
        for number in range(5):
            source_ledger.write([replace(entry(f"landing/{number}"), source=source)])

    threads = [threading.Thread(target=write, args=(f"s{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.read_entries(layout)) == 20


def test_read_writes_nothing(layout: Layout) -> None:
    Ledger(layout, "a").write([entry()])
    before = tree(layout.root.local)
    ledger.read_entries(layout, "a", State.PENDING)
    Ledger(layout, "a")
    assert tree(layout.root.local) == before


def commit(table: Path, application: str, transaction: int) -> None:
    properties = CommitProperties(app_transactions=[Transaction(application, transaction)])
    write_deltalake(table, one_row(), mode="append", commit_properties=properties)


def one_row() -> duckdb.DuckDBPyRelation:
    return duckdb.connect().sql("select 1::bigint as rows")


def test_committed_version(tmp_path: Path) -> None:
    table = StoragePath(tmp_path / "table")
    assert delta_log.committed_version(table, "q", 0) is None
    schema = delta_tables.schema_json({"rows": "long"})
    delta_tables.create_table(table, schema, table_specs.TableSpec().properties())  # version 0
    assert delta_log.committed_version(table, "q", 0) is None
    commit(table.local, "q", 0)  # 1
    commit(table.local, "other", 5)  # 2
    commit(table.local, "q", 1)  # 3
    write_deltalake(table.local, one_row(), mode="append")  # 4
    commit(table.local, "q", 4)  # 5
    versions = [delta_log.committed_version(table, "q", batch) for batch in range(6)]
    assert versions == [1, 3, None, None, 5, None]
    assert delta_log.committed_version(table, "other", 5) == 2
    assert delta_log.committed_version(table, "unknown", 0) is None


def test_committed_version_of_similar_rows(tmp_path: Path) -> None:
    table = StoragePath(tmp_path / "table")
    delta_tables.create_table(
        table,
        delta_tables.schema_json({'"txn"': "long"}),
        table_specs.TableSpec().properties(),
    )
    assert delta_log.committed_version(table, "q", 0) is None
    lines = (table / "_delta_log" / f"{0:020}.json").local.read_text().splitlines()
    assert any("txn" in line for line in lines)
    assert not any("txn" in json.loads(line) for line in lines)


def test_column_types(tmp_path: Path) -> None:
    Ledger(Layout(tmp_path), "a").write([Entry("a", "a.json", 1, 2, 3, 4)])
    fields = delta_tables.open_table(StoragePath(tmp_path / "ops/files")).schema().fields
    types = {field.name: str(field.type.type) for field in fields}
    assert list(types) == list(Entry.__dataclass_fields__)
    string_columns = {"source", "path", "state", "why", "moved_to", "reason_code", "tag"}
    times = {"modified_at", "first_seen_at", "committed_at", "reported_at", "dismissed_at"}
    assert {name for name, dtype in types.items() if dtype == "string"} == string_columns
    assert {name for name, dtype in types.items() if dtype == "timestamp"} == times
    assert {types[name] for name in types.keys() - string_columns - times} == {"long"}


def test_ledger_of_an_earlier_release(layout: Layout) -> None:
    """Rows without newer columns can be read and written."""
    row = {k: v for k, v in asdict(entry(why="truncated")).items() if not k.endswith(NEW_COLUMNS)}
    columns = {k: v for k, v in records.record_columns(Entry).items() if k in row}
    records.append_records(layout.table(ledger.TABLE), TableSpec(columns), [row])
    (found,) = ledger.read_entries(layout)
    assert found == entry(why="truncated")
    changed = replace(found, dismissed_at=NOW)
    Ledger(layout, "a").write([changed, entry(version=2)])
    assert ledger.read_entries(layout) == [changed, entry(version=2)]


def test_entries_not_ingested(layout: Layout) -> None:
    """The same path of two sources counts as two files."""
    rejected: dict[str, Any] = {
        "state": State.REJECTED,
        "why": "truncated",
        "reason_code": "unreadable",
    }
    a = [
        entry("put back", **rejected),
        entry("put back", 2, state=State.INGESTED),
        entry("twice", **rejected),
        entry("twice", 2, **rejected),
        entry("waits"),
        entry("done", state=State.ARCHIVED),
    ]
    b = replace(a[0], source="b")
    Ledger(layout, "a").write(a)
    Ledger(layout, "b").write([b])
    assert set(ledger.entries_not_ingested(layout)) == {a[3], a[4], b}


def test_with_state_resets_acknowledgement() -> None:
    known = entry(state=State.REJECTED, reason_code="name_taken", reported_at=1, dismissed_at=2)
    same = known.with_state(State.REJECTED, Reason(ReasonCode.NAME_TAKEN, "still"))
    assert (same.why, same.reported_at, same.dismissed_at) == ("still", 1, 2)
    other = known.with_state(State.REJECTED, Reason(ReasonCode.GREW, "more"))
    assert (other.reported_at, other.dismissed_at) == (None, None)
    ingested = known.as_ingested(0, 1, 0, 0)
    assert ingested.dismissed_at is None
    malformed = replace(ingested, dismissed_at=3)
    assert malformed.with_state(State.ARCHIVED, None).dismissed_at == 3

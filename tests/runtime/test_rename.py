"""Renamed sources: tables, records, files and checkpoints have the new name, exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from medallion.config.model import Config
from medallion.config.tables import ToFiles
from medallion.errors import ConfigError, UsageError
from medallion.inspect.edits import leftover_problems, leftover_tables, pending_renames
from medallion.inspect.status import query_statuses
from medallion.inspect.verdict import observe
from medallion.runtime.rename import carry_out_renames, drop_table
from medallion.spark import checkpoints
from medallion.state.journal import Rename
from medallion.state.ledger import Entry, Ledger
from medallion.state.runs import RunRecords
from medallion.storage import locks
from medallion.storage.paths import StoragePath
from tests.support import runs
from tests.support.lakehouse import Lakehouse

TABLES = ("bronze.event", "silver.event", "quarantine.event")
RENAME = Rename("sources", "event", "visit")
LAYERS = ("bronze", "silver", "gold", "publish")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A lakehouse whose source `event` is now `visit`."""
    lakehouse = Lakehouse(None, tmp_path)
    layout, source = lakehouse.layout, lakehouse.config.sources["event"]
    for table in TABLES:
        write_deltalake(str(layout.table(table)), pa.table({"name": [table]}))
    moved = ("archive/event/a.json", "rejected/event/b.json", "archive/event/event/c.json", None)
    entries = [
        Entry("event", f"landing/event/{number}.json", 1, 1, 1, 1, moved_to=path)
        for number, path in enumerate(moved)
    ]
    other = Entry("activity", "landing/activity/a.json", 1, 1, 1, 1, moved_to=moved[0])
    Ledger(layout, "event").write(entries)
    Ledger(layout, "activity").write([other])
    for query in (*TABLES[:2], "silver.events", "gold.event"):
        runs.record(lakehouse.config, query, last_batch=3)
    for path in ("archive/event/a.json", "_schemas/event/1.json", "landing/event/d.json"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(path)
    (tmp_path / "archive/visit").mkdir()
    (tmp_path / "_checkpoints/silver.event/2").mkdir(parents=True)
    (tmp_path / "_checkpoints/silver.event.json").write_text('{"generation": 2}')
    visit = replace(source, name="visit", renamed_from="event")
    gold = replace(lakehouse.config.gold["device_totals"], tables=("silver.visit",))
    checkpoint = layout.checkpoint("gold.device_totals")
    sql = "from silver_event, silver_events"
    definition = {"source": "event", "group_by": ["event"], "sql": sql}
    checkpoints.write_document(checkpoint, "definition", definition)
    config = replace(lakehouse.config, sources={"visit": visit}, gold={"device_totals": gold})
    return replace(config, silver={})


@contextmanager
def locked(config: Config, *layers: str) -> Iterator[None]:
    with locks.lock_layers(config.layout, layers, "test"):
        yield


def rename(config: Config) -> list[str]:
    messages: list[str] = []
    with locked(config, *LAYERS):
        carry_out_renames(config, messages.append)
    return messages


def assert_is_renamed(config: Config) -> None:
    layout = config.layout
    for table in TABLES:
        rows = DeltaTable(layout.table(table.replace("event", "visit"))).to_pyarrow_table()
        assert rows.to_pylist() == [{"name": table}]
    ledger = {entry.path: entry.moved_to for entry in Ledger(layout, "visit").all_versions()}
    assert ledger == {
        "landing/event/0.json": "archive/visit/a.json",
        "landing/event/1.json": "rejected/visit/b.json",
        "landing/event/2.json": "archive/visit/event/c.json",
        "landing/event/3.json": None,
    }
    (other,) = Ledger(layout, "activity").all_versions()
    assert other.moved_to == "archive/event/a.json"
    records = RunRecords(layout)
    names = ("bronze.visit", "silver.visit", "silver.events", "gold.event", *TABLES[:2])
    assert [records.last_batch(name) for name in names] == [3, 3, 3, 3, -1, -1]
    assert (
        layout.checkpoint("silver.visit").local == layout.root.local / "_checkpoints/silver.visit/2"
    )
    root = layout.root.local
    assert (root / "archive/visit/a.json").read_text() == "archive/event/a.json"
    assert [
        str(path.relative_to(root)) for path in root.rglob("*event*") if "ops" not in path.parts
    ] == ["landing/event"]
    checkpoint = layout.checkpoint("gold.device_totals")
    assert checkpoints.read_document(checkpoint, "definition") == {
        "source": "visit",
        "group_by": ["event"],
        "sql": "from silver_visit, silver_events",
    }


def test_rename_moves_everything_once(config: Config) -> None:
    assert pending_renames(config) == [RENAME]
    assert rename(config) == ["rename    event: its tables and records have the name visit"]
    assert_is_renamed(config)
    assert pending_renames(config) == []
    assert rename(config) == []
    (older,) = config.sources["visit"].folders_in(config.layout)[1:]
    assert (older / "d.json").is_stored()


@pytest.mark.parametrize("moves", range(16))
def test_rename_after_a_kill_is_complete(
    config: Config, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    """Bronze's table is the last of 16 paths."""
    left, move = [moves], StoragePath.move_directory

    def killed(path: StoragePath, target: StoragePath) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        move(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(StoragePath, "move_directory", killed)
        with pytest.raises(KeyboardInterrupt):
            rename(config)
    assert pending_renames(config) == [RENAME]
    rename(config)
    assert_is_renamed(config)


def test_rename_needs_all_layers(config: Config) -> None:
    with locked(config, "bronze"), pytest.raises(UsageError, match="run medallion nightly"):
        carry_out_renames(config, print)


def test_rename_to_a_source_with_rows_is_refused(config: Config) -> None:
    write_deltalake(str(config.layout.table("bronze.visit")), pa.table({"name": ["new"]}))
    with pytest.raises(ConfigError, match=r"is event, but bronze\.visit exists, too"):
        rename(config)


def test_leftover_tables_are_named(config: Config) -> None:
    """A table that the next run renames is not left over."""
    assert [*leftover_problems(config)] == []
    visit = replace(config.sources["visit"], renamed_from=None)
    config = replace(config, sources={"visit": visit})
    (note,) = leftover_problems(config)
    assert note in observe(config, query_statuses(config)).verdict.problems
    assert note.sentence.startswith("bronze.event, quarantine.event, silver.event are left over: ")


def test_published_files_are_left_over(config: Config) -> None:
    """Without `publish` of their table, or without that table; medallion drop deletes them."""
    layout = config.layout
    (gold,) = config.gold.values()
    with_files = replace(gold, outputs={"files": ToFiles("json")})
    publishing = replace(config, gold={gold.name: with_files})
    for query in (f"publish.{gold.name}.files", "publish.older.files"):
        (layout.checkpoint(query) / "offsets" / "0").write_atomic("")
        (layout.published(query.split(".")[1]) / "00000000" / "_files.json").write_atomic("{}")
    layout.lock("publish").write_atomic("")
    assert leftover_tables(publishing) == ["publish.older"]
    assert leftover_tables(config) == [f"publish.{gold.name}", "publish.older"]
    drop_table(config, "publish.older")
    assert not layout.published("older").is_stored()
    assert not layout.checkpoint("publish.older.files").is_stored()
    assert leftover_tables(config) == [f"publish.{gold.name}"]


def test_renamed_gold_table_keeps_its_rows(config: Config) -> None:
    """Its checkpoints and outputs move too, and tables that read it know it by the new name."""
    layout = config.layout
    (gold,) = config.gold.values()
    gold = replace(gold, name="totals", renamed_from="device_totals", tables=("silver.event",))
    gold = replace(gold, outputs={"files": ToFiles("json")})
    event = replace(config.sources["visit"], name="event", renamed_from=None)
    config = replace(config, sources={"event": event}, gold={"totals": gold})
    write_deltalake(str(layout.table("gold.device_totals")), pa.table({"n": [7]}))
    output = layout.checkpoint("publish.device_totals.files")
    checkpoints.write_document(output, "definition", {"columns": "n"})
    (layout.published("device_totals") / "00000000" / "_files.json").write_atomic("{}")
    for query in ("gold.device_totals", "publish.device_totals.files"):
        runs.record(config, query, last_batch=5)
    assert rename(config) == [
        "rename    device_totals: its tables and records have the name totals"
    ]
    assert DeltaTable(layout.table("gold.totals")).to_pyarrow_table().to_pylist() == [{"n": 7}]
    records = RunRecords(layout)
    names = ("gold.totals", "publish.totals.files", "gold.device_totals", "gold.event")
    assert [records.last_batch(name) for name in names] == [5, 5, -1, 3]
    definition = checkpoints.read_document(layout.checkpoint("gold.totals"), "definition")
    assert definition is not None
    assert definition["source"] == "event"
    output = layout.checkpoint("publish.totals.files")
    assert checkpoints.read_document(output, "definition") == {"columns": "n"}
    assert (layout.published("totals") / "00000000" / "_files.json").read() == b"{}"
    assert not layout.published("device_totals").is_stored()
    assert rename(config) == []

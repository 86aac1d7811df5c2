"""Maintenance removes what no reader needs."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import deltalake
import pytest
from deltalake import DeltaTable

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.config.tables import ToFiles
from medallion.config.values import Duration
from medallion.ingest.files import discovery
from medallion.runtime import maintenance
from medallion.runtime.maintenance import (
    MaintenanceResult,
    unread_versions,
)
from medallion.spark.checkpoints import last_planned
from medallion.state.runs import Runs
from medallion.storage import delta_log, delta_tables, locks, records, table_specs
from medallion.storage.paths import StoragePath
from tests.support import PROJECT, checkpoints
from tests.support.home import Home
from tests.support.runs import record

MANY = 30
DAY = 24 * 3600
BRONZE = "bronze.activity"
BEATEN = f"{BRONZE}: CommitFailedError: Failed to commit transaction"


@pytest.fixture
def config(home: Home) -> Config:
    """One source, whose old files may go after a second."""
    known = load({}, PROJECT)
    at_once = replace(known.maintain, retention=Duration.parse("1 second"), compact_from=10)
    return replace(
        known, layout=home.layout, maintain=at_once, sources=home.config.sources, gold={}
    )


def append(config: Config, times: int = MANY, table: str = BRONZE) -> Path:
    """So many commits of one row each: 0, 1, 2 and so on."""
    path = config.layout.table(table)
    spec = replace(table_specs.table_spec(table), columns={"n": "long"})
    first = delta_tables.row_count(path)
    for n in range(first, first + times):
        records.append_records(path, spec, [{"n": n}])
    return path.local


def read_until(config: Config, path: Path) -> None:
    """Bronze is recorded, and silver has read all of it."""
    version = delta_tables.table_version(StoragePath(path))
    record(config, BRONZE, table_version=version, last_batch=0)
    silver_has_read(config, version)


def silver_has_read(config: Config, last: int) -> None:
    """Silver has read up to a version, and had a batch after that, which found nothing.

    A query that starts again plans its last batch once more, from where the one before it ended.
    """
    planned = last_planned(config.layout.checkpoint("silver.activity"))
    for batch in (planned + 1, planned + 2):
        checkpoints.write_completed(config.layout, "silver.activity", batch, last + 1)
    record(config, "silver.activity", last_batch=planned + 2)


def pass_retention(config: Config) -> None:
    """Let the retention pass: Delta's writer goes by the times of the log's files."""
    for file in config.layout.root.local.glob("*/*/_delta_log/*"):
        put_back(file, 2)


def maintain(config: Config, *layers: str) -> MaintenanceResult:
    pass_retention(config)
    return maintenance.maintain(config, Runs(config.layout), layers or ("bronze", "silver", "gold"))


def rows(path: Path) -> list[int]:
    return [n for (n,) in delta_tables.select_rows(StoragePath(path), "n", "order by n")]


def files(path: Path) -> set[str]:
    return {file.name for file in path.glob("*.parquet")}


def commits(path: Path) -> set[int]:
    return {int(f.stem) for f in (path / "_delta_log").glob("*.json") if f.stem.isdigit()}


def age(path: Path, seconds: float) -> None:
    for file in (*path.iterdir(), *(path / "_delta_log").glob("*")):
        put_back(file, seconds)


def put_back(file: Path, seconds: float) -> None:
    """Give a file the time of so long ago, if its own is not older."""
    then = min(time.time() - seconds, file.stat().st_mtime)
    os.utime(file, (then, then))


def test_small_files_are_compacted_and_removed(config: Config) -> None:
    path = append(config)
    read_until(config, path)
    small = files(path)
    first = maintain(config).tables[BRONZE]
    assert (first.compacted_files, len(DeltaTable(path).file_uris())) == (MANY, 1)
    assert rows(path) == list(range(MANY))
    read_until(config, path)  # the commit of the compaction, too
    time.sleep(1.1)  # the retention, by what the log itself says
    DeltaTable(path).create_checkpoint()  # which forgets what the log need not know any more
    maintain(config)
    assert not small & files(path)
    assert len(files(path)) == 1
    assert rows(path) == list(range(MANY))
    again = maintain(config)
    assert BRONZE not in again.tables  # nothing to do is nothing done


def test_compaction_adds_no_waiting_row(config: Config) -> None:
    path = StoragePath(append(config))
    version = delta_tables.table_version(path)
    assert maintenance.compact_small_files(path, config.maintain) == MANY
    assert delta_tables.rows_written(path, after=version) == 0
    assert delta_tables.row_count(path) == MANY


def test_few_or_large_files_are_not_compacted(config: Config) -> None:
    path = StoragePath(append(config, times=9))
    assert maintenance.compact_small_files(path, config.maintain) == 0
    tiny = replace(config.maintain, target_file_size=1)  # so all of them are large
    append(config, times=9)
    assert maintenance.compact_small_files(path, tiny) == 0
    assert delta_tables.table_version(path) == 18


def test_files_that_a_stream_has_not_read_stay(config: Config) -> None:
    """Silver has read up to version 20: ten commits are still to be read."""
    path = append(config)
    record(config, BRONZE, table_version=MANY, last_batch=0)
    silver_has_read(config, 20)
    small = files(path)
    maintain(config)
    maintain(config)
    # Each version has the rows of those before it, so that all of them are still needed.
    assert small < files(path)
    assert set(range(21, MANY + 1)) < commits(path)
    assert rows(path) == list(range(MANY))
    read_until(config, path)
    maintain(config)
    assert not small & files(path)


def test_old_commits_are_removed_unless_unread(config: Config) -> None:
    path = StoragePath(append(config))
    record(config, BRONZE, table_version=MANY, last_batch=0)
    silver_has_read(config, MANY - 1)
    age(path.local, 60)
    maintain(config)
    assert set(range(MANY + 1)) <= commits(path.local)
    silver_has_read(config, delta_tables.table_version(path))
    record(config, BRONZE, table_version=delta_tables.table_version(path), last_batch=1)
    done = maintain(config).tables[BRONZE]
    assert done.removed_commits >= 20  # those before the last checkpoint of the log
    assert min(commits(path.local)) >= 20
    assert rows(path.local) == list(range(MANY))
    assert delta_tables.earliest_version(path) == min(commits(path.local))


def test_orphaned_files_are_removed_after_a_week(config: Config) -> None:
    path = append(config, times=3)
    read_until(config, path)
    left, fresh = path / "part-left.parquet", path / "part-fresh.parquet"
    for file in (left, fresh):
        file.write_bytes(b"half a file")
    week = time.time() - 8 * 24 * 3600
    os.utime(left, (week, week))
    runs = Runs(config.layout)
    maintenance.maintain(config, runs, ["bronze"], is_streaming=True)
    assert left.exists()  # a stream may be about to commit what it has written
    maintain(config)
    assert (left.exists(), fresh.exists()) == (False, True)
    assert rows(path) == [0, 1, 2]


def test_checksums_of_removed_files_are_removed(config: Config) -> None:
    """Hadoop writes one beside each file, which Delta's writer does not know."""
    path = append(config)
    checksums = [path / f".{name}.crc" for name in files(path)]
    for file in checksums:
        file.touch()
    read_until(config, path)
    maintain(config)  # compacts
    read_until(config, path)
    time.sleep(1.1)
    maintain(config)
    assert not any(file.exists() for file in checksums)


def changes_of(table: Path, version: int) -> Path:
    """Return the file of the change feed that a version names."""
    lines = delta_log.commit_file(StoragePath(table), version).local.read_text().splitlines()
    (path,) = (action["cdc"]["path"] for action in map(json.loads, lines) if "cdc" in action)
    return table / str(path)


def test_unpublished_changes_stay(config: Config) -> None:
    """An output has read up to the second of five updates, a week and a day ago."""
    totals = load({}, PROJECT).gold["device_totals"]
    published = replace(totals, output_mode="update", outputs={"files": ToFiles("json")})
    config = replace(config, gold={"device_totals": published})
    table = "gold.device_totals"
    path = append(config, times=1, table=table)  # versions 0 and 1
    delta_tables.set_missing_properties(
        StoragePath(path), config.maintain.properties(config.spec(table))
    )
    updated = range(3, 8)
    for _ in updated:
        DeltaTable(path).update({"n": "n + 1"})
    for batch in range(2):
        checkpoints.write_completed(config.layout, "publish.device_totals.files", batch, version=5)
    record(config, table, table_version=delta_tables.table_version(StoragePath(path)), last_batch=0)
    feed = {v: changes_of(path, v) for v in updated}
    age(path, 8 * DAY)
    for version, file in feed.items():
        put_back(file, (8 if version >= 5 else 10) * DAY)
    assert maintain(config).notes == ()
    left = set((path / "_change_data").iterdir())
    assert left == {feed[version] for version in (5, 6, 7)}
    # What a rebuilt table's commit took away is read from the files themselves.
    assert all(file.local.exists() for file in delta_log.added_files(StoragePath(path), 4, 7))
    config = replace(config, gold={"device_totals": totals})  # they have no reader any more
    maintain(config)
    assert not list((path / "_change_data").iterdir())


def test_missing_properties_are_set(config: Config) -> None:
    path = StoragePath(append(config, times=1, table="gold.device_totals"))
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    wanted = table_specs.TableSpec().properties("2 days")
    delta_tables.set_missing_properties(path, wanted)
    found = DeltaTable(path).metadata().configuration
    assert {key: found[key] for key in wanted} == wanted
    version = delta_tables.table_version(path)
    delta_tables.set_missing_properties(path, wanted)
    assert delta_tables.table_version(path) == version


def test_a_running_query_keeps_its_properties(config: Config) -> None:
    """Another metadata commit would fail a running batch."""
    path = StoragePath(append(config))
    read_until(config, path.local)
    pass_retention(config)
    runs, version = Runs(config.layout), delta_tables.table_version(path)
    found = maintenance.maintain(config, runs, ["bronze"], is_streaming=True)
    assert found.tables[BRONZE].compacted_files == MANY
    assert DeltaTable(path).metadata().configuration == table_specs.BRONZE.properties()
    assert [
        c["operation"] for c in DeltaTable(path).history(delta_tables.table_version(path) - version)
    ] == ["OPTIMIZE"]
    maintenance.apply_properties(config, ["bronze"])
    wanted = config.maintain.properties(table_specs.BRONZE)
    assert DeltaTable(path).metadata().configuration == wanted
    found = maintenance.maintain(config, runs, ["bronze"], is_streaming=True)
    assert [note for note in found.notes if note.startswith(BRONZE)] == []


def test_nothing_is_removed_during_a_refresh(config: Config) -> None:
    path = append(config)
    read_until(config, path)
    (config.layout.root / "_refresh").local.mkdir()
    found = maintain(config, "bronze")
    assert found.tables == {}
    assert "refresh" in found.notes[0]
    assert delta_tables.table_version(StoragePath(path)) == MANY
    # With gold's lock held, this is known to be left by a failed refresh.
    assert maintenance.maintain_unlocked_layers(config).tables[BRONZE].compacted_files == MANY
    assert not (config.layout.root / "_refresh").local.exists()


def test_removed_commits_are_no_obstacle(config: Config) -> None:
    """A query whose first batch is its last may read from anywhere, as far as the log goes back."""
    path = append(config)
    record(config, BRONZE, table_version=MANY, last_batch=0)
    checkpoints.write_completed(config.layout, "silver.activity", 0, MANY + 1)
    record(config, "silver.activity", last_batch=0)
    DeltaTable(path).create_checkpoint()
    for version in range(20):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    found = maintain(config)
    assert found.tables[BRONZE].compacted_files == MANY
    assert [note for note in found.notes if note.startswith(BRONZE)] == []


def test_a_corrupt_table_stops_no_other(config: Config) -> None:
    path = append(config)
    read_until(config, path)
    broken = append(config, times=1, table="quarantine.activity")
    (broken / "_delta_log" / f"{1:020}.json").write_text("{")
    found = maintain(config)
    assert [note.partition(":")[0] for note in found.notes] == ["quarantine.activity"]
    assert found.tables[BRONZE].compacted_files == MANY


def test_missing_permission_stops_no_other(config: Config, unprivileged_home: Home) -> None:
    config = replace(config, layout=unprivileged_home.layout)
    read_until(config, append(config))
    (append(config, times=1, table="quarantine.activity") / "_delta_log").chmod(0)
    found = maintain(config)
    assert [note.partition(":")[0] for note in found.notes] == ["quarantine.activity"]
    assert found.tables[BRONZE].compacted_files == MANY


def test_a_commit_conflict_is_no_note_beside_a_stream(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = append(config)
    read_until(config, path)
    maintenance.apply_properties(config, ["bronze"])
    numbers, opened = iter(range(MANY)), delta_tables.open_for_write

    def beaten(table: StoragePath) -> DeltaTable:
        found = opened(table)
        if table.local == path:
            opened(table).delete(f"n = {next(numbers)}")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(delta_tables, "open_for_write", beaten)
        runs = Runs(config.layout)
        assert maintenance.maintain(
            config, runs, ["bronze"], is_streaming=True
        ) == MaintenanceResult({})
        notes = maintenance.maintain(config, runs, ["bronze"]).notes
        assert [note[: len(BEATEN)] for note in notes] == [BEATEN]


def test_maintenance_locks_the_record_tables(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silver's process may record a run while bronze's maintains: its commit would fail."""
    record(config, BRONZE)
    runs, write = Runs(config.layout), deltalake.write_deltalake
    others = [
        Thread(target=maintenance.apply_properties, args=(config, ["bronze"])),
        Thread(target=maintenance.maintain, args=(config, runs, ["bronze"])),
    ]

    def meanwhile(*args: Any, **more: Any) -> None:
        for other in others:
            other.start()
            other.join(0.3)
        write(*args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(deltalake, "write_deltalake", meanwhile)
        record(config, "silver.activity", last_batch=3)
    for other in others:
        other.join()
    assert Runs(config.layout).last_batch("silver.activity") == 3
    properties = config.maintain.properties(table_specs.TableSpec())
    assert not delta_tables.properties_to_set(config.layout.table("ops.runs"), properties)


def test_layers_of_other_processes_are_left_out(config: Config) -> None:
    bronze, silver = append(config), append(config, table="silver.activity")
    with locks.lock_layers(config.layout, ["silver"], "stream"):
        found = maintenance.maintain_unlocked_layers(config)
    expected = f"medallion stream, pid {os.getpid()}, which writes and maintains it"
    assert found.notes == (f"silver: left to {expected}",)
    assert (len(DeltaTable(bronze).file_uris()), len(DeltaTable(silver).file_uris())) == (1, MANY)
    assert locks.lock_holder(config.layout, "bronze") is None


def test_blocked_rows_stay_readable(config: Config) -> None:
    path = StoragePath(append(config))
    read_until(config, path.local)
    gate = {"kind": "gate", "query": BRONZE, "started_at": 0}
    runs = Runs(config.layout)
    runs.write([{**gate, "state": "passed", "table_version": 20}])
    runs.write([{**gate, "state": "held", "table_version": MANY}])
    maintain(config)
    maintain(config)
    assert delta_log.are_readable(path, range(21, MANY + 1))
    runs.write([{**gate, "state": "passed", "table_version": MANY}])
    read_until(config, path.local)
    maintain(config)
    assert not delta_log.are_readable(path, range(21, MANY + 1))
    assert rows(path.local) == list(range(MANY))


def unread(home: Home, table: str) -> int | None:
    """What is unread of a table, by the queries of the project's own configuration."""
    config = replace(load({}, PROJECT), layout=home.layout)
    return unread_versions(config, Runs(config.layout).run_state).get(table)


def test_unread_before_and_in_a_first_batch(home: Home) -> None:
    """A query reads the table as it is then, and its first batch does not say from where on."""
    record(home.config, BRONZE, table_version=3, last_batch=2)
    assert unread(home, BRONZE) == 4
    checkpoints.write_plan(home.layout, "silver.activity", 0, version=12)
    assert unread(home, BRONZE) == 0


def test_unread_by_unrecorded_batches(home: Home) -> None:
    """A query plans the last recorded batch again: it began where the one before it ended."""
    record(home.config, BRONZE, table_version=90)
    for batch, version in enumerate((2, 3, 5, 6, 8, 9)):
        checkpoints.write_completed(home.layout, "silver.activity", batch, version)
    record(home.config, "silver.activity", last_batch=3, table_version=7)
    assert unread(home, BRONZE) == 5
    record(home.config, "silver.activity", last_batch=5, table_version=8)
    checkpoints.write_plan(home.layout, "silver.activity", 6, version=40)  # it may run again
    assert unread(home, BRONZE) == 8


def test_unread_where_spark_has_removed_the_offsets(home: Home) -> None:
    record(home.config, BRONZE, table_version=900)
    checkpoints.write_completed(home.layout, "silver.activity", 500, version=800)
    record(home.config, "silver.activity", last_batch=3)
    assert unread(home, BRONZE) == 0


def test_unread_by_the_slowest_reader(home: Home) -> None:
    record(home.config, "silver.activity", table_version=50, last_batch=9)
    for batch, (counts, totals) in enumerate(((31, 17), (40, 45))):
        checkpoints.write_completed(home.layout, "gold.device_counts", batch, version=counts)
        checkpoints.write_completed(home.layout, "gold.device_totals", batch, version=totals)
    assert unread(home, "silver.activity") == 17


def test_unread_since_the_record_of_each_target(home: Home) -> None:
    record(home.config, "silver.event", last_batch=1, table_version=5, quarantine_version=8)
    assert unread(home, "silver.event") == 6
    assert unread(home, "quarantine.event") == 9


def test_unread_of_an_intake(home: Home) -> None:
    """Queued files are needed until their batch is recorded."""
    discovery.create_queue(home.layout.intake("event"))
    for batch, version in enumerate((2, 3, 4)):
        checkpoints.write_completed(home.layout, "bronze.event", batch, version)
    record(home.config, "bronze.event", last_batch=1, table_version=1)
    assert unread(home, "_intake.event") == 2


def test_purge_leaves_the_newest_version(config: Config) -> None:
    """No older file, commit or statistic is left; a reader sees the same rows."""
    path = append(config, 3)
    delta_tables.open_for_write(StoragePath(path)).delete("n = 1")
    assert delta_tables.select_rows(StoragePath(path), "n", "order by n") == [(0,), (2,)]
    maintenance.purge(config.layout.table(BRONZE))
    newest = DeltaTable(path).version()
    assert min(delta_log.commit_files(StoragePath(path))) == newest
    assert sorted(n for (n,) in delta_tables.select_rows(StoragePath(path), "n")) == [0, 2]
    assert len(list(path.glob("*.parquet"))) == len(DeltaTable(path).file_uris())
    append(config, 1)
    assert delta_tables.row_count(StoragePath(path)) == 3
    assert delta_tables.row_count(StoragePath(path), newest) == 2

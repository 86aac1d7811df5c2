"""Maintenance removes what no reader needs."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
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
from medallion.state.runs import LastRun, RunRecords
from medallion.storage import clock, delta_log, delta_tables, locks, records, table_specs
from medallion.storage.layout import Layout
from medallion.storage.paths import StoragePath
from medallion.storage.root_format import write_format
from tests.support import PROJECT, checkpoints
from tests.support.home import Home
from tests.support.runs import record

MANY = 30
DAY = 24 * 3600
BRONZE = "bronze.activity"
CONFLICT = f"{BRONZE}: CommitFailedError: Failed to commit transaction"


@pytest.fixture
def config(home: Home) -> Config:
    """Return a configuration of one source whose old files expire after a second."""
    project = load({}, PROJECT)
    short_retention = replace(
        project.maintain, retention=Duration.parse("1 second"), compact_from=10
    )
    return replace(
        project, layout=home.layout, maintain=short_retention, sources=home.config.sources, gold={}
    )


def append(config: Config, times: int = MANY, table: str = BRONZE) -> Path:
    """Append commits of one row each: 0, 1, 2 and so on."""
    path = config.layout.table(table)
    if times == MANY and not delta_tables.table_exists(path):
        shutil.copytree(many_commits(table).name, path)
    else:
        append_rows(path, times, table)
    return path.local


@cache
def many_commits(table: str) -> TemporaryDirectory[str]:
    """Write a table of many commits once for all tests, which copy it."""
    directory = TemporaryDirectory()
    Path(directory.name).chmod(0o755)  # also for the unprivileged user
    append_rows(StoragePath(Path(directory.name)), MANY, table)
    return directory


def append_rows(path: StoragePath, times: int, table: str) -> None:
    spec = replace(table_specs.table_spec(table), columns={"n": "long"})
    first = delta_tables.row_count(path)
    for n in range(first, first + times):
        records.append_records(path, spec, [{"n": n}])


def record_all_read(config: Config, path: Path) -> None:
    """Record bronze, and that silver has read all of it."""
    version = delta_tables.table_version(StoragePath(path))
    record(config, BRONZE, table_version=version, last_batch=0)
    record_silver_read(config, version)


def record_silver_read(config: Config, last: int) -> None:
    """Record that silver has read up to a version, and then had an empty batch.

    A restarted query plans its last batch again, from the end of the one before.
    """
    planned = last_planned(config.layout.checkpoint("silver.activity"))
    for batch in (planned + 1, planned + 2):
        checkpoints.write_completed(config.layout, "silver.activity", batch, last + 1)
    record(config, "silver.activity", last_batch=planned + 2)


def pass_retention(config: Config) -> None:
    """Age the log's files, whose times Delta's writer uses, beyond the retention."""
    for file in config.layout.root.local.glob("*/*/_delta_log/*"):
        set_older(file, 2)


def maintain(config: Config, *layers: str) -> MaintenanceResult:
    pass_retention(config)
    return maintenance.maintain(
        config, RunRecords(config.layout), layers or ("bronze", "silver", "gold")
    )


def rows(path: Path) -> list[int]:
    return [n for (n,) in delta_tables.select_rows(StoragePath(path), "n", "order by n")]


def files(path: Path) -> set[str]:
    return {file.name for file in path.glob("*.parquet")}


def commits(path: Path) -> set[int]:
    return {int(f.stem) for f in (path / "_delta_log").glob("*.json") if f.stem.isdigit()}


def age(path: Path, seconds: float) -> None:
    for file in (*path.iterdir(), *(path / "_delta_log").glob("*")):
        set_older(file, seconds)


def set_older(file: Path, seconds: float) -> None:
    """Set a file's modification time to `seconds` ago, unless it is older."""
    time_ = min(time.time() - seconds, file.stat().st_mtime)
    os.utime(file, (time_, time_))


def test_small_files_are_compacted_and_removed(config: Config) -> None:
    path = append(config)
    record_all_read(config, path)
    small = files(path)
    first = maintain(config).tables[BRONZE]
    assert (first.compacted_files, len(DeltaTable(path).file_uris())) == (MANY, 1)
    assert rows(path) == list(range(MANY))
    record_all_read(config, path)  # includes the commit of the compaction
    time.sleep(1.1)  # the retention, by the timestamps in the log
    DeltaTable(path).create_checkpoint()  # drops the entries that the log no longer needs
    maintain(config)
    assert not small & files(path)
    assert len(files(path)) == 1
    assert rows(path) == list(range(MANY))
    second = maintain(config)
    assert BRONZE not in second.tables  # nothing to do


def test_compaction_adds_no_waiting_row(config: Config) -> None:
    path = StoragePath(append(config))
    version = delta_tables.table_version(path)
    assert maintenance.compact_small_files(path, config.maintain) == MANY
    assert delta_tables.rows_written(path, after=version) == 0
    assert delta_tables.row_count(path) == MANY


def test_few_or_large_files_are_not_compacted(config: Config) -> None:
    path = StoragePath(append(config, times=9))
    assert maintenance.compact_small_files(path, config.maintain) == 0
    tiny = replace(config.maintain, target_file_size=1)  # so that all files are large
    append(config, times=9)
    assert maintenance.compact_small_files(path, tiny) == 0
    assert delta_tables.table_version(path) == 18


def test_unread_files_are_kept(config: Config) -> None:
    """Silver has read up to version 20: ten commits are unread."""
    path = append(config)
    record(config, BRONZE, table_version=MANY, last_batch=0)
    record_silver_read(config, 20)
    small = files(path)
    maintain(config)
    maintain(config)
    # Each version contains the rows of earlier ones, so all files are still needed.
    assert small < files(path)
    assert set(range(21, MANY + 1)) < commits(path)
    assert rows(path) == list(range(MANY))
    record_all_read(config, path)
    maintain(config)
    assert not small & files(path)


def test_old_commits_are_removed_unless_unread(config: Config) -> None:
    path = StoragePath(append(config))
    record(config, BRONZE, table_version=MANY, last_batch=0)
    record_silver_read(config, MANY - 1)
    age(path.local, 60)
    maintain(config)
    assert set(range(MANY + 1)) <= commits(path.local)
    record_silver_read(config, delta_tables.table_version(path))
    record(config, BRONZE, table_version=delta_tables.table_version(path), last_batch=1)
    result = maintain(config).tables[BRONZE]
    assert result.removed_commits >= 20  # those before the log's last checkpoint
    assert min(commits(path.local)) >= 20
    assert rows(path.local) == list(range(MANY))
    assert delta_tables.earliest_version(path) == min(commits(path.local))


def test_orphaned_files_are_removed_after_a_week(config: Config) -> None:
    path = append(config, times=3)
    record_all_read(config, path)
    orphan, fresh = path / "part-left.parquet", path / "part-fresh.parquet"
    for file in (orphan, fresh):
        file.write_bytes(b"half a file")
    week = time.time() - 8 * 24 * 3600
    os.utime(orphan, (week, week))
    runs = RunRecords(config.layout)
    maintenance.maintain(config, runs, ["bronze"], is_streaming=True)
    assert orphan.exists()  # a stream may be about to commit its written files
    maintain(config)
    assert (orphan.exists(), fresh.exists()) == (False, True)
    assert rows(path) == [0, 1, 2]


def test_checksums_of_removed_files_are_removed(config: Config) -> None:
    """Hadoop writes one beside each file, and Delta's writer does not know them."""
    path = append(config)
    checksums = [path / f".{name}.crc" for name in files(path)]
    for file in checksums:
        file.touch()
    record_all_read(config, path)
    maintain(config)  # compacts
    record_all_read(config, path)
    time.sleep(1.1)
    maintain(config)
    assert not any(file.exists() for file in checksums)


def change_file(table: Path, version: int) -> Path:
    """Return the change feed file of a version."""
    lines = delta_log.commit_file(StoragePath(table), version).local.read_text().splitlines()
    (path,) = (action["cdc"]["path"] for action in map(json.loads, lines) if "cdc" in action)
    return table / str(path)


def test_unpublished_changes_stay(config: Config) -> None:
    """An output has read up to the second of five updates; they are 10 and 8 days old."""
    totals = load({}, PROJECT).gold["device_totals"]
    published = replace(totals, output_mode="update", outputs={"files": ToFiles("json")})
    config = replace(config, gold={"device_totals": published})
    table = "gold.device_totals"
    path = append(config, times=1, table=table)  # versions 0 and 1
    delta_tables.set_missing_properties(StoragePath(path), config.properties(table))
    updated = range(3, 8)
    for _ in updated:
        DeltaTable(path).update({"n": "n + 1"})
    for batch in range(2):
        checkpoints.write_completed(config.layout, "publish.device_totals.files", batch, version=5)
    record(config, table, table_version=delta_tables.table_version(StoragePath(path)), last_batch=0)
    feed = {v: change_file(path, v) for v in updated}
    age(path, 8 * DAY)
    for version, file in feed.items():
        set_older(file, (8 if version >= 5 else 10) * DAY)
    assert maintain(config).notes == ()
    remaining = set((path / "_change_data").iterdir())
    assert remaining == {feed[version] for version in (5, 6, 7)}
    # Rows removed by a commit that replaced the table are read from the data files.
    assert all(file.local.exists() for file in delta_log.added_files(StoragePath(path), 4, 7))
    # The change feed has no reader any more.
    config = replace(config, gold={"device_totals": totals})
    maintain(config)
    assert not list((path / "_change_data").iterdir())


def test_missing_properties_are_set(config: Config) -> None:
    path = StoragePath(append(config, times=1, table="gold.device_totals"))
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    expected = table_specs.TableSpec().properties("2 days")
    delta_tables.set_missing_properties(path, expected)
    actual = DeltaTable(path).metadata().configuration
    assert {key: actual[key] for key in expected} == expected
    version = delta_tables.table_version(path)
    delta_tables.set_missing_properties(path, expected)
    assert delta_tables.table_version(path) == version


def test_running_query_keeps_its_properties(config: Config) -> None:
    """Another metadata commit would fail a running batch."""
    path = StoragePath(append(config))
    record_all_read(config, path.local)
    pass_retention(config)
    runs, version = RunRecords(config.layout), delta_tables.table_version(path)
    result = maintenance.maintain(config, runs, ["bronze"], is_streaming=True)
    assert result.tables[BRONZE].compacted_files == MANY
    assert DeltaTable(path).metadata().configuration == table_specs.BRONZE.properties()
    assert [
        c["operation"] for c in DeltaTable(path).history(delta_tables.table_version(path) - version)
    ] == ["OPTIMIZE"]
    maintenance.apply_properties(config, ["bronze"])
    expected = config.properties("bronze.activity")
    assert DeltaTable(path).metadata().configuration == expected
    result = maintenance.maintain(config, runs, ["bronze"], is_streaming=True)
    assert [note for note in result.notes if note.startswith(BRONZE)] == []


def test_nothing_is_removed_during_a_refresh(config: Config) -> None:
    path = append(config)
    record_all_read(config, path)
    (config.layout.root / "_refresh").local.mkdir()
    result = maintain(config, "bronze")
    assert result.tables == {}
    assert "refresh" in result.notes[0]
    assert delta_tables.table_version(StoragePath(path)) == MANY
    # With gold's lock held no refresh is running: a failed one left the directory.
    assert maintenance.maintain_unlocked_layers(config).tables[BRONZE].compacted_files == MANY
    assert not (config.layout.root / "_refresh").local.exists()


def test_maintain_after_commits_were_removed(config: Config) -> None:
    """A query with a single batch may read from any version that the log still has."""
    path = append(config)
    record(config, BRONZE, table_version=MANY, last_batch=0)
    checkpoints.write_completed(config.layout, "silver.activity", 0, MANY + 1)
    record(config, "silver.activity", last_batch=0)
    DeltaTable(path).create_checkpoint()
    for version in range(20):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    result = maintain(config)
    assert result.tables[BRONZE].compacted_files == MANY
    assert [note for note in result.notes if note.startswith(BRONZE)] == []


def test_corrupt_table_stops_no_other(config: Config) -> None:
    path = append(config)
    record_all_read(config, path)
    corrupt = append(config, times=1, table="quarantine.activity")
    (corrupt / "_delta_log" / f"{1:020}.json").write_text("{")
    result = maintain(config)
    assert [note.partition(":")[0] for note in result.notes] == ["quarantine.activity"]
    assert result.tables[BRONZE].compacted_files == MANY


def test_missing_permission_stops_no_other(config: Config, closable_home: Home) -> None:
    config = replace(config, layout=closable_home.layout)
    record_all_read(config, append(config))
    (append(config, times=1, table="quarantine.activity") / "_delta_log").chmod(0)
    result = maintain(config)
    assert [note.partition(":")[0] for note in result.notes] == ["quarantine.activity"]
    assert result.tables[BRONZE].compacted_files == MANY


def test_commit_conflict_is_no_note_beside_a_stream(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = append(config)
    record_all_read(config, path)
    maintenance.apply_properties(config, ["bronze"])
    numbers, open_for_write = iter(range(MANY)), delta_tables.open_for_write

    def open_before_conflict(table: StoragePath) -> DeltaTable:
        delta_table = open_for_write(table)
        if table.local == path:
            open_for_write(table).delete(f"n = {next(numbers)}")
        return delta_table

    with monkeypatch.context() as patched:
        patched.setattr(delta_tables, "open_for_write", open_before_conflict)
        runs = RunRecords(config.layout)
        assert maintenance.maintain(
            config, runs, ["bronze"], is_streaming=True
        ) == MaintenanceResult({})
        notes = maintenance.maintain(config, runs, ["bronze"]).notes
        assert [note[: len(CONFLICT)] for note in notes] == [CONFLICT]


def test_maintenance_locks_the_record_tables(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silver's process may record a run while bronze's maintains: its commit would fail."""
    record(config, BRONZE)
    runs, write = RunRecords(config.layout), deltalake.write_deltalake
    threads = [
        Thread(target=maintenance.apply_properties, args=(config, ["bronze"])),
        Thread(target=maintenance.maintain, args=(config, runs, ["bronze"])),
    ]

    def write_during_maintenance(*args: Any, **more: Any) -> None:
        for thread in threads:
            thread.start()
            thread.join(0.3)
        write(*args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(deltalake, "write_deltalake", write_during_maintenance)
        record(config, "silver.activity", last_batch=3)
    for thread in threads:
        thread.join()
    assert RunRecords(config.layout).last_batch("silver.activity") == 3
    properties = config.properties("ops.runs")
    assert not delta_tables.properties_to_set(config.layout.table("ops.runs"), properties)


def test_layers_of_other_processes_are_left_out(config: Config) -> None:
    bronze, silver = append(config), append(config, table="silver.activity")
    write_format(config.layout)
    with locks.lock_layers(config.layout, ["silver"], "stream"):
        result = maintenance.maintain_unlocked_layers(config)
        holder = locks.lock_holder(config.layout, "silver")
    assert result.notes == (f"silver: left to {holder}, which writes and maintains it",)
    assert (len(DeltaTable(bronze).file_uris()), len(DeltaTable(silver).file_uris())) == (1, MANY)
    assert locks.lock_holder(config.layout, "bronze") is None


def test_blocked_rows_stay_readable(config: Config) -> None:
    path = StoragePath(append(config))
    record_all_read(config, path.local)
    gate = {"kind": "gate", "query": BRONZE, "started_at": 0}
    runs = RunRecords(config.layout)
    runs.write([{**gate, "state": "passed", "table_version": 20}])
    runs.write([{**gate, "state": "held", "table_version": MANY}])
    maintain(config)
    maintain(config)
    assert delta_log.are_readable(path, range(21, MANY + 1))
    runs.write([{**gate, "state": "passed", "table_version": MANY}])
    record_all_read(config, path.local)
    maintain(config)
    assert not delta_log.are_readable(path, range(21, MANY + 1))
    assert rows(path.local) == list(range(MANY))


def unread(home: Home, table: str) -> int | None:
    """Return the first version of a table that a query of the project has not read."""
    config = home.project_config
    return unread_versions(config, RunRecords(config.layout).run_state).get(table)


def test_unread_before_and_in_a_first_batch(home: Home) -> None:
    """A query starts with the current version, which its first batch does not record."""
    record(home.config, BRONZE, table_version=3, last_batch=2)
    assert unread(home, BRONZE) == 4
    checkpoints.write_plan(home.layout, "silver.activity", 0, version=12)
    assert unread(home, BRONZE) == 0


def test_unread_by_unrecorded_batches(home: Home) -> None:
    """A query plans the last recorded batch again, from the end of the one before."""
    record(home.config, BRONZE, table_version=90)
    for batch, version in enumerate((2, 3, 5, 6, 8, 9)):
        checkpoints.write_completed(home.layout, "silver.activity", batch, version)
    record(home.config, "silver.activity", last_batch=3, table_version=7)
    assert unread(home, BRONZE) == 5
    record(home.config, "silver.activity", last_batch=5, table_version=8)
    checkpoints.write_plan(home.layout, "silver.activity", 6, version=40)  # it may run again
    assert unread(home, BRONZE) == 8


def test_unread_after_spark_removed_the_offsets(home: Home) -> None:
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


def test_unread_after_the_recorded_versions(home: Home) -> None:
    record(home.config, "silver.event", last_batch=1, table_version=5, quarantine_version=8)
    assert unread(home, "silver.event") == 6
    assert unread(home, "quarantine.event") == 9


def test_unread_of_a_queue(home: Home) -> None:
    """Queued files are needed until their batch is recorded."""
    discovery.create_queue(home.layout.queue("event"))
    for batch, version in enumerate((2, 3, 4)):
        checkpoints.write_completed(home.layout, "bronze.event", batch, version)
    record(home.config, "bronze.event", last_batch=1, table_version=1)
    assert unread(home, "_intake.event") == 2


def test_purge_leaves_the_newest_version(config: Config) -> None:
    """No older file, commit or statistic remains; a reader sees the same rows."""
    path = append(config, 3)
    delta_tables.open_for_write(StoragePath(path)).delete("n = 1")
    assert delta_tables.select_rows(StoragePath(path), "n", "order by n") == [(0,), (2,)]
    maintenance.purge(config.layout.table(BRONZE))
    newest = DeltaTable(path).version()
    assert min(delta_log.commit_versions(StoragePath(path))) == newest
    assert sorted(n for (n,) in delta_tables.select_rows(StoragePath(path), "n")) == [0, 2]
    assert len(list(path.glob("*.parquet"))) == len(DeltaTable(path).file_uris())
    append(config, 1)
    assert delta_tables.row_count(StoragePath(path)) == 3
    assert delta_tables.row_count(StoragePath(path), newest) == 2


@pytest.mark.parametrize(
    ("root", "state", "days", "is_due"),
    [
        ("s3://lakes/one", "done", 0, False),
        ("s3://lakes/one", "done", 1, True),
        ("s3://lakes/one", "idle", 0, True),  # it has removed nothing
        ("s3://lakes/one", "failed", 0, True),
        ("/lakes/one", "done", 0, True),
    ],
)
def test_old_files_are_removed_once_a_day_in_a_bucket(
    root: str, state: str, days: int, is_due: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    noon = 20_000 * DAY * 1_000_000 + DAY * 500_000
    monkeypatch.setattr(clock, "now_micros", lambda: noon + days * DAY * 500_000)
    last = LastRun(state, None, noon, 1.0, *[None] * 7)
    assert maintenance.is_removal_due(Layout(root), last) is is_due
    assert maintenance.is_removal_due(Layout(root), None)

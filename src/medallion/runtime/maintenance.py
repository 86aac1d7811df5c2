"""Maintenance: compact tables, and remove files and commits that no reader needs.

The rule: nothing newer than the retention is removed, and nothing newer than the first version that
a stream, a gate or the record of a query has not read yet.
"""

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from medallion.config.model import Config
from medallion.config.operations import Maintenance
from medallion.config.queries import QueryType, queries
from medallion.errors import MedallionError, UsageError
from medallion.inspect.balance import BALANCED_LAYERS
from medallion.spark import checkpoints
from medallion.state import journal, pending_work
from medallion.state.runs import DONE, LastRun, RunRecords, RunState
from medallion.storage import clock, delta_log, delta_tables, locks, objects, records, table_specs
from medallion.storage.layout import LAYERS, Layout
from medallion.storage.paths import ObjectPath, StoragePath
from medallion.storage.text import Reporter

_PURGED_AT = "medallion.purgedAt"  # a property of a table
_HOUR, _DAY = 3600.0, 86400.0  # seconds
# Older files that no commit names were left by interrupted writes.
_ORPHANED = 7 * _DAY


@dataclass(frozen=True)
class TableChanges:
    """Numbers of files compacted, and of files and commits removed, of one table."""

    compacted_files: int = 0
    removed_files: int = 0
    removed_commits: int = 0


@dataclass(frozen=True)
class MaintenanceResult:
    """Changes by table, if there were any, and one note for each table that was left alone."""

    tables: Mapping[str, TableChanges]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Table:
    """A table to maintain.

    Attributes:
        query: the query that writes it; None for record tables and queues.
        is_compacted: False if its writer compacts it, or replaces its files.
    """

    name: str
    query: str | None = None
    is_compacted: bool = True

    def lock(self) -> AbstractContextManager[object]:
        """Keep other threads from a record table; the caller holds the layers' locks."""
        return records.PROCESS_LOCK if self.name in table_specs.RECORD_TABLES else nullcontext()


def maintain_unlocked_layers(
    config: Config, report: Reporter = lambda _: None
) -> MaintenanceResult:
    """Maintain the layers that no other process writes; a process maintains what it writes."""
    journal.refuse_unfinished(config, journal.Erasure)
    locked, notes = [], []
    with ExitStack() as stack:
        for layer in LAYERS:  # outputs have no tables
            try:
                stack.enter_context(journal.lock_layers(config, [layer], "maintain", report))
                locked.append(layer)
            except UsageError:
                holder = locks.lock_holder(config.layout, layer) or "another process"
                notes.append(f"{layer}: left to {holder}, which writes and maintains it")
        if "gold" in locked:
            journal.remove_abandoned_tables(config)
        done = maintain(config, RunRecords(config.layout), locked)
    return MaintenanceResult(done.tables, (*notes, *done.notes))


def maintain(
    config: Config,
    runs: RunRecords,
    layers: Sequence[str],
    is_streaming: bool = False,
    removes: bool = True,
) -> MaintenanceResult:
    """Maintain the tables of layers whose locks the caller holds; a failure becomes a note.

    Args:
        runs: the recorded runs.
        layers: the locked layers.
        is_streaming: the layers' queries are running. A table whose rows they replace is not
            compacted then: of two writers that replace the same files, one fails.
        removes: whether to remove old files, too.
    """
    if journal.is_refreshing(config, layers):
        return MaintenanceResult({}, ("nothing is removed while a refresh is unfinished",))
    from deltalake.exceptions import CommitFailedError

    unread = unread_versions(config, runs.run_state)
    done, notes = dict[str, TableChanges](), list[str]()
    for table in _tables(config, layers, is_streaming):
        try:
            if not delta_tables.table_exists(config.layout.table(table.name)):
                continue
            if table.query and pending_work.older_table_reason(config, runs, table.query):
                # A commit would raise the version, and hide that the table is older than recorded.
                notes.append(f"{table.name}: left as it is until {table.query} can run again")
                continue
            locks.check_locks()
            with table.lock():
                first = unread.get(table.name)
                done[table.name] = _maintain(config, table, first, is_streaming, removes)
        except Exception as error:  # a failure of maintenance stops nothing else
            # A query wrote the table at the same time: the next maintenance retries it.
            if not (is_streaming and isinstance(error, CommitFailedError)):
                message, _, _ = str(error).partition("\n")
                notes.append(f"{table.name}: {type(error).__name__}: {message}")
    changed = {name: changes for name, changes in done.items() if changes != TableChanges()}
    return MaintenanceResult(changed, tuple(notes))


def is_removal_due(layout: Layout, last: LastRun | None) -> bool:
    """Return whether a nightly run removes old files: in a bucket, the first one of a day.

    Args:
        last: the last complete nightly run. One that was idle has removed nothing.
    """
    if last is None or last.state != DONE or not isinstance(layout.root, ObjectPath):
        return True
    return last.started_at // clock.DAY < clock.now_micros() // clock.DAY


def apply_properties(config: Config, layers: Sequence[str]) -> None:
    """Set the table properties of the policy in layers, before their queries start."""
    for table in _tables(config, layers, True):
        with suppress(Exception):  # a failure of maintenance stops nothing else
            if delta_tables.table_exists(path := config.layout.table(table.name)):
                with table.lock():
                    delta_tables.set_missing_properties(path, config.properties(table.name))


def compact_small_files(table: StoragePath, policy: Maintenance) -> int:
    """Compact the small files of a table if there are enough; return their number."""
    adds = delta_tables.open_table(table).get_add_actions(flatten=True)
    sizes = adds.column("size_bytes").to_pylist()
    if sum(size < policy.target_file_size for size in sizes) < policy.compact_from:
        return 0
    delta = delta_tables.open_for_write(table)
    removed = delta.optimize.compact(target_size=policy.target_file_size)["numFilesRemoved"]
    objects.forget(str(table))
    return int(removed)


@objects.remembering()
def unread_versions(config: Config, run_state: RunState) -> dict[str, int]:
    """Return the first version of each table that some reader has not read in full.

    Readers are streams by their checkpoints, gates that block rows, and the records, which count
    what a table has got since its last run. The version after the current one means that all
    is read. The queue of a source is named `_intake.<source>`.
    """
    unread: dict[str, int] = {}
    for table, version in _unread_by_reader(config, run_state):
        unread[table] = min(version, unread.get(table, version))
    return unread


def _unread_by_reader(config: Config, run_state: RunState) -> Iterator[tuple[str, int]]:
    layout = config.layout
    for query in queries(config):
        recorded = run_state.totals_of(query.name)
        last = recorded.last_batch if query.layer in BALANCED_LAYERS else None
        for name in query.upstream:
            version = _next_read_version(config, query.name, last, layout.table(name))
            if version is not None:
                yield name, version
        if not query.upstream and delta_tables.table_exists(layout.queue(query.source)):
            yield f"_intake.{query.source}", _next_read_version(config, query.name, last) or 0
        for target, version in zip(query.targets, recorded.versions, strict=False):
            yield target, version + 1
    for table in pending_work.blocked_gates(config, run_state):
        yield table, run_state.passed.get(table, 0) + 1


def _next_read_version(
    config: Config, query: str, recorded: int | None, table: StoragePath | None = None
) -> int | None:
    """Return the version that a query reads first when it restarts; None before its first batch.

    Spark plans the last batch again then. (Source: populateStartOffsets of MicroBatchExecution.)

    Args:
        query: the name of the query.
        recorded: the last recorded batch; None if batches are not counted from the commits
            that they read.
        table: a table that it reads; None for the queue of bronze.
    """
    checkpoint = config.layout.checkpoint(query)
    last = checkpoints.last_committed(checkpoint)
    batch = last if recorded is None else min(last, recorded)
    if batch < 1:  # the first batch does not record its start
        return None if checkpoints.last_planned(checkpoint) < 0 else 0
    try:
        return checkpoints.delta_offset(checkpoint, batch - 1, table).version
    except (MedallionError, LookupError):  # Spark keeps the offsets of the last hundred batches
        return 0


def _tables(config: Config, layers: Sequence[str], is_streaming: bool) -> Iterator[_Table]:
    for query in queries(config, layers):
        if not query.upstream:
            yield _Table(f"_intake.{query.source}")
        # If two writers replace the same table, one fails.
        gold = config.gold.get(query.name.removeprefix("gold."))
        is_replaced = gold.output_mode != "append" if gold else query.type is QueryType.CHANGES
        is_compacted = not (is_streaming and is_replaced)
        for name in query.targets:
            yield _Table(name, query.name, is_compacted)
    if "bronze" in layers:  # the records are compacted as they are written
        for name in table_specs.RECORD_TABLES:
            yield _Table(name, is_compacted=False)


@objects.remembering()
def _maintain(
    config: Config, table: _Table, unread: int | None, is_streaming: bool, removes: bool
) -> TableChanges:
    """Maintain one table.

    Args:
        unread: the first version that some reader has not read in full, if anything reads it.
        is_streaming: its query is running.
        removes: whether to remove old files, too.
    """
    path, policy = config.layout.table(table.name), config.maintain
    if not is_streaming:  # new properties fail a running batch
        delta_tables.set_missing_properties(path, config.properties(table.name))
    compacted = compact_small_files(path, policy) if table.is_compacted else 0
    if not removes:
        return TableChanges(compacted)
    return TableChanges(compacted, *_remove_old_files(path, policy, unread, not is_streaming))


def _remove_old_files(
    table: StoragePath, policy: Maintenance, unread: int | None, is_idle: bool
) -> tuple[int, int]:
    """Remove files and commits that are older than the retention and the first unread version.

    Args:
        policy: the retention.
        unread: the first version that some reader has not read in full, if anything reads it.
        is_idle: no query writes the table now, so that files that no commit names are orphans.

    Returns:
        The numbers of files and of commits removed.
    """
    now, keep = time.time(), float(policy.retention.seconds)
    if unread is not None and unread <= delta_tables.table_version(table):
        # Commits that are gone already cannot be kept.
        first = max(unread, delta_tables.earliest_version(table))
        # The time in its removals is earlier than the commit.
        keep = max(keep, now - delta_log.commit_time(table, first) + _HOUR)
    removed = _vacuum(table, keep, orphans=False)
    if is_idle:
        removed += _vacuum(table, max(keep, _ORPHANED), orphans=True)
    commits = delta_log.commit_versions(table)
    if keep <= policy.retention.seconds:  # it uses the retention in the table's properties
        delta_tables.open_table(table).cleanup_metadata()
        objects.forget(str(table))
    changes = table / "_change_data"  # vacuum ignores them
    latest = (now - keep - _DAY) * 1_000_000
    old_changes = [
        changes / name
        for name, info in changes.list_files()
        if name.endswith(".parquet") and info.modified_at < latest
    ]
    for file in old_changes:
        file.delete()
    removed_versions = {*commits} - {*delta_log.commit_versions(table)}
    old_commits = [delta_log.commit_file(table, version) for version in removed_versions]
    _remove_checksums(table, (*old_changes, *old_commits))
    return removed + len(old_changes), len(old_commits)


def purge(table: StoragePath) -> None:
    """Remove the files and commits of all older versions of a table at once.

    The caller holds the layers' locks. Readers continue only if they read the table for the first
    time afterwards: for them it starts with the version that this adds.
    """
    _vacuum(table, 0, orphans=True)
    delta = delta_tables.open_for_write(table)
    # The newest commit may have values of removed rows, as statistics of their files.
    properties = {_PURGED_AT: clock.format_time(clock.now_micros())}
    delta.alter.set_table_properties(properties, raise_if_not_exists=False)
    delta.create_checkpoint()
    delta_log.remove_older_commits(table, delta.version())


def _vacuum(table: StoragePath, seconds: float, orphans: bool) -> int:
    """Remove replaced files, or orphans, of a minimum age; return their number.

    Args:
        seconds: the minimum age.
        orphans: whether to list the directory for files that no commit names.
    """
    hours = math.ceil(seconds / 3600) if seconds >= 3600 else 0
    options: dict[str, Any] = {"enforce_retention_duration": False, "full": orphans}
    removable = delta_tables.open_table(table).vacuum(hours, **options)
    # The log also names files that an earlier run removed: commit nothing for those.
    stored = {*table.files_below()} if removable else set[StoragePath]()
    files = [file for name in removable if (file := table / unquote(name)) in stored]
    if files:
        delta_tables.open_for_write(table).vacuum(hours, dry_run=False, **options)
        _remove_checksums(table, files)
    return len(files)


def _remove_checksums(table: StoragePath, files: Collection[StoragePath]) -> None:
    """Remove the checksums of removed files: Hadoop writes one beside each file on a disk."""
    checksums = {file.parent / f".{file.name}.crc" for file in files}
    for checksum in checksums.intersection(table.files_below() if files else ()):
        checksum.delete()

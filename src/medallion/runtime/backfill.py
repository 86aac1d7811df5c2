"""Backfills: files from any path ingested once, by this process or by the running stream."""

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from medallion.config.model import Config, SourceConfig
from medallion.config.queries import layers_in_use
from medallion.config.values import matches_pattern
from medallion.errors import MedallionError, UsageError
from medallion.ingest.files import listing
from medallion.ingest.formats import SOURCE_TYPES
from medallion.ingest.kafka import broker
from medallion.runtime import refresh
from medallion.runtime.opening import open_pipeline
from medallion.spark.errors import raise_combined
from medallion.spark.settings import Workload, uses_store
from medallion.state import journal, ledger
from medallion.state.journal import Backfill
from medallion.state.ledger import Entry, Reason, State
from medallion.storage import locks
from medallion.storage.layout import LAYERS
from medallion.storage.objects import scheme_of
from medallion.storage.paths import ObjectPath, StoragePath
from medallion.storage.text import Reporter, counted

_POLL_SECONDS = 0.5
_CHANGED = "it changed while it was read: the next run ingests the new version"
_GONE = "gone before it was ingested"


@dataclass(frozen=True)
class BackfillResult:
    """The result of a backfill.

    Attributes:
        files: number of files.
        new_files: number of files that were ingested now.
        rows: rows of the new files, or of the messages.
        refused: entries of files that cannot be ingested.
        waiting: entries of files that a later run ingests, or whose reason says what to do.
        topic: the topic that was resumed.
        lost_offsets: number of lost offsets of the topic; None if unknown.
    """

    files: int
    new_files: int
    rows: int
    refused: tuple[Entry, ...]
    waiting: tuple[Entry, ...] = ()
    topic: str | None = None
    lost_offsets: int | None = 0

    @property
    def is_good(self) -> bool:
        """Return whether every file is ingested."""
        return not (self.refused or self.waiting)


def run_backfill(
    config: Config, name: str, path: str | os.PathLike[str], report: Reporter, debug: bool = False
) -> BackfillResult:
    """Ingest a file, or all files below a directory, whatever their age; each once.

    For a Kafka source the path is a topic that lost messages before they were ingested: it is
    resumed from its first available message.

    Args:
        path: a file, a directory or a topic.
        debug: whether errors are reported with their stack traces.

    Raises:
        UsageError: the source or the path is unknown, or the topic lost nothing.
    """
    source, run = config.source(name), partial(_run_layers, config, name, report, debug)
    if source.stream:
        return resume_topic(config, source, str(path), report, run)
    path = StoragePath(path)
    if isinstance(path, ObjectPath) and not uses_store(config, scheme := scheme_of(path.address)):
        # The next run may start with its files.
        advice = f"add it to the folders of {name}, or copy its files to a disk"
        raise UsageError(f"{path}: no root or folder is on {scheme}://: {advice}.")
    path = _normalized_path(config, source, path)
    if unmatched := listing.count_unmatched_files(path, source.pattern):
        names = f"{counted(unmatched, 'file')} left out, whose names do not match {source.pattern}"
        report(f"{path}: {names}")
    listed = listing.list_files(config.layout, source, [path])
    paths = {*listed}
    before = _newest_entries(config, source)
    request = request_backfill(config, source.name, path)
    if not _ingested_by_other_process(config, source, paths, request, report):
        run()
    after = _newest_entries(config, source)
    entries = [entry for p, entry in after.items() if p in paths]
    entries += [
        Entry(source.name, p, 1, info.size, info.modified_at, 0, State.VANISHED, _GONE)
        for p, info in listed.items()
        if p not in after and not isinstance(info, Reason)  # it vanished at once
    ]
    known = {(entry.path, entry.version) for entry in before.values() if entry.is_ingested}
    new = [e for e in entries if e.is_ingested and (e.path, e.version) not in known]
    waiting = (entry for entry in entries if entry.state == State.PENDING)
    refused = tuple(e for e in entries if e.is_refused or e.state == State.VANISHED)
    unread = tuple(replace(entry, why=entry.why or _CHANGED) for entry in waiting)
    return BackfillResult(len(paths), len(new), sum(e.rows or 0 for e in new), refused, unread)


def request_backfill(config: Config, source: str, path: str | os.PathLike[str]) -> StoragePath:
    """Request that the holder of bronze's lock ingests a path; return the file of the request."""
    arguments = Backfill(source, config.layout.normalize(str(path)))
    entry = journal.Entry(uuid.uuid4().hex, arguments)
    journal.write_entry(config.layout, entry)
    return entry.file(config.layout)


def _normalized_path(config: Config, source: SourceConfig, path: StoragePath) -> StoragePath:
    """Return the path to ingest, normalized as in the ledger.

    Raises:
        UsageError: it does not exist, is the lakehouse's own, or does not match the source's
            pattern.
    """
    path = path.normalized()
    if not path.is_stored():
        raise UsageError(f"{path}: no such file or folder.")
    path = listing.canonical_path(config.layout, source, path)
    layout, archived = config.layout, config.layout.archive(source.name)
    if layout.is_table_path(path):
        raise UsageError(f"{path}: this folder belongs to the lakehouse's own tables.")
    for folder in (*source.folders_in(layout), archived, layout.root):
        if folder != path and folder.resolved().below(path.resolved()) is not None:
            raise UsageError(f"{path}: it contains {folder}. Backfill the other folders in it.")
    if path.below(archived) is not None:
        raise UsageError(f"{path}: the rows of archived files are in bronze already.")
    is_file = not path.is_directory()
    if is_file and listing.is_ignored(path.name, source.ignore):
        raise UsageError(f"{path}: files of this name are ignored ({source.name}.ignore).")
    if is_file and not matches_pattern(path.name, source.pattern):
        pattern = f"{source.pattern}, the pattern of {source.name}"
        raise UsageError(f"{path}: its name does not match {pattern}.")
    return path


def _run_layers(config: Config, name: str, report: Reporter, debug: bool) -> None:
    """Run all layers, except gold tables that a gate blocks.

    Errors of queries that do not read the source are only reported.

    Args:
        debug: whether errors are reported with their stack traces.

    Raises:
        MedallionError: a query that reads rows of the source failed.
    """
    failures: list[MedallionError] = []
    layers, work = layers_in_use(config), Workload.ENDLESS  # its size is not known yet
    with open_pipeline(config, "backfill", layers, report, debug, work) as pipeline:
        for layer in layers_in_use(config):
            for flow, error in refresh.run_layer(pipeline, layer):
                if name in flow.query.sources:
                    failures.append(error)
                else:
                    report(str(error))
    raise_combined(failures)


def resume_topic(
    config: Config, source: SourceConfig, topic: str, report: Reporter, run: Callable[[], object]
) -> BackfillResult:
    """Resume a topic that lost messages.

    Args:
        source: the source of the topic.
        topic: the topic.
        run: runs all layers.

    Raises:
        UsageError: the topic is unknown, or lost nothing.
    """
    rows_in_ledger = SOURCE_TYPES[source.format].rows_in_ledger
    with journal.lock_layers(config, LAYERS, "backfill", report):
        lost = broker.skip_lost(config, source, topic)
        before = rows_in_ledger(config, source)
    loss = "unread messages are lost" if lost is None else f"{counted(lost, 'offset')} lost"
    report(f"topic {topic}: resumes from its first available message; {loss}")
    run()
    rows = rows_in_ledger(config, source) - before
    return BackfillResult(0, 0, rows, (), topic=topic, lost_offsets=lost)


def _newest_entries(config: Config, source: SourceConfig) -> dict[str, Entry]:
    return ledger.newest_versions(ledger.read_entries(config.layout, source.name))


def _ingested_by_other_process(
    config: Config, source: SourceConfig, paths: set[str], request: StoragePath, report: Reporter
) -> bool:
    """Wait while another process, which has locked bronze, ingests the files.

    Args:
        source: the source of the files.
        paths: the files, as in the ledger.
        request: the file of the request that the other process reads.
        report: reports that it was requested.

    Returns:
        True if that process ingested them; False if there is none, or if it ended before.
    """
    is_reported = False
    while True:
        # In this order, so that files ingested by a process that ends in between are seen.
        holder = locks.lock_holder(config.layout, "bronze")
        is_open = request.is_stored()
        entries = [e for p, e in _newest_entries(config, source).items() if p in paths]
        is_pending = any(e.state == State.PENDING and not e.why for e in entries)
        if holder is None or not (is_open or is_pending):
            return holder is not None
        if not is_reported:
            report(
                f"requested from {holder}, which ingests the files beside new ones; if nothing "
                "happens, stop both and run this command again"
            )
            is_reported = True
        time.sleep(_POLL_SECONDS)

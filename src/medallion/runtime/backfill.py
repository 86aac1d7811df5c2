"""Backfills: files from any path ingested once, by this process or by the running stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from medallion.config.model import Config, SourceConfig
from medallion.config.queries import layers_in_use
from medallion.config.values import matches_pattern
from medallion.errors import MedallionError, UsageError
from medallion.ingest.files import discovery
from medallion.ingest.files.listing import canonical_path, count_unmatched_files, list_files
from medallion.ingest.formats import SOURCE_TYPES
from medallion.ingest.kafka import source_type
from medallion.runtime import refresh
from medallion.runtime.graph import GOLD_IS_BLOCKED, open_pipeline
from medallion.spark.errors import combine_errors
from medallion.state import ledger
from medallion.state.ledger import INGESTED_STATES, PENDING, REFUSED_STATES, VANISHED, Entry, File
from medallion.storage import locks
from medallion.storage.paths import LAYERS, resolved_path, without_dotdot
from medallion.storage.text import Reporter, counted

_POLL_SECONDS = 0.5
_POLLS_PER_MINUTE = 120
_CHANGED = "it changed while it was read: the next run ingests the new version"


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
        lost: number of lost offsets of the topic; None if unknown.
    """

    files: int
    new_files: int
    rows: int
    refused: tuple[Entry, ...]
    waiting: tuple[Entry, ...] = ()
    topic: str | None = None
    lost: int | None = 0

    @property
    def is_good(self) -> bool:
        """Whether every file is ingested."""
        return not (self.refused or self.waiting)


def run_backfill(
    config: Config, name: str, path: Path, say: Reporter, debug: bool = False
) -> BackfillResult:
    """Ingest a file, or all files below a directory, whatever their age; each once.

    For a Kafka source the path is a topic that lost messages before they were ingested: it is
    resumed from its first available message.

    Args:
        config: the configuration.
        name: the source.
        path: a file, a directory or a topic.
        say: reports progress.
        debug: whether errors are reported with their stack traces.

    Raises:
        UsageError: the source or the path is unknown, or the topic lost nothing.
    """
    source = config.source(name)
    if source.stream:
        return resume_topic(config, source, str(path), say, lambda: _run(config, name, say, debug))
    path = _checked(config, source, path)
    if out := count_unmatched_files(config.layout, path, source.pattern):
        say(f"{path}: {counted(out, 'file')} left out, whose names do not match {source.pattern}")
    listed = list_files(config.layout, source, [path])
    files, paths = {**listed.files, **listed.hidden}, listed.paths
    _refuse_shared(config, source, listed.files)
    before = _newest(config, source)
    request = discovery.request_backfill(config.layout, source.name, path)
    if not _ingested_by_other_process(config, source, paths, request, say):
        _run(config, name, say, debug)
    after = _newest(config, source)
    entries = [entry for p, entry in after.items() if p in paths]
    entries += [_gone(source, file) for p, file in files.items() if p not in after]
    return _outcome(len(paths), before, entries)


def _checked(config: Config, source: SourceConfig, path: Path) -> Path:
    """Return the path to ingest, normalized as in the ledger.

    Raises:
        UsageError: it does not exist, is the lakehouse's own, or does not match the source's
            pattern.
    """
    path = without_dotdot(path)
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder.")
    path = canonical_path(config.layout, source, path)
    if config.layout.is_table_path(path):
        raise UsageError(f"{path}: this folder belongs to the lakehouse's own tables.")
    if path.is_file() and not matches_pattern(path.name, source.pattern):
        raise UsageError(
            f"{path}: its name does not match {source.pattern}, the pattern of {source.name}."
        )
    if path.is_file() and config.layout.is_reason_file(path):
        raise UsageError(f"{path}: no data; it says why the file beside it was rejected.")
    return path


def _refuse_shared(config: Config, source: SourceConfig, paths: Iterable[str]) -> None:
    """Raise UsageError if another source ingests the same files, and then archives them."""
    for other in config.sources.values():
        if other.name == source.name or other.stream or other.clean_source == "off":
            continue
        places = {each for p in other.folders_in(config.layout) for each in (p, resolved_path(p))}
        for file in map(config.layout.root.joinpath, paths):
            if matches_pattern(file.name, other.pattern) and not places.isdisjoint(file.parents):
                raise UsageError(
                    f"{file}: {other.name} ingests it too, and then archives it. Copy it to "
                    f"another folder, and backfill {source.name} from there."
                )


def _outcome(asked: int, before: Mapping[str, Entry], after: Sequence[Entry]) -> BackfillResult:
    """Return the result for some files, by their ledger entries before and after."""
    new = [e for e in after if e.state in INGESTED_STATES and _is_other(before.get(e.path), e)]
    return BackfillResult(
        files=asked,
        new_files=len(new),
        rows=sum(entry.rows or 0 for entry in new),
        refused=tuple(e for e in after if e.state in (*REFUSED_STATES, VANISHED)),
        waiting=tuple(replace(e, why=e.why or _CHANGED) for e in after if e.state == PENDING),
    )


def _run(config: Config, name: str, say: Reporter, debug: bool) -> None:
    """Run all layers, except gold if a gate blocks it.

    Errors of queries that do not read the source are only reported.

    Raises:
        MedallionError: queries failed that read the source, or its rows.
    """
    failures: list[MedallionError] = []
    with open_pipeline(config, "backfill", layers_in_use(config), say, debug) as pipeline:
        for layer in layers_in_use(config):
            if pipeline.blocking_gates(pipeline.flows(layer)):
                say(GOLD_IS_BLOCKED)
                continue
            for flow, error in refresh.run_layer(pipeline, layer):
                if name in flow.source_names:
                    failures.append(error)
                else:
                    say(str(error))
    if failures:
        raise combine_errors(failures)


def resume_topic(
    config: Config, source: SourceConfig, topic: str, say: Reporter, run: Callable[[], object]
) -> BackfillResult:
    """Resume a topic that lost messages.

    Args:
        config: the configuration.
        source: the source of the topic.
        topic: the topic.
        say: reports progress.
        run: runs all layers.

    Raises:
        UsageError: the topic is unknown, or lost nothing.
    """
    if source.format != "kafka":
        raise UsageError(f"{source.name} reads a {source.format}, which has nothing to backfill.")
    rows_in_ledger = SOURCE_TYPES[source.format].rows_in_ledger
    with locks.lock_layers(config.layout, LAYERS, "backfill"):
        lost = source_type.skip_lost(config, source, topic)
        before = rows_in_ledger(config, source) or 0
    loss = "unread messages are lost" if lost is None else f"{counted(lost, 'offset')} lost"
    say(f"topic {topic}: resumes from its first available message; {loss}")
    run()
    rows = (rows_in_ledger(config, source) or 0) - before
    return BackfillResult(0, 0, rows, (), topic=topic, lost=lost)


def _is_other(before: Entry | None, entry: Entry) -> bool:
    return before is None or before.version != entry.version or before.state not in INGESTED_STATES


def _newest(config: Config, source: SourceConfig) -> dict[str, Entry]:
    return ledger.newest_versions(ledger.read_entries(config.layout, source.name))


def _gone(source: SourceConfig, file: File) -> Entry:
    """Return an entry for a file that vanished before it was in the ledger."""
    why = "gone before it was ingested"
    return Entry(source.name, file.path, 1, file.size, file.modified_at, 0, state=VANISHED, why=why)


def _ingested_by_other_process(
    config: Config,
    source: SourceConfig,
    paths: set[str],
    request: discovery.BackfillRequest,
    say: Reporter,
) -> bool:
    """Wait while another process, which has locked bronze, ingests the files.

    Returns:
        False if there is none, or it ended before it had ingested all of them.
    """
    is_reported = False
    queued: dict[str, File] = {}
    polls = 0
    while True:
        # In this order: what a process that ends in between has ingested is seen.
        holder = locks.lock_holder(config.layout, "bronze")
        is_asked = request.is_open
        newest = [e for p, e in _newest(config, source).items() if p in paths]
        if holder is None or not (is_asked or any(_is_under_way(e, queued) for e in newest)):
            return holder is not None
        if not is_reported:
            say(f"requested from {holder}, which ingests the files beside new ones")
            is_reported = True
        polls += 1
        if polls == _POLLS_PER_MINUTE:
            say(
                f"still waiting for {holder}: if it was started before pipeline.yaml had "
                f"{source.name}, or medallion status shows an error of bronze.{source.name}, stop "
                "both; the next run ingests the files"
            )
        time.sleep(_POLL_SECONDS)


def _is_under_way(entry: Entry, queued: dict[str, File]) -> bool:
    """Return whether a file is queued, and unchanged since; else it might never be ingested."""
    if entry.state != PENDING or entry.why:
        return False
    return queued.setdefault(entry.path, entry.file) == entry.file

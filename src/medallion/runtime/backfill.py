"""Files from anywhere taken in once, by this process or by the stream that is on already."""

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

_LOOK_SECONDS = 0.5
_LOOKS_A_MINUTE = 120
_CHANGED = "it changed while it was taken in: the next look takes it in as it is then"


@dataclass(frozen=True)
class Backfilled:
    """What became of the files: how many are new, their rows, and those that were not taken in.

    `waiting` are pending: a later run takes them in, or their reason tells what to do. Of a `topic`
    that is gone on with, `lost` are the offsets whose messages are gone; None where nobody knows.
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
        """Whether every file is taken in."""
        return not (self.refused or self.waiting)


def backfill(
    config: Config, name: str, path: Path, say: Reporter, debug: bool = False
) -> Backfilled:
    """Take in a file, or all below a folder, whatever their age; each once.

    Of a source of messages the path is a topic, some of whose messages are gone before they were
    taken in: it is gone on with from the first one that is there.

    Raises:
        UsageError: there is no such source or path, or nothing of a topic is gone.
    """
    source = config.source(name)
    if source.stream:
        return go_on(config, source, str(path), say, lambda: _run(config, name, say, debug))
    path = _checked(config, source, path)
    if out := count_unmatched_files(config.layout, path, source.pattern):
        say(f"{path}: {counted(out, 'file')} left out, whose names do not fit {source.pattern}")
    listed = list_files(config.layout, source, [path])
    files, paths = {**listed.files, **listed.hidden}, listed.paths
    _refuse_another_s(config, source, listed.files)
    before = _newest(config, source)
    request = discovery.request_backfill(config.layout, source.name, path)
    if not _taken_in_by_another(config, source, paths, request, say):
        _run(config, name, say, debug)
    after = _newest(config, source)
    entries = [entry for p, entry in after.items() if p in paths]
    entries += [_gone(source, file) for p, file in files.items() if p not in after]
    return _outcome(len(paths), before, entries)


def _checked(config: Config, source: SourceConfig, path: Path) -> Path:
    """The path of what is to be taken in, as the ledger spells it.

    Raises:
        UsageError: it is not there, is our own, or its name is not one that the source takes in.
    """
    path = without_dotdot(path)
    if not path.exists():
        raise UsageError(f"{path}: there is no such file or folder.")
    path = canonical_path(config.layout, source, path)
    if config.layout.is_table_path(path):
        raise UsageError(f"{path}: nobody landed it: the lakehouse's own tables lie there.")
    if path.is_file() and not matches_pattern(path.name, source.pattern):
        raise UsageError(
            f"{path}: its name does not fit {source.pattern}, the pattern of {source.name}."
        )
    if path.is_file() and config.layout.is_reason_file(path):
        raise UsageError(f"{path}: it is no data, but says why the file beside it was rejected.")
    return path


def _refuse_another_s(config: Config, source: SourceConfig, paths: Iterable[str]) -> None:
    """Raise UsageError where another source takes the same files in, and then moves them away."""
    for other in config.sources.values():
        if other.name == source.name or other.stream or other.clean_source == "off":
            continue
        places = {each for p in other.folders_in(config.layout) for each in (p, resolved_path(p))}
        for file in map(config.layout.root.joinpath, paths):
            if matches_pattern(file.name, other.pattern) and not places.isdisjoint(file.parents):
                raise UsageError(
                    f"{file}: {other.name} takes it in as well, and moves it away: copy it to a "
                    f"folder of its own, and backfill {source.name} from there."
                )


def _outcome(asked: int, before: Mapping[str, Entry], after: Sequence[Entry]) -> Backfilled:
    """What became of some files, by the ledger as it was before and as it is after."""
    new = [e for e in after if e.state in INGESTED_STATES and _is_other(before.get(e.path), e)]
    return Backfilled(
        files=asked,
        new_files=len(new),
        rows=sum(entry.rows or 0 for entry in new),
        refused=tuple(e for e in after if e.state in (*REFUSED_STATES, VANISHED)),
        waiting=tuple(replace(e, why=e.why or _CHANGED) for e in after if e.state == PENDING),
    )


def _run(config: Config, name: str, say: Reporter, debug: bool) -> None:
    """All layers, but for gold where a gate holds it back: what has come is taken in.

    Raises:
        MedallionError: a query that reads the source, or its rows, failed, and why; the others have
            ended, in all layers, and what they failed of is told.
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


def go_on(
    config: Config, source: SourceConfig, topic: str, say: Reporter, run: Callable[[], object]
) -> Backfilled:
    """Go on with a topic of which messages are gone.

    Args:
        run: runs all layers.

    Raises:
        UsageError: there is no such topic, or nothing of it is gone.
    """
    if source.format != "kafka":
        raise UsageError(f"{source.name} reads a {source.format}, which keeps nothing to take in.")
    rows_in_ledger = SOURCE_TYPES[source.format].rows_in_ledger
    with locks.lock_layers(config.layout, LAYERS, "backfill"):
        lost = source_type.skip_lost(config, source, topic)
        before = rows_in_ledger(config, source) or 0
    told = "what was not read before is lost" if lost is None else f"{counted(lost, 'offset')} lost"
    say(f"topic {topic}: goes on with its first message that is there; {told}")
    run()
    rows = (rows_in_ledger(config, source) or 0) - before
    return Backfilled(0, 0, rows, (), topic=topic, lost=lost)


def _is_other(before: Entry | None, entry: Entry) -> bool:
    return before is None or before.version != entry.version or before.state not in INGESTED_STATES


def _newest(config: Config, source: SourceConfig) -> dict[str, Entry]:
    return ledger.newest_versions(ledger.read_entries(config.layout, source.name))


def _gone(source: SourceConfig, file: File) -> Entry:
    """What is told of a file that went before it was in the ledger."""
    why = "gone before it was taken in"
    return Entry(source.name, file.path, 1, file.size, file.modified_at, 0, state=VANISHED, why=why)


def _taken_in_by_another(
    config: Config,
    source: SourceConfig,
    paths: set[str],
    request: discovery.BackfillRequest,
    say: Reporter,
) -> bool:
    """Wait while another process, which runs bronze, takes the files in; False where there is none,
    or it has ended before it had done with all of them."""
    told = False
    handed: dict[str, File] = {}
    looks = 0
    while True:
        # Asked in this order: a process that ends between two has done what it did before.
        holder = locks.lock_holder(config.layout, "bronze")
        is_asked = request.is_open
        newest = [e for p, e in _newest(config, source).items() if p in paths]
        if holder is None or not (is_asked or any(_is_under_way(e, handed) for e in newest)):
            return holder is not None
        if not told:
            say(f"asked of {holder}, which takes the files in beside what lands")
            told = True
        looks += 1
        if looks == _LOOKS_A_MINUTE:
            say(
                f"still waiting for {holder}: where it was started before pipeline.yaml had "
                f"{source.name}, or medallion status tells of an error of bronze.{source.name}, "
                "stop both; what was asked for is seen to by the next run"
            )
        time.sleep(_LOOK_SECONDS)


def _is_under_way(entry: Entry, handed: dict[str, File]) -> bool:
    """Whether a file is handed over; one that goes on changing might never be taken in."""
    if entry.state != PENDING or entry.why:
        return False
    return handed.setdefault(entry.path, entry.file) == entry.file

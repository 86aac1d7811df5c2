"""The status of each query: its last run and its backlog; no JVM, read-only."""

from dataclasses import dataclass

from medallion.config.model import Config, SourceConfig
from medallion.config.queries import Query, queries
from medallion.errors import ITEM_ERRORS, error_message
from medallion.ingest.formats import SOURCE_TYPES
from medallion.spark import checkpoints
from medallion.state import ledger, pending_work
from medallion.state.runs import FAILED, LastRun, RunRecords, RunState
from medallion.storage import clock, delta_tables, locks

RUNNING, NEVER, UNKNOWN = "running", "never run", "unknown"


@dataclass(frozen=True)
class BacklogStatus:
    """The waiting input in directories or topics; times in seconds, None if unknown."""

    files: int
    messages: int
    bytes: int
    oldest_age: float | None
    bytes_per_second: float | None


@dataclass(frozen=True)
class QueryStatus:
    """One query: `rows_*` are of its last run, `waiting_rows` are for the next."""

    query: str
    state: str
    last_batch: int | None
    last_run_at: str | None
    rows_in: int | None
    rows_out: int | None
    waiting_rows: int | None
    watermark: str | None
    error: str | None
    backlog: BacklogStatus | None = None

    @property
    def is_known(self) -> bool:
        """Return whether everything could be read."""
        is_backlog_known = self.waiting_rows is not None or self.backlog is not None
        return is_backlog_known and self.state != UNKNOWN


def query_statuses(config: Config) -> list[QueryStatus]:
    """Return the status of all queries, in order of layers; each reports its own errors."""
    state, unknown = RunState(), None
    try:
        state = RunRecords(config.layout).run_state
    except ITEM_ERRORS as error:
        unknown = f"last run unknown: {error_message(error)}"
    return [_status(config, query, state, unknown) for query in queries(config)]


def _status(config: Config, query: Query, state: RunState, unknown: str | None) -> QueryStatus:
    """Return the status of one query.

    Args:
        state: the recorded runs.
        unknown: why the recorded runs are unknown; None if they are known.
    """
    run, checkpoint = state.last.get(query.name), config.layout.checkpoint(query.name)
    batch, waiting, backlog, watermark = -1, None, None, None
    errors = [unknown, run.error if run else None]
    try:
        batch = checkpoints.last_committed(checkpoint)
        waiting = pending_work.unread_rows(config, query)
        if not query.upstream:
            last_busy = state.last_busy.get(query.name)
            backlog = _backlog(config, config.sources[query.source], last_busy)
        watermark = checkpoints.watermark(checkpoint, batch)
    except ITEM_ERRORS as error:  # e.g. no broker answers, or a table is damaged
        errors.append(f"backlog unknown: {_without_name(error, query)}")
    try:
        for name in query.targets:
            delta_tables.table_version(config.layout.table(name))
    except ITEM_ERRORS as error:
        unknown = _without_name(error, query)
        errors.append(unknown)
    return QueryStatus(
        query=query.name,
        state=UNKNOWN if unknown else _state(run, locks.lock_holder(config.layout, query.layer)),
        last_batch=batch if batch >= 0 else None,
        last_run_at=clock.format_time(run.started_at) if run else None,
        rows_in=run.rows_in if run else None,
        rows_out=run.rows_out if run else None,
        waiting_rows=waiting,
        watermark=clock.format_time(watermark * 1000) if watermark else None,
        error="; ".join(filter(None, errors)) or None,
        backlog=backlog,
    )


def _without_name(error: Exception, query: Query) -> str:
    return error_message(error).removeprefix(f"{query.name}: ")


def _state(run: LastRun | None, holder: str | None) -> str:
    if holder and run and run.state == FAILED:
        return f"{FAILED}, retried by {holder}"
    return f"{RUNNING}: {holder}" if holder else run.state if run else NEVER


def _backlog(config: Config, source: SourceConfig, last_busy: LastRun | None) -> BacklogStatus:
    """Return the backlog of a source, with the rate of the last run that ingested rows."""
    waiting = SOURCE_TYPES[source.format].backlog(config, source)
    rate, age, oldest = _bytes_per_second(config, source, last_busy), None, waiting.oldest
    if oldest is not None:  # it may be in the future, by another machine's clock
        age = max(round((clock.now_micros() - oldest) / 1e6, 1), 0.0)
    speed = round(rate, 1) if rate else None
    return BacklogStatus(waiting.files, waiting.messages, waiting.bytes, age, speed)


def _bytes_per_second(config: Config, source: SourceConfig, run: LastRun | None) -> float | None:
    if run is None or not run.seconds:
        return None
    first, last = run.first_batch or 0, run.last_batch or 0
    entries = ledger.read_entries(config.layout, source.name)
    size = sum(e.size for e in entries if e.batch is not None and first <= e.batch <= last)
    return size / run.seconds or None

"""How each query stands: what it did last, and what waits for it; no JVM, nothing is written."""

from __future__ import annotations

from dataclasses import dataclass, replace

from medallion.config.model import Config, SourceConfig
from medallion.config.queries import Query, queries
from medallion.errors import ITEM_ERRORS, error_message
from medallion.ingest import source as base
from medallion.ingest.formats import SOURCE_TYPES
from medallion.inspect import ledger_files
from medallion.spark import checkpoints
from medallion.state import ledger, pending_work, refresh_plan
from medallion.state.runs import FAILED, LastRun, RescuedSummary, Runs, RunState
from medallion.storage import clock, delta_tables, locks

RUNNING, NEVER, UNKNOWN = "running", "never run", "unknown"
_LEFT = "a refresh has left it to be rebuilt, which the next medallion nightly does"


@dataclass(frozen=True)
class BacklogStatus:
    """What waits in folders or topics; ages and estimates in seconds, None where unknown."""

    files: int
    messages: int
    bytes: int
    oldest_age: float | None
    bytes_per_second: float | None
    caught_up_in: float | None
    rejected_files: int | None = None


@dataclass(frozen=True)
class QueryStatus:
    """One query: figures of rows are those of its last run, `waiting_rows` are for the next.

    `rescued` are the values of that run that did not fit their columns, of bronze's queries.
    """

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
    rescued: RescuedSummary | None = None

    @property
    def is_known(self) -> bool:
        """Whether all of it could be read."""
        waits_are_known = self.waiting_rows is not None or self.backlog is not None
        return waits_are_known and self.state != UNKNOWN


def query_statuses(config: Config) -> list[QueryStatus]:
    """The queries of all layers, in their order; what cannot be read is told of those it is of."""
    run_state, unknown = _read_run_state(config)
    held, left = _held(config, run_state), _left(config)
    found = [_status(config, query, run_state, held) for query in queries(config)]
    found = _with_rejected_files(config, found)
    if unknown:
        found = [replace(one, state=UNKNOWN, error=_more(unknown, one.error)) for one in found]
    return [replace(one, error=_more(one.error, left.get(one.query))) for one in found]


def _with_rejected_files(config: Config, found: list[QueryStatus]) -> list[QueryStatus]:
    """Add the counts; of a ledger that cannot be read, the queries of its sources report that."""
    try:
        counts = ledger_files.rejected_files(config)
    except ITEM_ERRORS:
        return found
    names = {query.name: query.source for query in queries(config)}
    return [
        replace(one, backlog=replace(one.backlog, rejected_files=counts[names[one.query]]))
        if one.backlog
        else one
        for one in found
    ]


def _read_run_state(config: Config) -> tuple[RunState, str | None]:
    """What is on record, or an empty record, and why it cannot be read."""
    try:
        return Runs(config.layout).run_state, None
    except ITEM_ERRORS as fault:
        nothing = RunState({}, {}, {}, {}, {}, {}, {}, frozenset())
        return nothing, f"what it did is not known: {error_message(fault)}"


def _left(config: Config) -> dict[str, str]:
    """What is told of the queries that a refresh has left; of a damaged plan, any but bronze's."""
    try:
        return dict.fromkeys(refresh_plan.pending_tables(config.layout), _LEFT)
    except ITEM_ERRORS as fault:
        return {query.name: error_message(fault) for query in queries(config) if query.upstream}


def _held(config: Config, run_state: RunState) -> str | None:
    """What is told of gold's queries while a gate holds the rows back that they would read."""
    held = pending_work.blocked_gates(config, run_state)
    return f"blocked: {pending_work.blocked_reason(held)}" if held else None


def _more(*told: str | None) -> str | None:
    return "; ".join(filter(None, told)) or None


def _status(config: Config, query: Query, run_state: RunState, held: str | None) -> QueryStatus:
    run, layout = run_state.last.get(query.name), config.layout
    checkpoint = layout.checkpoint(query.name)
    holder = locks.lock_holder(layout, query.layer)
    batch, waiting, backlog, mark, error = -1, None, None, None, run.error if run else None
    try:
        batch = checkpoints.last_committed(checkpoint)
        waiting = pending_work.unread_rows(config, query)
        if not query.upstream:
            busy = run_state.last_busy.get(query.name)
            backlog = _backlog(config, config.sources[query.source], busy)
        mark = checkpoints.watermark(checkpoint, batch)
    except ITEM_ERRORS as fault:  # a broker that does not answer, a table that is damaged
        told = error_message(fault).removeprefix(f"{query.name}: ")
        error = _more(error, f"what waits is not known: {told}")
    unreadable = _unreadable(config, query)
    error = _more(error, unreadable, held if query.layer == "gold" else None)
    return QueryStatus(
        query=query.name,
        state=UNKNOWN if unreadable else _state(run, holder),
        last_batch=batch if batch >= 0 else None,
        last_run_at=clock.format_time(run.started_at) if run else None,
        rows_in=run.rows_in if run else None,
        rows_out=run.rows_out if run else None,
        waiting_rows=waiting,
        watermark=clock.format_time(mark * 1000) if mark else None,
        error=error,
        backlog=backlog,
        rescued=_rescued(query, run),
    )


def _rescued(query: Query, run: LastRun | None) -> RescuedSummary | None:
    """Return the values of a source's last run that did not fit; None if the query is another."""
    if query.upstream or run is None:
        return None
    return RescuedSummary.from_record(run.rescued_rows, run.rescued_fields)


def _unreadable(config: Config, query: Query) -> str:
    """Why a table that it writes cannot be read; nothing where each can be."""
    try:
        for name in query.targets:
            delta_tables.table_version(config.layout.table(name))
    except ITEM_ERRORS as fault:
        return error_message(fault).removeprefix(f"{query.name}: ")
    return ""


def _state(run: LastRun | None, holder: str | None) -> str:
    """Whether a query runs, as far as that is known of its layer, and how its last run ended."""
    if holder and run and run.state == FAILED:
        return f"{FAILED}, tried again by {holder}"
    return f"{RUNNING} ({holder})" if holder else run.state if run else NEVER


def _backlog(config: Config, source: SourceConfig, busy: LastRun | None) -> BacklogStatus:
    waiting = SOURCE_TYPES[source.format].backlog(config, source)
    rate = _rate(config, source, busy)
    return BacklogStatus(
        files=waiting.files,
        messages=waiting.messages,
        bytes=waiting.bytes,
        oldest_age=None if waiting.oldest is None else _age(waiting.oldest),
        bytes_per_second=round(rate, 1) if rate else None,
        caught_up_in=_seconds(waiting, rate),
    )


def _age(since: int) -> float:
    """The seconds since a time; none since one to come, which is another clock's."""
    return max(round((clock.now_micros() - since) / 1e6, 1), 0.0)


def _seconds(waiting: base.Backlog, rate: float | None) -> float | None:
    """How long what waits takes at a rate of bytes a second; of messages there is no telling."""
    if not (waiting.files or waiting.messages):
        return 0.0
    return round(waiting.bytes / rate, 1) if rate and not waiting.messages else None


def _rate(config: Config, source: SourceConfig, run: LastRun | None) -> float | None:
    """Bytes a second of the last run that took files in."""
    if run is None or not run.seconds:
        return None
    first, last = run.first_batch or 0, run.last_batch or 0
    taken = ledger.read_entries(config.layout, source.name)
    size = sum(e.size for e in taken if e.batch is not None and first <= e.batch <= last)
    return size / run.seconds or None

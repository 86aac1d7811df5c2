"""Find, list, wait for and stop the streaming queries of this session.

Functions take a query, or its name or id, and raise UsageError if there is none. Spark forgets a
query when it ends; this package keeps the named ones that it has shown or listed.
"""

import io
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from medallion.errors import UsageError
from medallion.spark.errors import StreamError, one_line
from medallion.spark.jvm import stop_within
from medallion.spark.query import records_after, watermark_of
from medallion.spark.signals import replace_handlers

_STOPPED = "stopped"
_PAUSE = 0.05  # seconds between two polls
_named_queries: dict[str, StreamingQuery] = {}  # the last query of each name


@dataclass(frozen=True)
class Stopped:
    """The outcome of stopping a query: `stopped`, or why it still runs."""

    name: str
    id: str
    outcome: str

    @property
    def is_stopped(self) -> bool:
        """True if the query has ended."""
        return self.outcome == _STOPPED


@dataclass(frozen=True)
class Stream:
    """A query, with the rate and the watermark (UTC) of its last batch.

    `state` is `starting`, `running` (a batch), `waiting`, `ended`, or `failed` with the cause.
    """

    name: str
    id: str
    run_id: str
    state: str
    last_batch: int | None
    rows_a_second: float | None
    watermark: str | None


def session() -> SparkSession:
    """Return the Spark session of this process."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        raise UsageError("No Spark session: start one with medallion.spark_session().") from None


def keep(query: StreamingQuery) -> StreamingQuery:
    """Keep a named query in `streams()` after its end, until the next one of that name."""
    if query.name:
        _named_queries[query.name] = query
    return query


def forget(query: StreamingQuery) -> None:
    """Undo `keep`, which also keeps the rows of a sink in memory."""
    _named_queries.pop(query.name, None)


def label(query: StreamingQuery) -> str:
    """Return the name of a query, or the start of its id."""
    return query.name or query.id[:8]


def streams() -> list[Stream]:
    """Return the running queries, then the named ones that have ended."""
    return [stream_of(query) for query in _queries()]


def _queries() -> list[StreamingQuery]:
    active = [keep(query) for query in session().streams.active]
    return active + [query for query in _named_queries.values() if not query.isActive]


def stream_of(query: StreamingQuery) -> Stream:
    """Return the state of a query."""
    records = list(records_after(query, -1))
    last = records[-1] if records else {}
    state, batch, rate = _state(query), last.get("batchId"), last.get("processedRowsPerSecond")
    return Stream(label(query), query.id, query.runId, state, batch, rate, watermark_of(last))


def _state(query: StreamingQuery) -> str:
    if failure := exception(query):
        return f"failed: {failure}"
    if not query.isActive:
        return "ended"
    if query.status["isTriggerActive"]:
        return "running"
    return "waiting" if query.lastProgress else "starting"


def _find(query_or_name: StreamingQuery | str) -> StreamingQuery:
    if isinstance(query_or_name, StreamingQuery):
        return query_or_name
    queries = _queries()
    for query in queries:
        if query_or_name and query_or_name in (query.name, query.id, query.runId):
            return query
    names = ", ".join(sorted(map(label, queries))) or "none"
    raise UsageError(f"There is no stream {query_or_name!r} here; there are: {names}.")


def exception(query_or_name: StreamingQuery | str) -> str | None:
    """Return why a query failed, in one line; None if it runs or ended without failure."""
    failure = _find(query_or_name).exception()
    return None if failure is None else one_line(str(failure))


def explain(query_or_name: StreamingQuery | str, extended: bool = False) -> str:
    """Return Spark's plan of a query's last batch; `extended` adds the logical plans."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        _find(query_or_name).explain(extended)
    return printed.getvalue().strip()


def until_stream_is_ready(
    query_or_name: StreamingQuery | str, timeout: float = 60
) -> StreamingQuery:
    """Wait until a query has completed a batch, found no input, or ended; return it.

    Raises:
        StreamError: it failed, or was not ready after `timeout` seconds.
    """
    query = _find(query_or_name)
    if not _wait(lambda: query.lastProgress or not query.isActive, query, timeout):
        raise StreamError(
            f"{label(query)} is not ready after {timeout:g} seconds: {query.status['message']}. "
            "Set a longer timeout, or see explain()."
        )
    return query


def await_termination(query_or_name: StreamingQuery | str, timeout: float = 600) -> bool:
    """Wait until a query has ended; return False if it still runs after `timeout` seconds.

    Raises:
        StreamError: it failed; the message has the cause.
    """
    query = _find(query_or_name)
    return _wait(lambda: not query.isActive, query, timeout)


def _wait(is_done: Callable[[], object], query: StreamingQuery, timeout: float) -> bool:
    """Poll until a condition holds; return False on timeout."""
    end = time.monotonic() + timeout
    with plain_interrupts():
        while not is_done() and time.monotonic() < end:
            time.sleep(_PAUSE)
    if failure := exception(query):
        raise StreamError(f"{label(query)} failed: {failure}")
    return bool(is_done())


@contextmanager
def plain_interrupts() -> Iterator[None]:
    """Let Ctrl-C only raise KeyboardInterrupt: PySpark's handler also cancels all jobs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with replace_handlers(signal.default_int_handler, [signal.SIGINT]):
        yield


def stop_all_streams(timeout: float = 30) -> list[Stopped]:
    """Stop all queries, if any, and give each `timeout` seconds to end its batch."""
    spark = SparkSession.getActiveSession()
    return stop(spark.streams.active if spark else (), timeout)


def stop(queries: Iterable[StreamingQuery], timeout: float = 30) -> list[Stopped]:
    """Stop these queries; see `stop_all_streams`."""
    seconds = max(1, round(timeout))
    running = f"still running after {seconds} seconds: it ends after its batch"
    with plain_interrupts():
        outcomes = [(q, stop_within(q, seconds)) for q in map(keep, queries)]
    return [Stopped(label(q), q.id, _STOPPED if done else running) for q, done in outcomes]

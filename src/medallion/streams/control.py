"""The streams of this session: to find, list, wait for, explain and stop them.

Spark forgets a query when it ends, and the cause with it if it failed. A named query that this
package has started or shown is kept, so that it can still be asked for. Each wait has an end.
"""

from __future__ import annotations

import io
import json
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from medallion.errors import UsageError
from medallion.spark.errors import SPARK_ERRORS, StreamError, one_line
from medallion.spark.jvm import has_lost_its_thread
from medallion.spark.query import watermark_of
from medallion.spark.signals import handled

_kept: dict[tuple[str, str], StreamingQuery] = {}
"""The last query of each name, by the Spark application that it ran in and its name."""


def session() -> SparkSession:
    """The Spark session of this process.

    Raises:
        UsageError: there is none.
    """
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        raise UsageError(
            "There is no Spark session here: medallion.spark_session() starts one, and gives it."
        ) from None


def keep(query: StreamingQuery) -> StreamingQuery:
    """Remember a query that has a name beyond its end, until the next one of that name."""
    if query.name:
        _kept[_key(query)] = query
    return query


def forget(query: StreamingQuery) -> None:
    """Let go of a query, and of the rows that its sink has in memory."""
    _kept.pop(_key(query), None)


def _key(query: StreamingQuery) -> tuple[str, str]:
    return session().sparkContext.applicationId, query.name


def queries() -> list[StreamingQuery]:
    """Those that run, and then those that have ended: of each name, the last one."""
    spark = session()
    active = [keep(query) for query in spark.streams.active]
    here = spark.sparkContext.applicationId
    # A copy, because a display in the background keeps its query as well.
    kept = [query for (application, _), query in list(_kept.items()) if application == here]
    return active + [query for query in kept if not query.isActive]


def find(query_or_name: StreamingQuery | str) -> StreamingQuery:
    """A query, by itself or by its name or id.

    Raises:
        UsageError: there is no such query; the message names those there are.
    """
    if isinstance(query_or_name, StreamingQuery):
        # One that has ended may have a successor of its name.
        return keep(query_or_name) if query_or_name.isActive else query_or_name
    there = queries()
    for query in there:
        # None is no name, though it is what a stream without one has.
        if query_or_name and query_or_name in (query.name, query.id, query.runId):
            return query
    names = ", ".join(sorted(label(query) for query in there)) or "none at all"
    raise UsageError(f"There is no stream {query_or_name!r} here; there are: {names}.")


def label(query: StreamingQuery) -> str:
    """What to call a query: its name, or the beginning of its id."""
    return query.name or query.id[:8]


STOPPED = "stopped"
_PAUSE = 0.05
_LONGEST = threading.TIMEOUT_MAX / 2  # seconds, some hundred years: to Python, more is an error


@dataclass(frozen=True)
class Stopped:
    """What came of the attempt to stop a stream."""

    name: str
    id: str
    outcome: str

    @property
    def is_stopped(self) -> bool:
        """Whether it runs no more."""
        return self.outcome == STOPPED


def until_stream_is_ready(
    query_or_name: StreamingQuery | str, timeout: float = 60
) -> StreamingQuery:
    """Wait until a stream has been through its first batch, or knows that nothing is there yet.

    From then on its table or files can be asked. `timeout` is in seconds.

    Raises:
        UsageError: there is no such stream, or `timeout` is not above 0.
        StreamError: it failed, or was not ready in time.
        KeyboardInterrupt: by Ctrl-C; all streams go on.
    """
    query = find(query_or_name)
    if not _until(lambda: _is_ready(query), query, timeout):
        raise StreamError(
            f"{label(query)} is not ready after {timeout:g} seconds: {doing(query)}. "
            "Give it a longer timeout, or look at explain()."
        )
    return query


def await_termination(query_or_name: StreamingQuery | str, timeout: float = 600) -> bool:
    """Wait until a stream has ended; false where it still runs after `timeout` seconds.

    Raises:
        UsageError: there is no such stream, or `timeout` is not above 0.
        StreamError: it failed; the message has the cause in one sentence.
        KeyboardInterrupt: by Ctrl-C; all streams go on.
    """
    query = find(query_or_name)
    return _until(lambda: not query.isActive, query, timeout)


def exception(query_or_name: StreamingQuery | str) -> str | None:
    """What a stream failed of, in one sentence; None where it runs, or ended well.

    Raises:
        UsageError: there is no such stream.
    """
    query = find(query_or_name)
    failure = query.exception()
    if failure is not None:
        return one_line(str(failure))
    if has_lost_its_thread(query):
        return "its thread in Spark has died, of too little memory perhaps: stop it, start it anew"
    return None


def explain(query_or_name: StreamingQuery | str, extended: bool = False) -> str:
    """Spark's plan of a stream's last batch; `extended` with the logical plans before it.

    Raises:
        UsageError: there is no such stream.
    """
    printed = io.StringIO()
    with redirect_stdout(printed):
        find(query_or_name).explain(extended)
    return printed.getvalue().strip()


def stop_all_streams(timeout: float = 30) -> list[Stopped]:
    """Stop every stream of this Spark session, side by side, and say of each what came of it.

    One that does not stop within `timeout` seconds is told, and keeps none of the others running.

    Raises:
        UsageError: there is no Spark session, or `timeout` is not above 0.
        KeyboardInterrupt: by Ctrl-C; they go on to stop.
    """
    return stop(session().streams.active, timeout)


def stop(queries: Iterable[StreamingQuery], timeout: float = 30) -> list[Stopped]:
    """The same for some streams.

    Raises:
        UsageError: there is no Spark session, or `timeout` is not above 0.
        KeyboardInterrupt: by Ctrl-C; they go on to stop.
    """
    limit = _checked(timeout)
    outcomes: dict[str, str] = {}

    def note(query: StreamingQuery) -> None:
        outcomes[query.runId] = stop_one(query)

    chosen = [keep(query) for query in queries]
    # Daemons, so that one that never returns does not hold up the end of the process.
    threads = [threading.Thread(target=note, args=(each,), daemon=True) for each in chosen]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limit
    with interrupts() as come:
        for thread in threads:
            while thread.is_alive() and not come and time.monotonic() < end:
                thread.join(_PAUSE)
    if come:
        raise KeyboardInterrupt
    late = f"still running after {timeout:g} seconds: Spark stops it when its batch ends"
    return [Stopped(label(q), q.id, outcomes.get(q.runId, late)) for q in chosen]


def stop_one(query: StreamingQuery) -> str:
    """Stop one query, which returns when its batch has ended; what came of it."""
    try:
        query.stop()
    except SPARK_ERRORS as error:
        return f"not stopped: {one_line(str(error))}"
    return STOPPED


def doing(query: StreamingQuery) -> str:
    """What Spark says that a query does now, such as `Waiting for data to arrive`."""
    return str(query.status["message"])


def _is_ready(query: StreamingQuery) -> bool:
    # A continuous stream has no batches, and so no records of progress.
    is_known = query.lastProgress is not None or doing(query).startswith("Committing epoch")
    return is_known or not query.isActive


def _until(reached: Callable[[], bool], query: StreamingQuery, timeout: float) -> bool:
    """Whether it came to that in time.

    Raises:
        StreamError: the query failed.
        KeyboardInterrupt: by Ctrl-C.
    """
    end = time.monotonic() + _checked(timeout)
    with interrupts() as come:
        while not (done := reached()) and time.monotonic() < end:
            if come or has_lost_its_thread(query):
                break
            time.sleep(_PAUSE)
    if come:
        raise KeyboardInterrupt
    if failure := exception(query):
        raise StreamError(f"{label(query)} failed: {failure}")
    return done or reached()


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Each Ctrl-C that has come within: PySpark's own handler cancels the jobs of every stream.

    No Event, whose lock this thread may hold when the handler wants to set it.
    """
    come: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield come
        return
    with handled(lambda number, _: come.append(number), [signal.SIGINT]):
        yield come


def _checked(timeout: float) -> float:
    if not (isinstance(timeout, (int, float)) and timeout > 0):
        raise UsageError(f"timeout must be a number of seconds above 0, not {timeout!r}.")
    return min(timeout, _LONGEST)


@dataclass(frozen=True)
class Stream:
    """One query. `rows_a_second` and `watermark` (UTC) are those of its last batch."""

    name: str
    id: str
    run_id: str
    state: str
    last_batch: int | None
    rows_a_second: float | None
    watermark: str | None


def streams() -> list[Stream]:
    """The streams that run, and those that have ended since this package first saw them.

    `state` is `running` (a batch, now), `waiting`, `starting`, `ended`, or `failed` with the cause.

    Raises:
        UsageError: there is no Spark session.
    """
    return [_stream(query) for query in queries()]


def _stream(query: StreamingQuery) -> Stream:
    last = query.lastProgress
    record = json.loads(last.json) if last else {}
    return Stream(
        name=label(query),
        id=query.id,
        run_id=query.runId,
        state=_state(query),
        last_batch=_last_batch(record),
        rows_a_second=record.get("processedRowsPerSecond"),
        watermark=watermark_of(record),
    )


def _last_batch(record: dict[str, Any]) -> int | None:
    """An idle trigger leaves a record as well, under the number of the batch that is to come."""
    if not record:
        return None
    ran = "addBatch" in record["durationMs"]
    number = int(record["batchId"]) - (not ran)
    return number if number >= 0 else None


def _state(query: StreamingQuery) -> str:
    if failure := exception(query):
        return f"failed: {failure}"
    if not query.isActive:
        return "ended"
    if query.status["isTriggerActive"]:
        return "running"
    return "starting" if doing(query).startswith("Initializing") else "waiting"


def stop_below(root: Path, timeout: float) -> list[Stopped]:
    """Stop the streams with a source, a sink or a checkpoint below a folder; the others go on."""
    try:
        found = SparkSession.active().streams.active
    except PySparkRuntimeError:  # no session, and no streams
        found = []
    return stop((query for query in found if _touches(query, root)), timeout)


def _touches(query: StreamingQuery, root: Path) -> bool:
    told = _places_text(query)
    # Spark spells some of its paths as addresses, with a blank as %20.
    return any(f"{place}/" in told for place in (root, root.as_uri().removeprefix("file://")))


def _places_text(query: StreamingQuery) -> str:
    """All that Spark says of a query's places: before its first batch, its plan alone does."""
    last = query.lastProgress
    told = [last.json] if last else []
    stream = query._jsq.streamingQuery()
    told += [stream.resolvedCheckpointRoot(), stream.analyzedPlan().toString()]
    return "\n".join(map(str, told))

"""Wait for and stop the streaming queries of this session."""

import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from medallion.spark.errors import StreamError, one_line
from medallion.spark.jvm import stop_within
from medallion.spark.signals import replace_handlers

_PAUSE = 0.05  # seconds between two polls


def label(query: StreamingQuery) -> str:
    """Return the name of a query, or the start of its id."""
    return query.name or query.id[:8]


def exception(query: StreamingQuery) -> str | None:
    """Return why a query failed, in one line; None if it runs or ended without failure."""
    failure = query.exception()
    return None if failure is None else one_line(str(failure))


def until_stream_is_ready(query: StreamingQuery, timeout: float = 60) -> StreamingQuery:
    """Wait until a query has completed a batch, found no input, or ended; return it.

    Args:
        timeout: seconds.

    Raises:
        StreamError: it failed, or was not ready in time.
    """
    end = time.monotonic() + timeout
    with plain_interrupts():
        while query.isActive and not query.lastProgress and time.monotonic() < end:
            time.sleep(_PAUSE)
    if failure := exception(query):
        raise StreamError(f"{label(query)} failed: {failure}")
    if query.isActive and not query.lastProgress:
        status = query.status["message"]
        raise StreamError(f"{label(query)} is not ready after {timeout:g} seconds: {status}.")
    return query


@contextmanager
def plain_interrupts() -> Iterator[None]:
    """Let Ctrl-C only raise KeyboardInterrupt: PySpark's handler also cancels all jobs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with replace_handlers(signal.default_int_handler, [signal.SIGINT]):
        yield


def stop_all_streams(timeout: float = 30) -> list[str]:
    """Stop all queries, if any; return the names of those that still run.

    Args:
        timeout: the seconds that each may take to end its batch.
    """
    spark = SparkSession.getActiveSession()
    return stop(spark.streams.active if spark else (), timeout)


def stop(queries: Iterable[StreamingQuery], timeout: float = 30) -> list[str]:
    """Stop these queries; see `stop_all_streams`."""
    with plain_interrupts():
        return [label(q) for q in queries if not stop_within(q, max(1, round(timeout)))]

"""Fatal errors of Java, and queries whose threads have died of one.

A stack overflow or a lack of memory ends a thread, and Spark continues as if it still ran: a query
stays active, and a job never ends. Whoever waits for one of these would wait for ever.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from medallion.spark.errors import SPARK_ERRORS

_STOP_TIMEOUT = "spark.sql.streaming.stopTimeout"
_QUERY_THREAD = "stream execution thread for "
_FATAL = ("java.lang.StackOverflowError", "java.lang.OutOfMemoryError")
_WAITING = ("WAITING", "TIMED_WAITING", "BLOCKED")
# The errors that have ended threads of this JVM, by the names of the threads.
_found: dict[str, str] = {}


class UncaughtErrorHandler:
    """The object that Java calls when an error has ended a thread."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def uncaughtException(self, thread: Any, error: Any) -> None:
        """Note the error, and cancel all jobs if one may wait for the thread."""
        name = str(thread.getName())
        _found[name] = str(error.toString()).partition("\n")[0]
        if error.getClass().getName() in _FATAL and not name.startswith(_QUERY_THREAD):
            with suppress(*SPARK_ERRORS):
                self._context.cancelAllJobs()  # so that nobody waits for ever

    class Java:
        """The Java interface, for Py4J."""

        implements = ("java.lang.Thread$UncaughtExceptionHandler",)


def install_handler(spark: SparkSession) -> None:
    """Note fatal errors from now on, instead of Java's stack traces."""
    gateway = SparkContext._gateway
    assert gateway is not None, "a session has a JVM"
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    handler = UncaughtErrorHandler(spark.sparkContext)
    getattr(gateway.jvm, "java.lang.Thread").setDefaultUncaughtExceptionHandler(handler)


def is_alive(spark: SparkSession) -> bool:
    """Return whether the Java process runs, and Spark in it."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except (*SPARK_ERRORS, OSError, AttributeError):
        return False


def has_lost_its_thread(query: StreamingQuery) -> bool:
    """Return whether a query counts as active although its thread has died."""
    # In this order: a query becomes inactive before its thread ends normally.
    return not _execution(query).queryExecutionThread().isAlive() and bool(query.isActive)


def is_waiting(query: StreamingQuery) -> bool:
    """Return whether a query's thread waits for another thread."""
    return str(_execution(query).queryExecutionThread().getState().toString()) in _WAITING


def thread_death_cause(query: StreamingQuery) -> str:
    """Return the error that has ended a query's thread."""
    run = str(query.runId)
    found = (what for name, what in _found.items() if run in name)
    return next(found, "an error of Java")


def query_throwable(query: StreamingQuery) -> Any:
    """Return Java's exception that ended a query, whose causes PySpark's does not lead to."""
    failure = query._jsq.exception()
    return failure.get() if failure.isDefined() else None


def release_query(query: StreamingQuery) -> None:
    """End a query without a thread for Spark too, so that another one may take its name."""
    query.stop()
    execution = _execution(query)
    execution.sparkSession().streams().notifyQueryTermination(execution)


def stop_within(query: StreamingQuery, seconds: int) -> bool:
    """Stop a query, which may hang; return False if its thread has not ended in time."""
    _execution(query).sparkSession().conf().set(_STOP_TIMEOUT, f"{seconds}s")
    try:
        query.stop()
    except SPARK_ERRORS:
        return False
    return True


def _execution(query: StreamingQuery) -> Any:
    return query._jsq.streamingQuery()

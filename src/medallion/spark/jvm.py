"""The Java process, and queries whose threads have died of a fatal error in Java.

After a stack overflow Spark continues as if the query's thread still ran: the query stays active,
and waiting for it would never end. (Java ends the process if memory runs out; see `session`.)
"""

import json
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from medallion.spark.errors import SPARK_ERRORS

HAS_ENDED = "Java has ended (out of memory, or a signal): start this again"
_STOP_TIMEOUT = "spark.sql.streaming.stopTimeout"


def is_alive(spark: SparkSession) -> bool:
    """Return whether the Java process and its SparkContext are running."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except (*SPARK_ERRORS, OSError, AttributeError):
        return False


def has_lost_its_thread(query: StreamingQuery) -> bool:
    """Return whether a query counts as active although its thread has died."""
    # In this order: a query becomes inactive before its thread ends normally.
    return not _execution(query).queryExecutionThread().isAlive() and bool(query.isActive)


def query_throwable(query: StreamingQuery) -> Any:
    """Return the Java exception that ended a query: PySpark's exception lacks its causes."""
    failure = query._jsq.exception()
    return failure.get() if failure.isDefined() else None


def release_query(query: StreamingQuery) -> None:
    """Make Spark forget a query whose thread has died, so that its name is free again."""
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


def observed_metrics(query: StreamingQuery, name: str) -> dict[str, Any]:
    """Return what a query has observed of its current batch so far; empty if nothing.

    Its progress has this only after the batch.

    Args:
        query: a query that runs a batch.
        name: the name that `DataFrame.observe` was given.
    """
    metrics = _execution(query).lastExecution().observedMetrics()
    return dict(json.loads(metrics.apply(name).json())) if metrics.contains(name) else {}


def _execution(query: StreamingQuery) -> Any:
    return query._jsq.streamingQuery()

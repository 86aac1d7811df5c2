"""Which queries there are: those that run, and those that were looked at before they ended.

Spark forgets a query when it ends, and the cause with it if it failed. Whatever this package has
started or shown once is kept, so that it can still be asked about by its name.
"""

from __future__ import annotations

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from medallion.errors import UsageError

_kept: dict[str, dict[str, StreamingQuery]] = {}
"""Queries by the Spark application that they ran in, and by run id, the oldest first."""

_MOST = 100
"""That many are remembered: a query holds on to what Spark knows of it."""


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
    """Remember a query beyond its end, until the next one of its name."""
    application = session().sparkContext.applicationId
    for gone in _kept.keys() - {application}:
        _kept.pop(gone, None)
    kept = _kept.setdefault(application, {})
    if query.runId not in kept:
        # Copies, because a display in the background keeps its query as well.
        for run_id, old in list(kept.items()):
            if old.name is not None and old.name == query.name:
                kept.pop(run_id, None)
        kept[query.runId] = query
        for run_id in list(kept)[:-_MOST]:
            kept.pop(run_id, None)
    return query


def forget(query: StreamingQuery) -> None:
    """Let go of a query, and of the rows that its sink has in memory."""
    for kept in list(_kept.values()):
        kept.pop(query.runId, None)


def queries() -> list[StreamingQuery]:
    """Those that run, and then those that have ended: of each name, the last one."""
    spark = session()
    active = [keep(query) for query in spark.streams.active]
    running = {query.runId for query in active}
    kept = list(_kept.get(spark.sparkContext.applicationId, {}).values())
    ended = [q for q in reversed(kept) if q.runId not in running and not q.isActive]
    return active + ended


def find(query_or_name: StreamingQuery | str) -> StreamingQuery:
    """A query, by itself or by its name or id.

    Raises:
        UsageError: there is no such query; the message names those there are.
    """
    if isinstance(query_or_name, StreamingQuery):
        return keep(query_or_name)
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

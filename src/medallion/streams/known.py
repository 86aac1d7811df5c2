"""Which queries there are: those that run, and those that were looked at before they ended.

Spark forgets a query when it ends, and the cause with it if it failed. Whatever has a name and was
started or shown by this package once is kept, so that it can still be asked about by that.
"""

from __future__ import annotations

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from medallion.errors import UsageError

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

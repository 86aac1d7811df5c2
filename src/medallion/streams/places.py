"""Which streams read or write below a folder."""

from __future__ import annotations

from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from medallion.streams.waiting import Stopped, stop


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

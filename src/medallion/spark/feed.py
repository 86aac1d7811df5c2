"""Delta's change data feed: the rows that some versions of a table added."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

_FEED = ("_change_type", "_commit_version", "_commit_timestamp")


def added(spark: SparkSession, table: Path, first: int, last: int) -> DataFrame:
    """The rows that versions `first` to `last` of a table added, with the table's columns."""
    bounds = {"startingVersion": str(first), "endingVersion": str(last)}
    feed = spark.read.format("delta").option("readChangeFeed", "true").options(**bounds)
    return feed.load(str(table)).where("_change_type = 'insert'").drop(*_FEED)

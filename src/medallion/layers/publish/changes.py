"""The changes of a table as Delta's change feed has them, and what is sent of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

CHANGE, VERSION = "_change_type", "_commit_version"
_BEFORE, _DELETED = "update_preimage", "delete"
# Spark's default leaves out what is below a millisecond.
_LOCAL = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
TIMES = {"timestampFormat": f"{_LOCAL}XXX", "timestampNTZFormat": _LOCAL}


def stream(spark: SparkSession, table: Path) -> DataFrame:
    """A stream of a table's rows as they are now, and then of each change.

    Returns:
        The table's columns, `_change_type` (insert, update_postimage or delete), `_commit_version`
        and `_commit_timestamp`.
    """
    feed = spark.readStream.format("delta").option("readChangeFeed", "true").load(str(table))
    return feed.where(F.col(CHANGE) != _BEFORE)


def messages(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """Changes as messages: `key` and `value`, JSON objects.

    Those of one key are in one partition, in their order, which a topic keeps: by version, and
    within one what was taken away comes first.

    Args:
        key: the columns that a row of the table is known by; without them, messages have no key.
    """
    options = {**TIMES, "ignoreNullFields": "false"}
    keys = F.to_json(F.struct(*key), options) if key else F.lit(None).cast("string")
    told = changes.select(
        keys.alias("key"),
        F.to_json(F.struct("*"), options).alias("value"),
        VERSION,
        (F.col(CHANGE) != _DELETED).alias("is_there"),
    )
    together = told.repartition("key") if key else told.coalesce(1)
    return together.sortWithinPartitions(VERSION, "is_there").select("key", "value")

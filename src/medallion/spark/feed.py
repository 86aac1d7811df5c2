"""The rows that some versions of a table added."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from medallion.lakehouse import log

_PATTERN = re.compile(r"[\[\]{}*?\\]")


def added(spark: SparkSession, table: Path, first: int, last: int) -> DataFrame:
    """The rows that versions `first` to `last` of a table added, with the table's columns.

    From the files that they added, and not through Delta's change feed: that turns times around as
    `java.sql.Timestamp`, which overflow far from today, and shift by days in October 1582.

    Raises:
        FileNotFoundError: the table's log does not have all of these versions any more.
    """
    files = log.added_files(table, first, last)
    schema = spark.read.format("delta").load(str(table)).schema
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*map(escaped, files))


def escaped(file: Path | str) -> str:
    """A path as Spark takes it: a [ in a name would be a pattern."""
    return _PATTERN.sub(r"\\\g<0>", str(file))

"""Rows of a Delta table in Spark: all of them, those of some versions or files, or a stream."""

import os
import re
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from medallion.storage import delta_tables
from medallion.storage.paths import StoragePath

AT_ONCE = {"maxFilesPerTrigger": 2**31 - 1}
"""An option of `stream_table`: the first batch reads the complete table."""
_PATTERN = re.compile(r"[\[\]{}*?\\]")


def read_table(spark: SparkSession, table: StoragePath) -> DataFrame:
    """Return the current rows of a table."""
    return spark.read.format("delta").load(str(table))


def stream_table(spark: SparkSession, table: StoragePath, **options: Any) -> DataFrame:
    """Return a stream of a table's rows, with options of Delta's source."""
    return spark.readStream.format("delta").options(**options).load(str(table))


def rows_at(spark: SparkSession, table: StoragePath, version: int | None = None) -> DataFrame:
    """Return all rows of a version of a table, with its current columns.

    Delta would list the files in a Spark job, which on a small table takes as long as the query.

    Args:
        version: the version; None for the current one.
    """
    return rows_of(spark, table, delta_tables.data_files(table, version))


def rows_of(spark: SparkSession, table: StoragePath, files: Sequence[StoragePath]) -> DataFrame:
    """Return the rows of data files, with the table's columns.

    Delta's change feed would convert times to `java.sql.Timestamp`, which overflow far from today,
    and shift by days in October 1582.

    Args:
        files: the paths of its files.
    """
    current = read_table(spark, table)
    if not files:
        return current.where("false")  # needs no job
    return spark.read.schema(current.schema).parquet(*map(escape_path, files))


def escape_path(file: str | os.PathLike[str]) -> str:
    """Return a path with its glob characters escaped for Spark."""
    return _PATTERN.sub(r"\\\g<0>", str(file))

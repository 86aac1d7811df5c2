"""Rows of a Delta table in Spark: all of them, those of some versions or files, or a stream."""

import os
import re
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from medallion.storage import delta_log, delta_tables
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


def added_rows(spark: SparkSession, table: StoragePath, first: int, last: int) -> DataFrame:
    """Return the rows that versions `first` to `last` of a table added, with its columns.

    Delta's change feed would convert times to `java.sql.Timestamp`, which overflow far from today,
    and shift by days in October 1582.

    Args:
        first: the first version.
        last: the last version.

    Raises:
        FileNotFoundError: the log no longer has all of these versions.
    """
    return rows_of(spark, table, delta_log.added_files(table, first, last))


def rows_at(spark: SparkSession, table: StoragePath, version: int | None = None) -> DataFrame:
    """Return all rows of a version of a table, with its current columns.

    Delta would list the files in a Spark job, which on a small table takes as long as the query.

    Args:
        version: the version; None for the current one.
    """
    return rows_of(spark, table, delta_tables.data_files(table, version))


def rows_of(spark: SparkSession, table: StoragePath, files: Sequence[StoragePath]) -> DataFrame:
    """Return the rows of data files, with the table's columns.

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

"""A table's rows read from the files that its log names, without asking Delta for each question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from medallion.storage import delta_log, delta_tables

_PATTERN = re.compile(r"[\[\]{}*?\\]")


def added_rows(spark: SparkSession, table: Path, first: int, last: int) -> DataFrame:
    """The rows that versions `first` to `last` of a table added, with the table's columns.

    From the files that they added, and not through Delta's change feed: that turns times around as
    `java.sql.Timestamp`, which overflow far from today, and shift by days in October 1582.

    Raises:
        FileNotFoundError: the table's log does not have all of these versions any more.
    """
    return rows_of(spark, table, delta_log.added_files(table, first, last))


def rows_at(spark: SparkSession, table: Path, version: int | None = None) -> DataFrame:
    """All rows that a table had at a version, with the columns of now; without one, that it has.

    Delta would look for the files in a job of its own, which for a small table takes as long as the
    query does.
    """
    return rows_of(spark, table, delta_tables.data_files(table, version))


def rows_of(spark: SparkSession, table: Path, files: Sequence[Path]) -> DataFrame:
    """The rows of some data files, with the table's columns."""
    now = spark.read.format("delta").load(str(table))
    if not files:
        return now.where("false")  # which no job is asked for
    return spark.read.schema(now.schema).parquet(*map(escaped, files))


def escaped(file: Path | str) -> str:
    """A path as Spark takes it: a [ in a name would be a pattern."""
    return _PATTERN.sub(r"\\\g<0>", str(file))

"""Files that cannot be read, told apart from a Spark that can read nothing any more."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from medallion.ops.ledger import Entry
from medallion.spark.errors import SPARK_ERRORS, one_line

# What a file can be the cause of: Python reads the headers of CSV itself, and so may fail as well.
FAULTS = (*SPARK_ERRORS, OSError, EOFError, zlib.error)


def refuse_broken(spark: SparkSession, error: Exception) -> None:
    """Raise the error again where Spark can do nothing at all: no file is to blame for that."""
    try:
        spark.range(1).write.format("noop").mode("overwrite").save()
    except Exception:
        raise error from None


def unreadable(
    spark: SparkSession, rows: Callable[[list[Entry]], DataFrame], entries: list[Entry]
) -> dict[str, str]:
    """What Spark says of those files that it cannot read, by their paths.

    They are found by halves, for each try is a job.

    Args:
        rows: gives the rows of some files.

    Raises:
        Exception: that of a try which failed because Spark does not work any more.
    """
    error = _problem(rows, entries)
    if error is None:
        return {}
    if len(entries) > 1:
        half = len(entries) // 2
        found = unreadable(spark, rows, entries[:half])
        return {**found, **unreadable(spark, rows, entries[half:])}
    # A job that is cancelled fails once, whatever it reads; where Spark is being stopped, all do.
    error = _problem(rows, entries)
    if error is None:
        return {}
    refuse_broken(spark, error)
    return {entries[0].path: f"cannot be read: {one_line(str(error))}"}


def _problem(rows: Callable[[list[Entry]], DataFrame], entries: list[Entry]) -> Exception | None:
    try:
        # To count would not do: of Parquet it reads no values.
        rows(entries).write.format("noop").mode("overwrite").save()
    except FAULTS as error:
        return error
    return None

"""The rows that a gate of silver's judges, on a table whose versions are added by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.layers.silver import unique_keys
from medallion.spark import delta_reads
from medallion.storage import delta_log, delta_tables

KEYS = ("at", "copies")  # a column may be called as what is counted
# Delta says of the first file that it ends at .999, cut off from what the last row has.
FIRST = [("10:00:00", "p"), ("10:00:00", None), ("10:59:59.999999", "p"), ("09:00:00", "q")]


def added(spark: SparkSession, table: Path, *rows: tuple[str, str | None]) -> list[tuple[Any, Any]]:
    """Add one version; the rows that are judged for it."""
    frame = spark.createDataFrame(list(rows), "at string, copies string")
    frame = frame.selectExpr("cast('2020-01-01 ' || at as timestamp) as at", "copies")
    frame.coalesce(1).write.format("delta").mode("append").save(str(table))
    last = delta_tables.table_version(table)
    new = delta_reads.added_rows(spark, table, last, last)
    whole = spark.read.format("delta").load(str(table))
    files = delta_log.added_files(table, last, last)
    are_one = unique_keys.are_one_a_key(table, files, KEYS, "at")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(unique_keys, "_AT_ONCE", 1)
        assert unique_keys.are_one_a_key(table, files, KEYS, "at") == are_one
        patched.setattr(unique_keys, "_MANY", 0)
        whole_is = unique_keys.are_one_a_key(table, files, KEYS, "at")
        assert whole_is == unique_keys.are_one_a_key(table, None, KEYS, "at") == are_one
    found = new if are_one else unique_keys.with_alike(new, whole, KEYS)
    return sorted((f"{row['at']}"[11:], f"{row.copies}") for row in found.collect())


def test_older_rows_are_judged_with_new_ones_of_their_keys(
    spark: SparkSession, tmp_path: Path
) -> None:
    added(spark, tmp_path, *FIRST)
    new = [("10:00:00", "q"), ("10:00:00", None), ("10:30:00", "p")]  # none of them is there
    assert added(spark, tmp_path, *new) == sorted((at, f"{device}") for at, device in new)
    # The last of the first file, with a row that has no identity.
    twice = ("10:59:59.999999", "p")
    again = added(spark, tmp_path, twice, ("10:59:58", None))
    assert again == [("10:59:58", "None"), twice, twice]
    # And where the only time of the new file is cut off as well.
    assert added(spark, tmp_path, twice) == [twice] * 3
    # Twice in one file.
    alike = ("11:00:00", "p")
    assert added(spark, tmp_path, alike, alike, ("11:00:00", None))[1:] == [alike, alike]

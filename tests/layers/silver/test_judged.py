"""The rows that a gate of silver's judges, on a table whose versions are added by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from medallion.lakehouse import tables
from medallion.layers.silver.judged import times_added, with_alike
from medallion.spark import table_files

KEYS = ("at", "device")
# Delta says of the first file that it ends at .999, cut off from what the last row has.
FIRST = [("10:00:00", "p"), ("10:00:00", None), ("10:59:59.999999", "p"), ("09:00:00", "q")]


def added(spark: SparkSession, table: Path, *rows: tuple[str, str | None]) -> list[tuple[Any, Any]]:
    """Add one version; the rows that are judged for it."""
    frame = spark.createDataFrame(list(rows), "at string, device string")
    frame = frame.selectExpr("cast('2020-01-01 ' || at as timestamp) as at", "device")
    frame.coalesce(1).write.format("delta").mode("append").save(str(table))
    last = tables.version(table)
    new = table_files.added_rows(spark, table, last, last)
    whole = spark.read.format("delta").load(str(table))
    judged = with_alike(new, whole, KEYS, "at", times_added(table, [last], "at"))
    return sorted((f"{row['at']}"[11:], f"{row.device}") for row in judged.collect())


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


def test_a_log_without_times_leaves_no_row_out(spark: SparkSession, tmp_path: Path) -> None:
    added(spark, tmp_path, *FIRST)
    first = tmp_path / "_delta_log" / f"{0:020}.json"
    assert "minValues" in first.read_text()
    tables.align(tmp_path, {"delta.dataSkippingStatsColumns": "device"})
    assert added(spark, tmp_path, FIRST[0]) == [FIRST[0], FIRST[0]]

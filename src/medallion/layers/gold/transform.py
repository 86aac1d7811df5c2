"""From a silver table to one aggregate of gold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.config.values import Duration


def windowed(
    rows: DataFrame, event_time: str, window: Duration, slide: Duration | None
) -> DataFrame:
    """Each row once for every window it falls in, with `window_start` and `window_end` (UTC)."""
    frame = F.window(event_time, window.text, slide.text if slide else None)
    return (
        rows.withColumn("_window", frame)
        .withColumn("window_start", F.col("_window.start"))
        .withColumn("window_end", F.col("_window.end"))
        .drop("_window")
    )


def aggregated(rows: DataFrame, groups: Sequence[str], measure: Mapping[str, str]) -> DataFrame:
    """One row a group: the group's columns, then the measures.

    Args:
        rows: silver rows, `windowed` where the table has windows.
        groups: the columns to group by, the window's first.
        measure: column names with their SQL aggregates.
    """
    measures = [F.expr(aggregate).alias(name) for name, aggregate in measure.items()]
    if not groups:
        return rows.agg(*measures)
    return rows.groupBy(*groups).agg(*measures).select(*groups, *measure)

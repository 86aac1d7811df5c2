"""From a silver table to one aggregate of gold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.config.values import Duration
from medallion.lakehouse.columns import WINDOW


def groups(window: Duration | None, group_by: Sequence[str]) -> tuple[str, ...]:
    """The columns that a row of the table is known by, the window's first."""
    return (*(WINDOW if window else ()), *group_by)


def windowed(
    rows: DataFrame, event_time: str, window: Duration | None, slide: Duration | None
) -> DataFrame:
    """Each row once for every window it falls in, with `window_start` and `window_end` (UTC).

    Without a window, the rows as they are.
    """
    if window is None:
        return rows
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

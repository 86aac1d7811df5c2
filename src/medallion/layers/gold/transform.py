"""From silver tables to one table of gold; the same on a batch and on a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from medallion.config.model import Aggregate, Join
from medallion.storage.table_specs import WINDOW

_FRAME = "_window"


def aggregate(rows: DataFrame, event_time: str, made: Aggregate) -> DataFrame:
    """One row a group of silver's rows: the group's columns, then the measures."""
    if made.session is None:
        return per_group(windowed(rows, event_time, made), made.groups, made.measure)
    # A session is known when its rows are together: its ends are no columns to group by.
    framed = rows.withColumn(_FRAME, F.session_window(event_time, made.session.text))
    sessions = per_group(framed, (_FRAME, *made.group_by), made.measure)
    ends = zip(("start", "end"), WINDOW, strict=True)
    return sessions.select(
        *(F.col(f"{_FRAME}.{end}").alias(name) for end, name in ends),
        *made.group_by,
        *made.measure,
    )


def windowed(rows: DataFrame, event_time: str, made: Aggregate) -> DataFrame:
    """Each row once for every window it falls in, with `window_start` and `window_end` (UTC).

    Without windows of a fixed length, the rows as they are.
    """
    if made.window is None:
        return rows
    frame = F.window(event_time, made.window.text, made.slide.text if made.slide else None)
    return (
        rows.withColumn(_FRAME, frame)
        .withColumn("window_start", F.col(f"{_FRAME}.start"))
        .withColumn("window_end", F.col(f"{_FRAME}.end"))
        .drop(_FRAME)
    )


def per_group(rows: DataFrame, groups: Sequence[str], measure: Mapping[str, str]) -> DataFrame:
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


def has_place(time: str) -> Column:
    """Whether a join of streams can hold a row: Spark's watermark begins at 1970, and what is not
    after that comes too late."""
    return F.col(time) > F.timestamp_millis(F.lit(0))


def joined(
    rows: Mapping[str, DataFrame],
    times: Mapping[str, str],
    watermarks: Mapping[str, str],
    made: Join,
) -> DataFrame:
    """The pairs of rows of two silver tables, and with `left` the rows that have no partner.

    Rows without a `has_place` are in none, on a batch as on a stream.

    Args:
        rows: both tables by their sources' names, the first one first.
        times: the columns of the event times, likewise.
        watermarks: how long after the newest time a row of a stream may come, likewise.
        made: what makes a pair, and the columns of one.
    """
    (left, first), (right, second) = (
        (name, some.where(has_place(times[name]))) for name, some in rows.items()
    )
    if made.where:
        first = first.where(made.where)
    # After that: what is left out moves no watermark.
    first, second = (
        some.withWatermark(times[name], watermarks[name])
        for name, some in ((left, first), (right, second))
    )
    seconds = made.within.seconds
    time, other = F.col(f"{left}.{times[left]}"), F.col(f"{right}.{times[right]}")
    reach = F.expr(f"interval {seconds} seconds")
    conditions = [F.col(f"{left}.{one}") == F.col(f"{right}.{two}") for one, two in made.on.items()]
    conditions += [other >= time - reach, other <= time + reach]
    if made.condition:
        # In one piece: where a part of it names the first table alone, Spark would give out a row
        # that fails it at once, as one without a partner, and not when its time has passed.
        conditions += [F.expr(made.condition).eqNullSafe(other.isNotNull())]
    pairs = first.alias(left).join(second.alias(right), reduce(and_, conditions), made.kind)
    return pairs.select(*(F.expr(sql).alias(name) for name, sql in made.columns.items()))

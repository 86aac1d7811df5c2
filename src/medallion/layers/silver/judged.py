"""What a gate of silver's judges: new rows, and the older ones that have the key of one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.lakehouse import log
from medallion.layers.silver.transform import has_identity


def with_alike(
    new: DataFrame,
    rows: DataFrame,
    keys: Sequence[str],
    event_time: str,
    within: tuple[str, str] | None,
) -> DataFrame:
    """The new rows, and with them older ones that have the key of a new one, if there are any.

    Args:
        rows: all that the table has, the new ones among them.
        keys: the columns of a row's identity; `event_time` is among them.
        within: the event times of the new rows, as `times_added` has them, if they are known.
    """
    identified = new.where(has_identity(keys))
    alike = rows.join(identified.select(*keys), on=list(keys), how="left_semi")
    if within:  # then Delta skips the files of other times
        first, last = (F.lit(time).cast("timestamp") for time in within)
        # Delta cuts a time to milliseconds where it says of a file which is the last one.
        alike = alike.where(
            F.col(event_time).between(first, last + F.expr("interval 1 millisecond"))
        )
    counts = identified.agg(F.count("*")).union(alike.agg(F.count("*"))).collect()
    if len(set(counts)) == 1:
        return new
    return alike.select(new.columns).unionByName(new.where(~has_identity(keys)))


def times_added(table: Path, versions: Iterable[int], column: str) -> tuple[str, str] | None:
    """The least and the greatest time in what these versions added, if the log says them."""
    found = log.values_added(table, versions, column)
    if not found:
        return None
    firsts, lasts = zip(*found, strict=True)
    try:
        return min(firsts, key=datetime.fromisoformat), max(lasts, key=datetime.fromisoformat)
    except ValueError:  # of a year that Python has not: Spark's own times have others
        return None

"""Whether silver's keys are unique, for its gate: among new rows, and older ones of their keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from medallion.layers.silver.transform import has_identity
from medallion.storage import delta_tables
from medallion.storage.table_specs import quoted

_AT_ONCE = 2_500_000  # keys that are held in memory, 400 MB of them
_COPIES = "` copies`"  # no column of silver has a blank
_MANY = 500  # files, beyond which a query over all of them takes longer than one over the table


def are_one_a_key(
    table: Path, files: Sequence[Path] | None, key: Sequence[str], event_time: str
) -> bool:
    """Whether no row of some of a table's files has the key of another row of the table.

    A row with a null in its key has no key. This is asked of DataFusion, which takes a fifth of
    Spark's time, and passes over the parts of files that have other event times.

    Args:
        files: None for all that the table has.
        key: the columns of a row's identity; `event_time` is among them.
    """
    if files is None or len(files) > _MANY or _are_all(table, files):
        files = ()
    new = "added" if files else "rows"
    known = " and ".join(f"{quoted(column)} is not null" for column in key)
    ((rows,),) = delta_tables.select_rows(table, "count(*)", f"where {known}", new, files=files)
    parts = 1 + rows // _AT_ONCE
    # Times come in whole milliseconds, seconds, or minutes: of none of these is 1009 a part.
    number = f"abs(arrow_cast({quoted(event_time)}, 'Int64') / 1009 % {parts})"
    columns = ", ".join(map(quoted, key))
    is_alike = " and ".join(f"new.{quoted(column)} = rows.{quoted(column)}" for column in key)
    for part in range(parts):
        some = f"from {new} where {known} and {number} = {part} group by {columns}"
        keys = f"(select {columns}, count(*) as {_COPIES} {some}) as new"
        found = f"coalesce(max({_COPIES}), 1), count(*)"
        ((copies, rows),) = delta_tables.select_rows(table, found, "", keys, files=files)
        if copies > 1:
            return False
        there = f"{keys} right semi join rows on {is_alike}"
        if files and delta_tables.select_rows(table, "count(*)", "", there, files=files) != [
            (rows,)
        ]:
            return False
    return True


def _are_all(table: Path, files: Sequence[Path]) -> bool:
    return {file.name for file in delta_tables.data_files(table)} <= {file.name for file in files}


def with_alike(new: DataFrame, rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """The new rows, and with them older ones that have the key of a new one.

    Args:
        rows: all that the table has, the new ones among them.
        key: the columns of a row's identity.
    """
    has_key = has_identity(key)
    alike = rows.join(new.where(has_key).select(*key), on=list(key), how="left_semi")
    return alike.select(new.columns).unionByName(new.where(~has_key))

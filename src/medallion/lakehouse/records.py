"""A few rows appended to Delta tables, or put in the place of others, without a JVM."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medallion.lakehouse import tables
from medallion.lakehouse.columns import Columns
from medallion.lakehouse.specs import TableSpec

if TYPE_CHECKING:
    from deltalake import DeltaTable

_MOST_FILES = 24
# The batches of several sources end on threads of their own, and share the ledgers.
_UPSERTING = threading.Lock()


def append(
    table: Path, spec: TableSpec, rows: Iterable[Mapping[str, Any]], few_files: bool = False
) -> None:
    """Append a few rows in one commit; times are given as microseconds since 1970.

    Args:
        spec: of a table whose columns are the same in every lakehouse.
        few_files: put many small files into few, for a table that is read whole.
    """
    from deltalake import write_deltalake

    columns = spec.columns or {}
    tables.create(table, tables.schema_json(columns), spec.properties())
    listed = list(rows)
    if listed:
        delta = tables.open_to_write(table)
        write_deltalake(delta, _arrow(columns, listed), mode="append")
        if few_files:
            _compact(delta)


def upsert(
    table: Path, spec: TableSpec, rows: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> None:
    """Put rows in the place of those with the same keys, or add them, in one commit."""
    columns = spec.columns or {}
    same = " and ".join(f"old.{key} = new.{key}" for key in keys)
    with _UPSERTING:
        tables.create(table, tables.schema_json(columns), spec.properties())
        delta = tables.open_to_write(table)
        (
            delta.merge(_arrow(columns, rows), same, source_alias="new", target_alias="old")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )
        _compact(delta)


def _compact(delta: DeltaTable) -> None:
    """Put a table of many small files into few: who asks it, opens all of them."""
    from deltalake.exceptions import CommitFailedError

    if len(delta.file_uris()) > _MOST_FILES:
        with suppress(CommitFailedError):  # another process has just done the same
            delta.optimize.compact()


def _arrow(columns: Columns, rows: Sequence[Mapping[str, Any]]) -> Any:
    import arro3.core as arrow

    types = {
        "string": arrow.DataType.string(),
        "long": arrow.DataType.int64(),
        "double": arrow.DataType.float64(),
    }
    data = {}
    for name, kind in columns.items():
        values = [row.get(name) for row in rows]
        if kind == "timestamp":
            utc = arrow.DataType.timestamp("us", tz="UTC")
            data[name] = arrow.Array(values, arrow.DataType.int64()).cast(utc)
        else:
            data[name] = arrow.Array(values, types[kind])
    return arrow.Table.from_arrays(list(data.values()), names=list(data))

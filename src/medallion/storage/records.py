"""Small tables: a few rows appended, put in the place of others, and read, without a JVM.

All layers write the records, and each may be a process of its own. So a table is locked from its
making to its compaction: of two processes that put the same files together, Delta's writer would
refuse neither, and the rows would be there twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from medallion.storage import delta_tables, files
from medallion.storage.table_specs import Columns, TableSpec, record_column_sql

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from deltalake import DeltaTable

_Row = TypeVar("_Row", bound="DataclassInstance")
_MOST_FILES = 24


def record_columns(kind: type[DataclassInstance]) -> Columns:
    """The columns of a table whose rows are objects of a dataclass: texts, whole numbers, and times
    in microseconds since 1970, whose names end with `_at`."""
    return {
        field.name: "string"
        if "str" in str(field.type)
        else ("timestamp" if field.name.endswith("_at") else "long")
        for field in fields(kind)
    }


def read_records(table: Path, columns: Columns, kind: type[_Row], rest: str = "") -> list[_Row]:
    """Rows as objects of a dataclass whose fields are columns; times are microseconds since 1970.

    Args:
        columns: all that the table has; those that an earlier release did not have are null.
        rest: SQL after `from`.
    """
    known, names = delta_tables.column_names(table), [field.name for field in fields(kind)]
    what = ", ".join(record_column_sql(columns, n) if n in known else f"null as {n}" for n in names)
    return [kind(*row) for row in delta_tables.select_rows(table, what, rest)]


def append_records(
    table: Path, spec: TableSpec, rows: Iterable[Mapping[str, Any]], numbered: str | None = None
) -> None:
    """Append a few rows in one commit; times are given as microseconds since 1970. Small files are
    put together, unless a stream reads the table commit by commit.

    Args:
        spec: with the table's columns.
        numbered: the column that counts the rows as they are written, whoever writes them.
    """
    from deltalake import write_deltalake

    columns = spec.columns or {}
    listed = list(rows)
    with files.lock_file(table):
        delta_tables.create_table(table, delta_tables.schema_json(columns), spec.properties())
        if listed:
            if numbered:
                ((last,),) = delta_tables.select_rows(table, f"max({numbered})")
                listed = [{**row, numbered: at} for at, row in enumerate(listed, (last or 0) + 1)]
            delta = delta_tables.open_for_write(table)
            is_older = columns.keys() - {field.name for field in delta.schema().fields}
            write_deltalake(
                delta,
                _arrow(columns, listed),
                mode="append",
                schema_mode="merge" if is_older else None,
            )
            if not spec.is_streamed:
                _compact(delta)


def upsert_records(
    table: Path, spec: TableSpec, rows: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> None:
    """Put rows in the place of those with the same keys, or add them, in one commit."""
    columns = spec.columns or {}
    same = " and ".join(f"old.{key} = new.{key}" for key in keys)
    with files.lock_file(table):
        delta_tables.create_table(table, delta_tables.schema_json(columns), spec.properties())
        delta = delta_tables.open_for_write(table)
        _add_columns(table, delta, columns)
        (
            delta.merge(_arrow(columns, rows), same, source_alias="new", target_alias="old")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )
        _compact(delta)


def _add_columns(table: Path, delta: DeltaTable, columns: Columns) -> None:
    """Add the columns that a table of an earlier release lacks."""
    from deltalake import Field
    from deltalake.schema import PrimitiveType

    known = delta_tables.column_names(table)
    lacking = [
        Field(name, PrimitiveType(kind)) for name, kind in columns.items() if name not in known
    ]
    if lacking:
        delta.alter.add_columns(lacking)


def _compact(delta: DeltaTable) -> None:
    """Put a table of many small files into few: who asks it, opens all of them.

    Where that fails, as on a full disk, the next write tries it again: the rows are there.
    """
    with suppress(Exception):
        if len(delta.file_uris()) > _MOST_FILES:
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

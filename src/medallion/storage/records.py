"""Record tables: small Delta tables that Python appends to, updates and reads, without a JVM.

Processes of all layers write them concurrently, without a lock. Every commit has a transaction id,
so one of two concurrent commits fails and is retried on the new version. Compaction does need a
lock: delta-rs commits two concurrent compactions of the same files, which doubles their rows. So
only the process that holds bronze's lock compacts.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from medallion.storage import delta_log, delta_tables, locks, objects
from medallion.storage.layout import Layout
from medallion.storage.paths import ObjectPath, StoragePath
from medallion.storage.table_specs import Columns, TableSpec, record_column_sql

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from deltalake import CommitProperties, DeltaTable

_Row = TypeVar("_Row", bound="DataclassInstance")
_MOST_FILES, _MOST_OBJECTS = 24, 4
_APPLICATION = "medallion.records"
_TRIES, _LONGEST_PAUSE = 100, 0.1  # seconds

PROCESS_LOCK = threading.RLock()
"""Held by the one thread of this process that writes or maintains record tables."""


def record_columns(row_type: type[DataclassInstance]) -> Columns:
    """Return the columns of a table whose rows are objects of a dataclass.

    Fields are strings or whole numbers; those named `*_at` are times, in microseconds since 1970.
    """
    return {
        field.name: "string"
        if "str" in str(field.type)
        else ("timestamp" if field.name.endswith("_at") else "long")
        for field in fields(row_type)
    }


@objects.remembering()
def read_records(
    table: StoragePath, columns: Columns, row_type: type[_Row], rest: str = ""
) -> list[_Row]:
    """Return rows as objects of a dataclass; times are microseconds since 1970.

    Args:
        table: its directory; no rows if there is none.
        columns: all columns of the table; those that an earlier release did not write are null.
        row_type: the dataclass, whose fields are some of the columns.
        rest: SQL after `from`.
    """
    known, names = delta_tables.column_names(table), [field.name for field in fields(row_type)]
    what = ", ".join(record_column_sql(columns, n) if n in known else f"null as {n}" for n in names)
    return [row_type(*row) for row in delta_tables.select_rows(table, what, rest)]


def append_records(
    table: StoragePath,
    spec: TableSpec,
    rows: Iterable[Mapping[str, Any]],
    numbered: str | None = None,
) -> None:
    """Append rows in one commit, and create the table if there is none.

    Args:
        spec: has the table's columns. A table that a stream reads is never compacted.
        rows: values by column; times are microseconds since 1970.
        numbered: a column that numbers all rows of the table from 1, in the order of commits.
    """
    from deltalake import write_deltalake

    columns, listed = spec.columns or {}, list(rows)

    def write(delta: DeltaTable, properties: CommitProperties) -> None:
        values = listed
        if numbered:
            last = _last_number(table, delta, numbered)
            values = [{**row, numbered: at} for at, row in enumerate(listed, last + 1)]
        lacks_columns = columns.keys() - {field.name for field in delta.schema().fields}
        write_deltalake(
            delta,
            _arrow_table(columns, values),
            mode="append",
            schema_mode="merge" if lacks_columns else None,
            commit_properties=properties,
        )

    _commit(table, spec, write if listed else None)


def upsert_records(
    table: StoragePath, spec: TableSpec, rows: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> None:
    """Replace the rows with the same keys, or add them, in one commit.

    Args:
        table: its directory; the table is created if there is none.
        spec: has the table's columns.
        rows: values by column; times are microseconds since 1970.
        keys: the columns that identify a row; `rows` has no duplicates.
    """
    columns = spec.columns or {}
    keys_match = " and ".join(f"old.{key} = new.{key}" for key in keys)

    def write(delta: DeltaTable, properties: CommitProperties) -> None:
        (
            delta.merge(
                _arrow_table(columns, rows),
                keys_match,
                source_alias="new",
                target_alias="old",
                merge_schema=True,  # a table of an earlier release lacks columns
                commit_properties=properties,
            )
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )

    _commit(table, spec, write)


def update_rows(table: StoragePath, updates: Mapping[str, str], where: str) -> None:
    """Set columns of some rows to SQL, if there is a table; the caller holds all layers' locks."""
    with PROCESS_LOCK:
        if delta_tables.table_exists(table):
            delta_tables.open_for_write(table).update(dict(updates), predicate=where)
            objects.forget(str(table))


def _commit(
    table: StoragePath,
    spec: TableSpec,
    write: Callable[[DeltaTable, CommitProperties], None] | None,
) -> None:
    """Create the table if there is none, then write; retry if another process committed first.

    Raises:
        CommitFailedError: all retries failed.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError

    # In a bucket the cached object reads only the new commits.
    is_object, writer, version = isinstance(table, ObjectPath), uuid.uuid4().hex, -1
    open_ = delta_tables.open_table if is_object else delta_tables.open_for_write
    with PROCESS_LOCK:
        for tries_left in reversed(range(_TRIES)):
            try:
                schema = delta_tables.schema_json(spec.columns or {})
                delta_tables.create_table(table, schema, spec.properties())
                if not write:
                    return
                delta = open_(table)
                version = delta.version() + 1
                once = [Transaction(_APPLICATION, version)]
                write(delta, CommitProperties({"writer": writer}, app_transactions=once))
                break
            except CommitFailedError:
                # In a bucket, the answer to the commit may have been lost: it is there then.
                if version >= 0 and delta_log.commit_writer(table, version) == writer:
                    break
                if not tries_left:
                    raise
                time.sleep(random.uniform(0, _LONGEST_PAUSE))
            finally:
                objects.forget(str(table))
        if not spec.is_streamed:
            _compact(table, delta)


def _last_number(table: StoragePath, delta: DeltaTable, column: str) -> int:
    """Return the greatest number in a column; the log has it, unless another writer left it out."""
    adds, name = delta.get_add_actions(flatten=True), f"max.{column}"
    numbers = adds[name].to_pylist() if name in adds.schema.names else [None]
    if None in numbers:
        ((number,),) = delta_tables.select_rows(table, f"max({column})")
        numbers = [number or 0]
    return int(max(numbers, default=0))


def _compact(table: StoragePath, written: DeltaTable) -> None:
    """Compact a table of many small files, because each reader opens all of them.

    Errors, such as a full disk, are ignored: the next write tries again.
    """
    is_allowed = locks.is_held_here(Layout(table.parent.parent), "bronze")
    most = _MOST_OBJECTS if isinstance(table, ObjectPath) else _MOST_FILES
    with suppress(Exception):
        if is_allowed and len(written.file_uris()) > most:
            locks.check_locks()
            delta_tables.open_table(table).optimize.compact()
            objects.forget(str(table))


def _arrow_table(columns: Columns, rows: Sequence[Mapping[str, Any]]) -> Any:
    import arro3.core as arrow

    types = {"string": arrow.DataType.string(), "double": arrow.DataType.float64()}
    arrays = []
    for name, data_type in columns.items():
        storage_type = types.get(data_type, arrow.DataType.int64())
        array = arrow.Array([row.get(name) for row in rows], storage_type)
        is_time = data_type == "timestamp"
        arrays.append(array.cast(arrow.DataType.timestamp("us", tz="UTC")) if is_time else array)
    return arrow.Table.from_arrays(arrays, names=list(columns))

"""Read-only SQL over the tables, by DataFusion from the `deltalake` package, without a JVM.

Statements are not rewritten: tables are registered under their schemas.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from medallion.errors import StatementError, UsageError
from medallion.sql import guard
from medallion.sql.mistakes import describe
from medallion.sql.result import Result
from medallion.storage import delta_tables
from medallion.storage.paths import Layout, StoragePath, unsupported_path_reason

if TYPE_CHECKING:
    from arro3.core import RecordBatch, RecordBatchReader, Schema
    from deltalake import QueryBuilder

AsOf = int | datetime
"""The version of a table, or a time."""

_SETTINGS = {
    "datafusion.catalog.information_schema": "true",
    # Then bronze's names, such as Recorded_At, need no quotes.
    "datafusion.sql_parser.enable_ident_normalization": "false",
}
_BREAKS = re.compile(r"(?:\s|\x1b\[\d*m)+")


def query(
    root: str | os.PathLike[str],
    statement: str,
    views: Mapping[str, str] | None = None,
    as_of: AsOf | None = None,
) -> Result:
    """Run one read-only statement over the tables `layer.table` under `root`.

    Args:
        root: the lakehouse.
        statement: the statement.
        views: SQL by the name of each view; one may read those before it.
        as_of: the version of the table, or the time of all tables.

    Raises:
        UsageError: the statement is wrong; a `StatementError` has the wrong part.
    """
    schema, batches = execute(os.fspath(root), statement, views, as_of)
    return Result(tuple(schema.names), batches=(schema, list(batches)))


def execute(
    root: str, statement: str, views: Mapping[str, str] | None = None, as_of: AsOf | None = None
) -> tuple[Schema, Iterator[RecordBatch]]:
    """Run a statement like `query`; return its schema, and stream its record batches."""
    parsed = guard.parse_read_only(statement)
    layout = Layout(Path(root))
    layout.require_root()
    if reason := unsupported_path_reason(root):
        raise UsageError(f"{root}: {reason}")
    known = layout.tables()
    if parsed.lists_tables:
        names = [*sorted(known), *(f"view.{name}" for name in views or ())]
        parsed = guard.parse_read_only(_list_sql(names))
    used, sql = _used_views(parsed, views or {}), parsed.sql
    # Only the named tables are opened, unless the statement is about tables in general.
    named = parsed.tables.union(*(view.tables for view in used.values()))
    engine = _open_engine(set(known) if parsed.asks_about_tables else named, known, as_of)
    for name, view in used.items():
        with _translated_errors(view.sql, f"view {name}: ", root, known):
            engine.execute(f"CREATE VIEW {_quoted(name)} AS {view.sql}").read_all()
    with _translated_errors(sql, "", root, known):
        reader = engine.execute(sql)
        return reader.schema, _stream(reader, sql, root, known)


def _list_sql(names: Iterable[str]) -> str:
    """Return a statement whose rows are the names of tables."""
    rows = (name.replace("'", "''").split(".", 1) for name in names)
    values = ", ".join(f"('{layer}', '{table}')" for layer, table in rows)
    columns = 'AS t(layer, "table")'
    if not values:
        return f"SELECT * FROM (VALUES ('', '')) {columns} WHERE false"
    return f"SELECT * FROM (VALUES {values}) {columns}"


def _stream(
    reader: RecordBatchReader, sql: str, root: str, known: Iterable[str]
) -> Iterator[RecordBatch]:
    with _translated_errors(sql, "", root, known):  # also between rows, for example of a cast
        yield from reader


def _used_views(statement: guard.Statement, views: Mapping[str, str]) -> dict[str, guard.Statement]:
    """Return the views that a statement names, directly or through others, in their order."""
    names, used = set(statement.names), dict[str, guard.Statement]()
    for name in reversed(list(views)):
        if name in names or statement.asks_about_tables:
            try:
                used[name] = guard.parse_read_only(views[name])
            except UsageError as error:
                raise UsageError(f"view {name}: {error}") from None
            names |= used[name].names
    return dict(reversed(list(used.items())))


@contextmanager
def _translated_errors(sql: str, prefix: str, root: str, known: Iterable[str]) -> Iterator[None]:
    """Raise StatementError for errors of the engine.

    Args:
        sql: the statement for the engine.
        prefix: the start of the message.
        root: the lakehouse.
        known: its tables.
    """
    try:
        yield
    except (MemoryError, UsageError):
        raise
    except Exception as error:
        message, span = describe(_BREAKS.sub(" ", str(error)), sql, root, sorted(known))
        raise StatementError(f"{prefix}{message}", sql, span) from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _open_engine(
    names: AbstractSet[str], tables: Mapping[str, StoragePath], as_of: AsOf | None
) -> QueryBuilder:
    """Return an engine with those tables of `names` that exist.

    Args:
        names: names of tables in any case.
        tables: the paths of all tables.
        as_of: the version of the table, or the time of all tables.

    Raises:
        MedallionError: a table cannot be read; the message names the file and what to do.
    """
    from deltalake import QueryBuilder

    engine = QueryBuilder(_SETTINGS)
    paths = {name.lower(): path for name, path in tables.items()}
    existing = sorted(name for name in names if name.lower() in paths)
    if isinstance(as_of, int) and len({name.lower() for name in existing}) > 1:
        raise UsageError(f"--as-of {as_of}: a version is of one table; give a time for several.")
    for name in existing:
        path = paths[name.lower()]
        if not delta_tables.table_exists(path):  # its first commit is not complete yet
            continue
        schema, table = map(_quoted, name.split(".", 1))
        engine.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}").read_all()
        delta = delta_tables.open_table(path)
        if as_of is not None:
            delta = delta_tables.open_table_at(path, as_of)
        engine.register(f"{schema}.{table}", delta)
    return engine

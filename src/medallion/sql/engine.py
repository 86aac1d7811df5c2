"""Read-only SQL over the tables, by DataFusion from the `deltalake` package, without a JVM.

Tables are registered under their schemas. Only sums are rewritten, to refuse those that wrap.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from medallion.errors import StatementError, UsageError
from medallion.sql import guard
from medallion.sql.mistakes import describe, sql_types, table_alone
from medallion.sql.result import Result
from medallion.storage import delta_tables
from medallion.storage.layout import Layout
from medallion.storage.paths import StoragePath
from medallion.storage.root_format import read_format

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
        views: SQL by the name of each view; one may read those before it.
        as_of: the version of the table, or the time of all tables.

    Raises:
        UsageError: the statement is wrong; a `StatementError` has the wrong part.
    """
    return Database(os.fspath(root), views or {}, as_of).query(statement)


@dataclass(frozen=True)
class Database:
    """What statements run on: the tables and views of a lakehouse; `query` has the arguments."""

    root: str
    views: Mapping[str, str] = field(default_factory=dict)
    as_of: AsOf | None = None

    @property
    def tables(self) -> dict[str, StoragePath]:
        """The paths of the tables that exist, by name."""
        return Layout(self.root).tables()

    def query(self, statement: str) -> Result:
        """Run a statement."""
        schema, batches = self.execute(statement)
        result = Result(tuple(schema.names), batches=(schema, list(batches)))
        if result.columns[1:2] != ("data_type",):
            return result
        rows = [(name, sql_types(type_), *more) for name, type_, *more in result.rows]
        return Result(result.columns, rows)  # of DESCRIBE

    def execute(self, statement: str) -> tuple[Schema, Iterator[RecordBatch]]:
        """Run a statement; return its schema, and stream its record batches."""
        try:
            parsed = guard.parse_read_only(statement)
        except UsageError:
            if mistake := table_alone(statement, [*self.views, *sorted(self.tables)]):
                raise StatementError(mistake[0], statement, mistake[1]) from None
            raise
        layout = Layout(self.root)
        layout.require_root()
        read_format(layout)
        if reason := layout.root.unsupported_reason():
            raise UsageError(f"{self.root}: {reason}")
        if parsed.lists_tables:
            names = [*sorted(self.tables), *(f"view.{name}" for name in self.views)]
            parsed = guard.parse_read_only(_list_sql(names))
        used, sql = _used_views(parsed, self.views), parsed.sql
        # Only the named tables are opened, unless the statement is about tables in general.
        named = parsed.tables.union(*(view.tables for view in used.values()))
        engine = self._open_engine(None if parsed.asks_about_tables else named)
        for name, view in used.items():
            with self._translated_errors(view.sql, f"view {name}: "):
                checked, _, names = _plan(engine, view.sql)
                columns = ", ".join(map(_quoted, names))
                engine.execute(f"CREATE VIEW {_quoted(name)} ({columns}) AS {checked}").read_all()
        with self._translated_errors(sql):
            _, reader, names = _plan(engine, sql)
            fields = (reader.schema.field(at).with_name(name) for at, name in enumerate(names))
            schema = type(reader.schema)([*fields])
            return schema, self._stream((batch.with_schema(schema) for batch in reader), sql)

    def _stream(self, batches: Iterable[RecordBatch], sql: str) -> Iterator[RecordBatch]:
        with self._translated_errors(sql):  # also between rows, for example of a cast
            yield from batches

    @contextmanager
    def _translated_errors(self, sql: str, prefix: str = "") -> Iterator[None]:
        """Raise StatementError, whose message starts with the prefix, for errors of the engine."""
        try:
            yield
        except (MemoryError, UsageError):
            raise
        except Exception as error:
            text, tables = _BREAKS.sub(" ", str(error)), sorted(self.tables)
            message, span = describe(text, sql, self.root, tables)
            raise StatementError(f"{prefix}{message}", sql, span) from error

    def _open_engine(self, names: AbstractSet[str] | None) -> QueryBuilder:
        """Return an engine with those tables of `names`, in any case, that exist; None: with all.

        Raises:
            MedallionError: a table cannot be read; the message names the file and what to do.
        """
        from deltalake import QueryBuilder

        engine = QueryBuilder(_SETTINGS)
        paths = {name.lower(): path for name, path in self.tables.items()}
        requested = self.tables if names is None else names
        existing = sorted(name for name in requested if name.lower() in paths)
        if isinstance(self.as_of, int) and len({name.lower() for name in existing}) > 1:
            advice = "a version is of one table; give a time for several"
            raise UsageError(f"--as-of {self.as_of}: {advice}.")
        for name in existing:
            path = paths[name.lower()]
            if not delta_tables.table_exists(path):  # its first commit is not complete yet
                continue
            schema, table = map(_quoted, name.split(".", 1))
            engine.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}").read_all()
            delta = delta_tables.open_table(path)
            if self.as_of is not None:
                delta = delta_tables.open_table_at(path, self.as_of)
            engine.register(f"{schema}.{table}", delta)
        return engine


def _plan(engine: QueryBuilder, sql: str) -> tuple[str, RecordBatchReader, list[str]]:
    """Return a statement that refuses sums that wrap, its reader, and the names of its columns."""
    reader, checked = engine.execute(sql), guard.with_checked_sums(sql)
    names = reader.schema.names
    if checked != sql:
        with suppress(Exception):  # a sum of intervals
            reader, sql = engine.execute(checked), checked
    return sql, reader, names


def _list_sql(names: Iterable[str]) -> str:
    """Return a statement whose rows are the names of tables."""
    rows = (name.replace("'", "''").split(".", 1) for name in names)
    values = ", ".join(["('', '')", *(f"('{layer}', '{table}')" for layer, table in rows)])
    return f"SELECT * FROM (VALUES {values}) AS t(layer, \"table\") WHERE layer <> ''"


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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

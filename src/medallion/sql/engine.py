"""Read-only SQL over the tables, by DataFusion from the `deltalake` package, without a JVM.

Statements are not rewritten: tables are registered under their schemas.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medallion.errors import UsageError
from medallion.sql import guard
from medallion.storage import delta_tables
from medallion.storage.paths import Layout, unsupported_path_reason

if TYPE_CHECKING:
    from arro3.core import Array
    from deltalake import QueryBuilder

Names = tuple[str, ...]
Rows = Iterator[tuple[Any, ...]]

_SETTINGS = {
    "datafusion.catalog.information_schema": "true",
    # Then bronze's names, such as Recorded_At, need no quotes.
    "datafusion.sql_parser.enable_ident_normalization": "false",
}
_BREAKS = re.compile(r"(?:\s|\x1b\[\d*m)+")
_ADVICE = re.compile(r"\s*You can use double quotes .*?enable_ident_normalization\S* configuration")


@dataclass(frozen=True)
class Result:
    """The result of a statement: column names, and rows of plain Python values."""

    columns: Names
    rows: list[tuple[Any, ...]]


def query(root: str | os.PathLike[str], statement: str) -> Result:
    """Run one read-only statement over the tables `layer.table` under `root`."""
    columns, rows = stream_rows(os.fspath(root), statement)
    return Result(columns, list(rows))


def stream_rows(root: str, statement: str) -> tuple[Names, Rows]:
    """Run a statement like `query`, but stream rows that need not fit in memory."""
    parsed = guard.parse_read_only(statement)
    layout = Layout(Path(root))
    layout.require_root()
    if reason := unsupported_path_reason(root):
        raise UsageError(f"{root}: {reason}")
    known = layout.tables()
    if parsed.lists_tables:
        return ("layer", "table"), iter([tuple(name.split(".", 1)) for name in sorted(known)])
    # Only the named tables are opened, unless the statement is about tables in general.
    names = set(known) if parsed.asks_about_tables else parsed.tables
    engine = _open_engine(names, known)
    tables_hint = f"the tables are {', '.join(sorted(known))}"
    empty_hint = "no nightly run yet: start one with medallion nightly"
    rows = _stream_batches(
        engine, parsed.sql, f"under {root}; {tables_hint if known else empty_hint}"
    )
    return next(rows), rows


def _stream_batches(engine: QueryBuilder, sql: str, hint: str) -> Rows:
    """Yield the column names, then the rows; raise UsageError for errors of the engine."""
    try:
        reader = engine.execute(sql)
        yield tuple(reader.schema.names)
        for batch in reader:
            yield from zip(*(_python_values(column) for column in batch.columns), strict=True)
    except MemoryError:
        raise
    except Exception as error:  # also between rows, for example of a cast
        line = _BREAKS.sub(" ", str(error))
        if missing := _missing_table(line):
            line = f"there is no table {missing} {hint}"
        # The advice does not apply: names are case-sensitive already.
        raise UsageError(_ADVICE.sub("", line)) from error


def _missing_table(text: str) -> str | None:
    """Return the missing table that a message names: the engine has no error code for it."""
    match = re.search(r"table '(?:datafusion\.)?(?:public\.)?(.+?)' not found", text)
    return match[1] if match else None


def _python_values(column: Array) -> list[Any]:
    """Return a column as Python values, or as strings if Python has no such type."""
    from arro3.core import DataType  # imported late, for --help

    if not DataType.is_interval(column.type):
        with suppress(ValueError, OverflowError):  # a time beyond the year 9999
            values = list(column.to_pylist())
            return list(map(_maps_as_dicts, values)) if "Map(" in str(column.type) else values
    return list(column.cast(DataType.utf8()).to_pylist())


def _maps_as_dicts(value: Any) -> Any:
    """Return a value with dictionaries in place of arro3's lists of pairs."""
    if isinstance(value, dict):
        return {name: _maps_as_dicts(item) for name, item in value.items()}
    if not isinstance(value, list):
        return value
    if value and all(isinstance(item, tuple) for item in value):
        with suppress(TypeError):  # keys that are structs are dictionaries
            return {key: _maps_as_dicts(item) for key, item in value}
    return list(map(_maps_as_dicts, value))


def _open_engine(names: AbstractSet[str], tables: Mapping[str, Path]) -> QueryBuilder:
    """Return an engine with those tables of `names` that exist.

    Raises:
        MedallionError: a table cannot be read; the message names the file and what to do.
    """
    from deltalake import QueryBuilder

    engine = QueryBuilder(_SETTINGS)
    paths = {name.lower(): path for name, path in tables.items()}
    for name in sorted(name for name in names if name.lower() in paths):
        path = paths[name.lower()]
        if not delta_tables.table_exists(path):  # its first commit is not complete yet
            continue
        schema, table = ('"' + part.replace('"', '""') + '"' for part in name.split(".", 1))
        engine.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}").read_all()
        engine.register(f"{schema}.{table}", delta_tables.open_table(path))
    return engine

"""Delta tables as files: made, and asked for their versions and rows, without a JVM."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from medallion.storage import damage, log
from medallion.storage.columns import Columns

if TYPE_CHECKING:
    from deltalake import DeltaTable, QueryBuilder

# How a merge, an append of Spark's, and one from here name the rows that they added; a merge's
# numOutputRows also has those that it copied.
_INSERTED = ("numTargetRowsInserted", "numOutputRows", "num_added_rows")
_UPDATED = "numTargetRowsUpdated"


def create(table: Path, schema_json: str, properties: Mapping[str, str]) -> None:
    """Make an empty table unless it is there, so that it can be asked before its first row.

    Args:
        table: its folder.
        schema_json: its columns.
        properties: how it is kept.
    """
    from deltalake import DeltaTable, Schema

    if exists(table):
        return
    fields = json.loads(schema_json)
    for field in fields["fields"]:
        field["nullable"] = True  # a count is never null to Spark, a table's column may be
    schema = Schema.from_json(json.dumps(fields))
    DeltaTable.create(table, schema, "ignore", configuration={**properties})


def schema_json(columns: Columns) -> str:
    """The schema of plain columns in the JSON that Delta and Spark share."""
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


def exists(table: Path) -> bool:
    """Whether a table is there: a process that is cut off while it makes one leaves a log of none.

    A commit is written under another name first, which ends otherwise.
    """
    with suppress(FileNotFoundError, NotADirectoryError):  # a log that may not be seen is one
        return any(f.suffix in (".json", ".parquet") for f in (table / "_delta_log").iterdir())
    return False


def open_table(table: Path) -> DeltaTable:
    """A table at its newest version, to read: while its log is the same, all get the same object.

    Raises:
        MedallionError: it cannot be read; the message names the file to blame, and what to do.
    """
    return _opened(table, frozenset(_log(table)))


@lru_cache(maxsize=64)  # a night asks each table ten times, and to open one takes 5 ms
def _opened(table: Path, _: frozenset[Hashable]) -> DeltaTable:
    return open_to_write(table)


def _log(table: Path) -> Iterator[Hashable]:
    """What tells one state of a table's log from every other."""
    with suppress(FileNotFoundError), os.scandir(table / "_delta_log") as files:
        for file in files:
            with suppress(FileNotFoundError):  # a writer has just given it its name
                found = file.stat()
                yield file.name, found.st_ino, found.st_size, found.st_mtime_ns


def open_to_write(table: Path) -> DeltaTable:
    """A table for one writer alone, whose commits move the object on; raises as `open_table`."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if damage.is_cut_off(table):
        raise damage.error_for(table)
    try:
        return DeltaTable(table)
    except (DeltaError, OSError) as error:
        raise damage.error_for(table, error) from error


def data_files(table: Path, at: int | None = None) -> list[Path]:
    """Where a table's rows lie, or lay at an older version.

    delta-rs tells them as parts of a URI, and nobody who opens a path decodes one.

    Raises:
        MedallionError: the log cannot be read, or does not go back to that version.
    """
    from deltalake.exceptions import DeltaError

    delta = open_table(table) if at is None else open_to_write(table)
    try:
        if at is not None:
            delta.load_as_version(at)
    except DeltaError as error:
        raise damage.error_for(table, error) from error
    return [Path(unquote(file)) for file in delta.file_uris()]


def version(table: Path) -> int:
    """The newest version of a table; -1 where there is no table."""
    return int(open_table(table).version()) if exists(table) else -1


def earliest_version(table: Path) -> int:
    """The oldest version whose commit is still in the log."""
    return min(log.commits(table), default=0)


def identity(table: Path) -> str:
    """The id that Delta gave a table when it was made."""
    return str(open_table(table).metadata().id)


def made_at(table: Path) -> int:
    """When a table was made, in microseconds since 1970."""
    return int(open_table(table).metadata().created_time or 0) * 1000


def select(
    table: Path,
    what: str,
    rest: str = "",
    source: str = "rows",
    *,
    files: Sequence[Path] = (),
    columns: str = "*",
) -> list[tuple[Any, ...]]:
    """Rows by SQL: of a table, which is `rows`, or of what else `source` says; none where it is not
    there.

    This is for the project's own records: `sql.engine` answers people.

    Args:
        files: some of its data files, whose rows are `added`.
        columns: those of the files that are read. They must have the same types in all files, which
            a struct of bronze that has got more fields has not.
    """
    from deltalake import QueryBuilder

    if not exists(table):
        return []
    engine = QueryBuilder().register("rows", open_table(table))
    return _answered(
        engine, _question(files, columns, f"select {what} from {source} {rest}"), table
    )


def select_added(
    table: Path, version: int | None, what: str, rest: str = ""
) -> list[tuple[Any, ...]]:
    """The same of the rows alone that one version added; none of no version; FileNotFoundError
    where the table's log does not have that version any more."""
    files = [] if version is None else log.added_files(table, version, version)
    return select(table, what, rest, "added", files=files) if files else []


def _question(files: Sequence[Path], columns: str, sql: str) -> list[str]:
    """A query of rows that are `added`, after what makes tables of their files."""
    if not files:
        return [sql]
    # As a URI, for in a path a * would be a pattern; and a time is one of microseconds, however it
    # is written.
    named = {f"part{number}": file.absolute().as_uri() for number, file in enumerate(files)}
    of = "options (coerce_int96 'us')"
    parts = [
        f"create external table {name} stored as parquet location '{file}' {of}"
        for name, file in named.items()
    ]
    # By the names of columns, whose order may have changed from one write to the next.
    rows = " union all by name ".join(f"select {columns} from {name}" for name in named)
    return [*parts, f"with added as ({rows}) {sql}"]


def _answered(engine: QueryBuilder, sql: Iterable[str], table: Path) -> list[tuple[Any, ...]]:
    """The rows of the statements, one after the other."""
    found: list[tuple[Any, ...]] = []
    try:
        for batch in chain.from_iterable(map(engine.execute, sql)):
            found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    except Exception as error:  # a data file that is gone or damaged has no class of its own
        raise damage.error_for(table, error) from error
    return found


def forget_empty(table: Path, schema: str) -> None:
    """Remove a table that has no rows and other columns: its query was refused after all."""
    is_empty = exists(table) and not row_count(table)
    if is_empty and _types(open_table(table).schema().to_json()) != _types(schema):
        shutil.rmtree(table)


def _types(schema: str) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in json.loads(schema)["fields"]}


def row_count(table: Path) -> int:
    """Rows of a table, 0 where there is none."""
    return rows_in(table, open_table(table)) if exists(table) else 0


def rows_in(table: Path, delta: DeltaTable) -> int:
    """Rows of a table that is open: by the counts of its files in the log, unless other writers
    have left some out, or deleted rows by marking them in files of their own."""
    counts = delta.get_add_actions().column("num_records").to_pylist()
    is_marked = "deletionVectors" in (delta.protocol().reader_features or ())
    return int(select(table, "count(*)")[0][0] if is_marked or None in counts else sum(counts))


def columns(table: Path) -> set[str]:
    """The names of a table's columns; none where there is no table."""
    return {field.name for field in open_table(table).schema().fields} if exists(table) else set()


def rows_written(table: Path, after: int, until: int | None = None) -> int:
    """Rows that the commits after one version added, or put in the place of others, as the writers
    counted them."""
    if not exists(table):
        return 0
    delta = open_table(table)
    total = 0
    for commit in delta.history(max(delta.version() - after, 0)):
        if after < commit["version"] <= (delta.version() if until is None else until):
            metrics: Mapping[str, Any] = commit.get("operationMetrics") or {}
            total += next((int(metrics[name]) for name in _INSERTED if name in metrics), 0)
            total += int(metrics.get(_UPDATED, 0))
    return total


def align(table: Path, properties: Mapping[str, str]) -> None:
    """Give a table those of these properties that it lacks: it may have been made before them."""
    if other := properties_to_set(table, properties):
        open_to_write(table).alter.set_table_properties(other)


def properties_to_set(table: Path, properties: Mapping[str, str]) -> dict[str, str]:
    """Those of these properties that a table lacks, or has with another value."""
    there = open_table(table).metadata().configuration
    return {key: value for key, value in properties.items() if there.get(key) != value}

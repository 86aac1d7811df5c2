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

from medallion.errors import MedallionError, error_message
from medallion.storage import delta_log
from medallion.storage.table_specs import Columns
from medallion.storage.text import counted

if TYPE_CHECKING:
    from deltalake import DeltaTable, QueryBuilder


# How a merge, an append of Spark's, and one from here name the rows that they added; a merge's
# numOutputRows also has those that it copied.
_INSERTED = ("numTargetRowsInserted", "numOutputRows", "num_added_rows")
_UPDATED = "numTargetRowsUpdated"


def create_table(table: Path, schema_json: str, properties: Mapping[str, str]) -> None:
    """Make an empty table unless it is there, so that it can be asked before its first row.

    Args:
        table: its folder.
        schema_json: its columns.
        properties: how it is kept.
    """
    from deltalake import DeltaTable, Schema

    if table_exists(table):
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


def table_exists(table: Path) -> bool:
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
    return open_for_write(table)


def _log(table: Path) -> Iterator[Hashable]:
    """What tells one state of a table's log from every other."""
    with suppress(FileNotFoundError), os.scandir(table / "_delta_log") as files:
        for file in files:
            with suppress(FileNotFoundError):  # a writer has just given it its name
                found = file.stat()
                yield file.name, found.st_ino, found.st_size, found.st_mtime_ns


def open_for_write(table: Path) -> DeltaTable:
    """A table for one writer alone, whose commits move the object on; raises as `open_table`."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if has_empty_commit(table):
        raise damaged_table_error(table)
    try:
        return DeltaTable(table)
    except (DeltaError, OSError) as error:
        raise damaged_table_error(table, error) from error


def data_files(table: Path, at: int | None = None) -> list[Path]:
    """Where a table's rows lie, or lay at an older version.

    delta-rs tells them as parts of a URI, and nobody who opens a path decodes one.

    Raises:
        MedallionError: the log cannot be read, or does not go back to that version.
    """
    from deltalake.exceptions import DeltaError

    delta = open_table(table) if at is None else open_for_write(table)
    try:
        if at is not None:
            delta.load_as_version(at)
    except DeltaError as error:
        raise damaged_table_error(table, error) from error
    return [Path(unquote(file)) for file in delta.file_uris()]


def table_version(table: Path) -> int:
    """The newest version of a table; -1 where there is no table."""
    return int(open_table(table).version()) if table_exists(table) else -1


def earliest_version(table: Path) -> int:
    """The oldest version whose commit is still in the log."""
    return min(delta_log.commit_files(table), default=0)


def table_id(table: Path) -> str:
    """The id that Delta gave a table when it was made."""
    return str(open_table(table).metadata().id)


def created_at(table: Path) -> int:
    """When a table was made, in microseconds since 1970."""
    return int(open_table(table).metadata().created_time or 0) * 1000


def select_rows(
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

    if not table_exists(table):
        return []
    engine = QueryBuilder().register("rows", open_table(table))
    return _answered(
        engine, _question(files, columns, f"select {what} from {source} {rest}"), table
    )


def select_added_rows(
    table: Path, version: int | None, what: str, rest: str = ""
) -> list[tuple[Any, ...]]:
    """The same of the rows alone that one version added; none of no version; FileNotFoundError
    where the table's log does not have that version any more."""
    files = [] if version is None else delta_log.added_files(table, version, version)
    return select_rows(table, what, rest, "added", files=files) if files else []


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
        raise damaged_table_error(table, error) from error
    return found


def drop_empty_table(table: Path, schema: str) -> None:
    """Remove a table that has no rows and other columns: its query was refused after all."""
    is_empty = table_exists(table) and not row_count(table)
    if is_empty and _types(open_table(table).schema().to_json()) != _types(schema):
        shutil.rmtree(table)


def _types(schema: str) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in json.loads(schema)["fields"]}


def row_count(table: Path) -> int:
    """Rows of a table, 0 where there is none."""
    return opened_row_count(table, open_table(table)) if table_exists(table) else 0


def opened_row_count(table: Path, delta: DeltaTable) -> int:
    """Rows of a table that is open: by the counts of its files in the log, unless other writers
    have left some out, or deleted rows by marking them in files of their own."""
    counts = delta.get_add_actions().column("num_records").to_pylist()
    is_marked = "deletionVectors" in (delta.protocol().reader_features or ())
    return int(select_rows(table, "count(*)")[0][0] if is_marked or None in counts else sum(counts))


def column_names(table: Path) -> set[str]:
    """The names of a table's columns; none where there is no table."""
    return (
        {field.name for field in open_table(table).schema().fields}
        if table_exists(table)
        else set()
    )


def rows_written(table: Path, after: int, until: int | None = None) -> int:
    """Rows that the commits after one version added, or put in the place of others, as the writers
    counted them."""
    if not table_exists(table):
        return 0
    delta = open_table(table)
    total = 0
    for commit in delta.history(max(delta.version() - after, 0)):
        if after < commit["version"] <= (delta.version() if until is None else until):
            metrics: Mapping[str, Any] = commit.get("operationMetrics") or {}
            total += next((int(metrics[name]) for name in _INSERTED if name in metrics), 0)
            total += int(metrics.get(_UPDATED, 0))
    return total


def set_missing_properties(table: Path, properties: Mapping[str, str]) -> None:
    """Give a table those of these properties that it lacks: it may have been made before them."""
    if other := properties_to_set(table, properties):
        open_for_write(table).alter.set_table_properties(other)


def properties_to_set(table: Path, properties: Mapping[str, str]) -> dict[str, str]:
    """Those of these properties that a table lacks, or has with another value."""
    there = open_table(table).metadata().configuration
    return {key: value for key, value in properties.items() if there.get(key) != value}


_PARQUET = b"PAR1"  # the last bytes of every file of that format


def damaged_table_error(table: Path, error: Exception | None = None) -> MedallionError:
    """The error to raise for a table whose log, or whose data, cannot be read.

    Args:
        error: what its reader says, for damage that is not found here.
    """
    name = f"{table.parent.name}.{table.name}".removeprefix("_intake.")
    try:
        file = next(_damaged(table), None)
    except OSError as refused:
        return MedallionError(f"{name}: {error_message(refused)}")
    if file is not None:
        return MedallionError(f"{name}: {file} is damaged or cut short: {_advice(table)}")
    told = str(error).strip().splitlines()[0] if error and str(error).strip() else "no reason given"
    return MedallionError(
        f"{name}: the table at {table} cannot be read ({told}): put its files back from a copy"
        f"{f', or {again}' if (again := _rebuilt(table)) else ''}."
    )


def require_data_files(table: Path, delta: DeltaTable) -> None:
    """Raise MedallionError where data files are not there as the log has them, by whose counts
    their rows are there."""
    files = delta.get_add_actions()
    paths, sizes = (files.column(name).to_pylist() for name in ("path", "size_bytes"))
    lost = [p for p, size in zip(paths, sizes, strict=True) if _size(table / unquote(p)) != size]
    if lost:
        told = f"{counted(len(lost), 'data file')} gone, or cut short, such as {min(lost)}"
        raise damaged_table_error(table, OSError(told))


def _size(file: Path) -> int | None:
    with suppress(FileNotFoundError):
        return file.stat().st_size
    return None


def has_empty_commit(table: Path) -> bool:
    """Whether the newest commit is empty, which no writer leaves, and readers take for nothing."""
    commits = delta_log.commit_files(table)
    return bool(commits) and not commits[max(commits)].stat().st_size


def _advice(table: Path) -> str:
    if table.parent.name == "ops":
        return "move that file away; the next run writes again what it said."
    if again := _rebuilt(table):
        return f"{again}."
    if table.parent.name == "_intake":
        return "move that file away; what bronze has not read is handed over again."
    return (
        "put the table's files back from a copy. Without one, move that file away, and medallion "
        "audit --deep names the files whose rows it had: those that land again under other names "
        "are taken in, and the audit goes on telling what is lost."
    )


def _rebuilt(table: Path) -> str | None:
    """How a table is made anew; None where that is not to be had."""
    layer, name = table.parent.name, table.name
    if layer == "gold":
        return f"move {table} away and run medallion refresh gold.{name}"
    if layer in ("silver", "quarantine"):
        return f"move {table} away and run medallion refresh silver.{name}"
    if layer == "ops":
        return (
            f"move {table} away, and the next run writes again what the other tables "
            "tell, or says what to rebuild"
        )
    return None


def _damaged(table: Path) -> Iterator[Path]:
    """Files of the log that are not whole, the newest first."""
    for _, commit in sorted(delta_log.commit_files(table).items(), reverse=True):
        text = commit.read_bytes()
        try:
            whole = all(json.loads(line) for line in text.split(b"\n") if line)
        except ValueError:
            whole = False
        if not text or not whole:
            yield commit
    for checkpoint in (table / "_delta_log").glob("*.checkpoint*.parquet"):
        if not checkpoint.read_bytes().endswith(_PARQUET):
            yield checkpoint

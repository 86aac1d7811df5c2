"""Delta tables without a JVM: create them, and read their versions, properties and rows."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from medallion.errors import MedallionError, UsageError, error_message
from medallion.storage import delta_log, objects
from medallion.storage.paths import ObjectPath, StoragePath
from medallion.storage.table_specs import Columns
from medallion.storage.text import counted

if TYPE_CHECKING:
    from deltalake import DeltaTable, QueryBuilder


# Commit metrics of added rows: of a merge, of Spark's append, of delta-rs. A merge also has
# numOutputRows, which includes copied rows.
_INSERTED_METRICS = ("numTargetRowsInserted", "numOutputRows", "num_added_rows")
_NOT_NULL = re.compile(r'("(?:nullable|containsNull|valueContainsNull)": *)false')


def create_table(table: StoragePath, schema_json: str, properties: Mapping[str, str]) -> None:
    """Create an empty table if there is none, so that it can be queried before its first row.

    Args:
        schema_json: its columns, in Delta's JSON.
        properties: its table properties.
    """
    from deltalake import DeltaTable, Schema

    if table_exists(table):
        return
    # Spark declares a count as not null, also within a struct; Delta's own writers drop that.
    schema = Schema.from_json(_NOT_NULL.sub(r"\1true", schema_json))
    options = table.delta_options
    delta_log.first_checksum(table).delete()  # of a commit that was lost: delta-rs would fail
    DeltaTable.create(
        str(table), schema, "ignore", configuration={**properties}, storage_options=options
    )
    delta_log.write_first_checksum(table)
    objects.forget(str(table))


def schema_json(columns: Columns) -> str:
    """Return the schema of plain columns in the JSON that Delta and Spark share."""
    fields = [
        {"name": name, "type": data_type, "nullable": True, "metadata": {}}
        for name, data_type in columns.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


def table_exists(table: StoragePath) -> bool:
    """Return True if a table has a first commit: an interrupted creation leaves an empty log.

    Raises:
        PermissionError: the log cannot be listed.
    """
    return any(n.endswith((".json", ".parquet")) for n in (table / "_delta_log").names())


@objects.remembering()
def open_table(table: StoragePath) -> DeltaTable:
    """Return a table at its newest version, to read; the object is cached until its log changes.

    Raises:
        MedallionError: it cannot be read; the message names the corrupt file and what to do.
    """
    state, known = (table / "_delta_log").state(), _opened.get(table)
    if known and known[0] == state:
        return known[1]
    is_longer = known is not None and isinstance(table, ObjectPath) and known[0] < state
    delta = _updated(table, known[1]) if known and is_longer else open_for_write(table)
    if len(_opened) >= 500:  # more tables than a project has
        _opened.clear()
    _opened[table] = state, delta
    return delta


def _updated(table: StoragePath, delta: DeltaTable) -> DeltaTable:
    """Return an open table at its newest version, for which only new commits are read."""
    from deltalake.exceptions import DeltaError

    try:
        newest = max(delta_log.commit_versions(table))
        if delta.version() != newest:  # it has the commits of this process
            delta.load_as_version(newest)
    except (DeltaError, OSError, ValueError):  # the last: the log has checkpoints only
        return open_for_write(table)  # which names what is corrupt
    return delta


# The tables that were opened, by path, with the states of their logs.
_opened: dict[StoragePath, tuple[frozenset[Hashable], DeltaTable]] = {}


def open_for_write(table: StoragePath) -> DeltaTable:
    """Return an uncached table object, which a writer's commits update.

    Raises:
        MedallionError: as `open_table`.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        log = (table / "_delta_log").list_files()
        sizes = [info.size for name, info in log if re.fullmatch(r"\d{20}\.json", name)]
        if sizes and not sizes[-1]:
            raise OSError("its newest commit is empty")  # delta-rs would ignore it
        return DeltaTable(str(table), storage_options=table.delta_options)
    except (DeltaError, OSError) as error:
        raise _unreadable_table_error(table, error) from error


def open_table_at(table: StoragePath, at: int | datetime) -> DeltaTable:
    """Return a table at a version, or at its newest version at a time.

    Raises:
        UsageError: the log has no such version, or none so old.
    """
    delta, name = open_for_write(table), f"{table.parent.name}.{table.name}"
    commits = {commit["version"]: commit["timestamp"] / 1000 for commit in delta.history()}
    if isinstance(at, int):
        versions = [version for version in commits if version == at]
    else:
        versions = [version for version, time in commits.items() if time <= at.timestamp()]
    if not versions:
        oldest = min(commits)
        since = datetime.fromtimestamp(commits[oldest], UTC).replace(tzinfo=None)
        known = f"{oldest} (of {since.isoformat(' ')} UTC) to {max(commits)}"
        raise UsageError(f"--as-of {at}: {name} has the versions {known}.")
    delta.load_as_version(max(versions))
    return delta


def data_files(table: StoragePath, at: int | None = None) -> list[StoragePath]:
    """Return a table's data files, at its newest or at an older version.

    Raises:
        MedallionError: the log cannot be read, or no longer has that version.
    """
    return [StoragePath(unquote(file)) for file in _open_version(table, at).file_uris()]


def _open_version(table: StoragePath, at: int | None) -> DeltaTable:
    from deltalake.exceptions import DeltaError

    newest = open_table(table)
    if at is None or at == newest.version():
        return newest
    delta = open_for_write(table)
    try:
        delta.load_as_version(at)
    except DeltaError as error:
        raise _unreadable_table_error(table, error) from error
    return delta


@objects.remembering()
def table_version(table: StoragePath) -> int:
    """Return the newest version of a table; -1 if there is no table."""
    return int(open_table(table).version()) if table_exists(table) else -1


def earliest_version(table: StoragePath) -> int:
    """Return the oldest version whose commit is still in the log."""
    return min(delta_log.commit_versions(table), default=0)


def table_id(table: StoragePath) -> str:
    """Return the id that Delta gave a table when it was created."""
    return str(open_table(table).metadata().id)


@objects.remembering()
def select_rows(
    table: StoragePath,
    what: str,
    rest: str = "",
    source: str = "rows",
    *,
    files: Sequence[StoragePath] = (),
    columns: str = "*",
    version: int | None = None,
) -> list[tuple[Any, ...]]:
    """Return rows of a table by SQL; none if there is no table.

    It is for internal queries: users' statements run in `sql.engine`.

    Args:
        table: its directory; its name in SQL is `rows`.
        what: SQL between `select` and `from`.
        rest: SQL after the source.
        source: SQL after `from`.
        files: some of its data files, whose rows are named `added`.
        columns: the columns to read from `files`, which must have the same types in all of them.
        version: the version to read; None for the newest.
    """
    from deltalake import QueryBuilder

    if not table_exists(table):
        return []
    engine = QueryBuilder().register("rows", _open_version(table, version))
    statements = _statements(files, columns, f"select {what} from {source} {rest}")
    return _execute(engine, statements, table)


def select_added_rows(
    table: StoragePath, version: int | None, what: str, rest: str = ""
) -> list[tuple[Any, ...]]:
    """Run SQL over the rows that one version added; return no rows if the version is None.

    Args:
        version: the version.
        what: SQL between `select` and `from`.
        rest: SQL after `from`.

    Raises:
        FileNotFoundError: the table's log no longer has that version.
    """
    files = [] if version is None else delta_log.added_files(table, version, version)
    return select_rows(table, what, rest, "added", files=files) if files else []


def _statements(files: Sequence[StoragePath], columns: str, sql: str) -> list[str]:
    """Return a query, after statements that create the tables of the files that it reads."""
    if not files:
        return [sql]
    # As URIs: in a path, a * would be a pattern.
    named = {f"part{number}": file.uri for number, file in enumerate(files)}
    options = "options (coerce_int96 'us')"
    tables = [
        f"create external table {name} stored as parquet location '{file}' {options}"
        for name, file in named.items()
    ]
    # By name: the order of columns may change from one write to the next.
    rows = " union all by name ".join(f"select {columns} from {name}" for name in named)
    return [*tables, f"with added as ({rows}) {sql}"]


def _execute(engine: QueryBuilder, sql: Iterable[str], table: StoragePath) -> list[tuple[Any, ...]]:
    """Return the rows of all statements."""
    rows: list[tuple[Any, ...]] = []
    try:
        for batch in chain.from_iterable(map(engine.execute, sql)):
            rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    except Exception as error:  # a missing or corrupt data file has no class of its own
        raise _unreadable_table_error(table, error) from error
    return rows


def drop_empty_table(table: StoragePath, schema: str) -> None:
    """Delete a table without rows whose columns are not those of the schema."""
    is_empty = table_exists(table) and not row_count(table)
    if is_empty and column_types(table) != _column_types(schema):
        table.delete_prefix()


@objects.remembering()
def column_types(table: StoragePath) -> dict[str, Any]:
    """Return the types of a table's columns as its log has them; empty if there is no table."""
    return _column_types(open_table(table).schema().to_json()) if table_exists(table) else {}


def _column_types(schema: str) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in json.loads(schema)["fields"]}


@objects.remembering()
def row_count(table: StoragePath, at: int | None = None) -> int:
    """Return the number of rows of a table, or of an older version; 0 if there is no table."""
    return opened_row_count(table, _open_version(table, at)) if table_exists(table) else 0


def opened_row_count(table: StoragePath, delta: DeltaTable) -> int:
    """Return the number of rows of an open table.

    The log has it, unless another writer left counts out or used deletion vectors.
    """
    counts = delta.get_add_actions().column("num_records").to_pylist()
    has_deletion_vectors = "deletionVectors" in (delta.protocol().reader_features or ())
    if has_deletion_vectors or None in counts:
        return int(select_rows(table, "count(*)")[0][0])
    return int(sum(counts))


@dataclass(frozen=True)
class TableSize:
    """The rows, files and bytes of a table's newest version, and its time in microseconds."""

    rows: int
    files: int
    bytes: int
    changed_at: int | None


def table_size(table: StoragePath) -> TableSize:
    """Return the size of a table; zeros if its first commit is not complete."""
    if not table_exists(table):
        return TableSize(0, 0, 0, None)
    delta = open_table(table)
    sizes = delta.get_add_actions().column("size_bytes").to_pylist()
    (newest,) = delta.history(1)
    rows, changed_at = opened_row_count(table, delta), int(newest["timestamp"]) * 1000
    return TableSize(rows, len(sizes), sum(sizes), changed_at)


def column_names(table: StoragePath) -> set[str]:
    """Return the names of a table's columns; none if there is no table."""
    return {*column_types(table)}


@objects.remembering()
def rows_written(table: StoragePath, after: int, until: int | None = None) -> int:
    """Return how many rows commits added or updated, by their metrics.

    Args:
        after: the version before the first commit that counts.
        until: the last version that counts; None for the newest.
    """
    if not table_exists(table):
        return 0
    delta = open_table(table)
    total = 0
    for commit in delta.history(max(delta.version() - after, 0)):
        if after < commit["version"] <= (delta.version() if until is None else until):
            metrics: Mapping[str, Any] = commit.get("operationMetrics") or {}
            total += next((int(metrics[name]) for name in _INSERTED_METRICS if name in metrics), 0)
            total += int(metrics.get("numTargetRowsUpdated", 0))
    return total


def set_missing_properties(table: StoragePath, properties: Mapping[str, str]) -> None:
    """Set the properties that a table lacks or has with another value."""
    if missing := properties_to_set(table, properties):
        open_for_write(table).alter.set_table_properties(missing)
        objects.forget(str(table))


def properties_to_set(table: StoragePath, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a table lacks or has with another value."""
    current = open_table(table).metadata().configuration
    return {key: value for key, value in properties.items() if current.get(key) != value}


def require_data_files(table: StoragePath, delta: DeltaTable) -> None:
    """Raise MedallionError if a data file is missing, or has another size than in the log."""
    adds = delta.get_add_actions()
    sizes = dict(zip(adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), strict=True))
    stored = table.sizes_below(map(unquote, sizes))
    lost = [path for path, size in sizes.items() if stored.get(unquote(path)) != size]
    if lost:
        missing = f"{counted(len(lost), 'data file')} missing or truncated, such as {min(lost)}"
        raise _unreadable_table_error(table, OSError(missing))


def _newest_commit(table: StoragePath) -> StoragePath | None:
    versions = delta_log.commit_versions(table)
    return delta_log.commit_file(table, max(versions)) if versions else None


def _is_corrupt(commit: StoragePath) -> bool:
    """Return True if a commit is empty or truncated, as a power failure may leave the newest."""
    content = commit.read()
    try:
        return not content or not all(json.loads(line) for line in content.splitlines() if line)
    except ValueError:
        return True


def _unreadable_table_error(table: StoragePath, error: Exception) -> MedallionError:
    """Return the error to raise for a table whose log or data cannot be read.

    Args:
        error: the reader's error, reported unless the newest commit is corrupt.
    """
    layer = table.parent.name
    name = f"{layer}.{table.name}".removeprefix("_intake.")
    try:
        newest = _newest_commit(table)
        file = newest if newest and _is_corrupt(newest) else None
    except OSError as refused:
        return MedallionError(f"{name}: {error_message(refused)}")
    reason = table.error_reason(error)
    problem = f"the table at {table} cannot be read ({reason})"
    remedy = "restore the table's files from a copy"
    if layer in ("gold", "silver", "quarantine"):
        rebuilt = "gold" if layer == "gold" else "silver"
        remedy += f", or move {table} away and run medallion refresh {rebuilt}.{table.name}"
    elif layer in ("ops", "_intake"):
        remedy += f", or move {file or table} away: the next run writes its rows again"
    problem = f"{file} is corrupt or truncated" if file else problem
    return MedallionError(f"{name}: {problem}: {remedy}.")

"""The versions of a source's schema: `_schemas/<source>/<version>.json`, readable by users.

A version never changes. The next one adds columns after those of the one before; it changes types
only through `medallion refresh bronze.<source>` or type widening, which rewrite bronze's table.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from operator import attrgetter

from medallion.config.model import Config, SourceConfig
from medallion.config.values import fold_case
from medallion.errors import ConfigError, MedallionError
from medallion.state import ledger
from medallion.storage import clock, delta_tables
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import bronze_columns, column_name
from medallion.storage.text import counted, printable


@dataclass(frozen=True)
class SchemaVersion:
    """One version, with the keys of its file.

    Attributes:
        version: its number, from 1.
        created_at: the time in UTC.
        why: the reason for the change.
        columns: names with Spark types.
        names: the original names of fields by path, if they differ (`parsing.names`).
    """

    version: int
    created_at: str
    why: str
    columns: Mapping[str, str]
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DeclaredColumns:
    """The columns that a source's configuration declares, with types as versions spell them.

    Attributes:
        key: the setting that declares them, `schema` or `hints`.
        columns: names with Spark types.
        names: the original names of their fields, by path.
        formats: time formats (`parsing.times.is_time_format`) by column.
        hints: types of `hints` by field; a dotted name may be of one within a column.
    """

    key: str
    columns: Mapping[str, str]
    names: Mapping[str, str]
    formats: Mapping[str, str]
    hints: Mapping[str, str] = field(default_factory=dict)


_NO_VERSION = SchemaVersion(0, "", "", {})


def read_versions(directory: StoragePath) -> list[SchemaVersion]:
    """Return all versions, the oldest first.

    Raises:
        MedallionError: a file there is not a version.
    """
    versions = []
    for name, _ in directory.list_files():
        file = directory / name
        if not name.endswith(".json"):  # being written
            continue
        try:
            versions.append(_read_version(int(name.removesuffix(".json")), file))
        except (OSError, ValueError, TypeError) as error:
            raise MedallionError(f"{file} is not a version of a schema ({error}).") from None
    return sorted(versions, key=attrgetter("version"))


def newest_version(directory: StoragePath) -> SchemaVersion:
    """Return the last version; version 0, without columns, if there is none."""
    return max(read_versions(directory), key=attrgetter("version"), default=_NO_VERSION)


def _read_version(number: int, file: StoragePath) -> SchemaVersion:
    version = SchemaVersion(**json.loads(file.read()))
    columns = version.columns
    if version.version != number:
        raise ValueError(f"its version is {version.version}")
    if not isinstance(columns, dict) or not all(
        isinstance(dtype, str) for dtype in columns.values()
    ):
        raise TypeError("columns must be names with their types")
    return version


def add_version(
    directory: StoragePath,
    columns: Mapping[str, str],
    why: str,
    names: Mapping[str, str] | None = None,
) -> SchemaVersion:
    """Write the next version atomically.

    Args:
        directory: the directory of the source's versions.
        columns: new or changed columns, which follow those of the last version.
        why: the reason for the change.
        names: additional original names by path.
    """
    last = newest_version(directory)
    now = clock.format_time(clock.now_micros())
    all_columns, all_names = {**last.columns, **columns}, {**last.names, **(names or {})}
    version = SchemaVersion(last.version + 1, now, why, all_columns, all_names)
    text = json.dumps(asdict(version), indent=2) + "\n"
    (directory / f"{version.version}.json").write_atomic(text)
    return version


def declare_columns(
    directory: StoragePath, name: str, declared: DeclaredColumns, can_rewrite: bool
) -> SchemaVersion:
    """Add the configuration's columns to the newest version.

    Args:
        directory: the directory of the source's versions.
        declared: the columns, from `columns.declared_columns`.
        can_rewrite: whether types may change, because the table is about to be rewritten.

    Returns:
        The newest version, with these columns.

    Raises:
        ConfigError: a column has another type or spelling than in bronze's table.
    """
    last = newest_version(directory)
    columns, setting = last.columns, f"sources.{name}.{declared.key}"
    spelled = {fold_case(column): column for column in columns}
    changes = {}
    for column, dtype in declared.columns.items():
        existing = spelled.get(fold_case(column), column)
        if existing != column:
            raise ConfigError(
                f"{setting}.{column} must be spelled {existing}, like the column of "
                "bronze's table: two columns cannot differ only in case."
            )
        wanted = _reconciled(columns.get(column, dtype), dtype, can_rewrite)
        if wanted is None:
            raise ConfigError(
                f"{setting}.{column} is {dtype}, but bronze.{name} has "
                f"{columns[column]}: medallion refresh bronze.{name} rewrites the table with "
                "the new type, and rebuilds silver and gold from it."
            )
        if wanted != columns.get(column):
            changes[column] = wanted
    new_names = {p: n for p, n in declared.names.items() if p not in last.names}
    if changes or new_names or not last.version:
        return add_version(directory, changes, "declared in the configuration", new_names)
    return last


def _reconciled(known: str, declared: str, can_rewrite: bool) -> str | None:
    """Return the new type of a column with a known and a declared type, or None on conflict.

    A nested column may have more fields than are declared: it has grown since.
    """
    if known == declared or not all("<" in dtype for dtype in (known, declared)):
        return declared if known == declared or can_rewrite else None
    # Imported here: commands without Spark read versions too.
    from pyspark.sql import types as T

    from medallion.ingest.schema.growth import grow_type, leaf_types
    from medallion.spark.plans import type_ddl

    before, wanted = T.DataType.fromDDL(known), T.DataType.fromDDL(declared)
    both = grow_type(before, wanted, can_widen=False)
    if leaf_types(wanted).items() <= leaf_types(both).items():
        return type_ddl(both)
    return type_ddl(grow_type(wanted, before, can_widen=False)) if can_rewrite else None


def changes_by_version(
    versions: Sequence[SchemaVersion],
) -> Iterator[tuple[SchemaVersion, list[str]]]:
    """Yield each version with the columns that it adds (`+`) or changes (`~`), a line each.

    Then follow fields whose column has another name: `customer_email is "customer email"`.
    """
    for before, version in pairwise((_NO_VERSION, *versions)):
        old = before.columns
        changes = [
            f"~ {name} {old[name]} to {dtype}" if name in old else f"+ {name} {dtype}"
            for name, dtype in version.columns.items()
            if old.get(name) != dtype
        ]
        new = [item for item in version.names.items() if item not in before.names.items()]
        yield version, changes + [f"  {path} is {json.dumps(name)}" for path, name in new]


def unknown_schema_reason(config: Config, source: SourceConfig) -> str:
    """Return the reason that a source has no schema: that of its last pending or rejected file."""
    entries = ledger.newest_versions(ledger.read_entries(config.layout, source.name)).values()
    last = max(entries, key=lambda e: (e.why is not None, e.first_seen_at), default=None)
    if last is None:
        return "its schema is unknown until a file or message lands"
    reason = last.why or ("no row has a field" if last.is_ingested else "not read yet")
    more = f" ({counted(len(entries), 'file')} landed: medallion files)" if len(entries) > 1 else ""
    return f"no file gave its schema; {printable(last.path)} is {last.state}: {reason}{more}"


def has_known_columns(config: Config, source: SourceConfig) -> bool:
    """Return whether a source's columns are declared, or its first inferred ones are in bronze."""
    if source.schema is not None:
        return True
    versions = read_versions(config.layout.schemas(source.name))
    table = config.layout.table(f"bronze.{source.name}")
    if versions and delta_tables.table_exists(table):
        return versions[0].columns.keys() <= delta_tables.column_names(table)
    # If the schema versions are lost, bronze's next run restores them from the table.
    hints = {column_name(name): "" for name in source.hints}
    hinted = bronze_columns(hints, source.origin_columns).keys()
    return bool(versions) or bool(delta_tables.column_names(table) - hinted)

"""Columns that a bronze table can have: names, declared types, and types of typed files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from medallion.config.model import TYPED_FORMATS, SourceConfig
from medallion.config.values import fold_case
from medallion.errors import ConfigError
from medallion.ingest.parsing.typed import has_typed_columns, typed_columns
from medallion.ingest.schema.growth import grow_type
from medallion.spark.errors import one_line
from medallion.spark.plans import inner_types, type_ddl
from medallion.storage.table_specs import (
    FAILED_RULES,
    FILE_ORIGIN_COLUMNS,
    FULL_TIMES,
    TECHNICAL_COLUMNS,
)

# A file whose field names are data, one to a row, must not become a table of as many columns.
MAX_COLUMNS = 2_000
# Each level of nesting adds expressions to every batch (see parsing.nested).
MAX_LEVELS = 5
# Delta refuses some of these, the rest would have to be quoted wherever the column is named, and
# ? and * mean something else in the paths that Spark reads JSON by.
_REFUSED = re.compile(r"[\s,;{}()=`'\"\\.<>:?*]")
# Of the others, Spark rounds or cuts a value of a line of text that does not fit, and says nothing.
_WITHIN: tuple[str, ...] = ("string", "boolean", "int", "bigint", "double", "timestamp", "date")
# Files that bring their types are not parsed by Spark's functions for text.
_WITHIN_TYPED = (*_WITHIN, "tinyint", "smallint", "float", "decimal", "binary", "map")
_PLAIN_TYPES = (T.BooleanType, T.NumericType, T.BinaryType, T.DateType, T.TimestampType)
_RESERVED = {
    *TECHNICAL_COLUMNS,
    FAILED_RULES,
    FULL_TIMES,
    "_conflict",
    "_metadata",  # Spark's own, of each file that it reads
    "_change_type",  # Delta's change data feed has these three
    "_commit_version",
    "_commit_timestamp",
}


def reserved_names(origin: Iterable[str]) -> set[str]:
    """Names that no field can have in a table whose rows' origin is told by these columns."""
    return {*_RESERVED, *origin}


def select_columns(
    columns: Mapping[str, str],
    known: Iterable[str],
    origin: Iterable[str] = FILE_ORIGIN_COLUMNS,
    named: Iterable[str] = (),
) -> dict[str, str]:
    """Return the columns that a table can have beside the known ones; the rest stays rescued.

    Args:
        columns: names with their types; the first ones are taken if there are too many.
        known: names of columns that the table has.
        origin: names of the columns that say where a row came from.
        named: names of fields that the configuration uses, which are taken before all others, even
            if there are too many.
    """
    before = {fold_case(name) for name in known}
    taken = {*before, *reserved_names(origin)}
    fit: dict[str, str] = {}  # by folded name
    for name in filter(is_valid_name, columns):
        if fold_case(name) not in taken:
            fit.setdefault(fold_case(name), name)
    first = [name for name in map(fold_case, named) if name in fit]
    room = max(MAX_COLUMNS - len(before), len(set(first)))
    chosen = set(list(dict.fromkeys([*first, *fit]))[:room])
    return {name: columns[name] for key, name in fit.items() if key in chosen}


def is_valid_name(name: str) -> bool:
    """Whether a column, or a field within one, can have this name."""
    return bool(name) and len(name) <= 128 and not _REFUSED.search(name) and name.isprintable()


def declared_columns(source: SourceConfig) -> tuple[Mapping[str, str] | None, Mapping[str, str]]:
    """A source's `schema`, if it has one, and its `hints`, with types as versions spell them.

    Raises:
        ConfigError: a type or a name that is written down and no table can have.
    """
    found = [
        {column: _checked(source, key, column, kind) for column, kind in (columns or {}).items()}
        for key, columns in (("schema", source.schema), ("hints", source.hints))
    ]
    return found[0] if source.schema is not None else None, found[1]


def _checked(source: SourceConfig, key: str, column: str, kind: str) -> str:
    where = f"sources.{source.name}.{key}"
    try:
        found = T.DataType.fromDDL(kind)
    except PySparkException as error:
        raise ConfigError(f"{where}: not types of Spark: {one_line(str(error))}") from None
    allowed, more = _WITHIN, f"Sources of {', '.join(TYPED_FORMATS)} can have more. "
    if source.format in TYPED_FORMATS:
        allowed, more = _WITHIN_TYPED, ""
    lossy = [name for name in _types_within(found) if re.split("[(<]", name)[0] not in allowed]
    if lossy:
        raise ConfigError(
            f"{where}.{column}: {lossy[0]} cannot be a type here, for it would change values that "
            f"do not fit it; within struct<> and array<> there can be {', '.join(allowed)} (and "
            f"long, which is bigint). {more}A column that bronze has already may be left out."
        )
    refused = [name for name in (column, *nested_names(found)) if not is_valid_name(name)]
    if refused or fold_case(column) in reserved_names(source.origin_columns):
        raise ConfigError(
            f"{where}.{column}: {(*refused, column)[0]!r} cannot be the name of a column here. "
            "Leave it out: such a field is kept in _rescued_data."
        )
    if twice := _alike(found):
        raise ConfigError(
            f"{where}.{column}: it has fields whose names differ in case alone, {twice}: leave one "
            "of them out, and it is kept in _rescued_data."
        )
    return type_ddl(found)


def _alike(kind: T.DataType) -> str | None:
    """The first two fields of one object that are one to Spark."""
    first: dict[str, str] = {}
    for name in kind.names if isinstance(kind, T.StructType) else []:
        if fold_case(name) in first:
            return f"{first[fold_case(name)]} and {name}"
        first[fold_case(name)] = name
    return next(filter(None, map(_alike, inner_types(kind))), None)


def _types_within(kind: T.DataType) -> list[str]:
    """Return the types within a type, without structs and arrays, as Spark spells them."""
    within = [name for each in inner_types(kind) for name in _types_within(each)]
    if isinstance(kind, T.StructType | T.ArrayType):
        return within
    return [kind.simpleString(), *within]


def file_types(rows: DataFrame) -> dict[str, str]:
    """Return the columns of a batch's files with Spark types that hold the values of all of them.

    Columns that no table can have are left out: names that are not plain, too many fields. Types
    that no table can have, such as intervals, are strings.

    Args:
        rows: as a source gives them (`SourceBatch.read`); of lines of text there are none.
    """
    if not has_typed_columns(rows):
        return {}
    spelled: dict[str, str] = {}
    found: dict[str, T.DataType] = {}
    for column in typed_columns(rows):
        kind = storage_type(column.own)
        if kind:
            name = spelled.setdefault(fold_case(column.name), column.name)
            found[name] = grow_type(found[name], kind, can_widen=True) if name in found else kind
    return {name: type_ddl(kind) for name, kind in found.items() if not invalid_type_reason(kind)}


def storage_type(kind: T.DataType) -> T.DataType | None:
    """Return the type in which a table keeps a file's values; None if all of them are null."""
    match kind:
        case T.NullType():
            return None
        case T.TimestampNTZType():
            return T.TimestampType()
        case T.StructType():
            inner_types = ((field.name, storage_type(field.dataType)) for field in kind)
            fields = [T.StructField(name, each) for name, each in inner_types if each]
            return T.StructType(fields) if fields else None
        case T.ArrayType():
            item = storage_type(kind.elementType)
            return T.ArrayType(item) if item else None
        case T.MapType():
            key, value = storage_type(kind.keyType), storage_type(kind.valueType)
            return T.MapType(key, value) if key and value else None
    return kind if isinstance(kind, _PLAIN_TYPES) else T.StringType()


def invalid_type_reason(kind: T.DataType) -> str | None:
    """Return why a column cannot have this type, or None if it can."""
    count = 0
    below = [kind]
    while below:
        if any(isinstance(within, T.NullType) for within in below):
            return f"it is nested more than {MAX_LEVELS} levels deep"
        below = [within for outer in below for within in inner_types(outer)]
        count += len(below)
    if count > MAX_COLUMNS:
        return f"it has more than {MAX_COLUMNS:,} fields within it"
    refused = [name for name in nested_names(kind) if not is_valid_name(name)]
    return f"no table can have a field named {refused[0]!r}" if refused else None


def nested_names(kind: T.DataType) -> list[str]:
    """The names of all fields within a type."""
    names = kind.names if isinstance(kind, T.StructType) else []
    return [*names, *(name for within in inner_types(kind) for name in nested_names(within))]


def spell_as_columns(fields: Sequence[str], columns: Iterable[str]) -> list[str]:
    """Return the names of a record's fields, spelled as the columns are.

    A field keeps its name if the record has another one that differs only in case.
    """
    spelled = {fold_case(column): column for column in columns}
    count = Counter(map(fold_case, fields))
    return [
        spelled.get(fold_case(name), name) if count[fold_case(name)] == 1 else name
        for name in fields
    ]

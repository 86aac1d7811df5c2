"""Columns that a bronze table can have: names, declared types, and types of typed files."""

import re
from collections.abc import Iterable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from medallion.config.model import TYPED_FORMATS, SourceConfig
from medallion.config.values import fold_case
from medallion.errors import ConfigError
from medallion.ingest.parsing.names import ColumnNamer
from medallion.ingest.parsing.times import column_type, is_time_format
from medallion.ingest.parsing.typed import has_typed_columns, typed_columns
from medallion.ingest.schema.growth import Hints, grow_type, with_hints
from medallion.ingest.schema.registry import DeclaredColumns
from medallion.spark.errors import one_line
from medallion.spark.plans import inner_types, type_ddl
from medallion.storage.table_specs import (
    FAILED_RULES,
    FILE_ORIGIN_COLUMNS,
    RESCUED,
    TECHNICAL_COLUMNS,
    column_name,
)

# Data used as field names must not become a table with a column for each value.
MAX_COLUMNS = 2_000
# Each level of nesting adds expressions to every batch (see parsing.nested).
MAX_LEVELS = 5
# Spark casts text to other types with silent rounding or truncation.
_DECLARABLE: tuple[str, ...] = ("string", "boolean", "int", "bigint", "double", "timestamp", "date")
_DECLARABLE += ("decimal", "map")
# Typed files are not parsed from text.
_DECLARABLE_TYPED = (*_DECLARABLE, "tinyint", "smallint", "float", "binary")
_STORED_AS_IS = (T.BooleanType, T.NumericType, T.BinaryType, T.DateType, T.TimestampType)
_RESERVED = {
    *TECHNICAL_COLUMNS,
    FAILED_RULES,
    "_conflict",
    "_metadata",  # of Spark's file sources
    "_change_type",  # of Delta's change data feed, like the next two
    "_commit_version",
    "_commit_timestamp",
}


def reserved_names(origin: Iterable[str]) -> set[str]:
    """Return the names that no field can have in a table with these origin columns."""
    return {*_RESERVED, *origin}


def is_valid_name(name: str) -> bool:
    """Return whether a column, or a field within one, can have this name."""
    return 0 < len(name) <= 128 and name == column_name(name) and name.isprintable()


def select_columns(
    columns: Mapping[str, str],
    known: Iterable[str],
    origin: Iterable[str] = FILE_ORIGIN_COLUMNS,
    named: Iterable[str] = (),
) -> dict[str, str]:
    """Return the columns that can be added to a table; other fields stay in `_rescued_data`.

    Args:
        columns: names (`parsing.names.column_name`) with Spark types; the first ones are selected
            if there are too many.
        known: names of the table's columns.
        origin: names of the columns with a row's origin.
        named: names of fields that the configuration uses; they are always selected.
    """
    before = {fold_case(name) for name in known}
    used = {*before, *reserved_names(origin)}
    valid: dict[str, str] = {}  # by folded name
    for name in filter(is_valid_name, columns):
        if fold_case(name) not in used:
            valid.setdefault(fold_case(name), name)
    first = [name for name in map(fold_case, named) if name in valid]
    room = max(MAX_COLUMNS - len(before), len(set(first)))
    selected = set(list(dict.fromkeys([*first, *valid]))[:room])
    return {name: columns[name] for key, name in valid.items() if key in selected}


def declared_columns(source: SourceConfig) -> DeclaredColumns:
    """Return the columns of a source's `schema`, or of its `hints` if the schema is inferred.

    A dotted hint is no column yet, unless rows have no nested fields: a field of this name may
    come, or one within another column. A time format is always for a column.

    Raises:
        ConfigError: a declared type or name is not possible in a table.
    """
    key, fields = ("hints", source.hints) if source.schema is None else ("schema", source.schema)
    types = {n: _declared_type(source, key, n, column_type(ddl)) for n, ddl in fields.items()}
    nested = () if source.format == "csv" else source.hints
    hints = {n: types[n] for n in nested if not is_time_format(fields[n])}
    types = {n: dtype for n, dtype in types.items() if "." not in n or n not in hints}
    namer = ColumnNamer()
    columns = namer.columns(types, {})
    for name, column in namer.collisions.items():
        raise ConfigError(
            f"sources.{source.name}.{key}: {name} has the same column as another field, {column}. "
            f"Leave one of them out: it is kept in {RESCUED}."
        )
    declared = {column: fields[name] for column, name in zip(columns, types, strict=True)}
    formats = {column: ddl for column, ddl in declared.items() if is_time_format(ddl)}
    return DeclaredColumns(key, columns, namer.names, formats, hints)


def _declared_type(source: SourceConfig, key: str, name: str, ddl: str) -> str:
    setting = f"sources.{source.name}.{key}"
    try:
        dtype = T.DataType.fromDDL(ddl)
    except PySparkException as error:
        raise ConfigError(f"{setting}: invalid Spark type: {one_line(str(error))}") from None
    allowed, more = _DECLARABLE, f" (sources of {', '.join(TYPED_FORMATS)} can have more)"
    if source.format in TYPED_FORMATS:
        allowed, more = _DECLARABLE_TYPED, ""
    elif re.search(r"map<(?!string,)", type_ddl(dtype)):
        raise ConfigError(f"{setting}.{name}: keys of JSON are strings. Use map<string,...>.")
    lossy = [leaf for leaf in _leaf_names(dtype) if re.split("[(<]", leaf)[0] not in allowed]
    if lossy:
        raise ConfigError(
            f"{setting}.{name}: {lossy[0]} is not possible here, as Spark would change values that "
            f"do not fit it. Use {', '.join(allowed)}, struct<> or array<>{more}, or leave out a "
            "column that bronze already has."
        )
    invalid = [n for n in (name, *nested_names(dtype)) if not is_valid_name(column_name(n))]
    if invalid or fold_case(column_name(name)) in reserved_names(source.origin_columns):
        raise ConfigError(
            f"{setting}.{name}: {(*invalid, name)[0]!r} cannot be the name of a column. "
            "Leave it out: such a field is kept in _rescued_data."
        )
    return type_ddl(dtype)


def _leaf_names(dtype: T.DataType) -> list[str]:
    """Return Spark's names of a type and those within it, except structs and arrays."""
    within = [name for each in inner_types(dtype) for name in _leaf_names(each)]
    if isinstance(dtype, T.StructType | T.ArrayType):
        return within
    return [dtype.simpleString(), *within]


def file_types(rows: DataFrame, hints: Hints) -> dict[str, str]:
    """Return the columns of typed files, with Spark types that hold the values of all files.

    Columns whose fields no table can have (`invalid_type_reason`) are left out. Types that no table
    can have, such as intervals, become strings.

    Args:
        rows: rows as from `SourceBatch.read`; lines of text have no typed columns.
        hints: the declared types of fields.
    """
    if not has_typed_columns(rows):
        return {}
    spelled: dict[str, str] = {}
    types: dict[str, T.DataType] = {}
    for column in typed_columns(rows):
        if dtype := storage_type(column.own):
            name = spelled.setdefault(fold_case(column.name), column.name)
            types[name] = grow_type(types[name], dtype, can_widen=True) if name in types else dtype
    types = {name: with_hints(dtype, name, hints) for name, dtype in types.items()}
    return {n: type_ddl(dtype) for n, dtype in types.items() if not invalid_type_reason(dtype)}


def storage_type(dtype: T.DataType) -> T.DataType | None:
    """Return the type in which a table stores a file's values, or None if all are null."""
    match dtype:
        case T.NullType():
            return None
        case T.TimestampNTZType():
            return T.TimestampType()
        case T.StructType():
            inner = ((field.name, storage_type(field.dataType)) for field in dtype)
            fields = [T.StructField(name, each) for name, each in inner if each]
            return T.StructType(fields) if fields else None
        case T.ArrayType():
            item = storage_type(dtype.elementType)
            return T.ArrayType(item) if item else None
        case T.MapType():
            key, value = storage_type(dtype.keyType), storage_type(dtype.valueType)
            return T.MapType(key, value) if key and value else None
    return dtype if isinstance(dtype, _STORED_AS_IS) else T.StringType()


def invalid_type_reason(dtype: T.DataType) -> str | None:
    """Return the reason that a column cannot have this type, or None if it can."""
    count, level = 0, [dtype]
    while level:
        if any(isinstance(each, T.NullType) for each in level):  # see `infer_schema`
            return f"it is nested more than {MAX_LEVELS} levels deep"
        level = [inner for outer in level for inner in inner_types(outer)]
        count += len(level)
    if count > MAX_COLUMNS:
        return f"it has more than {MAX_COLUMNS:,} fields within it"
    invalid = [name for name in nested_names(dtype) if not is_valid_name(column_name(name))]
    return f"no table can have a field named {invalid[0]!r}" if invalid else None


def nested_names(dtype: T.DataType) -> list[str]:
    """Return the names of all fields within a type."""
    names = dtype.names if isinstance(dtype, T.StructType) else []
    return [*names, *(name for inner in inner_types(dtype) for name in nested_names(inner))]

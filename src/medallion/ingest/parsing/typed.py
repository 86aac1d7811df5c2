"""Rows of typed files (Parquet, ORC, Avro) converted to bronze's columns, without JSON in between.

A value goes to its column unchanged, or in another type that represents it exactly. Other values
are in `_rescued_data` as JSON: decimals with all digits, bytes as Base64, times with microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.values import fold_case
from medallion.ingest.parsing.json_text import string_literal
from medallion.ingest.parsing.times import (
    date_from_string,
    is_in_time_range,
    timestamp_from_seconds,
    timestamp_from_string,
)
from medallion.spark.plans import type_ddl
from medallion.storage.table_specs import CORRUPT, INGESTED_AT, RESCUED, quote_identifier

# Prefix of the columns of rows before `parse_typed_rows`; see `column_name`.
TYPED_COLUMN = "_typed"
# Spark's default is milliseconds.
_LOCAL = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]"
_ZONED = f"{_LOCAL}[XXX]"
_JSON_OPTIONS = (
    f"map('timestampFormat', {string_literal(_ZONED)},"
    f" 'timestampNTZFormat', {string_literal(_LOCAL)})"
)
# Types of map keys that Spark writes correctly as JSON.
_JSON_KEYS = (T.StringType, T.IntegralType, T.BooleanType, T.DecimalType)
# Whole numbers up to here are exact in these types.
_LARGEST_EXACT: Mapping[type[T.DataType], int] = {T.DoubleType: 2**53, T.FloatType: 2**24}


class TypedColumn(NamedTuple):
    """A column of the files that have this name with this type.

    Attributes:
        column: its name in rows before `parse_typed_rows`.
        name: its name in the files.
        own: its type in the files.
        read: the type that Spark reads it as; an ORC timestamp is read as a string.
    """

    column: str
    name: str
    own: T.DataType
    read: T.DataType


def typed_column_name(number: int, name: str, own: T.DataType) -> str:
    """Return the name of a column of files in rows before `parse_typed_rows`.

    Files of one batch may have one name with several types: each is a separate column, null in the
    rows of the other files.

    Args:
        number: makes the names differ in more than case.
        name: the column's name in the files.
        own: its type in the files.
    """
    return f"{TYPED_COLUMN}{json.dumps([number, name, own.json()])}"


def has_typed_columns(rows: DataFrame) -> bool:
    """Return whether rows have typed columns, and not lines of text in `value`."""
    return "value" not in rows.columns


def typed_columns(rows: DataFrame) -> list[TypedColumn]:
    """Return the columns of the files that the rows are from."""
    found = []
    for field in rows.schema:
        if field.name.startswith(TYPED_COLUMN):
            _, name, own = json.loads(field.name.removeprefix(TYPED_COLUMN))
            kind = T._parse_datatype_json_string(own)
            found.append(TypedColumn(field.name, name, kind, field.dataType))
    return found


def parse_typed_rows(rows: DataFrame, schema: Mapping[str, str]) -> DataFrame:
    """Return the columns of `schema`, then the technical ones, as `parse_lines` does for text.

    If a value does not fit its column exactly, the column is null and the complete value rescued: a
    field within it is unknown, digits would be lost, a string is not UTF-8 (it is rescued as
    Latin-1), or a time is not of the years 1 to 9999.

    Args:
        rows: columns by `typed_column_name`, and those of the origin.
        schema: bronze's own columns with Spark types; the files may use other case.
    """
    wanted = {fold_case(name): (name, T.DataType.fromDDL(kind)) for name, kind in schema.items()}
    values: dict[str, list[str]] = {name: [] for name in schema}
    conditions: list[str] = []
    rescued: list[str] = []
    columns = typed_columns(rows)
    for column in columns:
        value = quote_identifier(column.column)
        if fold_case(column.name) in wanted:
            name, kind = wanted[fold_case(column.name)]
            fitting, misfit = _fit(value, column.read, kind)
            values[name].append(f"case when ({misfit}) is not true then {fitting} end")
        else:
            misfit = f"{value} is not null"
        if misfit != _NEVER:
            json_value = f"case when {misfit} then {_for_json(value, column.read)} end"
            conditions.append(f"({misfit})")
            rescued += [string_literal(column.name), json_value]
    technical = {column.column for column in columns}
    some = f"to_json(named_struct({', '.join(rescued)}), {_JSON_OPTIONS})"
    kept = f"case when {' or '.join(conditions)} then {some} end" if rescued else _null("string")
    return rows.select(
        *(
            F.expr(f"coalesce({', '.join(some)})" if some else _null(schema[name])).alias(name)
            for name, some in values.items()
        ),
        F.expr(kept).alias(RESCUED),
        F.expr(_null("string")).alias(CORRUPT),
        *(name for name in rows.columns if name not in technical),
        F.current_timestamp().alias(INGESTED_AT),
    )


_NEVER = "false"


def _null(kind: str) -> str:
    return f"cast(null as {kind})"


def _fit(value: str, own: T.DataType, wanted: T.DataType, depth: int = 0) -> tuple[str, str]:
    """Return SQL of a value in another type, and SQL that is true if that loses some of it.

    Args:
        value: SQL of the value.
        own: its type.
        wanted: the other type.
        depth: how many lambdas are around it: each has a variable of its own.
    """
    if type_ddl(own) == type_ddl(wanted):
        return value, _any_leaf(value, own, _is_unfit, depth)
    if isinstance(own, T.StructType) and isinstance(wanted, T.StructType):
        return _fit_struct(value, own, wanted, depth)
    item = f"x{depth}"
    if isinstance(own, T.ArrayType) and isinstance(wanted, T.ArrayType):
        fitting, misfit = _fit(item, own.elementType, wanted.elementType, depth + 1)
        return f"transform({value}, {item} -> {fitting})", _exists(value, item, misfit)
    if isinstance(own, T.MapType) and isinstance(wanted, T.MapType):
        key, lost_key = _fit(item, own.keyType, wanted.keyType, depth + 1)
        inner, lost = _fit(item, own.valueType, wanted.valueType, depth + 1)
        keys, values = f"map_keys({value})", f"map_values({value})"
        fitting = (
            f"map_from_arrays(transform({keys}, {item} -> {key}),"
            f" transform({values}, {item} -> {inner}))"
        )
        misfit = _or([_exists(keys, item, lost_key), _exists(values, item, lost)])
        # A null among the keys, of one that does not fit, is an error.
        return f"case when ({misfit}) is not true then {fitting} end", misfit
    return _fit_leaf(value, own, wanted, depth)


def _fit_struct(value: str, own: T.StructType, wanted: T.StructType, depth: int) -> tuple[str, str]:
    unknown = {fold_case(field.name): field for field in own}
    fields, losses = [], []
    for field in wanted:
        mine = unknown.pop(fold_case(field.name), None)
        fitting = _null(type_ddl(field.dataType))
        if mine:
            inner = f"{value}.{quote_identifier(mine.name)}"
            fitting, misfit = _fit(inner, mine.dataType, field.dataType, depth)
            losses.append(misfit)
        fields.append(f"{string_literal(field.name)}, {fitting}")
    losses += [f"{value}.{quote_identifier(field.name)} is not null" for field in unknown.values()]
    return f"case when {value} is not null then named_struct({', '.join(fields)}) end", _or(losses)


def _fit_leaf(value: str, own: T.DataType, wanted: T.DataType, depth: int) -> tuple[str, str]:
    if isinstance(own, T.TimestampNTZType):  # the clock of UTC, as of strings without a zone
        return _fit(f"cast({value} as timestamp)", T.TimestampType(), wanted, depth)
    fitting = None
    match own, wanted:
        case T.NumericType(), T.NumericType():
            return _fit_number(value, own, wanted)
        case _, T.StringType():
            return _as_string(value, own), _any_leaf(value, own, _is_not_utf8, depth)
        case T.StringType(), T.TimestampType():
            fitting = timestamp_from_string(value)
        case T.StringType(), T.DateType():
            fitting = date_from_string(value)
        case T.DateType(), T.TimestampType():
            fitting = (
                f"case when {is_in_time_range(value, 'date')} then cast({value} as timestamp) end"
            )
        case T.IntegralType(), T.TimestampType():
            fitting = timestamp_from_seconds(value)
    if fitting is None:
        return _null(type_ddl(wanted)), f"{value} is not null"
    return fitting, f"{value} is not null and {fitting} is null"


def _fit_number(value: str, own: T.DataType, wanted: T.DataType) -> tuple[str, str]:
    """Numbers fit if they come back as they were."""
    other = f"try_cast({value} as {type_ddl(wanted)})"
    tests = [f"try_cast({other} as {type_ddl(own)}) = {value}"]
    for one, two in ((own, wanted), (wanted, own)):
        if isinstance(one, T.IntegralType) and (most := _LARGEST_EXACT.get(type(two))):
            # The greatest long comes back from the double beside it.
            tests.append(f"{value} between -{most} and {most}")
    return other, f"{value} is not null and ({' and '.join(tests)}) is not true"


def _as_string(value: str, own: T.DataType) -> str:
    match own:
        case T.NumericType() | T.BooleanType() | T.DateType():
            return f"cast({value} as string)"
        case T.TimestampType():
            return f"date_format({value}, {string_literal(_ZONED)})"
        case T.BinaryType():
            return f"base64({value})"
        case T.StructType() | T.ArrayType() | T.MapType() | T.VariantType():
            return f"to_json({_for_json(value, own)}, {_JSON_OPTIONS})"
    return f"cast({value} as string)"


def _is_not_utf8(value: str, kind: T.DataType) -> str:
    return f"not is_valid_utf8({value})" if isinstance(kind, T.StringType) else _NEVER


def _is_unfit(value: str, kind: T.DataType) -> str:
    """SQL: whether a table, or another reader of it, cannot hold a value of its own type."""
    match kind:
        case T.StringType():
            return _is_not_utf8(value, kind)
        case T.TimestampType():
            return f"not {is_in_time_range(value, 'timestamp')}"
        case T.DateType():
            return f"not {is_in_time_range(value, 'date')}"
    return _NEVER


def _any_leaf(
    value: str, kind: T.DataType, test: Callable[[str, T.DataType], str], depth: int
) -> str:
    """SQL: whether a test holds for a value, or for one within it."""
    item = f"x{depth}"
    match kind:
        case T.StructType():
            inner = ((f"{value}.{quote_identifier(field.name)}", field.dataType) for field in kind)
            return _or([_any_leaf(*each, test, depth) for each in inner])
        case T.ArrayType():
            return _exists(value, item, _any_leaf(item, kind.elementType, test, depth + 1))
        case T.MapType():
            keys = _any_leaf(item, kind.keyType, test, depth + 1)
            values = _any_leaf(item, kind.valueType, test, depth + 1)
            both = [
                _exists(f"map_keys({value})", item, keys),
                _exists(f"map_values({value})", item, values),
            ]
            return _or(both)
    return test(value, kind)


def _for_json(value: str, kind: T.DataType, depth: int = 0) -> str:
    """SQL: a value as JSON can say it: strings that are not UTF-8 as Latin-1, and maps whose keys
    are not JSON's as lists of entries."""
    item = f"x{depth}"
    match kind:
        case T.StringType():
            latin1 = f"decode(cast({value} as binary), 'ISO-8859-1')"
            return f"if(is_valid_utf8({value}), {value}, {latin1})"
        case T.StructType():
            fields = list(_fields_for_json(value, kind, depth))
            if all(old == new for _, old, new in fields):
                return value
            pairs = ", ".join(f"{name}, {new}" for name, _, new in fields)
            return f"case when {value} is not null then named_struct({pairs}) end"
        case T.ArrayType():
            inner = _for_json(item, kind.elementType, depth + 1)
            return value if inner == item else f"transform({value}, {item} -> {inner})"
        case T.MapType() if not isinstance(kind.keyType, _JSON_KEYS):
            entry = T.StructType().add("key", kind.keyType).add("value", kind.valueType)
            return _for_json(f"map_entries({value})", T.ArrayType(entry), depth)
        case T.MapType():
            key = _for_json(item, kind.keyType, depth + 1)
            inner = _for_json(item, kind.valueType, depth + 1)
            if key == inner == item:
                return value
            return (
                f"map_from_arrays(transform(map_keys({value}), {item} -> {key}),"
                f" transform(map_values({value}), {item} -> {inner}))"
            )
    return value


def _fields_for_json(value: str, kind: T.StructType, depth: int) -> Iterator[tuple[str, str, str]]:
    for field in kind:
        inner = f"{value}.{quote_identifier(field.name)}"
        yield string_literal(field.name), inner, _for_json(inner, field.dataType, depth)


def _exists(items: str, item: str, test: str) -> str:
    return _NEVER if test == _NEVER else f"exists({items}, {item} -> {test})"


def _or(tests: list[str]) -> str:
    some = [f"({test})" for test in tests if test != _NEVER]
    return " or ".join(some) or _NEVER

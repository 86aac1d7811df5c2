"""Rows of typed files (Parquet, ORC, Avro) converted to bronze's columns without JSON.

A value goes to its column unchanged, or in another type that represents it exactly. Other values
are in `_rescued_data` as JSON: decimals with all digits, bytes as Base64, times with microseconds,
strings that are not UTF-8 as Latin-1.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.values import fold_case
from medallion.ingest.parsing import times
from medallion.ingest.parsing.names import rename_fields
from medallion.ingest.parsing.times import decimal_from_string
from medallion.spark.plans import contains_type, inner_types, type_ddl
from medallion.storage.table_specs import (
    CORRUPT,
    INGESTED_AT,
    RESCUED,
    quote_identifier,
    string_literal,
)

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
    """A column of the files in which this name has this type.

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
        number: a unique number, since Spark ignores case in column names.
        name: the column's name in the files.
        own: its type in the files.
    """
    return f"{TYPED_COLUMN}{json.dumps([number, name, own.json()])}"


def has_typed_columns(rows: DataFrame) -> bool:
    """Return whether rows have typed columns, and not lines of text in `value`."""
    return "value" not in rows.columns


def typed_columns(rows: DataFrame) -> list[TypedColumn]:
    """Return the typed columns of rows."""
    columns = []
    for field in rows.schema:
        if field.name.startswith(TYPED_COLUMN):
            _, name, own = json.loads(field.name.removeprefix(TYPED_COLUMN))
            dtype = T._parse_datatype_json_string(own)
            columns.append(TypedColumn(field.name, name, dtype, field.dataType))
    return columns


def parse_typed_rows(
    rows: DataFrame, schema: Mapping[str, str], fields: Mapping[str, str] | None = None
) -> DataFrame:
    """Convert rows of typed files to the columns that `parse_lines` returns for text.

    A value that does not fit its column exactly is rescued completely, and the column is null.
    Reasons are an unknown field within the value, lost digits, a string that is not UTF-8, and a
    time outside the years 1 to 9999.

    Args:
        rows: columns by `typed_column_name`, and those of the origin.
        schema: bronze's own columns with Spark types; the files may use other case.
        fields: the fields of the columns, as for `parse_lines`.
    """
    fields = fields or schema
    wanted = {fold_case(name): each for name, each in zip(fields, schema, strict=True)}
    dtypes = dict(zip(schema, fields.values(), strict=True))
    values: dict[str, list[str]] = {name: [] for name in schema}
    conditions: list[str] = []
    rescued: list[str] = []
    columns = typed_columns(rows)
    for column in columns:
        value = quote_identifier(column.column)
        if fold_case(column.name) in wanted:
            name = wanted[fold_case(column.name)]
            if times.is_time_format(dtypes[name]):
                fitting, misfit = _fit_format(value, column.read, dtypes[name])
            else:
                fitting, misfit = _fit(value, column.read, T.DataType.fromDDL(dtypes[name]))
            fitting = f"case when ({misfit}) is not true then {fitting} end"
            values[name].append(rename_fields(fitting, dtypes[name], schema[name]))
        else:
            misfit = f"{value} is not null"
        if misfit != _NEVER:
            json_value = f"case when {misfit} then {_for_json(value, column.read)} end"
            conditions.append(f"({misfit})")
            rescued += [string_literal(column.name), json_value]
    typed_names = {column.column for column in columns}
    rescued_sql = _null("string")
    if rescued:
        rescued_json = f"to_json(named_struct({', '.join(rescued)}), {_JSON_OPTIONS})"
        rescued_sql = f"case when {' or '.join(conditions)} then {rescued_json} end"
    return rows.select(
        *(
            F.expr(f"coalesce({', '.join(casts)})" if casts else _null(schema[name])).alias(name)
            for name, casts in values.items()
        ),
        F.expr(rescued_sql).alias(RESCUED),
        F.expr(_null("string")).alias(CORRUPT),
        *(name for name in rows.columns if name not in typed_names),
        F.current_timestamp().alias(INGESTED_AT),
    )


_NEVER = "false"


def _null(dtype: str) -> str:
    return f"cast(null as {dtype})"


def _fit(value: str, own: T.DataType, wanted: T.DataType, depth: int = 0) -> tuple[str, str]:
    """Return SQL of a value in another type, and SQL that is true if the type does not fit.

    Args:
        value: SQL of the value.
        own: its type.
        wanted: the other type.
        depth: the number of enclosing lambdas, for unique names of their variables.
    """
    if type_ddl(own) == type_ddl(wanted):
        return value, _is_invalid(value, own, depth)
    if isinstance(own, T.StructType) and isinstance(wanted, T.StructType):
        return _fit_struct(value, own, wanted, depth)
    if isinstance(own, T.ArrayType) and isinstance(wanted, T.ArrayType):
        item = f"x{depth}"
        fitting, misfit = _fit(item, own.elementType, wanted.elementType, depth + 1)
        return f"transform({value}, {item} -> {fitting})", _exists(value, item, misfit)
    return _fit_leaf(value, own, wanted, depth)


def _fit_format(value: str, own: T.DataType, dtype: str) -> tuple[str, str]:
    """Return the results of `_fit` for a time format, which is for numbers and strings."""
    if not isinstance(own, T.NumericType | T.StringType):
        return _fit(value, own, T.TimestampType())
    fitting = times.timestamp_from_format(f"cast({value} as string)", dtype)
    return fitting, f"{value} is not null and {fitting} is null"


def _fit_struct(value: str, own: T.StructType, wanted: T.StructType, depth: int) -> tuple[str, str]:
    unknown = {fold_case(field.name): field for field in own}
    fields, losses = [], []
    for field in wanted:
        own_field = unknown.pop(fold_case(field.name), None)
        fitting = _null(type_ddl(field.dataType))
        if own_field:
            inner = f"{value}.{quote_identifier(own_field.name)}"
            fitting, misfit = _fit(inner, own_field.dataType, field.dataType, depth)
            losses.append(misfit)
        fields.append(f"{string_literal(field.name)}, {fitting}")
    losses += [f"{value}.{quote_identifier(field.name)} is not null" for field in unknown.values()]
    return f"case when {value} is not null then named_struct({', '.join(fields)}) end", _or(losses)


def _fit_leaf(value: str, own: T.DataType, wanted: T.DataType, depth: int) -> tuple[str, str]:
    if isinstance(own, T.TimestampNTZType):  # read as UTC, like strings without a zone
        return _fit(f"cast({value} as timestamp)", T.TimestampType(), wanted, depth)
    fitting = None
    match own, wanted:
        case T.NumericType(), T.NumericType():
            return _fit_number(value, own, wanted)
        case _, T.StringType():
            return _as_string(value, own), _is_invalid(value, own, depth)
        case T.StringType(), T.TimestampType() | T.DateType():
            fitting = times.time_from_string(value, type_ddl(wanted))
        case T.StringType(), T.DecimalType():
            fitting = decimal_from_string(value, type_ddl(wanted))
        case T.DateType(), T.TimestampType():
            is_within = times.is_in_time_range(value, "date")
            fitting = f"case when {is_within} then cast({value} as timestamp) end"
        case T.IntegralType(), T.TimestampType():
            fitting = times.timestamp_from_seconds(value)
    if fitting is None:
        return _null(type_ddl(wanted)), f"{value} is not null"
    return fitting, f"{value} is not null and {fitting} is null"


def _fit_number(value: str, own: T.DataType, wanted: T.DataType) -> tuple[str, str]:
    """Return the results of `_fit` for numbers: they fit if they convert back unchanged."""
    other = f"try_cast({value} as {type_ddl(wanted)})"
    tests = [f"try_cast({other} as {type_ddl(own)}) = {value}"]
    for one, two in ((own, wanted), (wanted, own)):
        if isinstance(one, T.IntegralType) and (most := _LARGEST_EXACT.get(type(two))):
            # The largest long converts back from the double next to it, which is not equal.
            tests.append(f"{value} between -{most} and {most}")
    return other, f"{value} is not null and ({' and '.join(tests)}) is not true"


def _as_string(value: str, own: T.DataType) -> str:
    match own:
        case T.TimestampType():
            return f"date_format({value}, {string_literal(_ZONED)})"
        case T.BinaryType():
            return f"base64({value})"
        case T.StructType() | T.ArrayType() | T.MapType() | T.VariantType():
            return f"to_json({_for_json(value, own)}, {_JSON_OPTIONS})"
    return f"cast({value} as string)"


def _is_invalid(value: str, dtype: T.DataType, depth: int) -> str:
    """Return SQL that tests whether a table's readers cannot show a value, or one within it."""
    item = f"x{depth}"
    match dtype:
        case T.StringType():
            return f"not is_valid_utf8({value})"
        case T.TimestampType() | T.DateType():
            return f"not {times.is_in_time_range(value, type_ddl(dtype))}"
        case T.StructType():
            inner = ((f"{value}.{quote_identifier(field.name)}", field.dataType) for field in dtype)
            return _or([_is_invalid(*each, depth) for each in inner])
        case T.ArrayType():
            return _exists(value, item, _is_invalid(item, dtype.elementType, depth + 1))
        case T.MapType():
            parts = {"map_keys": dtype.keyType, "map_values": dtype.valueType}
            tests = {part: _is_invalid(item, each, depth + 1) for part, each in parts.items()}
            return _or([_exists(f"{part}({value})", item, test) for part, test in tests.items()])
    return _NEVER


def _for_json(value: str, dtype: T.DataType, depth: int = 0) -> str:
    """Return SQL for a value that `to_json` can write.

    Maps whose keys JSON cannot have become a string. Strings that are not UTF-8 are decoded as
    Latin-1, so that different bytes stay different: `to_json` would replace them all by U+FFFD.
    """
    if _has_unsupported_keys(dtype):
        return f"cast({value} as string)"
    if not contains_type(dtype, T.StringType):
        return value
    item = f"x{depth}"
    match dtype:
        case T.StructType():
            fields = (
                f"{string_literal(field.name)}, "
                + _for_json(f"{value}.{quote_identifier(field.name)}", field.dataType, depth)
                for field in dtype
            )
            return f"case when {value} is not null then named_struct({', '.join(fields)}) end"
        case T.ArrayType():
            inner = _for_json(item, dtype.elementType, depth + 1)
            return f"transform({value}, {item} -> {inner})"
        case T.MapType():
            inner = _for_json(item, dtype.valueType, depth + 1)
            return f"transform_values({value}, (k{depth}, {item}) -> {inner})"
    return f"if(is_valid_utf8({value}), {value}, decode(cast({value} as binary), 'ISO-8859-1'))"


def _has_unsupported_keys(dtype: T.DataType) -> bool:
    is_unsupported = isinstance(dtype, T.MapType) and not isinstance(dtype.keyType, _JSON_KEYS)
    return is_unsupported or any(map(_has_unsupported_keys, inner_types(dtype)))


def _exists(items: str, item: str, test: str) -> str:
    return _NEVER if test == _NEVER else f"exists({items}, {item} -> {test})"


def _or(tests: list[str]) -> str:
    return " or ".join(f"({test})" for test in tests if test != _NEVER) or _NEVER

"""Types of columns that nobody declared, from values that have come."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from medallion.config.values import folded
from medallion.schema.names import MOST_COLUMNS, is_plain

LINES = 10_000
# Each level is looked at by expressions of its own, in every batch (see parsing.nested).
MOST_LEVELS = 5
# To Spark a time of day alone is a time, and so are a year and a month: "10115" and "1234-5" too.
_DATED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9].*)?", re.DOTALL)


def infer(spark: SparkSession, lines: Sequence[str]) -> dict[str, str]:
    """Columns with their Spark types from JSON objects, by Spark's own rules.

    Whole numbers become long, double where others are among them, and string where those cannot say
    them; texts that are all times with a whole date become timestamp; fields of several kinds
    become string; nested ones become struct and array. Fields that are always null are left out,
    for they may yet be anything, and so are nested ones that no table can hold: too deep or wide,
    or with names that are not plain or there twice.
    """
    corrupt = f"_{uuid.uuid4().hex}"  # a name that no line has
    reader = (
        spark.read.option("inferTimestamp", "true")
        .option("dropFieldIfAllNull", "true")
        .option("columnNameOfCorruptRecord", corrupt)
        .option("prefersDecimal", "false")
        # As in parsed: no more than RFC 8259 allows.
        .option("allowSingleQuotes", "false")
    )
    schema = reader.json(spark.sparkContext.parallelize(list(lines), 1)).schema
    rows = list(_rows(lines))
    return {
        field.name: _ddl(_refined(field.dataType, _values(rows, field.name)))
        for field in schema.fields
        if field.name != corrupt
        and not isinstance(field.dataType, T.NullType)
        and _is_fit(field.dataType)
    }


def _rows(lines: Sequence[str]) -> Iterator[Any]:
    for line in lines:
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            continue


def _values(rows: Iterable[Any], name: str) -> Iterator[Any]:
    """A field's values in those rows that are objects."""
    return (row[name] for row in rows if isinstance(row, dict) and row.get(name) is not None)


def _refined(kind: T.DataType, values: Iterable[Any]) -> T.DataType:
    """The type that bronze gives these values, of which Spark makes `kind`."""
    if isinstance(kind, T.ArrayType):
        items = (item for value in values if isinstance(value, list) for item in value)
        return T.ArrayType(_refined(kind.elementType, items))
    if isinstance(kind, T.StructType):
        rows = list(values)
        some = [(field, _values(rows, field.name)) for field in kind.fields]
        return T.StructType([T.StructField(f.name, _refined(f.dataType, v)) for f, v in some])
    if isinstance(kind, T.TimestampType | T.TimestampNTZType | T.DateType):
        found = [value for value in values if value is not None]
        return T.TimestampType() if found and all(map(_is_dated, found)) else T.StringType()
    if isinstance(kind, T.DoubleType):
        return kind if all(map(_is_double, values)) else T.StringType()
    # Decimals are whole numbers beyond long: a text says all their digits.
    return T.StringType() if isinstance(kind, T.DecimalType | T.NullType) else kind


def _is_dated(value: Any) -> bool:
    return isinstance(value, str) and _DATED.fullmatch(value) is not None


def _is_double(value: Any) -> bool:
    """Whether a double can say it, if it is a whole number."""
    try:
        return not isinstance(value, int) or int(float(value)) == value
    except OverflowError:
        return False


def _is_fit(kind: T.DataType) -> bool:
    """Whether a column can be of this type."""
    levels, names = 0, 0
    below = [kind]
    while below := [within for outer in below for within in inner(outer)]:
        levels, names = levels + 1, names + len(below)
    return levels <= MOST_LEVELS and names <= MOST_COLUMNS and _has_plain_names(kind)


def inner(kind: T.DataType) -> list[T.DataType]:
    """The types right within a type."""
    if isinstance(kind, T.ArrayType):
        return [kind.elementType]
    return [field.dataType for field in kind.fields] if isinstance(kind, T.StructType) else []


def _has_plain_names(kind: T.DataType) -> bool:
    names = kind.names if isinstance(kind, T.StructType) else []
    are_plain = all(map(is_plain, names)) and len(set(map(folded, names))) == len(names)
    return are_plain and all(map(_has_plain_names, inner(kind)))


def _ddl(kind: T.DataType) -> str:
    """A type as Spark's SQL spells it, names quoted where it needs that."""
    if isinstance(kind, T.ArrayType):
        return f"array<{_ddl(kind.elementType)}>"
    if isinstance(kind, T.StructType):
        return f"struct<{','.join(f'{_quoted(f.name)}:{_ddl(f.dataType)}' for f in kind.fields)}>"
    return kind.simpleString().replace("bigint", "long")


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else f"`{name}`"

"""Types of columns that nobody declared, from values that have come."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from medallion.ingest.versions import MOST_COLUMNS, is_plain

LINES = 10_000
# Each level is looked at by expressions of its own, in every batch (see transforms.nested).
MOST_LEVELS = 5
# A time of day alone is a time to Spark: one of the day on which it happens to be read.
_CLOCK = re.compile(r"[\sTt]*\d{1,2}:")


def infer(spark: SparkSession, lines: Sequence[str]) -> dict[str, str]:
    """Columns with their Spark types from JSON objects, by Spark's own rules.

    Whole numbers become long, and double where others are among them; texts that are all times
    become timestamp; fields of several kinds become string; nested ones become struct and array.
    Fields that are always null are left out, for they may yet be anything, and so are nested ones
    that no table can hold: too deep or wide, or with names that are not plain or there twice.
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
    kinds = {
        field.name: _plain(field.dataType)
        for field in schema.fields
        if field.name != corrupt and not isinstance(field.dataType, T.NullType)
    }
    times = {name for name, kind in kinds.items() if isinstance(kind, T.TimestampType)}
    kinds.update(dict.fromkeys(_clocks(lines, times), T.StringType()))
    return {name: _ddl(kind) for name, kind in kinds.items() if _is_fit(kind)}


def _clocks(lines: Sequence[str], names: set[str]) -> Iterator[str]:
    """The fields of these names that hold times of day."""
    for line in lines if names else ():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        for name in names.intersection(row if isinstance(row, dict) else ()):
            if isinstance(row[name], str) and _CLOCK.match(row[name]):
                yield name


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
    are_plain = all(map(is_plain, names)) and len({n.lower() for n in names}) == len(names)
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


def _plain(kind: T.DataType) -> T.DataType:
    """A type that bronze can have: whole numbers beyond long are doubles, a date is a time."""
    if isinstance(kind, T.DecimalType):
        return T.DoubleType()
    if isinstance(kind, T.DateType | T.TimestampNTZType):
        return T.TimestampType()
    if isinstance(kind, T.NullType):
        return T.StringType()
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_plain(kind.elementType))
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(f.name, _plain(f.dataType)) for f in kind.fields])
    return kind

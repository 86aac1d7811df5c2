"""Types of columns that nobody declared, from values that have come."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import types as T

LINES = 10_000


def infer(spark: SparkSession, lines: Sequence[str]) -> dict[str, str]:
    """Columns with their Spark types from JSON objects, by Spark's own rules.

    Whole numbers become long, and double where others are among them; texts that are all times
    become timestamp; fields of several kinds become string; nested ones become struct and array.
    Fields that are always null are left out, for they may yet be anything.
    """
    reader = (
        spark.read.option("inferTimestamp", "true")
        .option("dropFieldIfAllNull", "true")
        .option("columnNameOfCorruptRecord", "_conflict")
        .option("prefersDecimal", "false")
        # As in parsed: no more than RFC 8259 allows.
        .option("allowSingleQuotes", "false")
    )
    schema = reader.json(spark.sparkContext.parallelize(list(lines), 1)).schema
    return {
        field.name: _plain(field.dataType).simpleString().replace("bigint", "long")
        for field in schema.fields
        if field.name != "_conflict" and not isinstance(field.dataType, T.NullType)
    }


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

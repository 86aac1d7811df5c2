"""The types of columns that files bring (Parquet, ORC, Avro), as bronze's columns have them."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from medallion.config.values import folded
from medallion.parsing.typed import file_columns, is_typed
from medallion.schema.inference import is_fit
from medallion.spark.types import ddl

_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_DIGITS: Mapping[type[T.DataType], int] = {
    T.ByteType: 3,
    T.ShortType: 5,
    T.IntegerType: 10,
    T.LongType: 19,
}
_MOST_DIGITS = 38
_PLAIN = (
    T.BooleanType,
    T.NumericType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
)


def own_types(rows: DataFrame) -> dict[str, str]:
    """Return the columns of a batch's files with Spark types that hold the values of all of them.

    Columns that no table can have are left out: names that are not plain, too many fields. Types
    that no table can have, such as intervals, are strings.

    Args:
        rows: as a source gives them (`SourceBatch.read`); of lines of text there are none.
    """
    if not is_typed(rows):
        return {}
    spelled: dict[str, str] = {}
    found: dict[str, T.DataType] = {}
    for column in file_columns(rows):
        kind = storable(column.own)
        if kind:
            name = spelled.setdefault(folded(column.name), column.name)
            found[name] = merged(found[name], kind) if name in found else kind
    return {name: ddl(kind) for name, kind in found.items() if is_fit(kind)}


def storable(kind: T.DataType) -> T.DataType | None:
    """Return the type in which a table keeps a file's values; None if all of them are null."""
    match kind:
        case T.NullType():
            return None
        case T.TimestampNTZType():
            return T.TimestampType()
        case T.StructType():
            inner = ((field.name, storable(field.dataType)) for field in kind)
            fields = [T.StructField(name, each) for name, each in inner if each]
            return T.StructType(fields) if fields else None
        case T.ArrayType():
            item = storable(kind.elementType)
            return T.ArrayType(item) if item else None
        case T.MapType():
            key, value = storable(kind.keyType), storable(kind.valueType)
            return T.MapType(key, value) if key and value else None
    return kind if isinstance(kind, _PLAIN) else T.StringType()


def merged(one: T.DataType, two: T.DataType) -> T.DataType:
    """Return the type that holds the values of two types; string if there is no nearer one.

    A double holds whole numbers and decimals as long as they have few digits: others are rescued.
    """
    match one, two:
        case T.StructType(), T.StructType():
            return _merged_structs(one, two)
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(merged(one.elementType, two.elementType))
        case T.MapType(), T.MapType() if one.keyType == two.keyType:
            return T.MapType(one.keyType, merged(one.valueType, two.valueType))
        case T.NumericType(), T.NumericType():
            return _merged_numbers(one, two)
    if one == two:
        return one
    if {type(one), type(two)} == {T.DateType, T.TimestampType}:
        return T.TimestampType()
    return T.StringType()


def _merged_structs(one: T.StructType, two: T.StructType) -> T.StructType:
    others = {folded(field.name): field for field in two}
    fields = []
    for field in one:
        other = others.pop(folded(field.name), None)
        kind = merged(field.dataType, other.dataType) if other else field.dataType
        fields.append(T.StructField(field.name, kind))
    added = (T.StructField(field.name, field.dataType) for field in others.values())
    return T.StructType([*fields, *added])


def _merged_numbers(one: T.DataType, two: T.DataType) -> T.DataType:
    if one == two:
        return one
    if isinstance(one, _WHOLE) and isinstance(two, _WHOLE):
        return max(one, two, key=lambda kind: _WHOLE.index(type(kind)))
    if isinstance(one, T.FractionalType) and not isinstance(one, T.DecimalType):
        return T.DoubleType()
    if isinstance(two, T.FractionalType) and not isinstance(two, T.DecimalType):
        return T.DoubleType()
    sizes = [_whole_and_scale(one), _whole_and_scale(two)]
    whole, scale = max(size[0] for size in sizes), max(size[1] for size in sizes)
    return T.DecimalType(whole + scale, scale) if whole + scale <= _MOST_DIGITS else T.StringType()


def _whole_and_scale(kind: T.DataType) -> tuple[int, int]:
    """Return how many digits stand before the point, and how many behind it."""
    if isinstance(kind, T.DecimalType):
        return kind.precision - kind.scale, kind.scale
    return _DIGITS[type(kind)], 0

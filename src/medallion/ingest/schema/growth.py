"""The growth of a source's columns: new fields at any depth, and types that hold more values.

`new_fields_sql` finds the rows that a schema should grow for; `grow_type` merges their types into
the known ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import types as T

from medallion.config.values import fold_case
from medallion.ingest.parsing.json_text import json_path, string_array
from medallion.ingest.parsing.nested import is_nested_type
from medallion.spark.plans import type_ddl
from medallion.storage.table_specs import RESCUED

_DIGITS: Mapping[type[T.DataType], int] = {
    T.ByteType: 3,
    T.ShortType: 5,
    T.IntegerType: 10,
    T.LongType: 19,
}
_FRACTIONS = (T.FloatType, T.DoubleType)
_MAX_DIGITS = 38


def new_fields_sql(
    columns: Mapping[str, str], refused: Iterable[str], has_room: bool, can_widen: bool
) -> str:
    """Return SQL that is true for a row if the columns could grow to hold its rescued values.

    Args:
        columns: the known columns with Spark types.
        refused: top-level fields that cannot become columns.
        has_room: whether the table may have more columns.
        can_widen: whether columns may change their type, so that any rescued value counts.

    Returns:
        An expression over `_rescued_data`, never null. A line that repeats a field does not count:
        no column holds two values.
    """
    known = string_array(sorted({name.lower() for name in columns}))
    tests = []
    if has_room:
        is_unknown = f"not array_contains({known}, lower(e.key))"
        tests.append(f"({is_unknown} and not {_HAS_NO_NAME} and {_HAS_TYPE})")
    if can_widen:
        tests.append(f"array_contains({known}, lower(e.key))")
    is_new = f"e.value is not null and not array_contains({string_array(refused)}, e.key)"
    found = [f"exists(map_entries(fields), e -> {is_new} and ({' or '.join(tests)}))"] * bool(tests)
    if not can_widen:
        for name, kind in columns.items():
            json = f"get_json_object({RESCUED}, {json_path(name)})"
            if is_nested_type(kind) and (test := _has_new_field(json, T.DataType.fromDDL(kind))):
                found.append(test)
    if not found:
        return "false"
    keys = f"json_object_keys({RESCUED})"
    any_of = f"size(array_distinct({keys})) = size({keys}) and ({' or '.join(found)})"
    fields = f"from_json({RESCUED}, 'map<string,string>')"
    return f"coalesce(exists(array({fields}), fields -> {any_of}), false)"


# Names that no column can have (see `columns.is_valid_name`).
_HAS_NO_NAME = r"(e.key rlike r'[\s,;{}()=`\x27\"\\.<>:?*]' or length(e.key) > 128)"
# JSON values with a type, unlike null, [] and {}.
_NAMES = r"""r'"([^"\\]|\\.)*+" *:'"""
_HAS_TYPE = (
    rf"(e.value = '' or not regexp_replace(e.value, {_NAMES}, '') rlike r'^(null|[\[\]{{}},\s])*$')"
)


def _has_new_field(json: str, kind: T.DataType, depth: int = 0) -> str | None:
    """Return SQL that is true if a JSON value has a field, at any depth, that a type lacks."""
    if isinstance(kind, T.StructType):
        known = string_array(sorted({name.lower() for name in kind.names}))
        entries = f"map_entries(from_json({json}, 'map<string,string>'))"
        is_new = (
            f"not array_contains({known}, lower(e.key)) and e.value is not null and {_HAS_TYPE}"
        )
        found = [f"exists({entries}, e -> {is_new})"]
        for field in kind.fields:
            inner = f"get_json_object({json}, {json_path(field.name)})"
            if test := _has_new_field(inner, field.dataType, depth):
                found.append(test)
        return f"coalesce({' or '.join(found)}, false)"
    if isinstance(kind, T.ArrayType):
        item = f"i{depth}"
        test = _has_new_field(item, kind.elementType, depth + 1)
        items = f"from_json({json}, 'array<string>')"
        return test and f"coalesce(exists({items}, {item} -> {test}), false)"
    return None


def grow_type(known: T.DataType, new: T.DataType, can_widen: bool) -> T.DataType:
    """Return the known type with the additional fields of another type.

    Args:
        known: the type of a column.
        new: the type of values that do not fit it.
        can_widen: whether a type may be replaced by one that holds the values of both.

    Returns:
        Structs with the known fields first; names that differ only in case are one field. `known`
        itself if it cannot grow.
    """
    match known, new:
        case T.StructType(), T.StructType():
            more = {fold_case(field.name): field for field in new.fields}
            fields = []
            for field in known.fields:
                other = more.pop(fold_case(field.name), field)
                kind = grow_type(field.dataType, other.dataType, can_widen)
                fields.append(T.StructField(field.name, kind))
            return T.StructType([*fields, *more.values()])
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(grow_type(known.elementType, new.elementType, can_widen))
        case T.MapType(), T.MapType() if known.keyType == new.keyType:
            return T.MapType(known.keyType, grow_type(known.valueType, new.valueType, can_widen))
    # A nested value is never widened to a string: silver reads its fields.
    is_nested = isinstance(known, (T.StructType, T.ArrayType, T.MapType))
    return wider_type(known, new) if can_widen and not is_nested else known


def wider_type(one: T.DataType, other: T.DataType) -> T.DataType:
    """Return the narrowest type that holds the values of both; string if there is no other.

    A double holds all whole numbers, as in JSON, but no decimals, which are exact.
    """
    if type_ddl(one) == type_ddl(other):
        return one
    kinds = {type(one), type(other)}
    if kinds <= {*_DIGITS}:
        return max(one, other, key=lambda kind: _DIGITS[type(kind)])
    if kinds <= {*_DIGITS, *_FRACTIONS}:
        return T.DoubleType()
    if kinds <= {*_DIGITS, T.DecimalType}:
        sizes = [_digits_of(one), _digits_of(other)]
        scale = max(size[1] for size in sizes)
        digits = max(size[0] for size in sizes) + scale
        return T.DecimalType(digits, scale) if digits <= _MAX_DIGITS else T.StringType()
    if kinds == {T.DateType, T.TimestampType}:
        return T.TimestampType()
    return T.StringType()


def _digits_of(kind: T.DataType) -> tuple[int, int]:
    """Return the number of digits before and after the decimal point."""
    if isinstance(kind, T.DecimalType):
        return kind.precision - kind.scale, kind.scale
    return _DIGITS[type(kind)], 0


def leaf_types(kind: T.DataType, path: str = "") -> dict[str, str]:
    """Return the types within a type that have no fields of their own, by folded path."""
    match kind:
        case T.StructType():
            found: dict[str, str] = {}
            for field in kind.fields:
                found |= leaf_types(field.dataType, f"{path}.{fold_case(field.name)}")
            return found
        case T.ArrayType():
            return leaf_types(kind.elementType, f"{path}[]")
    return {path: type_ddl(kind)}

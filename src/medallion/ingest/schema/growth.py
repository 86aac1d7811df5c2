"""The growth of a source's columns: new fields at any depth, and types that hold more values.

`new_fields_sql` finds the rows that a schema should grow for; `grow_type` merges their types into
the known ones.
"""

from collections.abc import Iterable, Mapping

from pyspark.sql import types as T

from medallion.config.values import fold_case
from medallion.ingest.parsing.json_text import json_field, string_array
from medallion.ingest.parsing.names import with_fields
from medallion.ingest.parsing.nested import is_nested_type
from medallion.spark.plans import type_ddl
from medallion.storage.table_specs import RESCUED, SQL_REPLACED

_DIGITS: Mapping[type[T.DataType], int] = {
    T.ByteType: 3,
    T.ShortType: 5,
    T.IntegerType: 10,
    T.LongType: 19,
}
_MAX_DIGITS = 38
Hints = Mapping[str, T.DataType]
"""Declared types by the dotted path of a field in folded case, without the items of arrays."""
FieldPath = tuple[str, ...]
"""The names of a field and of those that it is in; ITEM stands for the elements of an array."""
ITEM = "[]"


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
    entry_tests = []
    if has_room:
        is_unknown = f"not array_contains({known}, lower(e.key))"
        entry_tests.append(f"({is_unknown} and length(e.key) between 1 and 128 and {_HAS_TYPE})")
    if can_widen:
        entry_tests.append(f"array_contains({known}, lower(e.key))")
    is_new = f"e.value is not null and not array_contains({string_array(refused)}, e.key)"
    can_grow = f"{is_new} and ({' or '.join(entry_tests)})"
    row_tests = [f"exists(map_entries(fields), e -> {can_grow})"] if entry_tests else []
    if not can_widen:
        for name, dtype in columns.items():
            json = json_field(RESCUED, name)
            if is_nested_type(dtype) and (test := _has_new_field(json, T.DataType.fromDDL(dtype))):
                row_tests.append(test)
    if not row_tests:
        return "false"
    keys = f"json_object_keys({RESCUED})"
    any_of = f"size(array_distinct({keys})) = size({keys}) and ({' or '.join(row_tests)})"
    fields = f"from_json({RESCUED}, 'map<string,string>')"
    return f"coalesce(exists(array({fields}), fields -> {any_of}), false)"


def maps_to_columns_sql(columns: Iterable[str], refused: Iterable[str]) -> str:
    """Return SQL that is true if a rescued field with another name belongs to one of the columns.

    Args:
        columns: columns whose original field name is not known.
        refused: fields that cannot become columns.
    """
    name = rf"lower(regexp_replace(k, r'{SQL_REPLACED}', '_'))"
    is_known = f"array_contains({string_array(map(fold_case, columns))}, {name})"
    is_refused = f"array_contains({string_array(refused)}, k)"
    is_like = f"{name} <> lower(k) and {is_known} and not {is_refused}"
    return f"coalesce(exists(json_object_keys({RESCUED}), k -> {is_like}), false)"


# JSON values with a type, unlike null, [] and {}.
_NAMES = r"""r'"([^"\\]|\\.)*+" *:'"""
_HAS_TYPE = (
    rf"(e.value = '' or not regexp_replace(e.value, {_NAMES}, '') rlike r'^(null|[\[\]{{}},\s])*$')"
)


def _has_new_field(json: str, dtype: T.DataType, depth: int = 0) -> str | None:
    """Return SQL that is true if a JSON value has a field, at any depth, that a type lacks."""
    if isinstance(dtype, T.StructType):
        known = string_array(sorted({name.lower() for name in dtype.names}))
        entries = f"map_entries(from_json({json}, 'map<string,string>'))"
        is_unknown = f"not array_contains({known}, lower(e.key))"
        tests = [f"exists({entries}, e -> {is_unknown} and e.value is not null and {_HAS_TYPE})"]
        for field in dtype.fields:
            if test := _has_new_field(json_field(json, field.name), field.dataType, depth):
                tests.append(test)
        return f"coalesce({' or '.join(tests)}, false)"
    if isinstance(dtype, T.ArrayType):
        item = f"i{depth}"
        test = _has_new_field(item, dtype.elementType, depth + 1)
        items = f"from_json({json}, 'array<string>')"
        return test and f"coalesce(exists({items}, {item} -> {test}), false)"
    return None


def grow_type(known: T.DataType, new: T.DataType, can_widen: bool) -> T.DataType:
    """Return the known type with the additional fields, or width, of another type.

    Args:
        known: the type of a column.
        new: the type of values that do not fit it.
        can_widen: whether a type may be replaced by one that holds the values of both.

    Returns:
        The type, with known fields first in structs; names that differ only in case are one field.
        `known` itself if it cannot grow.
    """
    match known, new:
        case T.StructType(), T.StructType():
            more = {fold_case(field.name): field for field in new.fields}
            fields = []
            for field in known.fields:
                other = more.pop(fold_case(field.name), field)
                dtype = grow_type(field.dataType, other.dataType, can_widen)
                fields.append(T.StructField(field.name, dtype))
            return T.StructType([*fields, *more.values()])
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(grow_type(known.elementType, new.elementType, can_widen))
        case T.MapType(), T.MapType() if known.keyType == new.keyType:
            return T.MapType(known.keyType, grow_type(known.valueType, new.valueType, can_widen))
    # A nested value is never widened to a string: silver reads its fields. A time is not either:
    # the string of an older value would differ from what its file has.
    times = (T.DateType, T.TimestampType)
    is_kept = isinstance(known, (T.StructType, T.ArrayType, T.MapType)) or (
        isinstance(known, times) and not isinstance(new, times)
    )
    return wider_type(known, new) if can_widen and not is_kept else known


def with_hints(dtype: T.DataType, path: str, hints: Hints) -> T.DataType:
    """Return a type whose fields have the declared types; structs keep their other fields.

    Args:
        dtype: the type of a field.
        path: the path of the field.
        hints: the declared types.
    """

    def hinted(at: str, inferred: T.DataType) -> T.DataType:
        hint = hints.get(fold_case(at))
        return grow_type(hint, inferred, can_widen=False) if hint else inferred

    def with_hint(at: str, each: T.StructField) -> T.StructField:
        return T.StructField(each.name, hinted(at, each.dataType))

    return hinted(path, with_fields(dtype, path, with_hint)) if hints else dtype


def with_field(known: T.DataType | None, path: FieldPath) -> T.DataType:
    """Return a type with a field, which is a string if it is new.

    Args:
        known: the type; None if nothing is known.
        path: the field. ITEM may be left out where the type is an array already.

    Returns:
        The type; `known` itself if a value of it has no fields.
    """
    if not path:
        return known or T.StringType()
    first, rest = path[0], path[1:]
    match known:
        case T.ArrayType():
            return T.ArrayType(with_field(known.elementType, rest if first == ITEM else path))
        case T.MapType() if first == ITEM:
            return T.MapType(known.keyType, with_field(known.valueType, rest))
        case None if first == ITEM:
            return T.ArrayType(with_field(None, rest))
        case None | T.StructType():
            fields = {fold_case(field.name): field for field in known or ()}
            name, old = first, fields.get(fold_case(first))
            if old:
                name = old.name
            new = with_field(old.dataType if old else None, rest)
            fields[fold_case(first)] = T.StructField(name, new)
            return T.StructType([*fields.values()])
    return known


def wider_type(one: T.DataType, other: T.DataType) -> T.DataType:
    """Return the narrowest type that holds the values of both; string if there is no other.

    Whole numbers and fractions become double, as in JSON; decimals, which are exact, do not.
    """
    if type_ddl(one) == type_ddl(other):
        return one
    dtypes = {type(one), type(other)}
    if dtypes <= {*_DIGITS}:
        return max(one, other, key=lambda dtype: _DIGITS[type(dtype)])
    if dtypes <= {*_DIGITS, T.FloatType, T.DoubleType}:
        return T.DoubleType()
    if dtypes <= {*_DIGITS, T.DecimalType}:
        sizes = [_digits_of(one), _digits_of(other)]
        scale = max(size[1] for size in sizes)
        digits = max(size[0] for size in sizes) + scale
        return T.DecimalType(digits, scale) if digits <= _MAX_DIGITS else T.StringType()
    return T.TimestampType() if dtypes == {T.DateType, T.TimestampType} else T.StringType()


def _digits_of(dtype: T.DataType) -> tuple[int, int]:
    """Return the number of digits before and after the decimal point."""
    if isinstance(dtype, T.DecimalType):
        return dtype.precision - dtype.scale, dtype.scale
    return _DIGITS[type(dtype)], 0


def leaf_types(dtype: T.DataType, path: str = "") -> dict[str, str]:
    """Return the types without fields or items within a type, by path in folded case."""
    match dtype:
        case T.StructType():
            types: dict[str, str] = {}
            for field in dtype.fields:
                types |= leaf_types(field.dataType, f"{path}.{fold_case(field.name)}")
            return types
        case T.ArrayType():
            return leaf_types(dtype.elementType, f"{path}[]")
    return {path: type_ddl(dtype)}

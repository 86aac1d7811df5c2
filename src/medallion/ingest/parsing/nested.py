"""Tests, in SQL, for what Spark's JSON parser drops or changes in a value without an error."""

from pyspark.sql import types as T

from medallion.ingest.parsing.json_text import json_field, string_array
from medallion.ingest.parsing.times import decimal_from_string, is_not_date, is_not_timestamp
from medallion.storage.table_specs import quote_identifier, string_literal


def is_nested_type(dtype: str) -> bool:
    """Return whether a Spark type has fields or items."""
    return dtype.startswith(("struct<", "array<", "map<"))


def loses_value(json: str, typed: str, dtype: T.DataType, depth: int = 0) -> str:
    """Return SQL that tests whether a parsed value lacks part of its JSON text.

    At any depth: an unknown or repeated field, a value of another type or out of its range, an
    object or array that the type does not expect.

    Args:
        json: SQL of the value's JSON text (of a string: without its quotes), null for a null.
        typed: SQL of the parsed value.
        dtype: the type of `typed`.
        depth: the number of enclosing lambdas, for unique names of their variables.
    """
    lost = [f"{typed} is null"]  # get_json_object reads a string with an object as an object
    if isinstance(dtype, T.StructType):
        keys = f"json_object_keys({json})"
        lost += [
            f"{keys} is null",
            f"size(array_except({keys}, {string_array(dtype.names)})) > 0",
            f"size(array_distinct({keys})) < size({keys})",
        ]
        for field in dtype.fields:
            inner = f"{typed}.{quote_identifier(field.name)}"
            lost.append(loses_value(json_field(json, field.name), inner, field.dataType, depth))
    elif isinstance(dtype, T.ArrayType):
        items = f"from_json({json}, 'array<string>')"
        item = loses_value(f"i{depth}", f"t{depth}", dtype.elementType, depth + 1)
        lost = [
            f"{items} is null",
            f"not (size({items}) <=> size({typed}))",
            _any(items, f"i{depth}", typed, f"t{depth}", item),
        ]
    elif isinstance(dtype, T.MapType):
        keys, values = f"json_object_keys({json})", f"from_json({json}, 'map<string,string>')"
        value = loses_value(f"i{depth}", f"t{depth}", dtype.valueType, depth + 1)
        lost = [
            f"{keys} is null",
            f"size(array_distinct({keys})) < size({keys})",
            f"not (size({keys}) <=> size({typed}))",
            _any_value(values, f"i{depth}", typed, f"t{depth}", value),
        ]
    elif isinstance(dtype, T.DecimalType):  # see `is_nested_changed` for numbers of many digits
        decimal = decimal_from_string(json, dtype.simpleString())
        lost.append(f"not (_is_precise or {decimal} <=> {typed})")
    elif test := is_changed(json, typed, dtype.simpleString()):
        lost.append(test)
    return f"({json} is not null and ({' or '.join(lost)}))"


def is_nested_changed(exact: str, typed: str, dtype: T.DataType, depth: int = 0) -> str | None:
    """Return SQL that tests whether the parser changed a nested value; None if it never does.

    A missing value is not a changed one: see `loses_value`.

    Args:
        exact: SQL of the value as VARIANT.
        typed: SQL of the parsed value.
        dtype: the type of `typed`.
        depth: the number of enclosing lambdas, for unique names of their variables.
    """
    if isinstance(dtype, T.StructType):
        tests = list[str | None]()
        for field in dtype.fields:
            value = f"try_cast({exact} as map<string, variant>)[{string_literal(field.name)}]"
            inner = f"{typed}.{quote_identifier(field.name)}"
            tests.append(is_nested_changed(value, inner, field.dataType, depth))
        return " or ".join(filter(None, tests)) or None
    if isinstance(dtype, T.ArrayType):
        item, value = f"e{depth}", f"t{depth}"
        test = is_nested_changed(item, value, dtype.elementType, depth + 1)
        return test and _any(f"try_cast({exact} as array<variant>)", item, typed, value, test)
    if isinstance(dtype, T.MapType):
        item, value = f"e{depth}", f"t{depth}"
        test = is_nested_changed(item, value, dtype.valueType, depth + 1)
        values = f"try_cast({exact} as map<string, variant>)"
        return test and _any_value(values, item, typed, value, test)
    if isinstance(dtype, T.StringType):
        test = is_rounded(exact, typed)
    elif isinstance(dtype, T.DecimalType):
        decimal = decimal_from_string(exact_text(exact), dtype.simpleString())
        test = f"not {decimal} <=> {typed}"
    else:
        test = is_changed(f"try_cast({exact} as string)", typed, dtype.simpleString())
    return test and f"({typed} is not null and {test})"


def _any(items: str, item: str, others: str, other: str, test: str) -> str:
    """Return SQL that tests whether a condition is true for any pair of items of two arrays.

    Each array is computed once; access by index would parse it again for each item.
    """
    return f"exists(zip_with({items}, {others}, ({item}, {other}) -> {test}), is_so -> is_so)"


def _any_value(values: str, value: str, others: str, other: str, test: str) -> str:
    """Return SQL as `_any` does, for the values of two maps with equal keys."""
    tests = f"map_zip_with({values}, {others}, (key, {value}, {other}) -> {test})"
    return f"exists(map_values({tests}), is_so -> is_so)"


def has_unique_keys(value: str) -> str:
    """Return SQL that tests whether a map has each key once: the parser keeps repeated ones."""
    return f"size(array_distinct(map_keys({value}))) = size({value})"


def exact_text(exact: str) -> str:
    """Return SQL for the text of a value as VARIANT; null if it is a number that may be rounded."""
    is_rounded_number = f"_is_precise and schema_of_variant({exact}) = 'DOUBLE'"
    return f"case when not ({is_rounded_number}) then try_cast({exact} as string) end"


def is_changed(json: str, typed: str, dtype: str) -> str | None:
    """Return SQL that tests whether the parser changed a flat value; None if it never does."""
    if dtype in ("double", "float"):
        return f"abs({typed}) = double('infinity')"  # 1e400: JSON has no infinite numbers
    if dtype == "timestamp":
        return is_not_timestamp(json, typed)
    return is_not_date(json, typed) if dtype == "date" else None


def is_rounded(exact: str, text: str) -> str:
    """Return SQL that tests whether a string is, or contains, a rounded number of the line.

    Spark's parser writes a fraction or a power of ten in a string column as a double.

    Args:
        exact: SQL of the field of the line as VARIANT, which keeps 38 digits.
        text: SQL of the string.
    """
    return (
        f"case when not _is_precise then false when contains({text}, 'Infinity\"') then true"
        f" when not {text} rlike r'{_NUMBERS}' then false"
        f" when startswith(to_json({exact}), '\"') then false"  # a string in the line, too
        f" else not to_json(try_parse_json({text})) <=> to_json({exact}) end"
    )


# A double as Java writes it, or the start of an object or array.
_NUMBERS = r'^(-?[0-9]+[.][0-9]+(E-?[0-9]+)?$|"-?Infinity"$|[\[{])'
# A number that a double may round: 16 digits, counting the point, or an exponent of three digits.
PRECISE = r"r'[0-9.]{16}|[eE][-+]?0*[0-9]{3}'"

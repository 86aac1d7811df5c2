"""Tests, in SQL, for what Spark's JSON parser drops or changes in a value without an error."""

from __future__ import annotations

from pyspark.sql import types as T

from medallion.ingest.parsing.json_text import json_path, string_array, string_literal
from medallion.ingest.parsing.times import is_not_date, is_not_timestamp


def is_nested_type(kind: str) -> bool:
    """Return whether a Spark type has fields or items."""
    return kind.startswith(("struct<", "array<"))


def loses_value(json: str, typed: str, kind: T.DataType, depth: int = 0) -> str:
    """Return SQL: whether some of a JSON text is missing in the value parsed from it.

    At any depth: an unknown or repeated field, a value of another type or out of its range, an
    object or array that the type does not expect.

    Args:
        json: SQL of the value's JSON text (of a string: without its quotes), null for a null.
        typed: SQL of the parsed value.
        kind: the type of `typed`.
    """
    if isinstance(kind, T.StructType):
        keys = f"json_object_keys({json})"
        lost = [
            f"{typed} is null",  # an object that came as a text is one to get_json_object
            f"{keys} is null",
            f"size(array_except({keys}, {string_array(kind.names)})) > 0",
            f"size(array_distinct({keys})) < size({keys})",
            *(
                loses_value(
                    f"get_json_object({json}, {json_path(field.name)})",
                    f"{typed}.`{field.name}`",
                    field.dataType,
                    depth,
                )
                for field in kind.fields
            ),
        ]
        return f"({json} is not null and ({' or '.join(lost)}))"
    if isinstance(kind, T.ArrayType):
        items = f"from_json({json}, 'array<string>')"
        item = loses_value(f"i{depth}", f"t{depth}", kind.elementType, depth + 1)
        lost = [
            f"{items} is null",
            f"not (size({items}) <=> size({typed}))",
            _any(items, f"i{depth}", typed, f"t{depth}", item),
        ]
        return f"({json} is not null and ({' or '.join(lost)}))"
    lost = [f"{typed} is null", is_changed(json, typed, kind.simpleString()) or "false"]
    return f"({json} is not null and ({' or '.join(lost)}))"


def is_nested_changed(
    json: str, exact: str, typed: str, kind: T.DataType, depth: int = 0
) -> str | None:
    """SQL: whether a value within a nested one was changed by the parser, such as a number that was
    rounded; None if none can be. A value that is missing is found by `lacks`.

    Args:
        json, typed, kind: as `lacks` has them.
        exact: SQL of the same value as VARIANT.
    """
    if isinstance(kind, T.StructType):
        inner = [
            (
                f"get_json_object({json}, {json_path(f.name)})",
                f"try_cast({exact} as map<string, variant>)[{string_literal(f.name)}]",
                f"{typed}.`{f.name}`",
                f.dataType,
            )
            for f in kind.fields
        ]
        return (
            " or ".join(how for each in inner if (how := is_nested_changed(*each, depth))) or None
        )
    if isinstance(kind, T.ArrayType):
        items = f"from_json({json}, 'array<string>')"
        # There are none where VARIANT refuses the line.
        exact_items = (
            f"coalesce(try_cast({exact} as array<variant>), cast(array() as array<variant>))"
        )
        both = f"zip_with({exact_items}, {typed}, (e, t) -> named_struct('exact', e, 'typed', t))"
        at, pair = f"i{depth}", f"b{depth}"
        item = is_nested_changed(at, f"{pair}.exact", f"{pair}.typed", kind.elementType, depth + 1)
        return item and _any(items, at, both, pair, item)
    plain = kind.simpleString()
    half = f"({exact} is null and contains({typed}, '?') and _has_halves)"
    how = (
        f"{half} or {is_rounded(exact, typed)}"
        if plain == "string"
        else is_changed(json, typed, plain)
    )
    return how and f"({typed} is not null and ({how}))"


def _any(items: str, item: str, others: str, other: str, test: str) -> str:
    """Return SQL: whether a test holds for any pair of items of two arrays.

    Each array is computed once; access by index would parse it again for each item.
    """
    return f"exists(zip_with({items}, {others}, ({item}, {other}) -> {test}), is_so -> is_so)"


def is_changed(json: str, typed: str, kind: str) -> str | None:
    """Return SQL: whether the parser changed a value that is not nested; None if it never does."""
    if kind in ("double", "float"):
        return f"abs({typed}) = double('infinity')"  # 1e400: JSON has no infinite numbers
    if kind == "timestamp":
        return is_not_timestamp(json, typed)
    if kind == "date":
        return is_not_date(json, typed)
    return None


def is_rounded(exact: str, text: str) -> str:
    """SQL: whether a text is, or holds, a number that the line, `value`, says more exactly.

    Searches of the whole line (`_is_huge` and its like) are steps of the exact path, made once:
    here they would be made again for every item of a list.

    Args:
        exact: SQL of the field of the line as VARIANT, which keeps 38 digits.
        text: SQL of the text that Spark's parser made of it: a fraction or a power of ten is a
            double there, and written out again as one.
    """
    huge = f"contains({text}, 'Infinity\"') and _is_huge"
    rounded = (
        f"case when not _is_precise or not {text} rlike r'{NUMBERS}' then false"
        f" when startswith(to_json({exact}), '\"') then false"  # the line says a text as well
        " when _is_beyond then true"
        f" else not to_json(try_parse_json({text})) <=> to_json({exact}) end"
    )
    return f"({huge} or {rounded})"


# As Java writes a double, and the beginning of an object or a list.
NUMBERS = r"^(-?[0-9]+[.][0-9]+(E-?[0-9]+)?$|[\[{])"
# A number that may be too large for a double: its exponent has three digits, or two at most and it
# has over two hundred before the point.
HUGE = r"value rlike r'[:,\[]\s*-?([0-9]+(\.[0-9]+)?[eE]\+?0*[0-9]{3}|[0-9]{210})'"
# 15 digits and a point go into a double, and so do powers of two digits.
PRECISE = "'[0-9.]{16}|[eE]-0*[0-9]{3}'"
# One that VARIANT would round: it has 38 digits, but with a power of ten only those of a double.
BEYOND_VARIANT = r"value rlike r'[:,\[]\s*-?([0-9.]{39}|[0-9.]{16,}[eE]|[0-9.]+[eE]-0*[0-9]{3})'"

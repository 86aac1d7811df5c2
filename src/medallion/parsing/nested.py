"""What a column loses of a JSON value, which Spark's parser does not tell."""

from __future__ import annotations

from pyspark.sql import types as T

from medallion.parsing.json_text import member, texts
from medallion.parsing.times import is_no_date, is_no_time


def is_nested(kind: str) -> bool:
    """Whether a Spark type holds fields or items of its own."""
    return kind.startswith(("struct<", "array<"))


def unfit(json: str, typed: str, kind: T.DataType, depth: int = 0) -> str:
    """SQL: whether some of a JSON text is not in the value that was parsed from it.

    Args:
        json: SQL of the value's JSON text (of a string: without its quotes), null for a null.
        typed: SQL of the parsed value.
        kind: the type of `typed`.

    True for a field that the type does not know or that is there twice, a value of another kind
    or beyond what it can say, and an object or array where the type has none, at any depth.
    """
    if isinstance(kind, T.StructType):
        keys = f"json_object_keys({json})"
        lost = [
            f"{typed} is null",  # an object that came as a text is one to get_json_object
            f"{keys} is null",
            f"size(array_except({keys}, {texts(kind.names)})) > 0",
            f"size(array_distinct({keys})) < size({keys})",
            *(
                unfit(
                    f"get_json_object({json}, {member(field.name)})",
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
        at = f"i{depth}"
        item = unfit(f"get({items}, {at})", f"get({typed}, {at})", kind.elementType, depth + 1)
        lost = [
            f"{items} is null",
            f"not (size({items}) <=> size({typed}))",
            f"(size({items}) > 0 and {_exists(items, at, item)})",
        ]
        return f"({json} is not null and ({' or '.join(lost)}))"
    lost = [f"{typed} is null", astray(json, typed, kind.simpleString()) or "false"]
    return f"({json} is not null and ({' or '.join(lost)}))"


def bent(json: str, typed: str, kind: T.DataType, depth: int = 0) -> str | None:
    """SQL: whether a value within a nested one became another than its text says; None if none can.

    Args: those of `unfit`. What a type cannot hold at all is not meant: that is missing there.
    """
    if isinstance(kind, T.StructType):
        inner = [
            (f"get_json_object({json}, {member(f.name)})", f"{typed}.`{f.name}`", f.dataType)
            for f in kind.fields
        ]
        return " or ".join(how for each in inner if (how := bent(*each, depth))) or None
    if isinstance(kind, T.ArrayType):
        items = f"from_json({json}, 'array<string>')"
        at = f"i{depth}"
        item = bent(f"get({items}, {at})", f"get({typed}, {at})", kind.elementType, depth + 1)
        return item and f"(size({items}) > 0 and {_exists(items, at, item)})"
    how = astray(json, typed, kind.simpleString())
    return how and f"({typed} is not null and ({how}))"


def _exists(items: str, at: str, test: str) -> str:
    return f"exists(sequence(0, size({items}) - 1), {at} -> {test})"


def astray(json: str, typed: str, kind: str) -> str | None:
    """SQL: whether a plain value became another one than the text says; None where none does."""
    if kind in ("double", "float"):
        return f"abs({typed}) = double('infinity')"  # 1e400: JSON has no infinite numbers
    if kind == "string":
        # A number like that, written out again as text.
        return f"(contains({typed}, 'Infinity') and {HUGE} or {rounded(typed)})"
    if kind == "timestamp":
        return is_no_time(json, typed)
    if kind == "date":
        return is_no_date(json, typed)
    return None


def rounded(text: str) -> str:
    """SQL: whether a text may be a number, or hold one, that the line, `value`, says more exactly.

    A fraction or a power of ten is a double to Spark, and written out again as one.
    """
    number = f"replace({text}, '.', '[.]')"
    as_it_stands = f"value rlike concat({_NO_MORE_BEFORE}, {number}, {_NO_MORE_BEHIND})"
    tight = f"contains(translate(value, ' \t', ''), translate({text}, ' \t', ''))"
    return (
        f"case when instr('-0123456789[{{', left({text}, 1)) = 0 then false"
        f" when {text} rlike {_FRACTION} then value rlike {PRECISE} and not {as_it_stands}"
        f" when {text} rlike '^[^-0-9]' then value rlike {PRECISE} and not {tight}"
        " else false end"
    )


# As Java writes a double.
_FRACTION = "'^-?[0-9]+[.][0-9]+(E-?[0-9]+)?$'"
_NO_MORE_BEFORE, _NO_MORE_BEHIND = "'(?<![0-9.eE+-])'", "'0*(?![0-9.eE])'"
# A number that may be too large for a double: its exponent has three digits, or two at most and it
# has over two hundred before the point.
HUGE = r"value rlike r'[:,\[]\s*-?([0-9]+(\.[0-9]+)?[eE]\+?0*[0-9]{3}|[0-9]{210})'"
# 15 digits and a point go into a double, and so do powers of two digits.
PRECISE = "'[0-9.]{16}|[eE]-0*[0-9]{3}'"

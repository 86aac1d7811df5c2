"""The exact look at a line that may hold more than its columns can say."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import types as T

from medallion import schemas
from medallion.transforms.nested import astray, is_nested, member, texts, unfit

# RFC 8259 only: what Spark would let pass besides is not JSON to the next reader.
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


def parsed_as(columns: Mapping[str, str]) -> str:
    """SQL: the struct that Spark makes of `value`; `_conflict` is null if all of it did fit."""
    ddl = ", ".join([*(f"`{name}` {kind}" for name, kind in columns.items()), "_conflict string"])
    return f"from_json(value, '{ddl}', {_options(columnNameOfCorruptRecord='_conflict')})"


def exact(schema: Mapping[str, str]) -> str:
    """SQL: what bronze keeps of a line.

    Args:
        schema: columns with their Spark types.

    Returns:
        An expression over `value`, the line. It is a struct of the columns of `schema`,
        `_corrupt_record` and `_rescued_data`.
    """
    raw = "if(is_valid_utf8(value), value, decode(cast(value as binary), 'ISO-8859-1'))"
    steps = {
        "_row": parsed_as(schema),
        "_variant": "try_parse_json(value)",
        "_sealed": SEALED,
        "_astray": _astray(schema),
        schemas.CORRUPT: f"case when {_NOT_JSON} then {raw} end",
        schemas.RESCUED: _rescued(schema),
    }
    whole = f"{schemas.CORRUPT} is null and not array_contains(_astray, '{{0}}')"
    columns = {
        **{name: f"case when {whole.format(name)} then _row.`{name}` end" for name in schema},
        schemas.CORRUPT: schemas.CORRUPT,
        schemas.RESCUED: schemas.RESCUED,
    }
    found = ", ".join(f"'{name}', {value}" for name, value in columns.items())
    return _with(steps, f"named_struct({found})")


def _with(steps: Mapping[str, str], then: str) -> str:
    """SQL: an expression that may use each step by its name, as each step may those before.

    Columns would do as well. But lambdas Spark interprets, and columns it compiles: this much code
    for seconds, in each session, although few lines need it or none.
    """
    for name, value in reversed(list(steps.items())):
        then = f"transform(array({value}), {name} -> {then})[0]"
    return then


def _options(**more: str) -> str:
    return f"map({', '.join(repr(word) for pair in {**_STRICT, **more}.items() for word in pair)})"


# Spark's parser stops at the end of the first object and ignores the rest of the line. As the first
# of two items of an array, sealed by a text that the line cannot hold, it has to be read whole.
SEALED = f"from_json(concat('[', value, ',\"', md5(value), '\"]'), 'array<string>', {_options()})"
ALONE = f"get({SEALED}, 1) <=> md5(value)"
_NOT_JSON = (
    "json_object_keys(value) is null or not is_valid_utf8(value)"
    " or not get(_sealed, 1) <=> md5(value)"
)


def _rescued(schema: Mapping[str, str]) -> str:
    """SQL: the fields that the columns do not hold, as JSON; null where there are none."""
    empty = ", ".join(f"case when _row.`{name}` is null then '{name}' end" for name in schema)
    lost = ", ".join(
        f"case when {lossy(name, kind, '_row')} then '{name}' end"
        for name, kind in schema.items()
        if is_nested(kind)
    )
    not_taken = (
        f"not array_contains({texts(schema)}, key)"
        f" or (array_contains(array({empty}), key) and not is_variant_null(val))"
        f" or array_contains(array({lost}), key) or array_contains(_astray, key)"
    )
    fields = (
        f"to_json(map_filter(cast(_variant as map<string, variant>), (key, val) -> {not_taken}))"
    )
    return (
        f"case when {schemas.CORRUPT} is null then nullif("
        # A field named twice has two values, and no VARIANT keeps both: the line is kept whole.
        f"case when {_NAMES.format('_sealed[0]')} <> {_NAMES.format('to_json(_variant)')}"
        " then value"
        # So is one with a number that is infinite to VARIANT,
        f" when {_HUGE} and contains({fields}, 'Infinity') then value"
        # and valid JSON that VARIANT refuses (a lone surrogate, over 16 MiB).
        f" else coalesce({fields}, value) end, '{{}}') end"
    )


# How many fields a JSON text without blanks names at any depth; a quote in a text counts as well.
_NAMES = "regexp_count({}, '\":')"
# Half a character, which UTF-8 has no bytes for, is always written so; and so may a whole one be.
HALVES = r"(contains(value, r'\ud') or contains(value, r'\uD'))"
# A number that may be too large for a double.
_HUGE = r"value rlike r'[:,\[]\s*-?([0-9]+(\.[0-9]+)?[eE]\+?0*[0-9]{3}|[0-9]{309})'"


def _astray(schema: Mapping[str, str]) -> str:
    """SQL: the plain columns that hold another value than the line; it is rescued instead."""
    found = []
    for name, kind in schema.items():
        typed = f"_row.`{name}`"
        how = astray(f"get_json_object(value, {member(name)})", typed, kind)
        if kind == "string":
            # A lone half of a character becomes a question mark, and VARIANT refuses it.
            how = f"{how} and {_HUGE} or contains({typed}, '?') and _variant is null and {HALVES}"
        if how:
            found.append(f"case when {how} then '{name}' end")
    return f"array_compact(array({', '.join(found)}))"


def lossy(name: str, kind: str, typed: str) -> str:
    """SQL: whether a nested column, in the struct `typed`, lacks some of the line's value."""
    json = f"get_json_object(value, {member(name)})"
    return unfit(json, f"{typed}.`{name}`", T.DataType.fromDDL(kind))

"""The quick look at a line: parsed once, and surely whole, as nearly all lines are."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.transforms.exact import ALONE, HALVES, lossy, parsed_as
from medallion.transforms.nested import astray, is_nested, texts

# Before the name of a column: its value, if the line is not odd.
QUICK = "_quick_"
_TIMES = ("timestamp", "date")
# How a line's writer sets blanks, by any one of them.
_STYLE = {
    "_comma": "if(contains(value, ', \"'), ', ', ',')",
    "_colon": "if(contains(value, '\": '), '\": ', '\":')",
}
_ONE_BRACE = "octet_length(substring_index(value, '}', 2)) = octet_length(value)"


def quick(lines: DataFrame, schema: Mapping[str, str]) -> DataFrame:
    """Parse lines that hold nothing unusual, and tell which do.

    Args:
        lines: with `value`, a line of text.
        schema: columns with their Spark types.

    Returns:
        The columns of `lines`; `_quick_<column>` for each of the schema; and `_odd`: false if the
        line is one object of fields that the schema knows, each of them once, and the columns say
        all that it says.
    """
    # Times are parsed from their text: whether a time is what the line says is plain there.
    as_text = {name: "string" if kind in _TIMES else kind for name, kind in schema.items()}
    values = (
        F.expr(_value(f"_text.`{name}`", kind)).alias(QUICK + name) for name, kind in schema.items()
    )
    whole = f"{_fits(schema)} and (_same or {_is_whole(schema)})"
    return (
        lines.withColumn("_text", F.expr(parsed_as(as_text)))
        .select("*", *values, *(F.expr(sql).alias(name) for name, sql in _STYLE.items()))
        .withColumn("_same", F.expr(_is_same(schema)))
        .withColumn("_keys", F.expr("case when not _same then json_object_keys(value) end"))
        .withColumn("_odd", F.expr(f"not coalesce({whole}, false)"))
        .drop("_text", "_same", "_keys", *_STYLE)
    )


def _value(text: str, kind: str) -> str:
    """SQL: a column's value, null for a time that is not of the plainest form."""
    if kind == "date":
        plain = f"length({text}) = 10 and instr({text}, '-') = 5"
        return f"case when {plain} then try_cast({text} as date) end"
    if kind == "timestamp":
        # A number counts seconds; the same digits between quotes would be a year.
        seconds = f"{text} rlike '^[0-9]{{1,12}}$' and not contains(value, concat('\"', {text}))"
        return (
            f"case when instr({text}, '-') = 5 then try_cast({text} as timestamp)"
            f" when {seconds} then timestamp_seconds(cast({text} as bigint)) end"
        )
    return text


def _fits(schema: Mapping[str, str]) -> str:
    """SQL: whether each field that has a column has a value that fits it."""
    times = (
        f"(_text.`{name}` is null or `{QUICK}{name}` is not null)"
        for name, kind in schema.items()
        if kind in _TIMES
    )
    return " and ".join(["_text._conflict is null", *times])


def _is_same(schema: Mapping[str, str]) -> str:
    """SQL: whether the columns, written again as JSON, are the line.

    Then they say all of it: without escapes no text has a quote in it, so the line can be read in
    no other way. This costs a third of a parser, and holds for most lines of most writers, whether
    they put blanks after commas and colons or not.
    """
    fields, tests = [], [r"not contains(value, r'\')"]
    for name, kind in schema.items():
        text = f"_text.`{name}`"
        if is_nested(kind):
            tests.append(f"{text} is null")
            continue
        quote = "'\"'" if kind in ("string", "date") else "''"
        if kind == "timestamp":  # or it is a number
            quote = f"if(instr({text}, '-') = 5, '\"', '')"
        fields.append(f"concat('\"{name}', _colon, {quote}, {text}, {quote})")
    again = f"concat('{{', concat_ws({', '.join(['_comma', *fields])}), '}}')"
    return f"{' and '.join(tests)} and value = {again}"


def _is_whole(schema: Mapping[str, str]) -> str:
    """SQL: whether the columns say all that the line says."""
    known = texts(schema)
    tests = [
        "is_valid_utf8(value)",
        # Nearly all lines have just the schema's keys in their order: the set is for the others.
        f"(_keys <=> {known} or size(array_intersect(_keys, {known})) = size(_keys))",
        # Spark's parser ignores what follows the object, and takes one out of an array.
        "startswith(value, '{') and endswith(value, '}')",
        ALONE if any(map(is_nested, schema.values())) else _ONE_BRACE,
        rf"not (contains(value, r'\u') and {HALVES})",
    ]
    for name, kind in schema.items():
        text = f"_text.`{name}`"
        if is_nested(kind):
            tests.append(f"{lossy(name, kind, '_text')} is not true")
        elif kind not in _TIMES and (how := astray(text, text, kind)):
            if kind == "string":  # an object or a list, written out again as text
                how += f" or startswith({text}, '{{') or startswith({text}, '[')"
            tests.append(f"({how}) is not true")
    return " and ".join(tests)

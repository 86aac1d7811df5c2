"""The fast path: a line is parsed once, and surely whole, as nearly all lines are."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.parsing.exact_path import column_lacks, parsed
from medallion.parsing.json_text import HALVES, IS_FLAT, is_one_value, texts
from medallion.parsing.nested import NUMBERS, PRECISE, is_nested
from medallion.parsing.times import PLAIN_TIME, TIMES, plain_time, times_of


def fast_path(lines: DataFrame, schema: Mapping[str, str]) -> DataFrame:
    """Parse lines that hold nothing unusual, and tell which do.

    Args:
        lines: with `value`, a line of text.
        schema: columns with their Spark types.

    Returns:
        The columns of `lines`; `_parsed`, a struct of the columns of the schema, times as text;
        `_plain_time_<column>` for those; and `_needs_exact_path`: false if the line is one object
        of fields that the schema knows, each of them once, and the columns say all that it says.
    """
    # Times are parsed from their text: whether a time is what the line says is plain there.
    times = times_of(schema)
    as_text = {name: "string" if name in times else kind for name, kind in schema.items()}
    return (
        lines.withColumn("_parsed", F.expr(parsed(as_text)))
        .select(
            "*",
            *(
                F.expr(plain_time(f"_parsed.`{name}`", kind)).alias(PLAIN_TIME + name)
                for name, kind in times.items()
            ),
        )
        # How a line's writer sets blanks, by the first one.
        .withColumn("_is_spaced", F.expr("contains(value, '\": ')"))
        .withColumn("_same", F.expr(f"{_fits(times)} and {_is_same(schema)}"))
        .withColumn("_keys", F.expr("case when _same is not true then json_object_keys(value) end"))
        .withColumn(
            "_needs_exact_path",
            F.expr(f"not coalesce(_same or {_fits(times)} and {_is_whole(schema)}, false)"),
        )
        .drop("_is_spaced", "_same", "_keys")
    )


def _fits(times: Mapping[str, str]) -> str:
    """SQL: whether each field that has a column has a value that fits it."""
    read = (f"(_parsed.`{name}` is null or `{PLAIN_TIME}{name}` is not null)" for name in times)
    return " and ".join(["_parsed._conflict is null", *read])


def _is_same(schema: Mapping[str, str]) -> str:
    """SQL: whether the columns, written again as JSON, are the line; null if one is null.

    Then they say all of it. Texts need no escapes to be written: an escape is another text than
    what it stands for, so a line that has one is not the same. This costs a third of a parser, and
    holds for most lines of most writers, whether they put blanks after commas and colons or not.
    """
    # Of a time within a nested value it would not be asked whether a reader can say its year.
    if any(is_nested(kind) and time in kind for kind in schema.values() for time in TIMES):
        return "false"
    parts, before = ["'{'"], ""
    for name, kind in schema.items():
        text = f"_parsed.`{name}`"
        quote = '"' if kind in ("string", "date") else ""
        tight = f'{before}"{name}":{quote}'
        spaced = f'{before.replace(",", ", ")}"{name}": {quote}'
        parts.append(f"if(_is_spaced, '{spaced}', '{tight}')")
        if kind == "timestamp":  # or it is a number
            quoted = f"if(instr({text}, '-') = 5, '\"', '')"
            parts += [quoted, text, quoted]
        else:
            parts.append(f"to_json({text})" if is_nested(kind) else text)
        before = f"{quote},"
    return f"value = concat({', '.join(parts)}, '{before[:-1]}}}')"


def _is_whole(schema: Mapping[str, str]) -> str:
    """SQL: whether the columns say all that the line says."""
    known = texts(schema)
    nested = {name: kind for name, kind in schema.items() if is_nested(kind)}
    some = [f"_parsed.`{name}`" for name, kind in schema.items() if kind == "string"]
    inner = [name for name, kind in nested.items() if "string" in kind]
    # Whether a text may be a number that is rounded (nested.is_rounded looks closer). One test for
    # all columns: what is compiled for each of them adds up, and Java leaves long methods slow.
    any_of = rf"concat_ws('\n', {', '.join(some)}) rlike r'(?m){NUMBERS}'"
    numbers = "true" if inner else any_of
    tests = [
        "is_valid_utf8(value)",
        # Many lines have just the schema's keys in their order: the set is for the others.
        f"(_keys <=> {known} or size(array_intersect(_keys, {known})) = size(_keys))",
        # Spark's parser ignores what follows the object, and takes one out of an array.
        f"(startswith(value, '{{') and endswith(value, '}}') and {is_one_value('value')})"
        if nested
        else IS_FLAT,
        rf"not (contains(value, r'\u') and {HALVES})",
        # 1e400: JSON has no infinite numbers, but a double and a text may come out as one.
        "not contains(to_json(_parsed), 'Infinity')",
        *([f"not (value rlike {PRECISE} and {numbers})"] if some or inner else []),
        *(f"{column_lacks(name, kind)} is not true" for name, kind in nested.items()),
    ]
    if nested:  # then a text may be an object or a list, written out again
        tests += [f"(left({text}, 1) in ('{{', '[')) is not true" for text in some]
    return " and ".join(tests)

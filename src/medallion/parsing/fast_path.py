"""The fast path: a line is parsed once, and surely whole, as nearly all lines are."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.parsing.exact_path import column_lacks, parsed
from medallion.parsing.json_text import HALVES, IS_FLAT, is_one_value, literal, texts
from medallion.parsing.nested import NUMBERS, PRECISE, is_nested
from medallion.parsing.times import PLAIN_TIME, TIMES, plain_time, times_of

MORE = "_more"


def fast_path(lines: DataFrame, schema: Mapping[str, str]) -> DataFrame:
    """Parse lines that hold nothing unusual, and tell which do.

    Args:
        lines: with `value`, a line of text.
        schema: columns with their Spark types.

    Returns:
        The columns of `lines`; `_parsed`, a struct of the columns of the schema, times as text;
        `_plain_time_<column>` for those; `_more`, the fields that the schema does not know, as
        JSON, null if there are none; and `_needs_exact_path`: false if the line is one object of
        fields, each of them once, and the columns and `_more` say all that it says.
    """
    # Times are parsed from their text: whether a time is what the line says is plain there.
    times = times_of(schema)
    as_text = {name: "string" if name in times else kind for name, kind in schema.items()}
    steps = {
        # How a line's writer sets blanks, by the first one.
        "_is_spaced": "contains(value, '\": ')",
        "_same": f"{_fits(times)} and {_is_same(schema)}",
        "_keys": "case when _same is not true then json_object_keys(value) end",
        "_sound": f"_same is not true and {_fits(times)} and {_is_sound(schema)}",
        "_known": _is_known(schema),
        MORE: f"case when _sound and not _known and {_IS_CLEAR} then {_more(schema)} end",
        "_whole": f"_same or (_sound and (_known or ({MORE} is not null and {_IS_PLAIN})))",
        "_needs_exact_path": "not coalesce(_whole, false)",
    }
    rows = lines.withColumn("_parsed", F.expr(parsed(as_text))).select(
        "*",
        *(
            F.expr(plain_time(f"_parsed.`{name}`", kind)).alias(PLAIN_TIME + name)
            for name, kind in times.items()
        ),
    )
    for name, step in steps.items():
        rows = rows.withColumn(name, F.expr(step))
    return rows.drop(*(name for name in steps if name not in (MORE, "_needs_exact_path")))


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


def _is_known(schema: Mapping[str, str]) -> str:
    """SQL: whether the schema knows all fields of the line, and each is there once."""
    known = texts(schema)
    # Many lines have just the schema's keys in their order: the set is for the others.
    one_of_them = f"size(array_intersect(_keys, {known})) = size(_keys)"
    return f"(_keys <=> {known} or (size(_keys) <= {len(schema)} and {one_of_them}))"


# Whether the line is one flat object, and each field there once.
_IS_CLEAR = f"{IS_FLAT} and size(array_distinct(_keys)) = size(_keys)"


def _more(schema: Mapping[str, str]) -> str:
    """SQL: the fields that the schema does not know, as the exact path has them.

    In one expression: Spark compiles none of its functions together with others, and a step more of
    them copies each row once more.
    """
    members = "cast(try_parse_json(value) as map<string, variant>)"
    is_known = f"key in ({', '.join(map(literal, schema))})" if schema else "false"
    return f"to_json(map_filter({members}, (key, val) -> not {is_known}))"


# Whether `_more` says them as the line does, at a glance: no number is like 10.0, and none is long
# or has a power of ten, which would show as digits or as a fraction.
_IS_PLAIN = (
    r"not value rlike r'[.]0++[^0-9]'"
    rf" and not ({MORE} rlike r'[0-9]{{16}}|[0-9][.][0-9]|Infinity'"
    r" and (value rlike r'[0-9.]{39}' or value rlike r'[0-9][eE][-+0-9]'))"
)


def _is_sound(schema: Mapping[str, str]) -> str:
    """SQL: whether the columns say all that the line says in their fields."""
    nested = {name: kind for name, kind in schema.items() if is_nested(kind)}
    some = [f"_parsed.`{name}`" for name, kind in schema.items() if kind == "string"]
    inner = [name for name, kind in nested.items() if "string" in kind]
    # Whether a text may be a number that is rounded (nested.is_rounded looks closer). One test for
    # all columns: what is compiled for each of them adds up, and Java leaves long methods slow.
    any_of = rf"concat_ws('\n', {', '.join(some)}) rlike r'(?m){NUMBERS}'"
    numbers = "true" if inner else any_of
    tests = [
        "is_valid_utf8(value)",
        # Spark's parser ignores what follows the object, and takes one out of an array.
        f"(startswith(value, '{{') and endswith(value, '}}') and {is_one_value('value')})"
        if nested
        else IS_FLAT,
        rf"not (contains(value, r'\u') and {HALVES})",
        # 1e400: JSON has no infinite numbers, but a double and a text may come out as one.
        "not contains(to_json(_parsed), 'Infinity')",
        *([f"not ({numbers} and value rlike {PRECISE})"] if some or inner else []),
        *(f"{column_lacks(name, kind)} is not true" for name, kind in nested.items()),
    ]
    if nested:  # then a text may be an object or a list, written out again
        tests += [f"(left({text}, 1) in ('{{', '[')) is not true" for text in some]
    return " and ".join(tests)

"""The fast path of the JSON parser: lines that repeat the layout of the batch's first lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.config.values import fold_case
from medallion.ingest.parsing.json_text import (
    IS_VALID_TEXT,
    parsed,
    parsed_struct,
    string_literal,
)
from medallion.ingest.parsing.nested import is_nested_type
from medallion.ingest.parsing.times import (
    MICROSECONDS,
    PLAIN_TIME,
    TIME_TYPES,
    is_time_format,
    line_fields,
    plain_time,
    time_columns,
    times_as_strings,
    values_fit,
)

IS_SAME = "_is_same"
MORE = "_more"
_MOST_FRACTIONS = 20  # each adds compiled code
# A string value of a field.
_STRING = r"""r'(": ?)"(?:[^"\\]++|\\.)*+"'"""
# Each adds work on every line; names need no quotes.
_MOST_UNKNOWN = 100
_PLAIN = re.compile("[A-Za-z][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True)
class LineLayout:
    """The order of fields in the lines of a batch.

    Attributes:
        order: the columns of the schema, and unknown fields.
        quotes: the quote, or nothing, around the values of the unknown fields.
        is_full: whether each line has all of them.
    """

    order: Sequence[str]
    quotes: Mapping[str, str] = field(default_factory=dict)
    is_full: bool = False

    @classmethod
    def of(cls, lines: Iterable[str], schema: Mapping[str, str]) -> LineLayout:
        """Return the layout of some lines of JSON; the first ones decide if they differ.

        Lines that are no objects, and fields with unusual names, are skipped.

        Args:
            lines: a few lines of a batch.
            schema: the known columns with Spark types.
        """
        schema = line_fields(schema)
        order: list[str] = []
        quotes: dict[str, str] = {}
        used = set(map(fold_case, schema))
        objects = [pairs for line in lines if (pairs := _pairs_of(line)) is not None]
        for pairs in objects:
            for name, value in pairs:
                is_new = value is not None and fold_case(name) not in used
                if is_new and _PLAIN.fullmatch(name) and len(quotes) < _MOST_UNKNOWN:
                    quotes[name] = '"' if isinstance(value, str) else ""
                    used.add(fold_case(name))
            _merge(order, [name for name, _ in pairs if name in schema or name in quotes])
        _merge(order, list(schema))
        is_full = all(set(order) <= {name for name, _ in pairs} for pairs in objects)
        return cls(order, quotes, is_full and bool(objects and order))


def _pairs_of(line: str) -> list[tuple[str, Any]] | None:
    """Return the fields of a line with repetitions, or None if it is no object."""
    try:
        value = json.loads(line, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, _Pairs) else None


class _Pairs(list[tuple[str, Any]]):
    """The fields of an object, unlike a JSON array."""


def _merge(order: list[str], names: Sequence[str]) -> None:
    """Insert the names that an order lacks, each after its predecessor."""
    at = 0
    for name in names:
        if name not in order:
            order.insert(at, name)
        at = order.index(name) + 1


def fast_path(
    lines: DataFrame, schema: Mapping[str, str], layout: LineLayout, digits: int = MICROSECONDS
) -> DataFrame:
    """Parse lines, and find those that contain exactly the values of their columns.

    Args:
        lines: rows with `value`, a line of text.
        schema: columns with Spark types.
        layout: the layout of most lines.
        digits: the maximum digits of a second's fraction.

    Returns:
        The columns of `lines`; `_parsed`, a struct of the columns, times as strings, and of the
        layout's unknown fields; `_plain_time_<column>` for times; `_is_same`, whether the line is
        one object with exactly these fields and values, each once; and `_more`, the unknown fields
        of such a line as JSON, or null.
    """
    times = time_columns(schema)
    more = [f"concat('\"{n}\":{q}', _parsed.`{n}`, '{q}')" for n, q in layout.quotes.items()]
    has_nested = any(map(is_nested_type, schema.values()))
    steps = {
        # Whether the writer puts blanks after colons, by the first one.
        "_is_spaced": "contains(value, '\": ')",
        # Strings within nested values are compared as they are written.
        "_has_escapes": "false" if has_nested else r"contains(value, r'\')",
        IS_SAME: f"coalesce({values_fit(times)} and {_is_written_so(schema, layout)}, false)",
        MORE: f"case when {IS_SAME} then nullif({_object(more, tight='true')}, '{{}}') end"
        if more
        else "cast(null as string)",
    }
    fields = {**times_as_strings(schema), **dict.fromkeys(layout.quotes, "string")}
    plain_times = (
        F.expr(plain_time(parsed(name), dtype, digits)).alias(PLAIN_TIME + name)
        for name, dtype in times.items()
    )
    rows = lines.withColumn("_parsed", F.expr(parsed_struct(fields))).select("*", *plain_times)
    for name, step in steps.items():
        rows = rows.withColumn(name, F.expr(step))
    return rows.drop("_is_spaced", "_has_escapes")


def _is_written_so(schema: Mapping[str, str], layout: LineLayout) -> str:
    """Return SQL: whether the fields, written again as JSON, equal the line.

    Then they hold all of it. This costs a third of a parser. In lines with escapes the strings are
    left out of the comparison: the parser does not show how a character was written.
    """
    # A nested time may be of a year that other readers of the table cannot show.
    nested = [dtype for dtype in schema.values() if is_nested_type(dtype)]
    if any(time in dtype for dtype in nested for time in TIME_TYPES):
        return "false"
    if layout.is_full:  # null if a field is missing; cheaper
        fields = [
            part
            for name in layout.order
            for part in _as_json(name, schema, layout, is_first=name == layout.order[0])
        ]
        written = f"concat('{{', {', '.join(fields)}, '}}')"
    else:
        some = [f"concat({', '.join(_as_json(n, schema, layout))})" for n in layout.order]
        written = _object(some, "not _is_spaced")
    line = f"if(_has_escapes, regexp_replace(value, {_STRING}, '$1\"\"'), value)"
    return f"{_strings_are_exact(schema, layout)} and {line} = {written}"


def _strings_are_exact(schema: Mapping[str, str], layout: LineLayout) -> str:
    """Return SQL: whether the strings of a line with escapes are parsed exactly."""
    tests = [IS_VALID_TEXT]
    quoted = [parsed(name) for name, quote in layout.quotes.items() if quote]
    if quoted:  # `_more` has them without escapes
        tests.append(rf"not concat_ws('', {', '.join(quoted)}) rlike r'[\x00-\x1f\"\\]'")
    bare = [parsed(name) for name, quote in layout.quotes.items() if not quote]
    if bare:  # `_more` has them without quotes: a string there would not be JSON
        tests.append(rf"not contains(concat_ws('\n', '', {', '.join(bare)}), '\n\"')")
    return f"(not _has_escapes or ({' and '.join(tests)}))"


def _as_json(
    name: str, schema: Mapping[str, str], layout: LineLayout, is_first: bool = True
) -> list[str]:
    """Return SQL for the parts of a field as JSON.

    Args:
        name: the field.
        schema: columns with Spark types.
        layout: the layout of most lines.
        is_first: whether no comma precedes it.
    """
    dtype, value = schema.get(name, ""), parsed(name)
    quote = layout.quotes.get(name, '"' if dtype in ("string", "date") else "")
    comma = "" if is_first else ","
    colon = f"{json.dumps(name, ensure_ascii=False)}:"
    tight = string_literal(f"{comma}{colon}{quote}")
    spaced = string_literal(f"{comma and ', '}{colon} {quote}")
    key = f"if(_is_spaced, {spaced}, {tight})"
    if dtype.startswith("timestamp"):  # or it is a number
        is_string = f"instr({value}, '-') = 5"
        if is_time_format(dtype):
            is_string = f"contains(value, concat('\"', {value}, '\"'))"
        quote = f"if({is_string}, '\"', '')"
        value = f"if(_has_escapes and {quote} = '\"', left({value}, 0), {value})"
        return [key, quote, value, quote]
    if quote:
        value = f"if(_has_escapes, left({value}, 0), {value})"
    elif dtype == "double" and list(schema.values()).count(dtype) <= _MOST_FRACTIONS:
        value = _fraction(value)
    elif is_nested_type(dtype):
        value = f"to_json({value})"
    return [key, value, f"'{quote}'"]


def _fraction(number: str) -> str:
    """Return SQL for a double as the writer of the line writes it.

    Java uses exponents from 10,000,000 and below 0.001, other writers later.
    """
    digits = f"rtrim('0', cast(try_cast({number} as decimal(38, 23)) as string))"
    # Spark looks for what any of the tests of a case share, and does that first: a line is searched
    # for an E in a case of its own, for the few numbers that come so far.
    return (
        f"case when (abs({number}) >= 0.001 and abs({number}) < 10000000) or {number} = 0"
        f" then cast({number} as string)"
        f" else case when contains(value, 'E') then cast({number} as string)"
        f" when endswith({digits}, '.') then concat({digits}, '0') else {digits} end end"
    )


def _object(fields: list[str], tight: str) -> str:
    """Return SQL for a JSON object of some fields, without those that are null."""
    return f"concat('{{', concat_ws(if({tight}, ',', ', '), {', '.join(fields) or 'null'}), '}}')"

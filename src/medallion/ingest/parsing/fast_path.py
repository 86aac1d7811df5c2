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
from medallion.ingest.parsing.json_text import IS_VALID_TEXT, parsed_field, parsed_struct
from medallion.ingest.parsing.nested import has_unique_keys, is_nested_type
from medallion.ingest.parsing.times import (
    CONVERTED,
    TIME_TYPES,
    as_strings,
    converted_columns,
    converted_value,
    is_decimal,
    values_fit,
)
from medallion.storage.table_specs import string_literal

# Columns of the result: see `fast_path`.
IS_SAME = "_is_same"
MORE = "_more"
_MAX_FRACTION_COLUMNS = 20  # each adds compiled code
# A string value with the colon before it.
_STRING = r"""r'(": ?)"(?:[^"\\]++|\\.)*+"'"""
_MAX_UNKNOWN_FIELDS = 100  # each adds work on every line
# A field name that needs no quotes in SQL.
_PLAIN_NAME = re.compile("[A-Za-z][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True)
class LineLayout:
    """The order of fields in the lines of a batch.

    Attributes:
        order: all columns of the schema, and unknown fields.
        quotes: the unknown fields, with the quote around their values, or an empty string.
    """

    order: Sequence[str]
    quotes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_lines(cls, lines: Iterable[str], schema: Mapping[str, str]) -> LineLayout:
        """Return the layout of lines of JSON; if they differ, the first ones decide.

        Lines that are not objects, and unknown fields with unusual names, are skipped.

        Args:
            lines: a few lines of a batch.
            schema: the known columns with Spark types.
        """
        order: list[str] = []
        quotes: dict[str, str] = {}
        used = set(map(fold_case, schema))
        for pairs in map(_pairs_of, lines):
            for name, value in pairs:
                is_new = value is not None and fold_case(name) not in used
                if is_new and _PLAIN_NAME.fullmatch(name) and len(quotes) < _MAX_UNKNOWN_FIELDS:
                    quotes[name] = '"' if isinstance(value, str) else ""
                    used.add(fold_case(name))
            _merge(order, [name for name, _ in pairs if name in schema or name in quotes])
        _merge(order, list(schema))
        return cls(order, quotes)


def _pairs_of(line: str) -> list[tuple[str, Any]]:
    """Return the fields of a line, also repeated ones; none if it is not an object."""
    try:
        value = json.loads(line, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, _Pairs) else []


class _Pairs(list[tuple[str, Any]]):
    """The fields of a JSON object, distinct from the list of a JSON array."""


def _merge(order: list[str], names: Sequence[str]) -> None:
    """Insert the names that an order lacks, each after its predecessor."""
    at = 0
    for name in names:
        if name not in order:
            order.insert(at, name)
        at = order.index(name) + 1


def fast_path(lines: DataFrame, schema: Mapping[str, str], layout: LineLayout) -> DataFrame:
    """Parse lines, and mark those whose columns hold exactly the values of the line.

    Args:
        lines: rows with `value`, a line of text.
        schema: columns with Spark types.
        layout: the layout of most lines.

    Returns:
        The columns of `lines`; `_parsed`, a struct of the columns, converted types as strings, and
        of the layout's unknown fields; `_converted_<column>` for converted types; `_is_same`,
        whether the line is one object with exactly these fields and values, each once; and `_more`,
        the unknown fields of such a line as JSON, or null.
    """
    converted = converted_columns(schema)
    unknown = [f"concat('\"{n}\":{q}', _parsed.`{n}`, '{q}')" for n, q in layout.quotes.items()]
    has_nested = any(map(is_nested_type, schema.values()))
    steps = {
        # The first colon shows whether the writer puts blanks after colons.
        "_is_spaced": "contains(value, '\": ')",
        # Strings within nested values are compared as they are written.
        "_has_escapes": "false" if has_nested else r"contains(value, r'\')",
        IS_SAME: f"coalesce({values_fit(converted)} and {_equals_line(schema, layout)}, false)",
        MORE: f"case when {IS_SAME} then nullif({_json_object(unknown, tight='true')}, '{{}}') end"
        if unknown
        else "cast(null as string)",
    }
    fields = {**as_strings(schema), **dict.fromkeys(layout.quotes, "string")}
    values = (
        F.expr(converted_value(parsed_field(name), dtype)).alias(CONVERTED + name)
        for name, dtype in converted.items()
    )
    rows = lines.withColumn("_parsed", F.expr(parsed_struct(fields))).select("*", *values)
    for name, step in steps.items():
        rows = rows.withColumn(name, F.expr(step))
    return rows.drop("_is_spaced", "_has_escapes")


def _equals_line(schema: Mapping[str, str], layout: LineLayout) -> str:
    """Return SQL that tests whether the fields, written again as JSON, equal the line.

    Equal fields hold the complete line. The comparison costs a third of parsing. In lines with
    escapes it omits strings: the parser does not show how a character was written.
    """
    # A nested time may be in a year that other readers of the table cannot show.
    nested = {name: dtype for name, dtype in schema.items() if is_nested_type(dtype)}
    if any(time in dtype for dtype in nested.values() for time in TIME_TYPES):
        return "false"
    if any("map<" in dtype[1:] for dtype in nested.values()):
        return "false"  # it may have repeated keys, as may a column that is a map
    maps = [parsed_field(name) for name, dtype in nested.items() if dtype.startswith("map<")]
    are_unique = (f"({m} is null or {has_unique_keys(m)}) and " for m in maps)
    written = _json_object([_as_json(n, schema, layout) for n in layout.order], "not _is_spaced")
    line = f"if(_has_escapes, regexp_replace(value, {_STRING}, '$1\"\"'), value)"
    are_exact = _strings_are_exact(schema, layout)
    return f"{''.join(are_unique)}{are_exact} and {line} = {written}"


def _strings_are_exact(schema: Mapping[str, str], layout: LineLayout) -> str:
    """Return SQL that tests whether the strings of a line with escapes are parsed exactly."""
    tests = [IS_VALID_TEXT]
    quoted = [parsed_field(name) for name, quote in layout.quotes.items() if quote]
    if quoted:  # `_more` has them without escapes
        tests.append(rf"not concat_ws('', {', '.join(quoted)}) rlike r'[\x00-\x1f\"\\]'")
    bare = [parsed_field(name) for name, quote in layout.quotes.items() if not quote]
    if bare:  # `_more` has them without quotes: a string would not be JSON
        tests.append(rf"not contains(concat_ws('\n', '', {', '.join(bare)}), '\n\"')")
    return f"(not _has_escapes or ({' and '.join(tests)}))"


def _as_json(name: str, schema: Mapping[str, str], layout: LineLayout) -> str:
    """Return SQL for a field as JSON, null if the line has no value.

    Args:
        name: the field.
        schema: columns with Spark types.
        layout: the layout of most lines.
    """
    dtype, value = schema.get(name, ""), parsed_field(name)
    quote = layout.quotes.get(name, '"' if dtype in ("string", "date") else "")
    colon = f"{json.dumps(name, ensure_ascii=False)}:"
    tight, spaced = string_literal(f"{colon}{quote}"), string_literal(f"{colon} {quote}")
    key = f"if(_is_spaced, {spaced}, {tight})"
    if dtype.startswith("timestamp") or is_decimal(dtype):  # a string or a number
        is_string = f"instr({value}, '-') = 5"
        if dtype != "timestamp":
            is_string = f"contains(value, concat('\"', {value}, '\"'))"
        quote = f"if({is_string}, '\"', '')"
        value = f"if(_has_escapes and {quote} = '\"', left({value}, 0), {value})"
        return f"concat({key}, {quote}, {value}, {quote})"
    if quote:
        value = f"if(_has_escapes, left({value}, 0), {value})"
    elif dtype == "double" and list(schema.values()).count(dtype) <= _MAX_FRACTION_COLUMNS:
        value = _fraction(value)
    elif is_nested_type(dtype):
        value = f"to_json({value})"
    return f"concat({key}, {value}, '{quote}')"


def _fraction(number: str) -> str:
    """Return SQL for a double as it is written in the line.

    Java uses exponents from 10,000,000 and below 0.001; other writers use them later.
    """
    digits = f"rtrim('0', cast(try_cast({number} as decimal(38, 23)) as string))"
    # Spark evaluates first what the tests of a case share. The search for an E is in an inner case,
    # so that only the few numbers that get there pay for it.
    return (
        f"case when (abs({number}) >= 0.001 and abs({number}) < 10000000) or {number} = 0"
        f" then cast({number} as string)"
        f" else case when contains(value, 'E') then cast({number} as string)"
        f" when endswith({digits}, '.') then concat({digits}, '0') else {digits} end end"
    )


def _json_object(fields: list[str], tight: str) -> str:
    """Return SQL for a JSON object of the fields that are not null.

    Args:
        fields: SQL of each field with its name.
        tight: SQL that is true if no blank follows a comma.
    """
    return f"concat('{{', concat_ws(if({tight}, ',', ', '), {', '.join(fields) or 'null'}), '}}')"

"""Row rules: the quarantine expectations of a suite, as Spark SQL conditions.

A rule is broken by exactly the rows that Great Expectations 1.24 counts as unexpected on Spark;
tests/quality/test_rules.py compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from medallion.config.expressions import without_strings
from medallion.quality.suites import (
    BETWEEN,
    BY_QUERY,
    Expectation,
    read_suite,
    suite_error,
    suite_path,
)
from medallion.storage.table_specs import quote_identifier


@dataclass(frozen=True)
class Rule:
    """A name, and a Spark SQL condition that is true for rows that break it, and never NULL."""

    name: str
    broken: str


def load_rules(conf_dir: Path, table: str) -> tuple[Rule, ...]:
    """Return the quarantine rules of a table in the order of its suite; none without a suite.

    Raises:
        ConfigError: the suite is invalid, or a quarantine expectation is not about single rows.
    """
    path = suite_path(conf_dir, table)
    return tuple(
        Rule(e.name, f"coalesce({_broken(path, e)}, false)")
        for e in read_suite(conf_dir, table)
        if e.on_failure == "quarantine"
    )


def failed_rules(rules: Sequence[Rule]) -> Column:
    """Return the names of the broken rules, an `array<string>` that is empty for a good row."""
    names = [F.when(F.expr(rule.broken), F.lit(rule.name)) for rule in rules]
    named, none = F.array(*names).cast("array<string>"), F.array().cast("array<string>")
    # Nearly every row is good, and needs no array to be built and searched for NULLs.
    return F.when(breaks_any(rules), F.array_compact(named)).otherwise(none)


def breaks_any(rules: Iterable[Rule]) -> Column:
    """Return a boolean column, never null: True if a row breaks any of the rules."""
    return F.coalesce(reduce(or_, (F.expr(r.broken) for r in rules), F.lit(False)), F.lit(False))


def row_condition(expectation: Expectation) -> str | None:
    """Return a Spark SQL condition for rows that break an expectation, NULL for ignored rows.

    None if the expectation is not about single rows, or has arguments that rules do not support.
    """
    try:
        return _condition(expectation)
    except ValueError:
        return None


_ROW_QUERY = re.compile(
    r"SELECT\s+\*\s+FROM\s+\{batch\}\s+WHERE\s+(?P<condition>.+)", re.IGNORECASE | re.DOTALL
)
_NOT_A_CONDITION = re.compile(
    r"\b(SELECT|GROUP\s+BY|HAVING|ORDER\s+BY|SORT\s+BY|LIMIT|OFFSET|UNION|INTERSECT|EXCEPT)\b"
    r"|\{batch\}|--|/\*",
    re.IGNORECASE,
)


def _literal(value: Any) -> str:
    """Return a JSON value as a literal of Spark SQL, of the type that `lit` gives it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool | int):
        return str(value).lower()
    if isinstance(value, float):
        return f"double('{value!r}')"
    if isinstance(value, str):
        # ${name} is a variable to Spark's parser, so its dollar is written as a code point.
        escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")
        return f"'{escaped}'"
    raise TypeError(f"the value {value!r} is neither a string, a number, a boolean nor null")


def _bound(value: Any) -> str:
    """Return a bound as a literal, of the type that Great Expectations gives it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _literal(float(value))
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        moment = None
    if moment and moment.tzinfo:
        return f"timestamp'{moment.isoformat()}'"
    if moment and len(value) == len("2000-12-31"):
        return f"date'{value}'"
    # Great Expectations would take a time without a zone for local time, Spark for UTC.
    raise ValueError(f"has the bound {value!r}, which must be a number, a date or a time with zone")


def _length_bound(value: Any) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"has the bound {value!r}, which must be a whole number")
    return str(value)


def _outside(of: str, kwargs: Mapping[str, Any], bound: Callable[[Any], str]) -> str:
    """Return SQL that is true outside the bounds; NaN is above every number in Spark."""
    lowest, highest = kwargs.get("min_value"), kwargs.get("max_value")
    outside = []
    if lowest is not None:
        outside.append(f"{of} {'<=' if _is(kwargs, 'strict_min') else '<'} {bound(lowest)}")
    if highest is not None:
        outside.append(f"{of} {'>=' if _is(kwargs, 'strict_max') else '>'} {bound(highest)}")
    if not outside:
        raise ValueError('needs "min_value" or "max_value"')
    if lowest is not None and highest is not None and lowest > highest:
        raise ValueError('has a "min_value" above its "max_value"')
    return f"({' OR '.join(outside)})"


def _is(kwargs: Mapping[str, Any], name: str) -> bool:
    if kwargs.get(name) not in (None, True, False):  # "false" is false to Great Expectations
        raise ValueError(f'has "{name}": {kwargs[name]!r}, which must be true or false')
    return bool(kwargs.get(name))


def _in_set(kwargs: Mapping[str, Any]) -> str:
    values = kwargs["value_set"]
    if not isinstance(values, list):
        raise TypeError('needs a list as "value_set"')
    # Spark SQL has no empty list, in which nothing ever is.
    inside = f"{quote_identifier(kwargs['column'])} IN ({', '.join(map(_literal, values))})"
    return inside if values else f"({quote_identifier(kwargs['column'])} IS NULL AND NULL)"


def _not_greater(kwargs: Mapping[str, Any]) -> str:
    # A NULL on either side is never unexpected, whatever ignore_row_if says: no comparison.
    operator = "<" if _is(kwargs, "or_equal") else "<="
    return (
        f"{quote_identifier(kwargs['column_A'])} {operator} {quote_identifier(kwargs['column_B'])}"
    )


def _row_query(kwargs: Mapping[str, Any]) -> str:
    match = _ROW_QUERY.fullmatch(kwargs["unexpected_rows_query"].strip().rstrip("; \t\r\n\v\f"))
    if match is None or _NOT_A_CONDITION.search(without_strings(match["condition"])):
        raise ValueError(
            'needs "unexpected_rows_query" of the form SELECT * FROM {batch} WHERE <condition>'
        )
    # Great Expectations fills in {batch} by str.format, where doubled braces stand for one.
    condition = match["condition"].replace("{{", "{").replace("}}", "}")
    return f"({condition})"


def _text(kwargs: Mapping[str, Any], key: str) -> str:
    if not isinstance(kwargs[key], str):
        raise TypeError(f'needs a string as "{key}"')
    return _literal(kwargs[key])


_RANGE = frozenset({"column", "min_value", "max_value", "strict_min", "strict_max"})
_PAIR = frozenset({"column_A", "column_B", "or_equal", "ignore_row_if"})

# Kind of expectation: the arguments it may have, and the condition that a row breaks it.
_KINDS: dict[str, tuple[frozenset[str], Callable[[Mapping[str, Any]], str]]] = {
    "expect_column_values_to_not_be_null": (
        frozenset({"column"}),
        lambda k: f"{quote_identifier(k['column'])} IS NULL",
    ),
    "expect_column_values_to_be_null": (
        frozenset({"column"}),
        lambda k: f"{quote_identifier(k['column'])} IS NOT NULL",
    ),
    BETWEEN: (
        _RANGE,
        lambda k: _outside(quote_identifier(k["column"]), k, _bound),
    ),
    "expect_column_value_lengths_to_be_between": (
        _RANGE,
        lambda k: _outside(f"length({quote_identifier(k['column'])})", k, _length_bound),
    ),
    "expect_column_values_to_be_in_set": (
        frozenset({"column", "value_set"}),
        lambda k: f"NOT ({_in_set(k)})",
    ),
    "expect_column_values_to_not_be_in_set": (frozenset({"column", "value_set"}), _in_set),
    "expect_column_values_to_match_regex": (
        frozenset({"column", "regex"}),
        lambda k: f"NOT rlike({quote_identifier(k['column'])}, {_text(k, 'regex')})",
    ),
    "expect_column_values_to_not_match_regex": (
        frozenset({"column", "regex"}),
        lambda k: f"rlike({quote_identifier(k['column'])}, {_text(k, 'regex')})",
    ),
    "expect_column_pair_values_a_to_be_greater_than_b": (_PAIR, _not_greater),
    BY_QUERY: (frozenset({"unexpected_rows_query"}), _row_query),
}


def _broken(path: Path, expectation: Expectation) -> str:
    try:
        return _condition(expectation)
    except ValueError as error:
        suite_error(path, f'"{expectation.name}"', str(error))


def _condition(expectation: Expectation) -> str:
    """Return SQL that is true for a row that breaks an expectation, else false or NULL.

    Raises:
        ValueError: it cannot be decided for a single row; the message says why.
    """
    kind, kwargs = expectation.type, expectation.kwargs
    if kind not in _KINDS:
        raise ValueError(
            f'cannot have "on_failure": "quarantine", because {kind} is not about single rows: '
            f"use warn or stop, or one of {', '.join(_KINDS)}"
        )
    if kwargs.get("mostly", 1) != 1:
        raise ValueError('has "mostly", but every row that breaks a quarantine rule is quarantined')
    allowed, to_sql = _KINDS[kind]
    unknown = kwargs.keys() - allowed - {"mostly"}
    if unknown:
        raise ValueError(
            f"has {sorted(unknown)}, but a quarantine rule takes only {sorted(allowed)}"
        )
    try:
        return to_sql(kwargs)
    except KeyError as missing:
        raise ValueError(f"lacks {missing} among its kwargs") from None
    except (TypeError, AttributeError) as error:
        raise ValueError(str(error)) from None

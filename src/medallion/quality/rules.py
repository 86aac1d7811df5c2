"""Row rules: the quarantine expectations of a suite, as Spark SQL conditions.

A rule is broken by exactly the rows that Great Expectations 1.24 counts as unexpected on Spark;
tests/quality/test_rules.py compares the two.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from medallion.config.expressions import tokenize
from medallion.quality import suites
from medallion.quality.suites import BETWEEN, BY_QUERY, Expectation
from medallion.storage.table_specs import quote_identifier, string_literal


@dataclass(frozen=True)
class Rule:
    """A row rule: `broken` is a Spark SQL condition, true for rows that break it, never NULL."""

    name: str
    broken: str


def load_rules(conf_dir: Path, table: str) -> tuple[Rule, ...]:
    """Return the quarantine rules of a table in the order of its suite; empty without a suite.

    Raises:
        ConfigError: the suite is invalid, or a quarantine expectation is not about single rows.
    """
    path = suites.suite_path(conf_dir, table)
    rules = []
    for each in suites.read_suite(conf_dir, table):
        if each.on_failure == "quarantine":
            try:
                rules.append(Rule(each.name, f"coalesce({row_condition(each)}, false)"))
            except ValueError as error:
                suites.suite_error(path, f'"{each.name}"', str(error))
    return tuple(rules)


def failed_rules(rules: Sequence[Rule]) -> Column:
    """Return the names of the broken rules, an `array<string>` that is empty for a good row."""
    names = [F.when(F.expr(rule.broken), F.lit(rule.name)) for rule in rules]
    named, none = F.array(*names).cast("array<string>"), F.array().cast("array<string>")
    # Nearly every row is good: skip building and compacting an array for it.
    return F.when(breaks_any(rules), F.array_compact(named)).otherwise(none)


def breaks_any(rules: Iterable[Rule]) -> Column:
    """Return a boolean column, never null: True if a row breaks any of the rules."""
    return F.coalesce(reduce(or_, (F.expr(r.broken) for r in rules), F.lit(False)), F.lit(False))


# Tokens that end a condition, or start a subquery.
_CLAUSES = {
    *("SELECT", "GROUP_BY", "HAVING", "ORDER_BY", "SORT_BY", "LIMIT", "OFFSET"),
    *("UNION", "INTERSECT", "EXCEPT", "L_BRACE"),
}


def _literal(value: Any) -> str:
    """Return a JSON value as a Spark SQL literal of the type that `lit` gives it."""
    match value:
        case None:
            return "NULL"
        case bool() | int():
            return str(value).lower()
        case float():
            return f"double('{value!r}')"
        case str():
            return string_literal(value)
    raise ValueError(f"has the value {value!r}, which is no string, number, boolean or null")


def _bound(value: Any) -> str:
    """Return a bound as a literal, of the type that Great Expectations gives it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _literal(float(value))
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        time = None
    if time and time.tzinfo:
        return f"timestamp'{time.isoformat()}'"
    if time and len(value) == len("2000-12-31"):
        return f"date'{time.date().isoformat()}'"
    # Great Expectations reads a time without a zone as local time, Spark reads it as UTC.
    raise ValueError(f"has the bound {value!r}, not a number, a date or a time with a time zone")


def _length_bound(value: Any) -> str:
    if type(value) is not int:
        raise ValueError(f"has the bound {value!r}, which must be a whole number")
    return str(value)


def _outside(sql: str, kwargs: Mapping[str, Any], to_literal: Callable[[Any], str]) -> str:
    """Return SQL that is true if a value is out of bounds; NaN is above every number in Spark."""
    outside = []
    for end, operator in (("min", "<"), ("max", ">")):
        if (bound := kwargs.get(f"{end}_value")) is not None:
            equal = "=" if _is_true(kwargs, f"strict_{end}") else ""
            outside.append(f"{sql} {operator}{equal} {to_literal(bound)}")
    if not outside:
        raise ValueError('needs "min_value" or "max_value"')
    return f"({' OR '.join(outside)})"


def _is_true(kwargs: Mapping[str, Any], name: str) -> bool:
    if kwargs.get(name) not in (None, True, False):  # Great Expectations parses "false" as False
        raise ValueError(f'has "{name}": {kwargs[name]!r}, which must be true or false')
    return bool(kwargs.get(name))


def _in_set(kwargs: Mapping[str, Any]) -> str:
    values = kwargs["value_set"]
    if not isinstance(values, list) or not values:
        raise ValueError('needs a list of values as "value_set"')
    # A null never breaks a rule. In Spark's IN, a null in the list would make others null, too.
    column, known = _column(kwargs), [_literal(value) for value in values if value is not None]
    return f"{column} IN ({', '.join(known)})" if known else f"nullif({column} IS NULL, true)"


def _not_greater(kwargs: Mapping[str, Any]) -> str:
    # With a NULL on either side the result is NULL, so the row is good whatever ignore_row_if is.
    first, second = (_column(kwargs, name) for name in ("column_A", "column_B"))
    return f"{first} {'<' if _is_true(kwargs, 'or_equal') else '<='} {second}"


def _row_query(kwargs: Mapping[str, Any]) -> str:
    query = kwargs["unexpected_rows_query"].strip().rstrip("; \t\r\n")
    words = tokenize(query)
    start, condition = [word.text.upper() for word in words[:7]], words[7:]
    is_form = start == ["SELECT", "*", "FROM", "{", "BATCH", "}", "WHERE"] and condition
    has_clause = any(word.token_type.name in _CLAUSES for word in condition)
    if not is_form or has_clause or any(word.comments for word in words):
        raise ValueError(
            'needs "unexpected_rows_query" of the form SELECT * FROM {batch} WHERE <condition>'
        )
    # Great Expectations formats the query with str.format, where {{ stands for {.
    sql = query[condition[0].start :].replace("{{", "{").replace("}}", "}")
    return f"({sql})"


def _matches(kwargs: Mapping[str, Any]) -> str:
    if not isinstance(kwargs["regex"], str):
        raise ValueError('needs a string as "regex"')
    return f"rlike({_column(kwargs)}, {_literal(kwargs['regex'])})"


def _column(kwargs: Mapping[str, Any], key: str = "column") -> str:
    """Return SQL of a column, or of a field of a struct, such as `address.zip`.

    The names of columns have no dots: bronze replaces them.
    """
    return ".".join(map(quote_identifier, kwargs[key].split(".")))


_RANGE = frozenset({"column", "min_value", "max_value", "strict_min", "strict_max"})
_PAIR = frozenset({"column_A", "column_B", "or_equal", "ignore_row_if"})
_COLUMN, _SET, _REGEX = (frozenset({"column", *more}) for more in ((), ("value_set",), ("regex",)))

# By type of expectation: its supported arguments, and the function that returns its condition.
_TYPES: dict[str, tuple[frozenset[str], Callable[[Mapping[str, Any]], str]]] = {
    "expect_column_values_to_not_be_null": (_COLUMN, lambda k: f"{_column(k)} IS NULL"),
    "expect_column_values_to_be_null": (_COLUMN, lambda k: f"{_column(k)} IS NOT NULL"),
    BETWEEN: (_RANGE, lambda k: _outside(_column(k), k, _bound)),
    "expect_column_value_lengths_to_be_between": (
        _RANGE,
        lambda k: _outside(f"length({_column(k)})", k, _length_bound),
    ),
    "expect_column_values_to_be_in_set": (_SET, lambda k: f"NOT ({_in_set(k)})"),
    "expect_column_values_to_not_be_in_set": (_SET, _in_set),
    "expect_column_values_to_match_regex": (_REGEX, lambda k: f"NOT {_matches(k)}"),
    "expect_column_values_to_not_match_regex": (_REGEX, _matches),
    "expect_column_pair_values_a_to_be_greater_than_b": (_PAIR, _not_greater),
    BY_QUERY: (frozenset({"unexpected_rows_query"}), _row_query),
}


def row_condition(expectation: Expectation) -> str:
    """Return SQL that is true for a row that breaks an expectation, else false or NULL.

    Raises:
        ValueError: the expectation cannot be a rule; the message completes a sentence about it.
    """
    type_, kwargs = expectation.type, expectation.kwargs
    if type_ not in _TYPES:
        raise ValueError(
            f'cannot have "on_failure": "quarantine", because {type_} is not about single rows: '
            f"use warn or stop, or one of {', '.join(_TYPES)}"
        )
    if kwargs.get("mostly", 1) != 1:
        raise ValueError('has "mostly", but every row that breaks a quarantine rule is quarantined')
    allowed, to_sql = _TYPES[type_]
    if unknown := kwargs.keys() - allowed - {"mostly"}:
        raise ValueError(f"has {sorted(unknown)}; a quarantine rule takes only {sorted(allowed)}")
    try:
        return to_sql(kwargs)
    except KeyError as missing:
        raise ValueError(f"lacks {missing} in its kwargs") from None
    except (TypeError, AttributeError) as error:
        raise ValueError(f"has invalid kwargs: {error}") from None

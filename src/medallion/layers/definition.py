"""Definitions of tables that are refused: one that has changed since a table's rows were made; SQL
that gives other rows each time it runs, or several rows for one; and what no stream can do."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from medallion.config.expressions import has_moment
from medallion.config.model import Config
from medallion.config.values import Duration
from medallion.errors import ConfigError
from medallion.spark.errors import SPARK_ERRORS, one_line
from medallion.spark.plans import (
    analyzed_plan,
    catalyst_class,
    expand_functions,
    node_type,
    optimizer_rule,
    plan_expressions,
)

# Functions that Spark takes for deterministic, and that are not. To look through a plan takes a
# call to Java for each of its nodes, so it is done only where the SQL has such a word.
_UNTOLD = re.compile(r"\b(aes_encrypt|version)\b", re.IGNORECASE)


def refuse_changed(
    config: Config,
    table: str,
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    in_order: Collection[str] = (),
) -> None:
    """Raise ConfigError where a table is not defined as it was when it was made.

    Args:
        in_order: the keys whose mappings have to be in the same order as well.
    """
    changed = [
        f"{key} {then[key]!r}" + (" in this order" if key in in_order else "")
        if key in then
        else f"no {key}"
        for key in dict.fromkeys((*then, *now))
        if not _is_same(then.get(key), now.get(key), key in in_order)
    ]
    if changed:
        raise ConfigError(
            f"{config.conf_dir / 'pipeline.yaml'}: {table} was made with {', '.join(changed)}: "
            f"put that back, or rebuild the table with medallion refresh {table}."
        )


def _is_same(then: Any, now: Any, in_order: bool) -> bool:
    """Whether two values are the same: a window of 600 seconds is one of 10 minutes."""
    if in_order and isinstance(then, dict) and isinstance(now, dict):
        return list(then.items()) == list(now.items())
    try:
        return bool(then == now) or Duration.of(then) == Duration.of(now)
    except (ValueError, AttributeError):  # they are no durations, or not even text
        return False


def refuse_nondeterministic(name: str, found: DataFrame, said: Any) -> None:
    """Raise ConfigError where a table would depend on when its rows are read, on chance, or on what
    another table has then.

    Args:
        said: the SQL that it is made by, or mappings of it: in the plan, timestamp'now' has become
            a constant already.
    """
    plan, patterns = analyzed_plan(found), catalyst_class(found, "trees.TreePattern")
    found_by = (patterns.CURRENT_LIKE(), patterns.PLAN_EXPRESSION())
    is_found = any(map(plan.containsPattern, found_by)) or not plan.deterministic()
    texts = list(_texts(said))
    if any(map(_UNTOLD.search, texts)):
        is_found = is_found or any(map(_is_nondeterministic, plan_expressions(plan)))
    if is_found or _casts_a_moment(found, plan) or any(map(has_moment, texts)):
        raise ConfigError(
            f"{name} asks for the present moment, for chance or for another table "
            "(current_timestamp, date'today', rand, aes_encrypt without an IV, a subquery): a row "
            "is judged and counted once, when it comes in, which _ingested_at says; or ask where "
            "the table is read."
        )


def _is_nondeterministic(expression: Any) -> bool:
    """Whether it is version(), or encrypts by an initialization vector (IV) that Spark draws."""
    kind = node_type(expression)
    if kind != "AesEncrypt":
        return kind == "SparkVersion"
    mode, iv = expression.mode(), expression.iv()
    has_none = mode.foldable() and str(mode.eval(None)).upper() == "ECB"
    return not has_none and iv.foldable() and not iv.eval(None)


def _casts_a_moment(found: DataFrame, plan: Any) -> bool:
    """Whether a text such as 'today' is cast to a time (`event_at > 'today'`): Spark makes a
    constant of that, and would do so now."""
    full = expand_functions(found, plan)
    return not optimizer_rule(found, "SpecialDatetimeValues").apply(full).fastEquals(full)


def _texts(said: Any) -> Iterator[str]:
    if isinstance(said, str):
        yield said
    elif isinstance(said, Mapping):
        for each in said.values():
            yield from _texts(each)


def refuse_changed_row_count(name: str, found: DataFrame) -> None:
    """Raise ConfigError where a row becomes several, or none.

    Args:
        found: columns selected from a table, and nothing else. So any other node of the plan is
            one that the columns brought in, such as the filter by which window() leaves out rows
            without a time.
    """
    plan = analyzed_plan(found)
    while plan.children().nonEmpty():
        if plan.nodeName() not in ("Project", "SubqueryAlias"):
            raise ConfigError(
                f"{name} makes several rows of one, or none (explode, window, count): then no row "
                "is accounted for. Keep the list, or the time as date_trunc cuts it, and do the "
                "rest in a table of gold, or where the table is read."
            )
        plan = plan.children().head()


def refuse_unstreamable(rows: DataFrame, mode: str) -> None:
    """Have Spark refuse what no stream can do in an output mode, as it would at a query's start.

    Raises:
        AnalysisException: it does.
    """
    checker = catalyst_class(rows, "analysis.UnsupportedOperationChecker")
    modes = catalyst_class(rows, "streaming.InternalOutputModes")
    checker.checkForStreaming(analyzed_plan(rows), modes.apply(mode))


NULL_THERE = "give null there, as try_cast and the like do"


class DefinitionPart(NamedTuple):
    """A column, a rule or the like: what people call it, what is to be done where it fails, and the
    rows that it makes."""

    name: str
    advice: str
    made: DataFrame


def failing_part_reason(
    rows: Iterable[DataFrame], whole: DataFrame, parts: Iterable[DefinitionPart], rest: str
) -> str | None:
    """The first part that fails at a row, in words; None where none does.

    Args:
        rows: what is read. What fails of these is no part's fault.
        whole: what all parts together make of them.
        rest: what becomes of the rows meanwhile.
    """
    if not _failure(whole) or any(map(_failure, rows)):
        return None
    for name, advice, made in parts:
        if told := _failure(made):
            return f"{name} fails at a row, and {rest}: {told}; {advice}"
    return None


def _failure(rows: DataFrame) -> str | None:
    """What Spark fails of where rows are computed, and not written; None where it does not."""
    try:
        rows.write.format("noop").mode("overwrite").save()
    except SPARK_ERRORS as error:
        return one_line(str(error))
    return None

"""Checks of a table's definition, and the search for the part that is invalid or fails at a row.

A definition must be unchanged since the first run, deterministic and streamable, and a silver
definition must return one row for each row.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from medallion.config.document import position
from medallion.config.expressions import has_current_time
from medallion.config.model import Config
from medallion.config.values import Duration
from medallion.errors import ConfigError, MedallionError
from medallion.spark.errors import SPARK_ERRORS, one_line
from medallion.spark.plans import analyzed_plan, catalyst_class

_LONGEST_VALUE = 60  # characters of a value in messages
_IS_CDC = "cdc.stored_as_scd_type"


@dataclass(frozen=True)
class Change:
    """A part of a definition that differs from the one that the rows were written with.

    Attributes:
        key: the part.
        old, new: its values; None if it is not there.
    """

    key: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.old)} -> {_shown(self.new)}"


def _shown(value: Any) -> str:
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def settings_document(settings: object) -> dict[str, Any]:
    """Return the settings of a dataclass as JSON has them, by key; one that is not set is None."""

    def plain(value: Any) -> Any:
        match value:
            case Duration():
                return value.text
            case Mapping():
                return dict(value)
        return list(value) if isinstance(value, tuple) else value

    return {key: plain(value) for key, value in vars(settings).items()}


def changes_between(
    then: Mapping[str, Any], now: Mapping[str, Any], in_order: Collection[str] = ()
) -> list[Change]:
    """Return the parts of a definition that have changed.

    Args:
        then: the definition of its first run, by part.
        now: the current definition, by part.
        in_order: the parts that are mappings in which order matters.
    """
    changes = [
        Change(key, then.get(key), now.get(key))
        for key in dict.fromkeys((*then, *now))
        if not _is_same(then.get(key), now.get(key), key in in_order)
    ]
    if len({_IS_CDC in then, _IS_CDC in now}) == 1:
        return changes
    # A table of events became one of change records, or back: its other parts follow from that.
    old, new = (f"SCD {each[_IS_CDC]}" if _IS_CDC in each else None for each in (then, now))
    return [Change("cdc", old, new)]


def refuse_changed(config: Config, table: str, changes: Iterable[Change]) -> None:
    """Raise ConfigError if the definition of a table, as `silver.orders`, has changed."""
    if listed := "; ".join(map(str, changes)):
        raise ConfigError(
            f"{config.pipeline_file}: the definition of {table} has changed ({listed}). "
            "medallion apply rebuilds the table; or restore it."
        )


def _is_same(then: Any, now: Any, in_order: bool) -> bool:
    """Return whether two values are equal; a window of 600 seconds equals one of 10 minutes."""
    if in_order and isinstance(then, dict) and isinstance(now, dict):
        return list(then.items()) == list(now.items())
    try:
        return bool(then == now) or Duration.parse(then) == Duration.parse(now)
    except (ValueError, AttributeError):  # not durations, or not even strings
        return False


def refuse_nondeterministic(
    name: str, rows: DataFrame, sql: Any, can_read_tables: bool = False
) -> None:
    """Raise ConfigError if rows depend on the current time, randomness or another table.

    Args:
        name: the definition's name in the message.
        sql: the SQL that defines them, or nested mappings of it. It is searched, too, because the
            plan has timestamp'now' as a constant.
        can_read_tables: whether subqueries may read the tables of the rows.
    """
    plan, patterns = analyzed_plan(rows), catalyst_class(rows, "trees.TreePattern")
    forbidden = [patterns.CURRENT_LIKE(), *[patterns.PLAN_EXPRESSION()] * (not can_read_tables)]
    has_forbidden = any(map(plan.containsPattern, forbidden)) or not plan.deterministic()
    if has_forbidden or any(map(has_current_time, _strings(sql))):
        raise ConfigError(
            f"{name} depends on the current time, randomness or another table "
            "(current_timestamp, date'today', rand, a subquery), but each row is processed once. "
            "Use _ingested_at as the processing time, or move the expression to the queries that "
            "read the table."
        )


def _strings(sql: Any) -> Iterator[str]:
    if isinstance(sql, str):
        yield sql
    elif isinstance(sql, Mapping):
        for value in sql.values():
            yield from _strings(value)


def refuse_changed_row_count(name: str, rows: DataFrame) -> None:
    """Raise ConfigError if an expression returns several rows, or none, for one row.

    Args:
        name: the definition's name in the message.
        rows: columns selected from a table, and nothing else. So any other node of the plan comes
            from an expression, such as window(), which drops rows without a time by a filter.
    """
    plan = analyzed_plan(rows)
    while plan.children().nonEmpty():
        if plan.nodeName() not in ("Project", "SubqueryAlias"):
            raise ConfigError(
                f"{name} returns several rows, or none, for one row (explode, window, count), but "
                "each row must be accounted for. Keep the array, or use date_trunc, and move the "
                "expression to a gold table or a query."
            )
        plan = plan.children().head()


def refuse_unstreamable(rows: DataFrame, mode: str) -> None:
    """Run the check that Spark runs on a stream and its output mode when it starts a query.

    Raises:
        AnalysisException: a stream does not support the plan.
    """
    checker = catalyst_class(rows, "analysis.UnsupportedOperationChecker")
    modes = catalyst_class(rows, "streaming.InternalOutputModes")
    checker.checkForStreaming(analyzed_plan(rows), modes.apply(mode))


@dataclass(frozen=True)
class DefinitionPart:
    """One column, rule or clause of a table's definition.

    Attributes:
        title: its name in messages.
        file: the file that has its SQL; `key`: the dotted key in it if it is YAML.
        rows: returns the rows of this part alone; raises AnalysisException if its SQL is invalid.
    """

    title: str
    file: Path
    rows: Callable[[], DataFrame]
    key: str = ""

    def describe(self, error: AnalysisException) -> str:
        """Return the message for Spark's error about its SQL, with the file and the position."""
        parameters = error.getMessageParameters() or {}
        name = next((parameters[key] for key in _NAMES if key in parameters), "")
        name = name.replace("`", "").strip("'")
        line_column = position(self.file, self.key, name) if self.key else None
        where = " line {}, column {}".format(*line_column) if line_column else ""
        problem = f"{self.title} in {self.file}{where}: {one_line(str(error))}."
        if error.getCondition() == "FIELD_NOT_FOUND":
            problem += " Give a field that comes later a type in the source's hints."
        return problem


# Parameters of Spark's error conditions.
_NAMES = ("objectName", "fieldName", "routineName", "error")


def invalid_sql_error(
    table: str, parts: Iterable[DefinitionPart], error: AnalysisException
) -> ConfigError:
    """Return the error for the first part of a definition that Spark refuses.

    Args:
        table: the table, as `silver.orders`.
        parts: the parts, each by itself.
        error: Spark's error for the complete definition.
    """
    with suppress(MedallionError):
        for part in parts:
            try:
                part.rows()
            except AnalysisException as cause:
                return ConfigError(part.describe(cause))
    return ConfigError(f"{table} cannot be started: {one_line(str(error))}.")


def failing_part_reason(inputs: Sequence[DataFrame], parts: Iterable[DefinitionPart]) -> str | None:
    """Return the message for the part of a definition that fails at a row; None if none does.

    Spark's error does not always name the expression. This computes the rows of each part.

    Args:
        inputs: the rows that are read. If reading them fails, no part is at fault.
        parts: the parts, each by itself.
    """
    for part in () if any(map(_failure, inputs)) else parts:
        if reason := _failure(part.rows()):
            return (
                f"{part.title} in {part.file} fails at a row, and its table stays as it is: "
                f"{reason}; have it return null for such a value, as with try_cast"
            )
    return None


def _failure(rows: DataFrame) -> str | None:
    """Compute rows without writing them; return Spark's error, if any."""
    try:
        rows.write.format("noop").mode("overwrite").save()
    except SPARK_ERRORS as error:
        return one_line(str(error))
    return None

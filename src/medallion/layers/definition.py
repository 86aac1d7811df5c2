"""Checks of a table's definition, and the search for the part that is invalid or fails at a row.

A definition must be unchanged since the first run, deterministic, one row per row, and streamable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from medallion.config.document import position
from medallion.config.expressions import has_current_time, nearest_name
from medallion.config.model import Config
from medallion.config.values import Duration
from medallion.errors import ConfigError, MedallionError
from medallion.spark.errors import SPARK_ERRORS, one_line
from medallion.spark.plans import analyzed_plan, catalyst_class


def refuse_changed(
    config: Config,
    table: str,
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    in_order: Collection[str] = (),
) -> None:
    """Raise ConfigError if the definition of a table changed since its first run.

    Args:
        config: the configuration.
        table: the table, as `silver.orders`.
        then: the parts of the definition that it was created with.
        now: the parts by the current configuration.
        in_order: the parts that are mappings whose order counts.
    """
    changes = []
    for key in dict.fromkeys((*then, *now)):
        if key not in then:
            changes.append(f"{key} is new")
        elif not _is_same(then[key], now.get(key), key in in_order):
            changes.append(f"{key} was {then[key]!r}" + ("" if key in now else " and is gone"))
    if changes:
        raise ConfigError(
            f"{config.conf_dir / 'pipeline.yaml'}: the definition of {table} has changed since its "
            f"first run ({'; '.join(changes)}). Restore it, or rebuild the table with medallion "
            f"refresh {table}."
        )


def _is_same(then: Any, now: Any, in_order: bool) -> bool:
    """Return whether two values are equal; a window of 600 seconds equals one of 10 minutes."""
    if in_order and isinstance(then, dict) and isinstance(now, dict):
        return list(then.items()) == list(now.items())
    try:
        return bool(then == now) or Duration.parse(then) == Duration.parse(now)
    except (ValueError, AttributeError):  # not durations, or not even strings
        return False


def refuse_nondeterministic(name: str, rows: DataFrame, sql: Any) -> None:
    """Raise ConfigError if rows depend on the current time, on chance or on another table.

    Args:
        name: what defines the rows, for the message.
        rows: the rows.
        sql: the SQL that defines them, or mappings of it: the plan shows timestamp'now' only as a
            constant.
    """
    plan, patterns = analyzed_plan(rows), catalyst_class(rows, "trees.TreePattern")
    forbidden = (patterns.CURRENT_LIKE(), patterns.PLAN_EXPRESSION())
    has_forbidden = any(map(plan.containsPattern, forbidden)) or not plan.deterministic()
    if has_forbidden or any(map(has_current_time, _strings(sql))):
        raise ConfigError(
            f"{name} depends on the current time, on chance or on another table "
            "(current_timestamp, date'today', rand, a subquery), but each row is processed once. "
            "Use _ingested_at for the time of that, or move the expression to the queries that "
            "read the table."
        )


def _strings(sql: Any) -> Iterator[str]:
    if isinstance(sql, str):
        yield sql
    elif isinstance(sql, Mapping):
        for value in sql.values():
            yield from _strings(value)


def refuse_changed_row_count(name: str, rows: DataFrame) -> None:
    """Raise ConfigError if expressions make several rows, or none, of one.

    Args:
        name: what defines the rows, for the message.
        rows: columns selected from a table, and nothing else. So any other node of the plan comes
            from an expression, such as the filter by which window() drops rows without a time.
    """
    plan = analyzed_plan(rows)
    while plan.children().nonEmpty():
        if plan.nodeName() not in ("Project", "SubqueryAlias"):
            raise ConfigError(
                f"{name} makes several rows, or none, of one (explode, window, count), so that "
                "rows could not be accounted for. Keep the array, or use date_trunc, and move the "
                "expression to a gold table or a query."
            )
        plan = plan.children().head()


def refuse_unstreamable(rows: DataFrame, mode: str) -> None:
    """Run Spark's check of what a stream can do in an output mode, as the start of a query does.

    Raises:
        AnalysisException: the stream cannot do it.
    """
    checker = catalyst_class(rows, "analysis.UnsupportedOperationChecker")
    modes = catalyst_class(rows, "streaming.InternalOutputModes")
    checker.checkForStreaming(analyzed_plan(rows), modes.apply(mode))


RETURN_NULL_ADVICE = "return null for such a value, as with try_cast"


@dataclass(frozen=True)
class DefinitionPart:
    """One column, rule or clause of a table's definition.

    Attributes:
        name: its name in a message of its table, and `title` in other messages.
        file: the file that has its SQL, and `key`, the dotted key in it if that is YAML.
        rows: returns the rows that it alone makes; raises AnalysisException if its SQL is invalid.
        advice: what to do if it fails at a row.
        columns: the columns that it can name.
        unknown_column: what to say of another column.
    """

    name: str
    title: str
    file: Path
    rows: Callable[[], DataFrame]
    advice: str = ""
    key: str = ""
    columns: Collection[str] = ()
    unknown_column: str = "there is no column {}"

    def describe(self, error: AnalysisException) -> str:
        """Return why Spark refuses its SQL, and where that is."""
        parameters = error.getMessageParameters() or {}
        condition, problem = error.getCondition() or "", f"{one_line(str(error))}."
        name = next((parameters[key] for key in _NAMES if key in parameters), "").replace("`", "")
        if condition.startswith("UNRESOLVED_COLUMN") and name:
            columns = [column for column in self.columns if not column.startswith("_")]
            problem = f"{self.unknown_column.format(name)}{suggestion(name, columns)}"
            problem += f" The columns are {', '.join(columns)}." if columns else ""
        elif condition == "FIELD_NOT_FOUND":
            problem = f"there is no field {name}. The fields are {parameters['fields']}."
        elif condition == "UNRESOLVED_ROUTINE":
            problem = f"there is no function {name}."
        elif condition == "PARSE_SYNTAX_ERROR":
            name = parameters["error"].strip("'")
            problem = f"there is a syntax error at {parameters['error']}."
        found = position(self.file, self.key, name) if self.key else None
        where = " line {}, column {}".format(*found) if found else ""
        return f"{self.title} in {self.file}{where}: {problem}"


_NAMES = ("objectName", "fieldName", "routineName")  # parameters of Spark's error conditions


def suggestion(name: str, columns: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: the column with the nearest name."""
    nearest = nearest_name(name, columns)
    return f"; did you mean {nearest}?" if nearest else "."


def invalid_sql_error(
    table: str, parts: Iterable[DefinitionPart], error: AnalysisException
) -> ConfigError:
    """Return the error for the first part of a definition that Spark refuses.

    Args:
        table: the table, as `silver.orders`.
        parts: the parts, each by itself.
        error: Spark's error for the definition as a whole.
    """
    with suppress(MedallionError):
        for part in parts:
            try:
                part.rows()
            except AnalysisException as cause:
                return ConfigError(part.describe(cause))
    return ConfigError(f"{table} cannot be started: {one_line(str(error))}.")


def failing_part_reason(
    inputs: Iterable[DataFrame], result: DataFrame, parts: Iterable[DefinitionPart], state: str
) -> str | None:
    """Return which part of a definition fails at a row, and why; None if none does.

    Spark does not always say where an expression stands. This computes all rows again.

    Args:
        inputs: the rows that are read. If these fail, no part is at fault.
        result: what all parts together make of them.
        parts: the parts, each by itself.
        state: what becomes of the rows meanwhile, for the message.
    """
    if not _failure(result) or any(map(_failure, inputs)):
        return None
    for part in parts:
        if reason := _failure(part.rows()):
            return f"{part.name} fails at a row, and {state}: {reason}; {part.advice}"
    return None


def _failure(rows: DataFrame) -> str | None:
    """Compute rows without writing them; return Spark's error, if any."""
    try:
        rows.write.format("noop").mode("overwrite").save()
    except SPARK_ERRORS as error:
        return one_line(str(error))
    return None

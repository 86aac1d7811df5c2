"""Gates: validation of tables against their suites.

One Spark job per table counts the rows that break expectations which SQL can express. Great
Expectations, whose import takes seconds, validates the others.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.quality import suites
from medallion.quality.rules import row_condition
from medallion.quality.suites import BY_QUERY, UNIQUE, Expectation, Failure, Verdict
from medallion.spark.errors import SPARK_ERRORS

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.data_context.data_context.ephemeral_data_context import (
        EphemeralDataContext,
    )

EXAMPLES = 5
EXAMPLE_LENGTH = 200
_QUERY_VIEW = "tmp_view"  # Great Expectations registers a batch under this name, to query it


class Gates:
    """The gates of all tables; only their suites are read from `conf_dir`."""

    def __init__(self, conf_dir: Path) -> None:
        self._conf_dir = conf_dir.resolve()

    def has_suite(self, table: str) -> bool:
        """Return True if the table has a suite."""
        return suites.suite_path(self._conf_dir, table).exists()

    def validate(self, table: str, batch: DataFrame, key: Sequence[str] = ()) -> Verdict | None:
        """Validate rows of a table; return None if the table has no expectations.

        Args:
            table: `layer.table`.
            batch: the rows, of the active session.
            key: columns that are known to be unique together, if any.

        Raises:
            ConfigError: the suite is invalid.
        """
        expectations = suites.read_suite(self._conf_dir, table)
        if not expectations:
            return None
        rows, broken = count_broken(batch, expectations, key)
        validated, failures = _Validated(table, batch, rows), list[Failure]()
        for each in expectations:
            if each.name not in broken:
                result = self._validate_with_gx(table, batch, each)
                failures += [] if result.success else [validated.observed_failure(each, result)]
            elif count := broken[each.name]:
                failures.append(validated.counted_failure(each, count))
        batch.sparkSession.catalog.dropTempView(_QUERY_VIEW)
        return Verdict(table, rows, tuple(failures))

    @cached_property
    def _context(self) -> EphemeralDataContext:
        import great_expectations as gx
        from great_expectations.data_context.types.base import ProgressBarsConfig

        logging.getLogger("great_expectations").setLevel(logging.ERROR)
        os.environ["GX_ANALYTICS_ENABLED"] = "false"
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        return context

    def _validate_with_gx(
        self, table: str, batch: DataFrame, expectation: Expectation
    ) -> ExpectationValidationResult:
        """Validate one expectation; if it fails, once more with examples of rows.

        Raises:
            ConfigError: it is unknown, which Great Expectations itself only logs.
        """
        from great_expectations.exceptions.exceptions import GreatExpectationsError
        from great_expectations.expectations.expectation_configuration import (
            ExpectationConfiguration,
        )

        try:
            own = ExpectationConfiguration(expectation.type, expectation.kwargs).to_domain_obj()
        except (GreatExpectationsError, ValueError) as error:
            path = suites.suite_path(self._conf_dir, table)
            problem = f"is refused by Great Expectations: {error}"
            suites.suite_error(path, f'"{expectation.name}"', problem)
        # Caching a table costs more than the few scans of its columns that a suite needs.
        source = self._context.data_sources.add_or_update_spark("medallion", persist=False)
        definition = source.add_dataframe_asset(table).add_batch_definition_whole_dataframe(table)
        rows = definition.get_batch({"dataframe": batch})
        failed = rows.validate(own, result_format="BOOLEAN_ONLY")
        if failed.success:
            return failed
        result_format: dict[str, Any] = {
            "result_format": "BASIC",
            "partial_unexpected_count": EXAMPLES,
            "include_unexpected_rows": True,
        }
        result = rows.validate(own, result_format=result_format)
        # A failure stays a failure, even if no examples can be read.
        is_readable = raised_exception(failed) or not raised_exception(result)
        return result if is_readable and not result.success else failed


def count_broken(
    batch: DataFrame, expectations: Sequence[Expectation], key: Sequence[str] = ()
) -> tuple[int, dict[str, int]]:
    """Count the rows of a batch, and those that break each expectation, in one Spark job.

    A query of an expectation is one more job. Great Expectations would run several, and takes
    seconds to import. These are left to it: other expectations that are not about single rows,
    those with "mostly" that some rows break, and all at whose condition or query Spark fails.

    Args:
        batch: the rows.
        expectations: the suite of the table.
        key: columns that are known to be unique together.

    Returns:
        The number of rows, and the number of rows that break each expectation, by its name.
    """
    known = {e.name: 0 for e in expectations if _is_implied_by_key(key, e, batch.columns)}
    conditions = {e.name: sql for e in expectations if (sql := _broken_condition(e)) is not None}
    broken = [F.count_if(F.expr(condition)) for condition in conditions.values()]
    try:
        ((rows, *counts),) = batch.select(F.count(F.lit(1)), *broken).collect()
    except SPARK_ERRORS:
        return batch.count(), known
    for each in expectations:
        is_query = each.type == BY_QUERY and {*each.kwargs} == {"unexpected_rows_query"}
        if is_query and each.name not in conditions:
            with suppress(LookupError, ValueError, *SPARK_ERRORS):
                known[each.name] = _queried_rows(batch, each).count()
    with_mostly = {e.name for e in expectations if e.kwargs.get("mostly", 1) != 1}
    by_name = zip(conditions, counts, strict=True)
    return rows, known | {n: count for n, count in by_name if not (count and n in with_mostly)}


def _queried_rows(batch: DataFrame, expectation: Expectation) -> DataFrame:
    """Return what the query of an expectation finds in a batch, as Great Expectations runs it.

    Raises:
        LookupError, ValueError: its braces are invalid.
    """
    batch.createOrReplaceTempView(_QUERY_VIEW)
    query = str(expectation.kwargs["unexpected_rows_query"]).rstrip("; \t\r\n\v\f")
    return batch.sparkSession.sql(query.format(batch=_QUERY_VIEW))


def _is_implied_by_key(
    key: Sequence[str], expectation: Expectation, columns: Sequence[str]
) -> bool:
    """Return whether all rows meet an expectation because they are unique by `key`."""
    kwargs = expectation.kwargs
    ignores_nulls = kwargs.get("ignore_row_if") == "any_value_is_missing"
    is_unique = expectation.type == UNIQUE and ignores_nulls
    return bool(key) and is_unique and {*key} <= {*kwargs.get("column_list", ())} <= {*columns}


def _broken_condition(expectation: Expectation) -> str | None:
    """Return SQL that is true for rows that break an expectation, ignoring "mostly".

    Return None if it is not about single rows, or has arguments that rules do not support.
    """
    kwargs = {name: value for name, value in expectation.kwargs.items() if name != "mostly"}
    try:
        return row_condition(replace(expectation, kwargs=kwargs))
    except ValueError:
        return None


@dataclass(frozen=True)
class _Validated:
    """Rows of a table that a gate validates, and their number."""

    table: str
    batch: DataFrame
    rows: int

    def counted_failure(self, expectation: Expectation, broken: int) -> Failure:
        """Return the failure of an expectation that `broken` rows break."""
        condition = _broken_condition(expectation)
        found = self.batch.where(condition) if condition else _queried_rows(self.batch, expectation)
        # As strings: Python cannot represent a time whose year is 0 or above 9999.
        numbered = found.toDF(*map(str, range(len(found.columns)))).limit(EXAMPLES)
        strings = numbered.select([F.col(number).cast("string") for number in numbered.columns])
        examples = [dict(zip(found.columns, row, strict=True)) for row in strings.collect()]
        is_query = expectation.type == BY_QUERY
        what = f"{broken} of {self.rows} rows do not meet {expectation.type}"
        detail = f"its query found {broken} rows" if is_query else what
        return self._failure(expectation, broken, examples, detail)

    def observed_failure(
        self, expectation: Expectation, result: ExpectationValidationResult
    ) -> Failure:
        """Return the failure of an expectation for its result of Great Expectations."""
        values, rows = dict(result.result), self.rows
        count = values.get("unexpected_count")
        examples = values.pop("unexpected_rows", None) or values.get("partial_unexpected_list")
        detail = f"{count} of {rows} rows do not meet {expectation.type}"
        if count is None and "observed_value" not in values:
            detail = f"some of {rows} rows do not meet {expectation.type}, but they cannot be shown"
        elif count is None:
            detail = f"{expectation.type} observed {values.get('observed_value')}"
        if raised := raised_exception(result):
            expectation = replace(expectation, on_failure="stop")
            detail = f"it could not be evaluated: {raised}"
        return self._failure(expectation, count, examples or [], detail)

    def _failure(
        self, expectation: Expectation, count: int | None, examples: Sequence[Any], detail: str
    ) -> Failure:
        on_failure = expectation.on_failure
        if on_failure == "quarantine" and not self.table.startswith("bronze."):
            on_failure = "stop"
            detail += ", which should be in quarantine: the rule and the gate disagree"
        if expectation.notes:
            detail += f" ({expectation.notes})"
        shown = tuple(_example(row, expectation) for row in examples[:EXAMPLES])
        return Failure(self.table, expectation.name, on_failure, count, self.rows, shown, detail)


def _example(row: Any, expectation: Expectation) -> str:
    """Return a shortened value, or a row as "column=value" with the tested columns first."""
    text = str(row)
    if isinstance(row, Mapping):
        tested = map(expectation.kwargs.get, ("column", "column_A", "column_B"))
        order = dict.fromkeys([*(column for column in tested if column), *row])
        text = ", ".join(f"{column}={row.get(column)}" for column in order)
    return text if len(text) <= EXAMPLE_LENGTH else text[: EXAMPLE_LENGTH - 3] + "..."


def raised_exception(result: ExpectationValidationResult) -> str | None:
    """Return the first line of an exception of an expectation or its metrics; None if none."""
    info = result.exception_info or {}
    for part in (info, *info.values()):
        if isinstance(part, dict) and part.get("raised_exception"):
            return str(part.get("exception_message")).strip().splitlines()[0]
    return None

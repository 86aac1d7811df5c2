"""Gates: validation of tables against their suites.

One Spark job per table counts the rows that break expectations which SQL can express. Great
Expectations validates the others, and renders all results as Data Docs.
"""

from __future__ import annotations

import html
import importlib
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.config.model import Config
from medallion.quality.rules import row_condition
from medallion.quality.suites import (
    BY_QUERY,
    UNIQUE,
    Expectation,
    Failure,
    Verdict,
    read_suite,
    suite_error,
    suite_path,
)
from medallion.spark.errors import SPARK_ERRORS
from medallion.storage.paths import StoragePath, resolved_path

if TYPE_CHECKING:
    from great_expectations.core import (
        ExpectationSuiteValidationResult,
        ExpectationValidationResult,
    )
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.data_context.data_context.ephemeral_data_context import (
        EphemeralDataContext,
    )
    from great_expectations.data_context.types.base import DataContextConfig
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )
    from great_expectations.datasource.fluent.interfaces import Batch
    from great_expectations.datasource.fluent.spark_datasource import SparkDatasource
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

EXAMPLES = 5
EXAMPLE_LENGTH = 200
_QUERY_VIEW = "tmp_view"  # Great Expectations registers a batch under this name, to query it


def preload() -> threading.Thread:
    """Import Great Expectations in the background, for instance while the JVM starts."""
    thread = threading.Thread(
        target=importlib.import_module, args=("great_expectations",), daemon=True
    )
    thread.start()
    return thread


class Gates:
    """The gates of all tables, in one Great Expectations context that writes to `results_dir`.

    Only the last result of each table is kept, because building Data Docs takes longer with each
    result. Only the suites are read from `conf_dir`, and nothing is written to it.
    """

    def __init__(self, conf_dir: Path, results_dir: StoragePath) -> None:
        self._conf_dir = conf_dir.resolve()
        self._results_dir = StoragePath(resolved_path(results_dir))
        self._stored: list[ValidationResultIdentifier] = []

    def has_suite(self, table: str) -> bool:
        """Return True if the table has a suite."""
        return suite_path(self._conf_dir, table).exists()

    def validate(self, table: str, batch: DataFrame, key: Sequence[str] = ()) -> Verdict | None:
        """Validate rows of a table; return None if the table has no expectations.

        Args:
            table: `layer.table`.
            batch: the rows, of the active session.
            key: columns that are known to be unique together, if any.

        Raises:
            ConfigError: the suite is invalid.
        """
        expectations = read_suite(self._conf_dir, table)
        if not expectations:
            return None
        importlib.import_module("great_expectations")  # waits for `preload`
        configurations = self._configurations(table, expectations)
        rows, broken = count_broken(batch, expectations, key)
        uncounted = [each for name, each in configurations.items() if name not in broken]
        suite_result = self._validate_with_gx(table, batch, uncounted)
        validated = {
            config.meta["name"]: result
            for result in suite_result.results
            if (config := result.expectation_config)
        }
        results, failures = [], []
        for expectation in expectations:
            name = expectation.name
            result = validated.get(name) or counted_result(expectation, rows, broken[name])
            if not result.success:
                gx_batch = self._batch(table, batch)
                result = _with_examples(gx_batch, configurations[name], result)
                failures.append(failure_of(table, rows, expectation, result))
            result.expectation_config = configurations[name]
            results.append(result)
        self._store(table, suite_result, results)
        batch.sparkSession.catalog.dropTempView(_QUERY_VIEW)
        return Verdict(table, rows, tuple(failures))

    def build_docs(self) -> Path | None:
        """Render the results since the last call; return the index page, or None without results.

        Raises:
            OSError: the pages cannot be written.
        """
        if not self._stored:
            return None
        suites: list[Any] = [key.expectation_suite_identifier for key in self._stored]
        for suite in suites:
            self._directory("data_docs/validations", suite).delete_prefix()
        (url,) = self._context.build_data_docs(resource_identifiers=suites + self._stored).values()
        self._stored = []
        return Path(unquote(urlparse(url).path))

    @cached_property
    def _context(self) -> EphemeralDataContext:
        import great_expectations as gx

        logging.getLogger("great_expectations").setLevel(logging.ERROR)
        return gx.get_context(mode="ephemeral", project_config=_project_config(self._results_dir))

    @cached_property
    def _source(self) -> SparkDatasource:
        # Caching a table costs more than the few scans of its columns that a suite needs.
        return self._context.data_sources.add_spark("medallion", persist=False)

    def _batch(self, table: str, batch: DataFrame) -> Batch:
        name = "whole table"
        if table not in self._source.get_asset_names():
            self._source.add_dataframe_asset(table).add_batch_definition_whole_dataframe(name)
        definition: BatchDefinition[Any] = self._source.get_asset(table).get_batch_definition(name)
        return definition.get_batch({"dataframe": batch})

    def _configurations(
        self, table: str, expectations: Sequence[Expectation]
    ) -> dict[str, ExpectationConfiguration]:
        """Return Great Expectations' form of each expectation, by name.

        Raises:
            ConfigError: an expectation is unknown, which Great Expectations itself only logs.
        """
        from great_expectations.exceptions.exceptions import GreatExpectationsError
        from great_expectations.expectations.expectation_configuration import (
            ExpectationConfiguration,
        )

        configurations = {}
        for expectation in expectations:
            name = expectation.name
            configurations[name] = ExpectationConfiguration(
                type=expectation.type,
                kwargs=expectation.kwargs,
                meta={"name": name, "on_failure": expectation.on_failure},
                notes=expectation.notes,
            )
            try:
                configurations[name].to_domain_obj()
            except (GreatExpectationsError, ValueError) as error:
                path = suite_path(self._conf_dir, table)
                suite_error(path, f'"{name}"', f"is refused by Great Expectations: {error}")
        return configurations

    def _validate_with_gx(
        self, table: str, batch: DataFrame, configurations: list[Any]
    ) -> ExpectationSuiteValidationResult:
        """Validate expectations without counts and examples."""
        from great_expectations.core import ExpectationSuite

        suite = ExpectationSuite(name=table, expectations=configurations)
        return self._batch(table, batch).validate(suite, result_format="BOOLEAN_ONLY")

    def _store(
        self,
        table: str,
        suite_result: ExpectationSuiteValidationResult,
        results: list[ExpectationValidationResult],
    ) -> None:
        """Store the results of a table, replacing its previous ones."""
        from great_expectations.core import ExpectationSuite, RunIdentifier
        from great_expectations.data_context.types.resource_identifiers import (
            ExpectationSuiteIdentifier,
            ValidationResultIdentifier,
        )
        from great_expectations.validator.validation_statistics import calc_validation_statistics

        now = datetime.now(UTC)
        suite = ExpectationSuiteIdentifier(table)
        key = ValidationResultIdentifier(suite, RunIdentifier(run_time=now), suite_result.batch_id)
        statistics = calc_validation_statistics(results)
        suite_result.results, suite_result.success = results, statistics.success
        suite_result.statistics = {k: v for k, v in statistics._asdict().items() if k != "success"}
        suite_result.meta |= {"run_id": key.run_id, "validation_time": now}
        escape_results(suite_result)
        configurations: list[Any] = [result.expectation_config for result in results]
        self._context.suites.add_or_update(ExpectationSuite(table, configurations))
        self._directory("validations", suite).delete_prefix()
        self._context.validation_results_store.store_validation_results(suite_result, key, suite)
        self._stored = [k for k in self._stored if k.expectation_suite_identifier != suite] + [key]

    def _directory(self, below: str, suite: ExpectationSuiteIdentifier) -> StoragePath:
        return self._results_dir / f"{below}/{suite.name.replace('.', '/')}"


def open_project(config: Config) -> EphemeralDataContext:
    """Return the suites, results and Data Docs as a project for Great Expectations' own tools."""
    import great_expectations as gx

    project = _project_config(config.layout.quality, config.expectations / "expectations")
    return gx.get_context(mode="ephemeral", project_config=project)


def _project_config(results_dir: StoragePath, suites_dir: Path | None = None) -> DataContextConfig:
    """Return a Great Expectations project that keeps results and Data Docs below a directory.

    Without `suites_dir` the suites are kept in memory, so that nothing is written to it.
    """
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

    def files(path: Path | StoragePath) -> dict[str, Any]:
        return {
            "class_name": "TupleFilesystemStoreBackend",
            "base_directory": str(path),
            "suppress_store_backend_id": True,
        }

    defaults = InMemoryStoreBackendDefaults()
    results = files(results_dir / "validations")
    defaults.stores[defaults.validation_results_store_name]["store_backend"] = results
    if suites_dir:
        defaults.stores[defaults.expectations_store_name]["store_backend"] = files(suites_dir)
    defaults.data_docs_sites["local_site"] = {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": files(results_dir / "data_docs"),
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
    }
    bars = ProgressBarsConfig(globally=False, metric_calculations=False)
    return DataContextConfig(
        store_backend_defaults=defaults, analytics_enabled=False, progress_bars=bars
    )


def _with_examples(
    batch: Batch, configuration: ExpectationConfiguration, failed: ExpectationValidationResult
) -> ExpectationValidationResult:
    """Validate a failed expectation again, with examples of rows.

    A row whose year Python cannot represent (0 or above 9999) is counted, but is no example.
    """
    result_format: dict[str, Any] = {
        "result_format": "COMPLETE" if configuration.type == BY_QUERY else "BASIC",
        "partial_unexpected_count": EXAMPLES,
        "include_unexpected_rows": True,
    }
    result = batch.validate(configuration.to_domain_obj(), result_format=result_format)
    # A failure stays a failure, even if no examples can be read.
    has_examples = not result.success and (raised_exception(failed) or not raised_exception(result))
    return result if has_examples else failed


def count_broken(
    batch: DataFrame, expectations: Sequence[Expectation], key: Sequence[str] = ()
) -> tuple[int, dict[str, int]]:
    """Count the rows of a batch, and those that break each expectation, in one Spark job.

    Great Expectations would run four. These are left to it: expectations that are not about single
    rows, those with "mostly" that some rows break, and all of them if Spark fails at a condition.

    Args:
        batch: the rows.
        expectations: the suite of the table.
        key: columns that are known to be unique together.

    Returns:
        The number of rows, and the number of rows that break each expectation, by its name.
    """
    implied = {e.name: 0 for e in expectations if _is_implied_by_key(key, e, batch.columns)}
    conditions = {e.name: sql for e in expectations if (sql := _broken_condition(e)) is not None}
    broken = [F.count_if(F.expr(condition)) for condition in conditions.values()]
    try:
        ((rows, *counts),) = batch.select(F.count(F.lit(1)), *broken).collect()
    except SPARK_ERRORS:
        return batch.count(), implied
    with_mostly = {e.name for e in expectations if e.kwargs.get("mostly", 1) != 1}
    by_name = zip(conditions, counts, strict=True)
    return rows, implied | {n: count for n, count in by_name if not (count and n in with_mostly)}


def counted_result(expectation: Expectation, rows: int, broken: int) -> ExpectationValidationResult:
    """Return the result of an expectation that `broken` of `rows` rows break."""
    from great_expectations.core import ExpectationValidationResult

    result: dict[str, Any] = {"observed_value": broken}
    if expectation.type != BY_QUERY:
        percent = 100 * broken / max(rows, 1)
        result = {
            "element_count": rows,
            "unexpected_count": broken,
            "unexpected_percent": percent,
        }
    return ExpectationValidationResult(success=not broken, result=result)


def _is_implied_by_key(
    key: Sequence[str], expectation: Expectation, columns: Sequence[str]
) -> bool:
    """Return whether all rows meet an expectation because they are unique by `key`."""
    kwargs = expectation.kwargs
    ignores_nulls = kwargs.get("ignore_row_if") == "any_value_is_missing"
    is_unique = expectation.type == UNIQUE and ignores_nulls
    return bool(key) and is_unique and {*key} <= {*kwargs.get("column_list", ())} <= {*columns}


def _broken_condition(expectation: Expectation) -> str | None:
    """Return SQL that is true for rows that break an expectation, ignoring "mostly"."""
    kwargs = {name: value for name, value in expectation.kwargs.items() if name != "mostly"}
    return row_condition(replace(expectation, kwargs=kwargs))


def failure_of(
    table: str, rows: int, expectation: Expectation, result: ExpectationValidationResult
) -> Failure:
    """Return the failure to report for a failed result of Great Expectations.

    Args:
        table: `layer.table`.
        rows: the number of validated rows.
        expectation: the expectation that failed.
        result: its result, with examples if any.
    """
    values = dict(result.result)
    on_failure = expectation.on_failure
    count = values.get("unexpected_count")
    examples = values.pop("unexpected_rows", None) or values.get("partial_unexpected_list") or []
    detail = f"{count} of {rows} rows do not meet {expectation.type}"
    if expectation.type == BY_QUERY:
        count = values.get("observed_value")
        examples = values.get("details", {}).pop("unexpected_rows", [])
        detail = f"its query found {count} rows"
    elif count is None and "observed_value" not in values:
        detail = f"some of {rows} rows do not meet {expectation.type}, but they cannot be shown"
    elif count is None:
        detail = f"{expectation.type} observed {values.get('observed_value')}"
    if raised := raised_exception(result):
        on_failure, detail = "stop", f"it could not be evaluated: {raised}"
    elif on_failure == "quarantine" and not table.startswith("bronze."):
        on_failure = "stop"
        detail += ", which should be in quarantine: the rule and the gate disagree"
    shown = tuple(_example(row, expectation) for row in list(examples)[:EXAMPLES])
    return Failure(table, expectation.name, on_failure, count, rows, shown, detail)


def _example(row: Any, expectation: Expectation) -> str:
    """Return a shortened value, or a row as "column=value" with the tested columns first."""
    text = str(row)
    if isinstance(row, Mapping):
        tested = map(expectation.kwargs.get, ("column", "column_A", "column_B"))
        order = dict.fromkeys([*(column for column in tested if column), *row])
        text = ", ".join(f"{column}={row.get(column)}" for column in order)
    return text if len(text) <= EXAMPLE_LENGTH else text[: EXAMPLE_LENGTH - 3] + "..."


def escape_results(suite_result: ExpectationSuiteValidationResult) -> None:
    """Escape values and column names in results, so that a browser does not run them as HTML."""
    for result in suite_result.results:
        result.result = escaped_for_html(result.result)
        result.exception_info = escaped_for_html(result.exception_info)
        if config := result.expectation_config:
            columns = {k: v for k, v in config.kwargs.items() if k.startswith("column")}
            config.kwargs = {**config.kwargs, **escaped_for_html(columns)}


def escaped_for_html(value: Any) -> Any:
    """Escape a value for Data Docs, which write most values into HTML as they are."""
    match value:
        case None | bool() | int() | float() | Decimal() | date():
            return value
        case dict():
            return {escaped_for_html(key): escaped_for_html(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [escaped_for_html(item) for item in value]
    return html.escape(str(value), quote=False)


def raised_exception(result: ExpectationValidationResult) -> str | None:
    """Return the first line of an exception of an expectation or its metrics; None if none."""
    info = result.exception_info or {}
    for part in (info, *info.values()):
        if isinstance(part, dict) and part.get("raised_exception"):
            return str(part.get("exception_message")).strip().splitlines()[0]
    return None

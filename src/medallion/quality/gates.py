"""Gates: whole tables against their suites, judged by Great Expectations itself."""

from __future__ import annotations

import importlib
import logging
import shutil
import threading
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.errors import ConfigError
from medallion.quality.results import EXAMPLES, Verdict, exception_of, failure_of, make_harmless
from medallion.quality.rules import row_condition
from medallion.quality.suites import BY_QUERY, Expectation, fail, read_suite, suite_path

if TYPE_CHECKING:
    from great_expectations.core import (
        ExpectationSuiteValidationResult,
        ExpectationValidationResult,
    )
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.data_context.data_context.ephemeral_data_context import (
        EphemeralDataContext,
    )
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )
    from great_expectations.datasource.fluent.interfaces import Batch
    from great_expectations.datasource.fluent.spark_datasource import SparkDatasource
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

# Kinds that Great Expectations asks in a job of their own, where it asks all others in one.
_ALONE = frozenset({BY_QUERY, "expect_column_pair_values_a_to_be_greater_than_b"})
_OF_COLUMNS = "expect_table_column"  # how kinds begin that look at a table's columns, not at rows
_TO_BE_NULL = "expect_column_values_to_be_null"
_COUNTED = "counted_rows_expectation"
_QUERY_VIEW = "tmp_view"  # what Great Expectations registers a batch as, to query it


def preload() -> threading.Thread:
    """Import Great Expectations in the background, for instance while the JVM starts."""
    thread = threading.Thread(
        target=importlib.import_module, args=("medallion.quality.counted_rows",), daemon=True
    )
    thread.start()
    return thread


class Gates:
    """The gates of all tables, in one Great Expectations context that writes to `results_dir`.

    `conf_dir` is the folder that holds great_expectations/; nothing is ever written there. Only the
    last result of each table is kept: the history is not for Data Docs, whose build would grow
    with it.
    """

    def __init__(self, conf_dir: Path, results_dir: Path) -> None:
        self._conf_dir = conf_dir.resolve()
        self._results_dir = results_dir.resolve()
        self._stored: list[ValidationResultIdentifier] = []

    def has_suite(self, table: str) -> bool:
        """Whether anything is expected of a table."""
        return suite_path(self._conf_dir, table).exists()

    def validate(self, table: str, batch: DataFrame) -> Verdict | None:
        """Judge a batch DataFrame of the active session; None when nothing is expected of it.

        Raises ConfigError when the suite is not valid.
        """
        expectations = read_suite(self._conf_dir, table)
        if not expectations:
            return None
        outcome = self._judge(table, batch, expectations)
        rows = batch.count()  # of a Delta table this reads the log alone
        failures = []
        for i, expectation in enumerate(expectations):
            if not outcome.results[i].success:
                judged = outcome.results[i]
                outcome.results[i] = _explain(self._batch(table, batch), expectation, judged)
                if not outcome.results[i].success:
                    failures.append(failure_of(table, rows, expectation, outcome.results[i]))
            outcome.results[i].expectation_config = _configuration(expectation)
        self._store(table, outcome)
        batch.sparkSession.catalog.dropTempView(_QUERY_VIEW)
        return Verdict(table, rows, tuple(failures))

    def build_docs(self) -> Path | None:
        """Render what was judged since the last call; the index page, None when that is nothing."""
        if not self._stored:
            return None
        for key in self._stored:
            suite = key.expectation_suite_identifier
            shutil.rmtree(self._folder("data_docs/validations", suite), ignore_errors=True)
        (url,) = self._context.build_data_docs(resource_identifiers=self._stored).values()
        self._stored = []
        return Path(unquote(urlparse(url).path))

    @cached_property
    def _context(self) -> EphemeralDataContext:
        """The project in conf, but held in memory: a file context saves its data sources to it."""
        import great_expectations as gx
        from ruamel.yaml import YAML

        logging.getLogger("great_expectations").setLevel(logging.ERROR)
        project = self._conf_dir / "great_expectations"
        try:
            config = YAML(typ="safe").load(project / "great_expectations.yml")
            store = config["stores"]["expectations_store"]["store_backend"]
            store["base_directory"] = str(project / store["base_directory"])
        except (OSError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{project / 'great_expectations.yml'} is not a Great Expectations project with an"
                f" expectations_store in a folder ({type(error).__name__}: {error})."
            ) from error
        config.pop("config_variables_file_path", None)
        return gx.get_context(
            mode="ephemeral",
            project_config=config,
            runtime_environment={"MEDALLION_QUALITY": str(self._results_dir)},
        )

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

    def _judge(
        self, table: str, batch: DataFrame, expectations: tuple[Expectation, ...]
    ) -> ExpectationSuiteValidationResult:
        """Which expectations hold, in their order, without counts and examples.

        Most tables are good, and one job decides everything but the queries over several rows:
        what else is asked in a job of its own becomes a column that is null where the row is good,
        so that it is counted together with the other columns. Where the suite says which columns
        there are, none is added.
        """
        from great_expectations.core import ExpectationSuite

        import medallion.quality.counted_rows  # noqa: F401 - makes _COUNTED known

        asked = []
        may_add = not any(e.kind.startswith(_OF_COLUMNS) for e in expectations)
        for i, e in enumerate(expectations):
            self._refuse_what_gx_would_drop(table, e)
            cheaper = replace(e, kind=_COUNTED) if e.kind == BY_QUERY else e
            condition = row_condition(e) if may_add and e.kind in _ALONE else None
            # A condition that Spark does not understand is left for the query to report.
            with suppress(AnalysisException):
                if condition is not None:
                    broken = F.expr(f"nullif({condition}, false)")
                    batch = batch.withColumn(f"_condition_{i}", broken)
                    cheaper = replace(e, kind=_TO_BE_NULL, kwargs={"column": f"_condition_{i}"})
            asked.append(_configuration(cheaper))
        suite = ExpectationSuite(name=table, expectations=asked)
        outcome = self._batch(table, batch).validate(suite, result_format="BOOLEAN_ONLY")
        order = [e.name for e in expectations]
        outcome.results.sort(key=lambda result: order.index(_name(result)))
        return outcome

    def _refuse_what_gx_would_drop(self, table: str, expectation: Expectation) -> None:
        """Great Expectations leaves an expectation that it does not know out, with a log line."""
        from great_expectations.exceptions.exceptions import GreatExpectationsError

        try:
            _configuration(expectation).to_domain_obj()
        except (GreatExpectationsError, ValueError) as error:
            path = suite_path(self._conf_dir, table)
            fail(path, f'"{expectation.name}"', f"is refused by Great Expectations: {error}")

    def _store(self, table: str, outcome: ExpectationSuiteValidationResult) -> None:
        from great_expectations.core import RunIdentifier
        from great_expectations.data_context.types.resource_identifiers import (
            ExpectationSuiteIdentifier,
            ValidationResultIdentifier,
        )
        from great_expectations.validator.validation_statistics import calc_validation_statistics

        # Asked again in the stock way, some may hold.
        outcome.statistics = calc_validation_statistics(outcome.results)._asdict()
        outcome.success = outcome.statistics.pop("success")
        now = datetime.now(UTC)
        suite = ExpectationSuiteIdentifier(table)
        key = ValidationResultIdentifier(suite, RunIdentifier(run_time=now), outcome.batch_id)
        outcome.meta |= {"run_id": key.run_id, "validation_time": now}
        make_harmless(outcome)
        shutil.rmtree(self._folder("validations", suite), ignore_errors=True)
        self._context.validation_results_store.store_validation_results(outcome, key, suite)
        self._stored = [k for k in self._stored if k.expectation_suite_identifier != suite] + [key]

    def _folder(self, below: str, suite: ExpectationSuiteIdentifier) -> Path:
        return self._results_dir.joinpath(below, *suite.name.split("."))


def _name(result: ExpectationValidationResult) -> str:
    assert result.expectation_config is not None, "GE fills it in for each result of a suite"
    return str(result.expectation_config.meta["name"])


def _configuration(expectation: Expectation) -> ExpectationConfiguration:
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    return ExpectationConfiguration(
        type=expectation.kind,
        kwargs=expectation.kwargs,
        meta={"name": expectation.name, "on_failure": expectation.on_failure},
        notes=expectation.notes,
    )


def _explain(
    batch: Batch, expectation: Expectation, judged: ExpectationValidationResult
) -> ExpectationValidationResult:
    """Run one failed expectation again, the stock way and with examples.

    Rows that cannot be shown, for Python has no year 0 and none after 9999, are counted at least.
    """
    by_query = expectation.kind == BY_QUERY
    shown: dict[str, Any] = {
        "result_format": "COMPLETE" if by_query else "BASIC",
        "partial_unexpected_count": EXAMPLES,
        "include_unexpected_rows": True,
    }
    result = batch.validate(_configuration(expectation).to_domain_obj(), result_format=shown)
    if exception_of(judged) or not exception_of(result):
        return result
    counted = replace(expectation, kind=_COUNTED) if by_query else expectation
    shown["include_unexpected_rows"] = False
    result = batch.validate(_configuration(counted).to_domain_obj(), result_format=shown)
    return judged if exception_of(result) else result

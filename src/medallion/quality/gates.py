"""Gates: tables against their suites. What no row breaks is told by a count of ours, in one job a
table; Great Expectations judges all the rest, and shows it."""

from __future__ import annotations

import importlib
import logging
import shutil
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame

from medallion.errors import ConfigError, MedallionError
from medallion.quality.counting import count_broken, counted
from medallion.quality.results import EXAMPLES, Verdict, exception_of, failure_of, make_harmless
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

_QUERY_VIEW = "tmp_view"  # what Great Expectations registers a batch as, to query it


def preload() -> threading.Thread:
    """Import Great Expectations in the background, for instance while the JVM starts."""
    thread = threading.Thread(
        target=importlib.import_module, args=("great_expectations",), daemon=True
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
        self._unstored: dict[str, Exception] = {}

    def has_suite(self, table: str) -> bool:
        """Whether anything is expected of a table."""
        return suite_path(self._conf_dir, table).exists()

    def validate(self, table: str, batch: DataFrame, key: Sequence[str] = ()) -> Verdict | None:
        """Judge a batch DataFrame of the active session; None when nothing is expected of it.

        Args:
            key: columns by which it has been seen that no two rows are the same, if there are some.

        Raises ConfigError when the suite is not valid.
        """
        expectations = read_suite(self._conf_dir, table)
        if not expectations:
            return None
        importlib.import_module("great_expectations")  # all of it, for `preload` may still be on
        for expectation in expectations:
            self._refuse_what_gx_would_drop(table, expectation)
        rows, broken = count_broken(batch, expectations, key)
        outcome = self._judge(table, batch, [e for e in expectations if e.name not in broken])
        judged = {_name(result): result for result in outcome.results}
        results, failures = [], []
        for expectation in expectations:
            name = expectation.name
            result = judged.get(name) or counted(expectation, rows, broken[name])
            if not result.success:
                result = _explain(self._batch(table, batch), expectation, result)
                failures.append(failure_of(table, rows, expectation, result))
            result.expectation_config = _configuration(expectation)
            results.append(result)
        try:
            self._store(table, outcome, results)
        except Exception as error:  # what is shown of a verdict decides nothing; `build_docs` tells
            self._unstored[table] = error
        batch.sparkSession.catalog.dropTempView(_QUERY_VIEW)
        return Verdict(table, rows, tuple(failures))

    def build_docs(self) -> Path | None:
        """Render what was judged since the last call; the index page, None when that is nothing.

        Raises:
            MedallionError: not all of it could be stored.
            OSError: the pages cannot be written.
        """
        page = self._render() if self._stored else None
        unstored, self._unstored = self._unstored, {}
        if unstored:
            error = next(iter(unstored.values()))
            raise MedallionError(f"there is no page of {', '.join(unstored)}: {error}")
        return page

    def _render(self) -> Path:
        suites: list[Any] = [key.expectation_suite_identifier for key in self._stored]
        for suite in suites:
            shutil.rmtree(self._folder("data_docs/validations", suite), ignore_errors=True)
        (url,) = self._context.build_data_docs(resource_identifiers=suites + self._stored).values()
        self._stored = []
        return Path(unquote(urlparse(url).path))

    @cached_property
    def _context(self) -> EphemeralDataContext:
        """The project in conf, in memory, with the suites as judged: a file context would write."""
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        logging.getLogger("great_expectations").setLevel(logging.ERROR)
        project = self._conf_dir / "great_expectations/great_expectations.yml"
        try:
            config = YAML(typ="safe").load(project)
            stores = config["stores"]
            stores["expectations_store"]["store_backend"] = {"class_name": "InMemoryStoreBackend"}
        except (OSError, KeyError, TypeError, ValueError, YAMLError) as error:
            raise ConfigError(
                f"{project} is not a Great Expectations project ({type(error).__name__}: {error})."
            ) from error
        config.pop("config_variables_file_path", None)
        try:
            return self._open(config)
        except OSError:  # no results can be written, which `build_docs` tells: the gates judge
            for store in stores.values():
                store["store_backend"] = {"class_name": "InMemoryStoreBackend"}
            return self._open(config)

    def _open(self, config: dict[str, Any]) -> EphemeralDataContext:
        import great_expectations as gx

        places = {"MEDALLION_QUALITY": str(self._results_dir)}
        return gx.get_context(mode="ephemeral", project_config=config, runtime_environment=places)

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
        self, table: str, batch: DataFrame, expectations: Sequence[Expectation]
    ) -> ExpectationSuiteValidationResult:
        """Which expectations hold, without counts and examples."""
        from great_expectations.core import ExpectationSuite

        suite = ExpectationSuite(name=table, expectations=list(map(_configuration, expectations)))
        return self._batch(table, batch).validate(suite, result_format="BOOLEAN_ONLY")

    def _refuse_what_gx_would_drop(self, table: str, expectation: Expectation) -> None:
        """Great Expectations leaves an expectation that it does not know out, with a log line."""
        from great_expectations.exceptions.exceptions import GreatExpectationsError

        try:
            _configuration(expectation).to_domain_obj()
        except (GreatExpectationsError, ValueError) as error:
            path = suite_path(self._conf_dir, table)
            fail(path, f'"{expectation.name}"', f"is refused by Great Expectations: {error}")

    def _store(
        self,
        table: str,
        outcome: ExpectationSuiteValidationResult,
        results: list[ExpectationValidationResult],
    ) -> None:
        """Keep the results of a table, with what Great Expectations says of the batch."""
        from great_expectations.core import ExpectationSuite, RunIdentifier
        from great_expectations.data_context.types.resource_identifiers import (
            ExpectationSuiteIdentifier,
            ValidationResultIdentifier,
        )
        from great_expectations.validator.validation_statistics import calc_validation_statistics

        now = datetime.now(UTC)
        suite = ExpectationSuiteIdentifier(table)
        key = ValidationResultIdentifier(suite, RunIdentifier(run_time=now), outcome.batch_id)
        statistics = calc_validation_statistics(results)
        outcome.results, outcome.success = results, statistics.success
        outcome.statistics = {k: v for k, v in statistics._asdict().items() if k != "success"}
        outcome.meta |= {"run_id": key.run_id, "validation_time": now}
        make_harmless(outcome)
        expected: list[Any] = [result.expectation_config for result in results]
        self._context.suites.add_or_update(ExpectationSuite(table, expected))
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
    """Run one failed expectation again, with examples.

    Rows that cannot be shown, for Python has no year 0 and none after 9999, are counted at least.
    """
    shown: dict[str, Any] = {
        "result_format": "COMPLETE" if expectation.kind == BY_QUERY else "BASIC",
        "partial_unexpected_count": EXAMPLES,
        "include_unexpected_rows": True,
    }
    result = batch.validate(_configuration(expectation).to_domain_obj(), result_format=shown)
    # What has been counted stays broken, whatever comes of looking at it.
    is_told = not result.success and (exception_of(judged) or not exception_of(result))
    return result if is_told else judged

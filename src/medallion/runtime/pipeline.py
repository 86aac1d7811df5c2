"""The pipeline: the flows of all layers in one Spark session, under the layers' locks."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from medallion.config.model import Config
from medallion.config.queries import QueryType, queries
from medallion.errors import ITEM_ERRORS, MedallionError, error_message
from medallion.layers.bronze.flow import Bronze
from medallion.layers.definition import invalid_sql_error
from medallion.layers.flow import Flow
from medallion.layers.gold.flow import Gold
from medallion.layers.publish import Publish
from medallion.layers.silver.child import Child
from medallion.layers.silver.flow import Silver
from medallion.layers.silver.scd import Scd
from medallion.runtime import planner, recorder
from medallion.spark import jvm, signals
from medallion.spark.errors import StreamError, as_medallion_error, raise_combined
from medallion.spark.query import AVAILABLE_NOW, BatchProgress, RunningQuery, trigger_options
from medallion.spark.watch import await_all
from medallion.state import journal, pending_work
from medallion.state.pending_work import WorkReason
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables, objects
from medallion.storage.layout import layer_of
from medallion.storage.text import Reporter

_FLOWS: Mapping[QueryType, Callable[..., Flow]] = {
    QueryType.BRONZE: Bronze, QueryType.SILVER: Silver, QueryType.CHANGES: Scd,
    QueryType.CHILD: Child, QueryType.GOLD: Gold, QueryType.PUBLISH: Publish,
}  # fmt: skip


@dataclass
class Pipeline:
    """The queries of one command in one Spark session.

    The caller holds the locks, and has held them since `plan` was made, if there is one.
    """

    spark: SparkSession
    config: Config
    command: str
    report: Reporter
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    planned: dict[str, planner.QueryPlan] = field(default_factory=dict)
    runs: RunRecords = field(init=False)
    _settings: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.runs = RunRecords(self.config.layout, run_id=self.run_id, command=self.command)
        self._settings = pending_work.settings_digests(self.config)

    def flows(self, layer: str) -> list[Flow]:
        """Return a new flow for each query of a layer."""
        return [
            _FLOWS[query.type](self.spark, self.config, query, self.report)
            for query in queries(self.config, [layer])
        ]

    def flow(self, name: str) -> Flow:
        """Return a new flow for the query of this name.

        Raises:
            KeyError: no query has that name.
        """
        return {flow.name: flow for flow in self.flows(layer_of(name))}[name]

    @objects.remembering()
    def start_flow(
        self, flow: Flow, trigger: Mapping[str, Any] | None, is_new: bool = False
    ) -> bool:
        """Start one query.

        Args:
            flow: the flow of the query, not started yet.
            trigger: the trigger from `spark.query.trigger_options`; None only to check the query.
            is_new: whether its tables replace the recorded ones.

        Returns:
            True if it is running; False if it waits for a schema, or is only checked.

        Raises:
            MedallionError: it cannot start, for any reason.
        """
        with self._named_errors(flow):
            if reason := flow.unknown_schema_reason():
                self.report(f"  {flow.name} waits: {reason}")
                self._record_settings(flow)
                return False
            if not is_new:
                self._refuse_outdated(flow)
            if not flow.is_unblocked:
                self.refuse_if_blocked(flow)
            self.check_inputs(flow)
            run = flow.start(trigger, -1 if is_new else self.runs.last_batch(flow.name))
            if run:
                run.on_batch = partial(self._log_batch, flow)
                run.find_failing_part = flow.failing_part_reason
            self._record_settings(flow)
        return run is not None

    def _record_settings(self, flow: Flow) -> None:
        """Record the settings of a query that they let start; report a failure.

        If the query runs, it must be supervised. Without the record it is checked once more.
        """
        try:
            pending_work.record_settings(self.config, flow.name, self._settings[flow.name])
        except ITEM_ERRORS as error:
            self.report(f"  {flow.name}: its settings are not recorded: {error_message(error)}")

    @property
    def is_alive(self) -> bool:
        """Return whether Spark still runs."""
        return jvm.is_alive(self.spark)

    def check_inputs(self, flow: Flow) -> None:
        """Raise MedallionError if an input table is missing or unreadable."""
        pending_work.refuse_missing_input(self.config, flow.name)
        for table in (*flow.upstream, *flow.targets):
            delta_tables.table_version(self.config.layout.table(table))

    @contextmanager
    def _named_errors(self, flow: Flow) -> Iterator[None]:
        """Raise any error in the start of a query as a MedallionError that names it.

        A signal stops all queries, and is not an error of this one.
        """
        try:
            yield
        except MedallionError:
            signals.raise_if_requested()  # Java got the signal, too
            raise
        except AnalysisException as error:
            if not flow.targets:  # an output, which has no SQL
                raise as_medallion_error(error, f"{flow.name} cannot be started") from error
            parts = flow.sql_parts(flow.upstream_rows())
            raise invalid_sql_error(flow.name, parts, error) from None
        except Exception as error:
            signals.raise_if_requested()
            raise as_medallion_error(error, f"{flow.name} cannot be started") from error

    def run(self, layer: str) -> None:
        """Run all queries of a layer that have work; see `run_flows`.

        Raises:
            MedallionError: queries could not start or failed; all are recorded.
        """
        raise_combined(error for _, error in self.run_flows(self.flows(layer)))

    def run_flows(self, flows: Sequence[Flow]) -> list[tuple[Flow, MedallionError]]:
        """Run flows of one layer, level after level, and record them; a blocked flow is a failure.

        Returns:
            The flows that could not start, failed (StreamError) or could not be recorded, each
            with its error. All have ended. Flows whose input a failed one did not create are left
            out.
        """
        failures, skipped = list[tuple[Flow, MedallionError]](), set[str]()
        for level in levels(flows):
            runnable = [flow for flow in level if not skipped & {*flow.upstream}]
            failures += self._run_level(runnable)
            stopped = [flow for flow, _ in failures] + [f for f in level if f not in runnable]
            targets, path = {t for flow in stopped for t in flow.targets}, self.config.layout.table
            # Tables that do not exist: their flow failed now, or was left out.
            skipped |= {name for name in targets if not delta_tables.table_exists(path(name))}
        return failures

    def _run_level(self, flows: Sequence[Flow]) -> list[tuple[Flow, MedallionError]]:
        """Run flows side by side on all available input, and record them; see `run_flows`."""
        started, failures = list[Flow](), list[tuple[Flow, MedallionError]]()

        def start_due() -> Iterator[RunningQuery]:
            for flow in flows:
                try:
                    if self._start_if_due(flow):
                        started.append(flow)
                        yield flow.started_run
                except MedallionError as error:
                    failures.append((flow, error))
                    faults = recorder.record_failed_start(self.runs, flow.name, error)
                    failures.extend((flow, fault) for fault in faults)

        cores = self.spark.sparkContext.defaultParallelism
        at_once = self.config.max_concurrent_queries or 4 * cores
        with suppress(StreamError):  # which combines the errors of all
            await_all(start_due(), at_once)
        failures += [
            (flow, StreamError(f"{flow.name}: {reason}"))
            for flow in started
            if (reason := flow.started_run.error())
        ]
        with objects.remembering():  # their queries have ended
            unrecorded = recorder.record_flows(self.runs, started)
        failures += [(flow, unrecorded[flow.name]) for flow in started if flow.name in unrecorded]
        # Their interrupted batches are complete, and the current rules apply to the others.
        restarted = [flow for flow in started if flow.started_run.sink.is_complete]
        again = [self.flow(flow.name) for flow in restarted if flow.name not in unrecorded]
        return failures + (self._run_level(again) if again else [])

    @objects.remembering()
    def _start_if_due(self, flow: Flow) -> bool:
        """Start a query on all available input; return False if it has nothing to do."""
        with self._named_errors(flow):
            plan = self.planned.pop(flow.name, None) or planner.plan_query(
                self.config, self.runs, flow.query, self._settings
            )
        flow.scan, flow.is_current = plan.scan, WorkReason.OUTDATED_TABLE not in plan.reasons
        if plan.should_run:
            return self.start_flow(flow, trigger_options(AVAILABLE_NOW))
        if plan.should_prepare:
            return self.start_flow(flow, None)
        with self._named_errors(flow):
            plan.scan.enqueue(self.runs.last_batch(flow.name), self.report)
        self.report(f"  {flow.name}: nothing is new")
        return False

    def _log_batch(self, flow: Flow, batch: BatchProgress) -> None:
        if summary := flow.describe_batch(batch):
            self.report(f"  {flow.name} batch {batch.id}: {summary}, {batch.seconds:.1f} s")

    def _refuse_outdated(self, flow: Flow) -> None:
        """Raise MedallionError if a table has to be rebuilt or restored first."""
        # Bronze is never rebuilt from another table, so a damaged entry does not block it.
        if flow.upstream and (entry := journal.rebuilds(self.config).get(flow.name)):
            raise MedallionError(f"{flow.name} waits for an {entry}.")
        older = pending_work.older_table_reason
        if not flow.is_current and (reason := older(self.config, self.runs, flow.name)):
            raise MedallionError(reason)

    def blocking_gates(self, flow: Flow) -> dict[str, str]:
        """Return the tables whose gates block a flow, with the failed expectations."""
        return pending_work.blocking_gates(self.config, self.runs.run_state, flow.name)

    def unblocked_flows(self, flows: Iterable[Flow]) -> list[Flow]:
        """Return the flows that no gate blocks, and report the others."""
        unblocked = list[Flow]()
        for flow in flows:
            if gates := self.blocking_gates(flow):
                self.report(
                    f"  {flow.name} is blocked by the gate of {' and '.join(gates)}: it stays as "
                    "the last good run left it"
                )
            else:
                flow.is_unblocked = True
                unblocked.append(flow)
        return unblocked

    def refuse_if_blocked(self, flow: Flow) -> None:
        """Raise MedallionError if a gate blocks this flow."""
        pending_work.refuse_if_blocked(self.config, self.runs.run_state, flow.name)


def levels(flows: Sequence[Flow]) -> Iterator[list[Flow]]:
    """Yield flows in groups; each flow follows those whose tables it reads."""
    left = list(flows)
    while left:
        unwritten = {name for flow in left for name in flow.targets}
        level = [flow for flow in left if not unwritten & {*flow.upstream}]
        assert level, "the configuration has a cycle of tables"
        yield level
        left = [flow for flow in left if flow not in level]

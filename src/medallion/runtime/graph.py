"""The flows of all layers in order, with their locks and their Spark session."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from medallion.config.model import Config
from medallion.config.queries import queries
from medallion.errors import ConfigError, MedallionError
from medallion.layers.bronze.flow import Bronze
from medallion.layers.flow import Flow
from medallion.layers.gold.flow import Gold
from medallion.layers.publish.flow import Publish
from medallion.layers.silver.flow import Silver
from medallion.runtime import planner, recorder, swap
from medallion.spark import jvm, signals
from medallion.spark.errors import StreamError, as_medallion_error, combine_errors, one_line
from medallion.spark.query import AVAILABLE_NOW, BatchProgress, trigger_options
from medallion.spark.session import Workload, session_of_command
from medallion.spark.watch import Watch
from medallion.state import pending_work, refresh_plan
from medallion.state.runs import Runs
from medallion.storage import clock, delta_tables, locks
from medallion.storage.paths import PUBLISH, layer_of
from medallion.storage.text import Reporter

_KINDS: Mapping[str, Callable[..., Flow]] = {
    "bronze": Bronze,
    "silver": Silver,
    "gold": Gold,
    PUBLISH: Publish,
}
GOLD_IS_HELD = "gold      held back: it is as the last good run left it"


@dataclass
class Pipeline:
    """One session's work on one lakehouse; the caller holds the locks."""

    spark: SparkSession
    config: Config
    command: str
    say: Reporter
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    runs: Runs = field(init=False)
    _settings: str = field(init=False)

    def __post_init__(self) -> None:
        self.runs = Runs(self.config.layout, run_id=self.run_id, command=self.command)
        self._settings = pending_work.settings_digest(self.config)

    def flows(self, layer: str) -> list[Flow]:
        """A flow for each query of a layer, not started yet."""
        make, asked = _KINDS[layer], queries(self.config, [layer])
        return [make(self.spark, self.config, query, self.say) for query in asked]

    def flow(self, name: str) -> Flow:
        """The flow of one query.

        Raises:
            KeyError: there is none of that name.
        """
        return {flow.name: flow for flow in self.flows(layer_of(name))}[name]

    def start_flow(self, flow: Flow, how: Mapping[str, Any] | None, is_new: bool = False) -> bool:
        """Start one query; whether it runs.

        Args:
            flow: the query's.
            how: its trigger, as `spark.query.trigger` gives it; None where it has nothing to do:
                then its settings are checked and its tables made, and no query is started.
            is_new: its tables are to replace those that the records tell of.

        Returns:
            False where it waits for a schema, or has nothing to do.

        Raises:
            MedallionError: it cannot start, and why, whatever that is.
        """
        with self._naming_flow(flow):
            if flow.has_unknown_schema():
                self.say(f"  {flow.name} waits: {flow.unknown_schema_reason()}")
                pending_work.record_settings(self.config, flow.name, self._settings)
                return False
            if not is_new:
                self._refuse_outdated(flow)
            self.check_inputs(flow)
            run = flow.start(how, -1 if is_new else self.runs.last_batch(flow.name))
            pending_work.record_settings(self.config, flow.name, self._settings)
            if run:
                run.on_batch = partial(self._log_batch, flow)
        return run is not None

    @property
    def is_alive(self) -> bool:
        """Whether Spark is there."""
        return jvm.is_alive(self.spark)

    def check_inputs(self, flow: Flow) -> None:
        """Raise MedallionError where a table that it reads is not there, is held back by a gate, or
        cannot be read."""
        pending_work.refuse_missing_input(self.config, flow.name)
        self._refuse_blocked_inputs(flow)
        for table in (*flow.upstream, *flow.targets):
            delta_tables.table_version(self.config.layout.table(table))

    @contextmanager
    def _naming_flow(self, flow: Flow) -> Iterator[None]:
        """Whatever keeps this one query from starting becomes a MedallionError, so that the others
        are started all the same; a signal that has come ends them all, and has failed none."""
        try:
            yield
        except MedallionError:
            signals.raise_if_requested()  # Java has got it too
            raise
        except AnalysisException as error:
            if not flow.targets:  # it has no SQL
                raise as_medallion_error(error, f"{flow.name} cannot be started") from error
            # Spark's first words name the column or the function that it does not know.
            where = f"{self.config.conf_dir / 'pipeline.yaml'}: {flow.name}"
            if len(flow.targets) > 1:  # there are rules to break
                where += f", or a rule of {self.config.expectations / 'expectations'},"
            told = one_line(str(error))
            raise ConfigError(f"{where} is not SQL that Spark can run: {told}") from None
        except Exception as error:
            signals.raise_if_requested()
            raise as_medallion_error(error, f"{flow.name} cannot be started") from error

    def run(self, layer: str) -> None:
        """Run what a layer has to do; see `run_flows`.

        Raises:
            MedallionError: a query could not start, or (StreamError) failed; the others have ended,
                and all are on record.
        """
        if failures := [error for _, error in self.run_flows(self.flows(layer))]:
            raise combine_errors(failures)

    def run_flows(self, flows: Sequence[Flow]) -> list[tuple[Flow, MedallionError]]:
        """Run flows of one layer on all that is available, and put on record what they did.

        Returns:
            Why some could not start or (StreamError) failed. All have ended and are on record.

        Raises:
            MedallionError: the layer is held back.
        """
        self.refuse_if_blocked(flows)
        started, failures = list[Flow](), list[tuple[Flow, MedallionError]]()
        for flow in flows:
            try:
                if self._start_if_due(flow):
                    started.append(flow)
            except MedallionError as error:
                failures.append((flow, error))
                failures += [
                    (flow, fault)
                    for fault in recorder.record_failed_start(self.runs, flow.name, error)
                ]
        with suppress(StreamError):  # of all that failed: each has its own
            Watch(self.say).await_all(flow.started_run for flow in started)
        failures += [
            (flow, StreamError(f"{flow.name}: {told}"))
            for flow in started
            if (told := flow.started_run.error())
        ]
        unsettled = recorder.record_flows(self.config, self.runs, started)
        return failures + [(f, unsettled[f.name]) for f in started if f.name in unsettled]

    def _start_if_due(self, flow: Flow) -> bool:
        """Start a query on all available input; return False if it has nothing to do."""
        with self._naming_flow(flow):
            plan = planner.plan_query(self.config, self.runs, flow.query, self._settings)
        if plan.should_run:
            return self.start_flow(flow, trigger_options(AVAILABLE_NOW))
        if plan.should_check:
            return self.start_flow(flow, None)
        if not flow.upstream:
            with self._naming_flow(flow):
                planner.poll_source(self.config, self.runs, flow.source.name, self.say)
        self.say(f"  {flow.name}: nothing is new")
        return False

    def _log_batch(self, flow: Flow, batch: BatchProgress) -> None:
        if told := flow.describe_batch(batch):
            self.say(f"  {flow.name} batch {batch.id}: {told}, {batch.seconds:.1f} s")

    def _refuse_outdated(self, flow: Flow) -> None:
        """Raise MedallionError if a table has to be rebuilt or restored first."""
        # Bronze is never rebuilt, whatever a damaged plan may have said.
        if flow.upstream and flow.name in refresh_plan.pending_tables(self.config.layout):
            raise MedallionError(
                f"{flow.name} has to be rebuilt, which a refresh has left to do: medallion refresh "
                f"{flow.name} does it, with no stream on, or says why it cannot."
            )
        if reason := pending_work.older_table_reason(self.config, self.runs, flow.name):
            raise MedallionError(reason)

    def _refuse_blocked_inputs(self, flow: Flow) -> None:
        """Raise MedallionError where it would publish rows that a gate of gold holds back."""
        held = pending_work.blocked_gates(self.config, self.runs.run_state, ["gold"])
        own = {table: failed for table, failed in held.items() if table in flow.upstream}
        pending_work.refuse_if_blocked(f"{flow.name} waits", own)

    def blocking_gates(self, flows: Iterable[Flow]) -> dict[str, str]:
        """What holds these flows back: the tables whose gate does, with the names that failed."""
        is_gated = any(flow.is_gated for flow in flows)
        return pending_work.blocked_gates(self.config, self.runs.run_state) if is_gated else {}

    def refuse_if_blocked(self, flows: Iterable[Flow]) -> None:
        """Raise MedallionError where a gate holds these flows back."""
        pending_work.refuse_if_blocked("gold is held back", self.blocking_gates(flows))


_DAY = 24 * 3600 * 1_000_000  # that a sender's clock may be ahead of ours


@contextmanager
def open_pipeline(
    config: Config,
    command: str,
    layers: Sequence[str],
    say: Reporter,
    debug: bool = False,
    work: Workload = Workload.ENDLESS,
) -> Iterator[Pipeline]:
    """A pipeline on a session of its own, with the layers' locks held.

    Args:
        config: of the lakehouse.
        command: what people have asked for.
        layers: those that are written.
        say: tells of progress.
        debug: what fails is told with its stack trace.
        work: how much there is to do.

    Raises:
        UsageError: another process writes one of the layers.
        ConfigError: Spark's settings cannot be read.
        KeyboardInterrupt: Ctrl-C or SIGTERM has come, and what was on has been stopped.
    """
    with locks.lock_layers(config.layout, layers, command):
        # A disk that is not mounted looks like it, too.
        new = "" if config.layout.tables() else " (a new lakehouse)"
        say(f"medallion {command} on {config.layout.root}{new}")
        started = time.monotonic()
        with session_of_command(config, f"medallion {command}", debug, work) as spark:
            say(f"session   {time.monotonic() - started:5.1f} s  (Spark {spark.version})")
            pipeline = Pipeline(spark, config, command, say)
            _warn_of_clock(pipeline)
            if "gold" in layers:
                swap.resume_swap(spark, config, pipeline.runs, layers, say)
            yield pipeline


def _warn_of_clock(pipeline: Pipeline) -> None:
    """Say so where the clock is behind the record: by it rows are judged to be of times to come."""
    with suppress(MedallionError):  # whoever needs the record tells
        begun = min((run.started_at for run in pipeline.runs.run_state.last.values()), default=0)
        now = clock.now_micros()
        if begun > now + _DAY:
            pipeline.say(
                f"clock     it says {clock.format_time(now)}, and every query's last run began "
                f"at {clock.format_time(begun)} or later: if it is behind, "
                "rows of today go to quarantine"
            )

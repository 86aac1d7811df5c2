"""The nightly run: all layers in one session, gates between them, and the balance at the end."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from medallion.config.model import Config
from medallion.config.queries import layers_in_use, queries, query_names, readers
from medallion.errors import MedallionError, UsageError
from medallion.inspect import balance
from medallion.inspect.edits import waiting_tables
from medallion.layers.flow import Flow
from medallion.quality.gates import Gates
from medallion.quality.suites import Failure, read_suite, unused_suites
from medallion.runtime import maintenance, refresh
from medallion.runtime.outcome import GateResult, Outcome
from medallion.runtime.pipeline import Pipeline, levels
from medallion.spark import signals
from medallion.spark.errors import SPARK_ERRORS, describe_error
from medallion.state import journal, pending_work
from medallion.state.runs import BLOCKED, PASSED, RunState, run_row
from medallion.storage import clock, delta_log, delta_tables, objects
from medallion.storage.layout import LAYERS, PUBLISH

PendingGate = tuple[Flow, Future[GateResult | None]]


class Nightly:
    """One nightly run of a pipeline."""

    def __init__(self, pipeline: Pipeline, accept: Sequence[str] = ()) -> None:
        self.pipeline, self.accept = pipeline, tuple(accept)
        self.config, self._report = pipeline.config, pipeline.report
        self.gates = Gates(self.config.conf_dir)
        self.outcome = Outcome(run_id=pipeline.run_id)
        # Queries that read a table whose gate failed to run, or that was never created.
        self.left_out: set[str] = set()
        # Great Expectations validates one table at a time, while the next layer runs.
        self.worker = ThreadPoolExecutor(1)

    def run(self) -> Outcome:
        """Run all layers, and return the outcome even if steps fail."""
        for suite in unused_suites(self.config.conf_dir, query_names(self.config)):
            self._report(f"gates     {suite} is not used: no table has that name")
        with self._catching_errors("nightly"), self.worker:
            self._run_layers()
        self._timed("maintain", self._maintain)
        self.outcome.is_balanced = False
        with objects.remembering_again(), self._catching_errors("balance"):
            snapshot = balance.take_snapshot(self.config, self.pipeline.runs)
            self.outcome.snapshot = snapshot
            self.outcome.is_balanced = not snapshot.problems
            faults = (MedallionError(problem.sentence) for problem in snapshot.problems)
            self._report_errors("balance", faults)
            rescued = self.pipeline.runs.rescued()
            for query in queries(self.config, ("bronze", "silver")):
                values = self.outcome.rescued if query.layer == "bronze" else self.outcome.lost
                values |= {query.entry: rescued[query.name]} if query.name in rescued else {}
        return self.outcome

    def _run_layers(self) -> None:
        """Run one layer after the other, each table of gold only if no gate blocks it."""
        self._handle_edits()
        self._await_gates([*self._run_layer("bronze"), *self._run_layer("silver")])
        # A gold table may read others, if their gates pass.
        for level in [*levels(self.pipeline.flows("gold"))] or [[]]:
            self._await_gates(self._run_layer("gold", level))
        if PUBLISH in layers_in_use(self.config):
            self._timed(PUBLISH, lambda: self._run_queries(PUBLISH))

    @objects.remembering()
    def _handle_edits(self) -> None:
        """Let edited tables be rebuilt with their layers, or leave them and their readers out."""
        waiting = waiting_tables(self.config)
        if self.config.on_change == "apply":
            journal.require_rebuilds(self.config, waiting)
            for table, reason in waiting.items():
                self._report(f"edit      {table}: {reason}")
        else:  # the verdict has a problem for all
            self.left_out |= waiting.keys() | {q.name for q in readers(self.config, waiting)}

    @objects.remembering_again()
    def _maintain(self) -> None:
        runs = self.pipeline.runs
        is_due = maintenance.is_removal_due(self.config.layout, runs.run_state.nightly)
        for note in maintenance.maintain(self.config, runs, LAYERS, removes=is_due).notes:
            self._report(f"  {note}")

    def _run_layer(self, layer: str, level: Sequence[Flow] | None = None) -> list[PendingGate]:
        """Run the queries of a layer, or of one level of it, and start to validate their tables."""
        all_flows = self.pipeline.flows(layer)
        flows = all_flows if level is None else level
        others = {flow.name for flow in all_flows} - {flow.name for flow in flows}
        self._timed(layer, lambda: self._run_queries(layer, others))
        run_state = self.pipeline.runs.run_state
        return [(flow, self.worker.submit(self._validate, flow, run_state)) for flow in flows]

    def _run_queries(self, layer: str, others: AbstractSet[str] = frozenset()) -> None:
        without = self.left_out | others
        failures = refresh.run_layer(self.pipeline, layer, without)
        self._report_errors(layer, [error for _, error in failures])
        for flow, _ in failures:
            if not all(map(delta_tables.table_exists, flow.target_paths)):
                self._leave_out_readers(flow)

    def _leave_out_readers(self, flow: Flow) -> None:
        self.left_out |= {query.name for query in readers(self.config, flow.targets)}

    @contextmanager
    def _catching_errors(self, what: str) -> Iterator[None]:
        """Report any error, and continue with the next step."""
        try:
            yield
        except Exception as error:
            self._report_errors(what, [error])

    def _report_errors(self, what: str, errors: Iterable[Exception]) -> None:
        for error in errors:
            if not self.pipeline.is_alive:
                signals.raise_if_requested()  # Java got the signal, too
            message = describe_error(error)
            status = error.exit_status if isinstance(error, MedallionError) else 1
            self.outcome.add_error(message, status)
            if not isinstance(error, (MedallionError, OSError, *SPARK_ERRORS)):
                self.outcome.crash = self.outcome.crash or error
            self._report(f"{what:<9} {message}")

    @objects.remembering()
    def _validate(self, flow: Flow, run_state: RunState) -> GateResult | None:
        """Validate the rows of a table that have not passed its gate; return None if all have."""
        table, path = flow.name, self.config.layout.table(flow.name)
        version = delta_tables.table_version(path)
        since = pending_work.validated_version(run_state, table, path)
        is_rebuilt = since < run_state.refreshed.get(table, -1) <= version
        is_due = is_rebuilt or pending_work.needs_validation(self.config, run_state, table)
        if not is_due or not self.gates.has_suite(table):
            return None
        started = time.monotonic()
        # All rows after a refresh, or if maintenance removed the commits that added the new ones.
        new = range(since + 1, version + 1)
        needs_all_rows = is_rebuilt or not delta_log.are_readable(path, new)
        files = None if needs_all_rows else delta_log.added_files(path, new.start, version)
        verdict = self.gates.validate(table, *flow.validation_input(files))
        if verdict is None:
            return None
        accepted = tuple(each.expectation for each in verdict.failures if self._is_accepted(each))
        return GateResult(verdict, version, accepted, time.monotonic() - started)

    def _await_gates(self, waiting: Sequence[PendingGate]) -> None:
        """Wait for verdicts and record them.

        The rows of a table that could not be validated do not move on to the next layer.
        """
        started = time.monotonic()
        gates = []
        for flow, future in waiting:
            try:
                gate = future.result()
            except Exception as error:
                self._report_errors("gates", [error])
                self._leave_out_readers(flow)
            else:
                gates += [gate] if gate else []
        self.outcome.seconds["gates"] += time.monotonic() - started
        self.outcome.gates += gates
        self.pipeline.runs.write(map(gate_row, gates))

    def _is_accepted(self, failure: Failure) -> bool:
        names = {failure.expectation, f"{failure.table}.{failure.expectation}"}
        return failure.on_failure == "stop" and bool(names & set(self.accept))

    def _timed(self, name: str, work: Any) -> None:
        signals.raise_if_requested()
        started = time.monotonic()
        with self._catching_errors(name):
            work()
        seconds = time.monotonic() - started
        self.outcome.seconds[name] += seconds
        self._report(f"{name:<9} {seconds:5.1f} s")


def gate_row(gate: GateResult) -> dict[str, Any]:
    """Return the row of a gate in `ops.runs`."""
    failed = [failure.expectation for failure in gate.blocking_failures]
    warned = [f.expectation for f in gate.verdict.failures if f.on_failure == "warn"]
    state, now = BLOCKED if failed else PASSED, clock.now_micros()
    return run_row("gate", gate.verdict.table, state, now, gate.seconds) | {
        "rows_in": gate.verdict.rows,
        "table_version": gate.version,
        "failed_expectations": ", ".join(failed) or None,
        "accepted_expectations": ", ".join(gate.accepted) or None,
        "warned_expectations": ", ".join(warned) or None,
        "failures": json.dumps(list(map(asdict, gate.verdict.failures)), default=str),
    }


def check_accepted(config: Config, accept: Sequence[str]) -> None:
    """Raise UsageError if `accept` names an expectation that no suite has."""
    suites = {table: read_suite(config.conf_dir, table) for table in query_names(config)}
    known = {n for t, suite in suites.items() for e in suite for n in (e.name, f"{t}.{e.name}")}
    for name in (name for name in accept if name not in known):
        raise UsageError(f"--accept {name}: no suite has an expectation of that name.")

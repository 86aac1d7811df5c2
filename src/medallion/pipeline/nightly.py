"""The nightly batch: all layers in one session, gates between them, and the balance at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from pyspark.sql import DataFrame

from medallion.config.model import Config
from medallion.errors import MedallionError, UsageError
from medallion.inspection import balance as accounting
from medallion.lakehouse import tables
from medallion.lakehouse.layout import LAYERS
from medallion.layers.flow import Flow
from medallion.ops import runs
from medallion.ops.runs import HELD, PASSED, Standing
from medallion.pipeline import maintenance, refresh, upkeep
from medallion.pipeline.pipeline import GOLD_IS_HELD, Pipeline, queries
from medallion.pipeline.report import Gate, Report
from medallion.quality.gates import Gates
from medallion.quality.results import Failure
from medallion.quality.suites import read_suite
from medallion.spark import feed


class Nightly:
    """One nightly run of a pipeline."""

    def __init__(self, pipeline: Pipeline, accept: Sequence[str] = ()) -> None:
        self.pipeline, self.accept = pipeline, tuple(accept)
        self.config = pipeline.config
        self.gates = Gates(self.config.conf_dir, self.config.layout.quality)
        self.report = Report()
        self.refreshed = pipeline.runs.standing.refreshed
        # Great Expectations judges one table at a time, beside the queries of the next layer.
        self.worker = ThreadPoolExecutor(1)

    def run(self) -> Report:
        """Run the layers; gold only if nothing holds it back."""
        with self.worker:
            waiting = self._layer("bronze")
            waiting += self._layer("silver")
            self._collect(waiting)
            if any(gate.stops for gate in self.report.gates):
                self._say(GOLD_IS_HELD)
            else:
                refresh.finish(self.pipeline)  # a silver table rebuilt while gold was held back
                self._collect(self._layer("gold"))
            self._timed("docs", self._build_docs)
        self._timed("upkeep", self._maintain)
        self.report.balances = accounting.balances(self.config, self.pipeline.runs)
        return self.report

    def _maintain(self) -> None:
        found = maintenance.maintain(self.config, self.pipeline.runs, LAYERS)
        for note in found.notes:
            self._say(f"  {note}")

    def _layer(self, layer: str) -> list[Future[Gate | None]]:
        self._timed(layer, lambda: self._stream(layer))
        standing = self.pipeline.runs.standing
        flows = self.pipeline.flows(layer)
        return [self.worker.submit(self._judge, flow, standing) for flow in flows]

    def _stream(self, layer: str) -> None:
        try:
            self.pipeline.run(layer)
        except MedallionError as error:  # the rest goes on
            self.report.errors.append(str(error))
            self.report.exit_status = max(self.report.exit_status, error.exit_status)
            self._say(f"{layer:<9} {error}")

    def _judge(self, flow: Flow, standing: Standing) -> Gate | None:
        """Judge the rows that have not passed yet, those of a run that was held among them."""
        table = flow.name
        version = tables.version(self.config.layout.table(table))
        since = standing.passed.get(table, 0)
        last = standing.gates.get(table)
        was_held = last is not None and last.state == HELD
        if version <= since and not was_held:
            return None
        started = time.monotonic()
        verdict = self.gates.validate(table, self._batch(flow, since, version))
        if verdict is None:
            return None
        accepted = tuple(
            failure.expectation for failure in verdict.failures if self._is_accepted(failure)
        )
        return Gate(verdict, version, accepted, time.monotonic() - started)

    def _batch(self, flow: Flow, since: int, version: int) -> DataFrame:
        spark, path = self.pipeline.spark, self.config.layout.table(flow.name)
        # Complete mode writes the whole table, and so does a refresh: of what is in the feed then,
        # there is no telling which rows it took away again. And where no gate holds rows back,
        # housekeeping need not leave them as they came.
        is_rewritten = flow.is_rewritten or self.refreshed.get(flow.name, -1) > since
        if is_rewritten or not upkeep.are_there(path, range(since + 1, version + 1)):
            return spark.read.format("delta").load(str(path))
        return feed.added(spark, path, since + 1, version)

    def _collect(self, waiting: list[Future[Gate | None]]) -> None:
        started = time.monotonic()
        gates = [gate for future in waiting if (gate := future.result())]
        self.report.seconds["gates"] = (
            self.report.seconds.get("gates", 0) + time.monotonic() - started
        )
        self.report.gates += gates
        self.pipeline.runs.write([self._row(gate) for gate in gates])

    def _row(self, gate: Gate) -> dict[str, Any]:
        failed = [failure.expectation for failure in gate.stops]
        return {
            "run_id": self.pipeline.run_id,
            "command": self.pipeline.command,
            "kind": "gate",
            "query": gate.verdict.table,
            "started_at": runs.now(),
            "seconds": round(gate.seconds, 3),
            "state": HELD if failed else PASSED,
            "rows_in": gate.verdict.rows,
            "table_version": gate.version,
            "failed_expectations": ", ".join(failed) or None,
            "accepted_expectations": ", ".join(gate.accepted) or None,
        }

    def _is_accepted(self, failure: Failure) -> bool:
        names = {failure.expectation, f"{failure.table}.{failure.expectation}"}
        return failure.on_failure == "stop" and bool(names & set(self.accept))

    def _build_docs(self) -> None:
        docs = self.gates.build_docs()
        self.report.docs = str(docs) if docs else None

    def _timed(self, name: str, work: Any) -> None:
        started = time.monotonic()
        work()
        self.report.seconds[name] = time.monotonic() - started
        if name != "docs":
            self._say(f"{name:<9} {self.report.seconds[name]:5.1f} s")

    def _say(self, text: str) -> None:
        self.pipeline.say(text)


def check_accepted(config: Config, accept: Sequence[str]) -> None:
    """Raise UsageError where `accept` names an expectation that no suite has."""
    known = set()
    for table in (name for layer in LAYERS for name in queries(config, layer)):
        for expectation in read_suite(config.conf_dir, table):
            known |= {expectation.name, f"{table}.{expectation.name}"}
    for name in accept:
        if name not in known:
            raise UsageError(f"--accept {name}: no suite has an expectation of that name.")

"""The layers in order: what `run`, `nightly`, `stream` and the jobs have in common."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from medallion.config.loader import Config
from medallion.errors import ConfigError, MedallionError, UsageError
from medallion.inspection import balance
from medallion.lakehouse import tables
from medallion.lakehouse.text import counted
from medallion.layers.bronze import flow as bronze
from medallion.layers.gold import flow as gold
from medallion.layers.silver import flow as silver
from medallion.ops.runs import HELD, Runs
from medallion.quality.suites import read_suite
from medallion.schema import registry
from medallion.spark.query import (
    AVAILABLE_NOW,
    Batch,
    Run,
    StreamError,
    await_all,
    one_line,
    trigger,
)

Say = Callable[[str], None]
GOLD_IS_HELD = "gold      held back: it is as the last good run left it"


@dataclass
class Pipeline:
    """One session's work on one lakehouse; the caller holds the locks."""

    spark: SparkSession
    config: Config
    command: str
    say: Say
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    runs: Runs = field(init=False)

    def __post_init__(self) -> None:
        self.runs = Runs(self.config.layout)

    def start(
        self, layer: str, trigger_text: str = AVAILABLE_NOW, only: Sequence[str] | None = None
    ) -> list[Run]:
        """Start the queries of a layer, or some of them, side by side."""
        how = trigger(trigger_text)
        if layer == "gold":
            self.refuse_held()
        names = self.names(layer) if only is None else only
        return [run for name in names if (run := self._begin(layer, name, how))]

    def _begin(self, layer: str, name: str, how: dict[str, Any]) -> Run | None:
        """Start one query; None where it waits for a schema."""
        if self._waits(layer, name):
            self.say(f"  {layer}.{name} waits: nothing has landed that tells its schema")
            return None
        try:
            run = self._start(layer, name, how)
        except AnalysisException as error:
            # Spark's first words name the column or the function that it does not know.
            where = f"{self.config.conf_dir / 'pipeline.yaml'}: {layer}.{name}"
            if layer == "silver":
                where += f", or a rule of {self.config.expectations / 'expectations'},"
            raise ConfigError(
                f"{where} is not SQL that Spark can run: {one_line(str(error))}"
            ) from None
        run.on_batch = self._tell
        return run

    def _start(self, layer: str, name: str, how: dict[str, Any]) -> Run:
        self.need(f"{layer}.{name}")
        if layer == "gold":
            return gold.start(self.spark, self.config, self.config.gold[name], how)
        source = self.config.sources[name]
        if layer == "bronze":
            return bronze.start(self.spark, self.config, source, how, self.say)
        return silver.start(self.spark, self.config, source, how, self.say)

    def run(self, layer: str) -> None:
        """Run a layer on all that is available, settle it and record it.

        Raises:
            MedallionError: a query could not start, or (StreamError) failed; the others have ended,
                and all are on record.
        """
        if layer == "gold":
            self.refuse_held()
        started: list[Run] = []
        failures: list[MedallionError] = []
        for name in self.names(layer):
            try:
                if run := self._begin(layer, name, trigger(AVAILABLE_NOW)):
                    started.append(run)
            except MedallionError as error:
                failures.append(error)
        try:
            await_all(started)
        except StreamError as error:
            failures.append(error)
        self.settle(layer, started)
        if failures:
            raise type(failures[0])("; ".join(dict.fromkeys(map(str, failures))))

    def settle(self, layer: str, started: Sequence[Run]) -> None:
        """Account for every batch that is not on record yet, a cut-off run's among them."""
        rows = []
        for run in started:
            run.collect()
            since = self.runs.last_batch(run.name)
            figures = self.figures(layer, run, since)
            if run.batches or run.error() or figures["last_batch"] > since:
                row = balance.row_of(self.config, self.runs, run, figures)
                rows.append({**row, "run_id": self.run_id, "command": self.command})
        self.runs.write(rows)
        for run in started:
            run.settled()
            if run.intake:  # not before its rows are on record, for they might be counted again
                run.intake.clean(self.runs.last_batch(run.name))

    def figures(self, layer: str, run: Run, since: int) -> dict[str, Any]:
        """What `ops.runs` says of the batches after `since`."""
        if layer == "gold":
            ids = list(run.batches)
            read = sum(batch.rows for batch in run.batches.values())
            return {
                "rows_in": read,
                "first_batch": min(ids, default=None),
                "last_batch": max(ids, default=since),
            }
        source = self.config.sources[run.name.split(".")[1]]
        settle = balance.settle_bronze if layer == "bronze" else balance.settle_silver
        return settle(self.spark, self.config, source, run, since)

    def _tell(self, run: Run, batch: Batch) -> None:
        # Silver reads each row twice, once on the way around the watermark: it counts them itself.
        name = run.name
        rows = sum(metric["rows"] for metric in batch.observed.values()) or batch.rows
        what = counted(rows, "row")
        if run.intake:  # bronze, whose query streams paths
            lines = run.intake.lines.get(batch.id, 0)
            what = f"{counted(batch.rows, 'file')}, {counted(lines, 'row')}"
        if rows:
            self.say(f"  {name} batch {batch.id}: {what}, {batch.seconds:.1f} s")

    def names(self, layer: str) -> Sequence[str]:
        """The sources, or the tables of gold."""
        return list(self.config.gold if layer == "gold" else self.config.sources)

    def has_rows(self, layer: str, name: str) -> bool:
        """Whether bronze has rows of a source, or of a gold table's: then all columns are known."""
        return tables.row_count(self.config.layout.table(f"bronze.{self._source(layer, name)}")) > 0

    def _source(self, layer: str, name: str) -> str:
        return self.config.gold[name].source if layer == "gold" else name

    def _waits(self, layer: str, name: str) -> bool:
        """Whether a schema that is inferred is not known yet: no SQL could name its columns."""
        if layer == "bronze":
            return False
        source = self.config.sources[self._source(layer, name)]
        return source.schema is None and not registry.read(self.config.layout.schemas(source.name))

    def need(self, table: str) -> None:
        """Raise UsageError where the table that another one is made of is not there yet."""
        layer, _, name = table.partition(".")
        if layer == "bronze":
            return
        source, before = (
            (name, "bronze") if layer == "silver" else (self.config.gold[name].source, "silver")
        )
        if not tables.exists(self.config.layout.table(f"{before}.{source}")):
            raise UsageError(
                f"{before}.{source} is not there yet: run medallion run {before} first."
            )

    def held(self) -> dict[str, str]:
        """The tables whose gate holds rows back from gold, with the names that failed.

        A table that the configuration has given up, or its suite, is never judged again.
        """
        gates = self.runs.standing.gates
        held = {table: gate.failed for table, gate in gates.items() if gate.state == HELD}
        judged = (f"{layer}.{n}" for layer in ("bronze", "silver") for n in self.config.sources)
        return {t: held[t] for t in judged if t in held and read_suite(self.config.conf_dir, t)}

    def refuse_held(self) -> None:
        """Raise MedallionError where a gate holds rows back from gold."""
        if held := self.held():
            names = "; ".join(f"{failed} on {table}" for table, failed in held.items())
            raise MedallionError(
                f"gold is held back: {names} failed and has not passed since. Run medallion "
                "nightly, with --accept EXPECTATION to let the rows through as they are."
            )

"""The steps of a walk, run in this process with an existing Spark session."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.config.queries import layers_in_use
from medallion.errors import MedallionError
from medallion.inspect import edits
from medallion.inspect.audit import run_audit
from medallion.runtime import backfill, erase, maintenance, refresh, replay, stream
from medallion.runtime.erase import Request
from medallion.runtime.nightly import Nightly
from medallion.runtime.opening import open_pipeline
from medallion.runtime.pipeline import Pipeline
from tests.faults.writes import Strike, install

_TIME = time.time


@dataclass(frozen=True)
class Outcome:
    """The end of a step: `done`, `refused` (with a message), `crashed` or `killed`."""

    how: str
    output: str = ""
    sites: list[str] = field(default_factory=list)
    struck: str | None = None


class Actor:
    """Runs steps on one lakehouse."""

    def __init__(self, spark: SparkSession, conf: Path, root: str | Path) -> None:
        self.spark, self.conf, self.root = spark, conf, str(root)
        self.watch = install()

    def config(self) -> Config:
        """Return the configuration as it is now in the file."""
        environ = {"MEDALLION_CONF": str(self.conf), "MEDALLION_HOME": self.root}
        return load(environ, self.conf)

    def act(self, step: Mapping[str, Any]) -> Outcome:
        """Run one step, and return how it ended."""
        strike = step.get("strike")
        note = Path(step["note"]) if step.get("note") else None
        shift = float(step.get("clock", 0))
        self.watch.begin(self.root, Strike(**strike) if strike else None, note)
        how, output = "done", ""
        try:
            with patch("time.time", lambda: _TIME() + shift), self._one_session():
                getattr(self, f"_{step['do']}")(**step.get("with", {}))
        except MedallionError as error:
            how, output = "refused", str(error)
        except Exception as error:
            how, output = "crashed", f"{type(error).__name__}: {error}"
        finally:
            self.watch.end()
        return Outcome(how, output, self.watch.sites, self.watch.struck)

    @contextmanager
    def _one_session(self) -> Iterator[None]:
        """Make commands use the existing session, and keep it running."""

        def stop(spark: SparkSession) -> None:
            for query in spark.streams.active:
                query.stop()

        module = "medallion.spark.session"
        with (
            patch(f"{module}.spark_session", lambda *_, **__: self.spark),
            patch(f"{module}._stop", stop),
        ):
            yield

    @contextmanager
    def _open(self, command: str, *layers: str) -> Iterator[Pipeline]:
        config = self.config()
        used_layers = layers or layers_in_use(config)
        with open_pipeline(config, command, used_layers, lambda _: None) as pipeline:
            yield pipeline

    def _layers(self) -> None:
        with self._open("faults") as pipeline:
            for layer in layers_in_use(pipeline.config):
                pipeline.run(layer)

    def _run(self, layer: str) -> None:
        with self._open(f"run {layer}", layer) as pipeline:
            pipeline.run(layer)

    def _nightly(self) -> None:
        with self._open("nightly") as pipeline:
            report = Nightly(pipeline).run()
        if report.crash:
            raise RuntimeError("; ".join(report.errors))
        if not report.is_good:
            stops = [
                f"{f.expectation} on {f.table}" for g in report.gates for f in g.blocking_failures
            ]
            raise MedallionError("; ".join([*report.errors, *stops]) or "not balanced")

    def _stream(self, seconds: float, number: int = signal.SIGTERM) -> None:
        timer = threading.Timer(seconds, os.kill, (os.getpid(), number))
        with self._open("stream") as pipeline:
            timer.start()
            try:
                stream.run_stream(pipeline, layers_in_use(pipeline.config), "1 second")
            finally:
                timer.cancel()

    def _refresh(self, table: str) -> None:
        with self._open("refresh", *refresh.layers_to_lock(self.config(), table)) as pipeline:
            refresh.refresh_table(pipeline, table)

    def _apply(self) -> None:
        with self._open("apply") as pipeline:
            found = edits.find_edits(pipeline.config)
            tables = [edit.table for edit in found if edit.action == edits.EditAction.REBUILD]
            refresh.apply_edits(pipeline, tables)

    def _backfill(self, source: str, path: str) -> None:
        backfill.run_backfill(self.config(), source, path, lambda _: None)

    def _erase(self, source: str | None = None, condition: str | None = None, **_: str) -> None:
        """Erase rows; without a source, complete an interrupted erasure."""
        table = f"silver.{source}" if source else None
        erase.run_erase(
            self.config(), Request(table, condition, cascade=bool(table)), lambda _: None
        )

    def _replay(self, source: str) -> None:
        config = self.config()
        name = replay.source_to_replay(config, f"quarantine.{source}", None)
        with self._open("replay", "silver") as pipeline:
            replay.replay_rows(pipeline, name, None)

    def _maintain(self) -> None:
        maintenance.maintain_unlocked_layers(self.config())

    def _audit(self) -> None:
        audit = run_audit(self.config(), everything=True)
        if not audit.is_balanced:
            output = [*audit.findings, *(f"{name}: {b}" for name, b in audit.balances.items())]
            raise MedallionError("; ".join(output))

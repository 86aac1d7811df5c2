"""Triggers, and streaming queries watched until they end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from medallion.config.values import Duration
from medallion.errors import MedallionError, UsageError
from medallion.spark import checkpoints
from medallion.spark.errors import SPARK_ERRORS, StreamError, one_line

AVAILABLE_NOW = "available-now"
_REWRITTEN = ("DELTA_SOURCE_TABLE_IGNORE_CHANGES", "DELTA_SOURCE_IGNORE_DELETE")


def trigger(text: str) -> dict[str, Any]:
    """The arguments of `DataStreamWriter.trigger` for `available-now` or an interval.

    Raises:
        UsageError: the text is neither.
    """
    if text == AVAILABLE_NOW:
        return {"availableNow": True}
    try:
        Duration.of(text)
    except ValueError:
        raise UsageError(
            f"--trigger {text!r} is neither {AVAILABLE_NOW} nor an interval such as '4 seconds'."
        ) from None
    return {"processingTime": text}


@dataclass(frozen=True)
class Batch:
    """The engine's record of one micro-batch."""

    id: int
    rows: int
    observed: dict[str, Any]
    duplicates: int
    late: int
    watermark: str | None
    seconds: float

    @classmethod
    def of(cls, progress: Any) -> Batch:
        """From a progress record of Spark."""
        record = json.loads(progress.json)
        operators = record.get("stateOperators") or []
        return cls(
            id=record["batchId"],
            rows=record["numInputRows"],
            observed=record.get("observedMetrics") or {},
            duplicates=sum(
                op.get("customMetrics", {}).get("numDroppedDuplicateRows", 0) for op in operators
            ),
            late=sum(op.get("numRowsDroppedByWatermark", 0) for op in operators),
            watermark=(record.get("eventTime") or {}).get("watermark"),
            seconds=record["durationMs"].get("triggerExecution", 0) / 1000,
        )


class Sink:
    """A function that writes micro-batches, and what it failed of, in words.

    Spark's own account of a function that failed is a stack trace of Python's.
    """

    def __init__(self, write: Callable[[DataFrame, int], None]) -> None:
        self._write = write
        self.failure: MedallionError | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        try:
            self._write(rows, batch)
        except MedallionError as error:
            self.failure = error
            raise
        except Exception as error:
            kind = "" if isinstance(error, SPARK_ERRORS) else f"{type(error).__name__}: "
            told = one_line(str(error)) if str(error).strip() else "no message"
            self.failure = MedallionError(f"batch {batch}: {kind}{told}")
            raise


@dataclass
class Run:
    """One streaming query, with the records of those of its batches that are not settled yet.

    `last_batch` is the last one that is known to have ended: at first, the checkpoint's.
    """

    name: str
    query: StreamingQuery
    checkpoint: Path
    last_batch: int
    sink: Sink | None = None
    started: float = field(default_factory=time.time)
    ended: float | None = None
    batches: dict[int, Batch] = field(default_factory=dict)
    on_batch: Callable[[Run, Batch], None] | None = None
    is_renewed: bool = False  # it stopped for new columns, which is no failure

    def collect(self) -> None:
        """Take up the records of the batches that have ended since the last call."""
        last = self.query.lastProgress
        if last is None or last["batchId"] <= self.last_batch:
            return
        # To fetch all the records that Spark keeps takes long: only where some were missed.
        missed = last["batchId"] > self.last_batch + 1
        for progress in self.query.recentProgress if missed else [last]:
            ran = "addBatch" in progress["durationMs"]  # an idle trigger leaves a record as well
            if ran and progress["batchId"] > self.last_batch:
                batch = Batch.of(progress)
                self.batches[batch.id] = batch
                self.last_batch = batch.id
                if self.on_batch:
                    self.on_batch(self, batch)

    def settled(self) -> None:
        """Forget the batches that are on record now."""
        self.batches = {}
        self.started = time.time()

    def batches_to_settle(self, since: int) -> range:
        """The batches after `since` that have ended, those of a run that was cut off among them.

        Of a running query the record of the last one may be to come. (Spark keeps the offsets of
        100 batches only.)
        """
        last = (
            self.last_batch if self.ended is None else checkpoints.last_committed(self.checkpoint)
        )
        return range(since + 1, last + 1)

    def watermark(self) -> int | None:
        """The watermark of the last batch, in microseconds since 1970."""
        return moment(self.batches[max(self.batches)].watermark) if self.batches else None

    def error(self) -> str | None:
        """What stopped the query, in one line; None where it runs or ended well."""
        exception = self.query.exception()
        if exception is None or self.is_renewed:
            return None
        failure = self.sink.failure if self.sink else None
        told = str(failure) if failure else one_line(str(exception))
        if any(name in told for name in _REWRITTEN):
            return (
                "rows of the table that it reads have been changed or deleted since it last ran: "
                f"medallion refresh {self.name} rebuilds its own"
            )
        return told


def start(
    writer: DataStreamWriter,
    name: str,
    checkpoint: Path,
    how: Mapping[str, Any],
    sink: Sink | Path,
) -> Run:
    """Start a query whose batches a function writes, or Spark itself to the Delta table there.

    Args:
        how: its trigger, as `trigger` gives it.
    """
    before = checkpoints.last_committed(checkpoint)
    writer = writer.queryName(name).option("checkpointLocation", str(checkpoint)).trigger(**how)
    if isinstance(sink, Path):
        return Run(name, writer.format("delta").start(str(sink)), checkpoint, before)
    return Run(name, writer.foreachBatch(sink).start(), checkpoint, before, sink)


def await_all(runs: Iterable[Run]) -> None:
    """Wait until every query has ended; one that fails does not stop the others.

    Raises:
        StreamError: at least one failed; the message names each with its cause.
    """
    waiting = list(runs)
    everyone = list(waiting)
    while waiting:
        for run in list(waiting):
            active = run.query.isActive
            run.collect()
            if not active:
                run.ended = time.time()
                waiting.remove(run)
        if waiting:
            time.sleep(0.05)
    failures = [f"{run.name}: {error}" for run in everyone if (error := run.error())]
    if failures:
        raise StreamError("; ".join(failures))


def stop_all(runs: Iterable[Run]) -> None:
    """Stop queries where they are: a batch that is cut off runs again at the next start."""
    for run in runs:
        run.query.stop()
        run.collect()
        run.ended = time.time()


def moment(text: str | None) -> int | None:
    """Microseconds since 1970 of a time as Spark's records spell it."""
    if not text or text.startswith("1970-01-01"):
        return None
    return int(datetime.fromisoformat(text).timestamp() * 1_000_000)

"""Triggers, and streaming queries watched until they end."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from medallion.config.values import Duration
from medallion.errors import MedallionError, UsageError

AVAILABLE_NOW = "available-now"
_TRACEBACK = "Traceback (most recent call last):\n"
_REWRITTEN = ("DELTA_SOURCE_TABLE_IGNORE_CHANGES", "DELTA_SOURCE_IGNORE_DELETE")


Check = Callable[..., DataFrame]


class StreamError(MedallionError):
    """A streaming query stopped with an error."""


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


class Intake(Protocol):
    """Bronze's side of a run: it reads its files inside of a batch, where no record sees them."""

    lines: dict[int, int]  # rows that the engine read in each batch
    failure: MedallionError | None  # what stopped the last batch

    def poll(self) -> None:
        """Look for new files."""

    def clean(self, batch: int) -> None:
        """Put away what the batches up to this one took in: they are accounted for."""


@dataclass
class Run:
    """One streaming query, with the records of those of its batches that are not settled yet.

    `last_batch` is the last one that is known to have ended: at first, the checkpoint's.
    """

    name: str
    query: StreamingQuery
    last_batch: int
    started: float = field(default_factory=time.time)
    ended: float | None = None
    batches: dict[int, Batch] = field(default_factory=dict)
    on_batch: Callable[[Run, Batch], None] | None = None
    intake: Intake | None = None
    check: Check | None = None  # silver's, with the rules as they were when it started
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

    def watermark(self) -> int | None:
        """The watermark of the last batch, in microseconds since 1970."""
        return moment(self.batches[max(self.batches)].watermark) if self.batches else None

    def error(self) -> str | None:
        """What stopped the query, in one line; None where it runs or ended well."""
        exception = self.query.exception()
        if exception is None or self.is_renewed:
            return None
        failure = self.intake.failure if self.intake else None
        told = str(failure) if failure else one_line(str(exception))
        if any(name in told for name in _REWRITTEN):
            return (
                "rows of the table that it reads have been changed or deleted since it last ran: "
                f"medallion refresh {self.name} rebuilds its own"
            )
        return told


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


def one_line(text: str) -> str:
    """An exception of Spark without its stack traces, Python's among them."""
    traced = text.rpartition(_TRACEBACK)[2].splitlines() if _TRACEBACK in text else []
    raised = (line for line in traced if line and not line[0].isspace())
    if told := next(raised, ""):  # after the class of the exception, which may be within a module
        kind, colon, message = told.partition(": ")
        return message if colon and re.fullmatch(r"[\w.]+", kind) else told
    lines = [line.strip() for line in text.splitlines()]
    caused = [line for line in lines if line.startswith("Caused by:")]
    first = next((line for line in lines if line), "unknown error")
    cause = caused[-1].removeprefix("Caused by:").strip() if caused else ""
    return f"{first} ({cause})" if cause and cause not in first else first


def moment(text: str | None) -> int | None:
    """Microseconds since 1970 of a time as Spark's records spell it."""
    if not text or text.startswith("1970-01-01"):
        return None
    return int(datetime.fromisoformat(text).timestamp() * 1_000_000)

"""Streaming queries: triggers, sinks, progress records, and running queries."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from medallion.config.values import Duration
from medallion.errors import MedallionError, UsageError
from medallion.spark import checkpoints, errors, jvm
from medallion.spark.errors import SPARK_ERRORS, Failure, FailureCode, describe_error
from medallion.storage import clock, locks, objects
from medallion.storage.paths import StoragePath


@dataclass(eq=False)
class Sink:
    """A function that writes micro-batches, and the error that it raised.

    Spark itself would report such an error as a Python stack trace.

    Attributes:
        write: writes one batch, given its rows and its number.
        stopping: set before the query is stopped; the function may fail from then on.
        last: the last batch to write: the query ends before the next, and is started again.
        is_complete: whether the query has ended before a later batch than the last.
        failure: the error of a batch, without Java's stack trace.
        error: the original error of `failure`.
    """

    write: Callable[[DataFrame, int], None]
    stopping: Event = field(default_factory=Event)
    last: int | None = None
    is_complete: bool = False
    failure: MedallionError | None = None
    error: Exception | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Write one batch.

        Raises:
            MedallionError: the function failed. The message has no Java stack trace: Spark
                searches it with a regular expression whose stack grows with the text.
        """
        if self.last is not None and batch > self.last:
            self.is_complete = True
            raise MedallionError(f"batch {batch} waits until its query is started again")
        try:
            locks.check_locks()
            self.write(rows, batch)
        except Exception as error:
            self.error = error
            prefix = "" if isinstance(error, MedallionError) else f"batch {batch}: "
            self.failure = MedallionError(prefix + describe_error(error))
            raise self.failure from None


@dataclass(frozen=True)
class BatchProgress:
    """Spark's progress of one micro-batch."""

    id: int
    rows: int
    observed: dict[str, Any]
    late: int
    watermark: str | None
    seconds: float

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> BatchProgress:
        """Return the progress in one of Spark's records, parsed from JSON."""
        operators = record.get("stateOperators") or []
        return cls(
            id=record["batchId"],
            rows=record["numInputRows"],
            observed=record.get("observedMetrics") or {},
            late=sum(op.get("numRowsDroppedByWatermark", 0) for op in operators),
            watermark=watermark_of(record),
            seconds=record["durationMs"].get("triggerExecution", 0) / 1000,
        )


def watermark_of(record: dict[str, Any]) -> str | None:
    """Return the watermark in a record; None if it is not set, which Spark writes as 1970."""
    text = (record.get("eventTime") or {}).get("watermark")
    return None if not text or text.startswith("1970-01-01") else str(text)


def records_after(query: StreamingQuery, batch: int) -> Iterator[dict[str, Any]]:
    """Yield Spark's records of the completed batches after a batch, parsed from JSON."""
    last = query.lastProgress
    if last is None or last["batchId"] <= batch:
        return
    # Fetching all records is slow: do it only if some were missed.
    missed = last["batchId"] > batch + 1
    for progress in query.recentProgress if missed else [last]:
        has_run = "addBatch" in progress["durationMs"]  # an idle trigger leaves a record as well
        if has_run and progress["batchId"] > batch:
            yield json.loads(progress.json)


def parse_timestamp(text: str | None) -> int | None:
    """Return a timestamp of Spark's records as microseconds since 1970."""
    return None if text is None else int(datetime.fromisoformat(text).timestamp() * 1_000_000)


AVAILABLE_NOW = "available-now"
_STOP_SECONDS = 60


def trigger_options(text: str) -> dict[str, Any]:
    """Return the arguments of `DataStreamWriter.trigger`.

    Args:
        text: `available-now`, or an interval such as `4 seconds`.

    Raises:
        UsageError: it is neither.
    """
    if text == AVAILABLE_NOW:
        return {"availableNow": True}
    try:
        return {"processingTime": Duration.parse(text).text}
    except ValueError:
        advice = f"use {AVAILABLE_NOW} or '4 seconds'"
        raise UsageError(f"There is no trigger {text!r}: {advice}.") from None


@dataclass
class RunningQuery:
    """A streaming query, with the records of its batches that are not in `ops.runs` yet.

    Attributes:
        last_batch: the last batch known to have ended; at first, the checkpoint's.
        started_at: in microseconds since 1970.
        ended: when it ended, in seconds of a monotonic clock; None if it runs.
        has_done_batch: whether a batch ended since the start, recorded or not.
        needs_restart: whether it only has to be started again, which does not count as a failure.
        is_recorded: whether it has ended, and all its batches are in `ops.runs`.
        find_failing_part: returns a message about the part of its SQL that fails, if any.
    """

    name: str
    query: StreamingQuery
    checkpoint: StoragePath
    last_batch: int
    sink: Sink
    started_at: int = field(default_factory=clock.now_micros)
    ended: float | None = None
    batches: dict[int, BatchProgress] = field(default_factory=dict)
    has_done_batch: bool = False
    on_batch: Callable[[BatchProgress], None] | None = None
    needs_restart: bool = False
    is_recorded: bool = False
    find_failing_part: Callable[[], str | None] = lambda: None
    _started: float = field(default_factory=time.monotonic)
    _is_stopped: bool = False
    _own_failure: Failure | None = None  # the reason why it stopped

    @property
    def has_dead_thread(self) -> bool:
        """Return whether its thread has died, which Spark does not notice."""
        return jvm.has_lost_its_thread(self.query)

    @property
    def is_active(self) -> bool:
        """Return whether the query still runs."""
        return not self._is_stopped and bool(self.query.isActive) and not self.has_dead_thread

    @property
    def is_processing(self) -> bool:
        """Return whether it is processing rows, and not only polling for them."""
        status = self.query.status
        return bool(status["isTriggerActive"] and status["isDataAvailable"])

    def await_termination(self, seconds: float) -> None:
        """Wait some seconds at most until Spark reports that the query has ended.

        Polling instead would cost both processes more than a small batch does.
        """
        with suppress(*SPARK_ERRORS):  # `failure` returns it
            self.query.awaitTermination(seconds)  # type: ignore[arg-type]

    def end(self) -> None:
        """Mark it as ended by itself."""
        if self.has_dead_thread:
            self.stop()
        self.ended = time.monotonic()

    def stop(self) -> None:
        """Stop it at once: an interrupted batch runs again at the next start."""
        if self._is_stopped:
            return
        self._own_failure = self.failure()
        self.sink.stopping.set()
        if self.has_dead_thread:
            jvm.release_query(self.query)
        elif not jvm.stop_within(self.query, _STOP_SECONDS):
            reason = f"it could not be stopped in {_STOP_SECONDS} seconds"
            self._own_failure = self._own_failure or Failure(FailureCode.OTHER, reason)
        self._is_stopped = True
        self.collect()
        self.ended = time.monotonic()

    def collect(self) -> None:
        """Collect the records of the batches that have ended since the last call."""
        for record in records_after(self.query, self.last_batch):
            batch = BatchProgress.from_record(record)
            self.batches[batch.id] = batch
            self.last_batch, self.has_done_batch = batch.id, True
            if self.on_batch:
                self.on_batch(batch)

    def mark_recorded(self) -> None:
        """Forget its batches, which are in `ops.runs` now."""
        self.is_recorded = self.ended is not None
        self.batches = {}
        self.started_at, self._started = clock.now_micros(), time.monotonic()

    @property
    def seconds(self) -> float:
        """Return the seconds since it was started or last recorded."""
        return (time.monotonic() if self.ended is None else self.ended) - self._started

    def unrecorded_batches(self, since: int) -> range:
        """Return the completed batches after `since`, also those of an interrupted run.

        While it runs, only batches whose progress has arrived count; after it has ended, those of
        the checkpoint. Spark keeps the offsets of 100 batches only.
        """
        last = (
            self.last_batch if self.ended is None else checkpoints.last_committed(self.checkpoint)
        )
        return range(since + 1, last + 1)

    def watermark(self) -> int | None:
        """Return the watermark of the last batch, in microseconds since 1970."""
        return parse_timestamp(self.batches[max(self.batches)].watermark) if self.batches else None

    def failure(self) -> Failure | None:
        """Return what stopped the query; None if it runs, ended well, or only has to restart."""
        if self.needs_restart or self.sink.is_complete:
            return None
        if self._is_stopped:
            return self._own_failure
        if self.has_dead_thread:
            text = "its thread in Spark has died: see Java's error above"
            return Failure(FailureCode.OTHER, text)
        exception = self.query.exception()
        if exception is not None and self._own_failure is None:
            self._own_failure = self._explained(exception)
        return self._own_failure

    def error(self) -> str | None:
        """Return the message of the failure, in one line."""
        failure = self.failure()
        return None if failure is None else str(failure)

    def _explained(self, exception: Exception) -> Failure:
        if self.sink.failure:
            cause = self.sink.error or self.sink.failure
            failure = errors.classify(cause, str(self.sink.failure))
        else:
            failure = errors.classify(exception, throwable=jvm.query_throwable(self.query))
        explained = errors.explain(failure, self.name)
        if failure.code is not FailureCode.OTHER:
            return explained
        reason = self.find_failing_part()
        return Failure(FailureCode.OTHER, reason) if reason else failure


def start_query(
    writer: DataStreamWriter,
    name: str,
    checkpoint: StoragePath,
    trigger: Mapping[str, Any],
    sink: Sink,
) -> RunningQuery:
    """Start a query whose batches are written by a function.

    Args:
        writer: the rows to write.
        checkpoint: its checkpoint.
        trigger: its trigger, as `trigger_options` returns it.
        sink: the function.
    """
    if sink.last is not None:  # an interrupted batch is completed, and no other one started
        trigger = trigger_options(AVAILABLE_NOW)
    before = checkpoints.last_committed(checkpoint)
    writer = writer.queryName(name).option("checkpointLocation", str(checkpoint)).trigger(**trigger)
    query = writer.foreachBatch(sink).start()
    objects.forget(str(checkpoint))
    return RunningQuery(name, query, checkpoint, before, sink)


def stop_all(runs: Iterable[RunningQuery]) -> None:
    """Stop queries at once: an interrupted batch runs again at the next start."""
    for run in runs:
        with suppress(*SPARK_ERRORS):  # stop the others in any case
            run.stop()

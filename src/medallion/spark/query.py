"""Triggers, and streaming queries watched until they end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from medallion.config.values import Duration
from medallion.errors import MedallionError, UsageError
from medallion.spark import checkpoints, errors, jvm
from medallion.spark.errors import SPARK_ERRORS, Failure, FailureCode, describe_error
from medallion.storage import clock


class Sink:
    """A function that writes micro-batches, and what it failed of, in words.

    Spark's own account of a function that failed is a stack trace of Python's.
    """

    def __init__(
        self, write: Callable[[DataFrame, int], None], stopping: Event | None = None
    ) -> None:
        """Make one.

        Args:
            write: the function.
            stopping: is set when the query is to be stopped: what it does then fails of that.
        """
        self._write, self.stopping = write, stopping or Event()
        self.failure: MedallionError | None = None
        self.error: Exception | None = None  # what it failed with, before it was put in words

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Write one batch.

        Raises:
            MedallionError: it could not be written. Nothing of Java's own account may be in it:
                Spark looks through that with a regular expression whose stack grows with the text.
        """
        try:
            self._write(rows, batch)
        except Exception as error:
            self.error = error
            which = "" if isinstance(error, MedallionError) else f"batch {batch}: "
            self.failure = MedallionError(which + describe_error(error))
            raise self.failure from None


@dataclass(frozen=True)
class BatchProgress:
    """The engine's record of one micro-batch."""

    id: int
    rows: int
    observed: dict[str, Any]
    duplicates: int
    late: int
    watermark: str | None
    seconds: float

    @classmethod
    def of(cls, record: dict[str, Any]) -> BatchProgress:
        """From a record of Spark, as JSON has it."""
        operators = record.get("stateOperators") or []
        return cls(
            id=record["batchId"],
            rows=record["numInputRows"],
            observed=record.get("observedMetrics") or {},
            duplicates=sum(
                op.get("customMetrics", {}).get("numDroppedDuplicateRows", 0) for op in operators
            ),
            late=sum(op.get("numRowsDroppedByWatermark", 0) for op in operators),
            watermark=watermark_of(record),
            seconds=record["durationMs"].get("triggerExecution", 0) / 1000,
        )


def watermark_of(record: dict[str, Any]) -> str | None:
    """The watermark in a record, as Spark spells it; None while there is none, or 1970 to Spark."""
    text = (record.get("eventTime") or {}).get("watermark")
    return None if not text or text.startswith("1970-01-01") else str(text)


def records_after(query: StreamingQuery, batch: int) -> Iterator[dict[str, Any]]:
    """The engine's records of the batches after a number that have ended, as JSON has them."""
    last = query.lastProgress
    if last is None or last["batchId"] <= batch:
        return
    # To fetch all the records that Spark keeps takes long: only where some were missed.
    missed = last["batchId"] > batch + 1
    for progress in query.recentProgress if missed else [last]:
        ran = "addBatch" in progress["durationMs"]  # an idle trigger leaves a record as well
        if ran and progress["batchId"] > batch:
            yield json.loads(progress.json)


def parse_timestamp(text: str | None) -> int | None:
    """Microseconds since 1970 of a time as Spark's records spell it."""
    return None if text is None else int(datetime.fromisoformat(text).timestamp() * 1_000_000)


AVAILABLE_NOW = "available-now"
_STOP_SECONDS = 60
_PUT_BACK = 60_000_000  # microseconds; by less it waits for less


def trigger_options(text: str) -> dict[str, Any]:
    """The arguments of `DataStreamWriter.trigger` for `available-now` or an interval.

    Raises:
        UsageError: the text is neither.
    """
    if text == AVAILABLE_NOW:
        return {"availableNow": True}
    try:
        Duration.parse(text)
    except ValueError:
        raise UsageError(
            f"--trigger {text!r} is neither {AVAILABLE_NOW} nor an interval such as '4 seconds'."
        ) from None
    return {"processingTime": text}


@dataclass
class Run:
    """One streaming query, with the records of those of its batches that are not settled yet.

    `last_batch` is the last one that is known to have ended: at first, the checkpoint's. The start
    is in microseconds since 1970, the end in seconds of a clock that nobody puts back.
    """

    name: str
    query: StreamingQuery
    checkpoint: Path
    last_batch: int
    sink: Sink | None = None
    is_timed: bool = False  # its batches begin at an interval
    started_at: int = field(default_factory=clock.now_micros)
    ended: float | None = None
    batches: dict[int, BatchProgress] = field(default_factory=dict)
    has_done_batch: bool = False  # since it was started, settled or not
    on_batch: Callable[[BatchProgress], None] | None = None
    needs_restart: bool = False  # it has ended, and only has to be started again: no failure
    cannot_stop: bool = False  # it could not be stopped, and no other one may run beside it
    is_recorded: bool = False  # it has ended, and all that it did is on record
    blame: Callable[[], str | None] = lambda: None  # the part of its SQL that fails at a row, told
    _begun: float = field(default_factory=time.monotonic)
    _is_stopped: bool = False
    _stop_failure: Failure | None = None  # what had stopped it before it was stopped on purpose
    _own_failure: Failure | None = None  # what has stopped it by itself

    @property
    def has_dead_thread(self) -> bool:
        """Whether its thread has died, which Spark does not take for an end."""
        return jvm.has_lost_its_thread(self.query)

    @property
    def is_active(self) -> bool:
        """Whether anything is still done for it."""
        return not self._is_stopped and bool(self.query.isActive) and not self.has_dead_thread

    @property
    def is_processing(self) -> bool:
        """Whether it works on rows now, and does not just look for them."""
        status = self.query.status
        return bool(status["isTriggerActive"] and status["isDataAvailable"])

    def activity(self) -> tuple[Any, ...]:
        """What changes whenever something happens for it, be it a look for rows in vain."""
        last = self.query.lastProgress
        return self.query.status["message"], last["timestamp"] if last else None

    def await_termination(self, seconds: int) -> None:
        """Wait so long at most, for Spark's word that it has ended, well or not.

        To ask again and again would cost both processes more than a small batch does.
        """
        with suppress(*SPARK_ERRORS):  # what it failed of is told by `error`
            self.query.awaitTermination(seconds)

    def end(self) -> None:
        """Note that it has ended by itself."""
        if self.has_dead_thread:
            self.stop()
        self.ended = time.monotonic()

    @property
    def is_waiting(self) -> bool:
        """Whether its thread waits for another one."""
        return jvm.is_waiting(self.query)

    @property
    def waits_for_past_time(self) -> bool:
        """Whether the clock was put back while it waits for its next batch: Spark begins that when
        the clock says again what it has said, in hours perhaps."""
        last = self.query.lastProgress if self.is_timed else None
        began = parse_timestamp(last["timestamp"] if last else None) or 0
        return began > clock.now_micros() + _PUT_BACK and not self.query.status["isTriggerActive"]

    def stop(self, because: Failure | None = None) -> None:
        """Stop it where it is: a batch that is cut off runs again at the next start.

        Args:
            because: what is wrong with it, where that is why; it has failed then.
        """
        if self._is_stopped:
            return
        self._stop_failure = because or self.failure()
        if self.sink:
            self.sink.stopping.set()
        if self.has_dead_thread:
            jvm.release_query(self.query)
        elif not jvm.stop_within(self.query, _STOP_SECONDS):
            self.cannot_stop = True
            text = f"it could not be stopped in {_STOP_SECONDS} seconds"
            if self._stop_failure:
                text = f"{self._stop_failure}, and {text}"
            self._stop_failure = Failure(FailureCode.OTHER, text)
        self._is_stopped = True
        self.collect()
        self.ended = time.monotonic()

    def collect(self) -> None:
        """Take up the records of the batches that have ended since the last call."""
        for record in records_after(self.query, self.last_batch):
            batch = BatchProgress.of(record)
            self.batches[batch.id] = batch
            self.last_batch, self.has_done_batch = batch.id, True
            if self.on_batch:
                self.on_batch(batch)

    def mark_recorded(self) -> None:
        """Forget its batches, which are on record now."""
        self.is_recorded = self.ended is not None
        self.batches = {}
        self.started_at, self._begun = clock.now_micros(), time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it has been on since it was settled last, whatever its clock was put to."""
        return (time.monotonic() if self.ended is None else self.ended) - self._begun

    def unrecorded_batches(self, since: int) -> range:
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
        return parse_timestamp(self.batches[max(self.batches)].watermark) if self.batches else None

    def failure(self) -> Failure | None:
        """Return what stopped the query; None if it runs, ended well, or only has to restart."""
        if self.needs_restart:
            return None
        if self._is_stopped:
            return self._stop_failure
        if self.has_dead_thread:
            cause = jvm.thread_death_cause(self.query)
            return Failure(FailureCode.OTHER, f"its thread in Spark has died of {cause}")
        exception = self.query.exception()
        if exception is not None and self._own_failure is None:
            self._own_failure = self._explained(exception)
        return self._own_failure

    def error(self) -> str | None:
        """Return the message of the failure, in one line."""
        failure = self.failure()
        return None if failure is None else str(failure)

    def _explained(self, exception: Exception) -> Failure:
        if self.sink and self.sink.failure:
            cause = self.sink.error or self.sink.failure
            failure = errors.classify(cause, str(self.sink.failure))
        else:
            failure = errors.classify(exception, throwable=jvm.query_throwable(self.query))
        explained = errors.explain(failure, self.name)
        if failure.code is not FailureCode.OTHER:
            return explained
        found = self.blame()
        return Failure(FailureCode.OTHER, found) if found else failure


def start_query(
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
    before, is_timed = checkpoints.last_committed(checkpoint), "processingTime" in how
    writer = writer.queryName(name).option("checkpointLocation", str(checkpoint)).trigger(**how)
    if isinstance(sink, Path):
        started = writer.format("delta").start(str(sink))
        return Run(name, started, checkpoint, before, is_timed=is_timed)
    started = writer.foreachBatch(sink).start()
    return Run(name, started, checkpoint, before, sink, is_timed)


def stop_all(runs: Iterable[Run]) -> None:
    """Stop queries where they are: a batch that is cut off runs again at the next start."""
    for run in runs:
        with suppress(*SPARK_ERRORS):  # one that cannot be stopped keeps no other on
            run.stop()

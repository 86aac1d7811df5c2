"""Streaming queries: start, progress, failure and stop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Timer
from traceback import format_exception
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from medallion.errors import MedallionError, UsageError
from medallion.spark import checkpoints, query
from medallion.spark.errors import StreamError
from medallion.spark.query import Run, Sink, trigger_options
from medallion.spark.watch import Watch, stop_after_batches
from medallion.storage.paths import StoragePath

# What PySpark leaves of an error of Java's, on the threads that call back from a stream.
OF_JAVA = "py4j.protocol.Py4JJavaError: An error occurred while calling o1.save.\n"


def test_triggers() -> None:
    assert trigger_options("available-now") == {"availableNow": True}
    assert trigger_options("4 seconds") == {"processingTime": "4 seconds"}
    with pytest.raises(UsageError, match="'soon' is neither available-now nor an interval"):
        trigger_options("soon")


class Progress:
    """A record of Spark: of a batch, or of an idle trigger, which has the next batch's number."""

    def __init__(self, batch: int, ran: bool = True) -> None:
        self.record = {
            "batchId": batch,
            "numInputRows": 7,
            "durationMs": {"addBatch": 5} if ran else {},
        }
        self.json = json.dumps(self.record)

    def __getitem__(self, key: str) -> Any:
        return self.record[key]


class Query:
    """A query of Spark, as far as its records go; fetching all of them is counted."""

    def __init__(self) -> None:
        self.records: list[Progress] = []
        self.fetched = 0

    @property
    def lastProgress(self) -> Progress | None:
        return self.records[-1] if self.records else None

    @property
    def recentProgress(self) -> list[Progress]:
        self.fetched += 1
        return self.records


def test_records_are_collected_once_each() -> None:
    query = Query()
    run = Run(
        "silver.event", cast(Any, query), StoragePath(Path("none")), 4
    )  # as its checkpoint was
    expected: list[int] = []
    run.on_batch = lambda batch: expected.append(batch.id)
    run.collect()
    for record in (Progress(5, ran=False), Progress(5), Progress(6, ran=False), Progress(6)):
        query.records.append(record)
        run.collect()
        run.collect()
    assert (expected, query.fetched) == ([5, 6], 0)
    query.records += [Progress(7), Progress(8), Progress(9, ran=False)]
    run.collect()
    assert (expected, query.fetched, run.last_batch) == ([5, 6, 7, 8], 1, 8)


def test_a_run_has_no_negative_duration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run("silver.event", cast(Any, Query()), StoragePath(Path("none")), 4)
    monkeypatch.setattr(time, "time", lambda: 7.0)
    monkeypatch.setattr(time, "time_ns", lambda: 7_000_000_000)
    assert 0 <= run.seconds < 60
    run.mark_recorded()
    assert run.started_at == 7_000_000


def test_a_sink_error_has_no_stack_trace() -> None:
    """Spark matches `(.|\\n)*` against all of it, and dies where that is long."""

    def write(*_: Any) -> None:
        try:
            raise Py4JError(OF_JAVA + "\tat java.base\n" * 1000)
        except Py4JError as error:
            raise ValueError("a number\nwas none") from error

    sink = Sink(write)
    with pytest.raises(MedallionError) as raised:
        sink(cast(DataFrame, None), 3)
    assert str(sink.failure) == "batch 3: ValueError: a number"
    expected = "".join(format_exception(raised.value))
    assert "Py4JJavaError" not in expected
    assert len(expected) < 1000


# A regular expression of an alternative, repeated: its stack grows with the text.
OVERFLOWING = "repeat('a', 5000000) rlike '(a|b)*c'"


def test_a_run_reports_its_sinks_error() -> None:
    """As a full disk where changes are published; Java's root of that is a trace of Python's."""
    sink = Sink(lambda rows, batch: None)
    sink.failure = MedallionError("batch 2: [TASK_WRITE_FAILED] no file (No space left on device)")
    failed = Mock()
    failed._jsq.exception().get().cause().getCause.return_value = None
    failed._jsq.exception().get().cause().toString.return_value = "py4j.Py4JException: Traceback"
    run = Run("publish.t.files", failed, StoragePath(Path("none")), 1, sink)
    assert run.error() == str(sink.failure)


def test_a_fatal_error_ends_the_run(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").load()

    def started(some: DataFrame) -> Run:
        how, sink = {"processingTime": "1 second"}, Sink(lambda *_: None)
        return query.start_query(
            some.writeStream, "rate.one", StoragePath(tmp_path / "checkpoint"), how, sink
        )

    run = started(rows.where(OVERFLOWING))  # constant, so the query's own thread computes it
    with pytest.raises(
        StreamError, match=r"rate\.one: (java.lang.StackOverflowError|its thread in Spark has died)"
    ):
        Watch(print).await_all([run])
    assert not run.is_active
    again = started(rows)  # under the same name
    assert again.is_active
    again.stop()
    assert again.error() is None


def in_time(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_query_stops_after_its_batch(spark: SparkSession, tmp_path: Path) -> None:
    written = Event()

    def write(_: DataFrame, __: int) -> None:
        written.wait(60)

    rows = spark.readStream.format("rate").load()
    how = trigger_options("1 second")
    run = query.start_query(
        rows.writeStream, "rate.slow", StoragePath(tmp_path / "slow"), how, Sink(write)
    )
    try:
        in_time(lambda: run.is_processing)
        written.set()
        in_time(lambda: not run.is_processing)
        assert run.is_active
        written.clear()
        in_time(lambda: run.is_processing)
        planned = checkpoints.last_planned(run.checkpoint)
        Timer(2, written.set).start()
        stop_after_batches([run])  # the rows that it was writing are there, and known to be
        assert not run.is_active
        assert checkpoints.last_committed(run.checkpoint) >= planned
    finally:
        run.stop()


def test_a_dead_thread_ends_the_run() -> None:
    """To Spark it stays active, has no exception, and is awaited for ever."""
    done: list[Any] = []
    streams = SimpleNamespace(notifyQueryTermination=done.append)
    execution = SimpleNamespace(
        queryExecutionThread=lambda: SimpleNamespace(isAlive=lambda: False),
        sparkSession=lambda: SimpleNamespace(streams=lambda: streams),
    )
    dead: Any = SimpleNamespace(
        isActive=True,
        lastProgress=None,
        runId="of no thread",
        exception=lambda: None,
        stop=lambda: done.append("stopped"),
        _jsq=SimpleNamespace(streamingQuery=lambda: execution),
    )
    run = Run("silver.event", dead, StoragePath(Path("none")), 4)
    assert not run.is_active
    with pytest.raises(StreamError, match=r"silver\.event: its thread in Spark has died"):
        Watch(print).await_all([run])
    assert done == ["stopped", execution]  # so that another one may take its name

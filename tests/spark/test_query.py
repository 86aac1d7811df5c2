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
from medallion.spark.query import RunningQuery, Sink, trigger_options
from medallion.spark.watch import await_all, stop_after_batches
from medallion.storage.paths import StoragePath

# PySpark's message of a Java error on the callback threads of a stream.
JAVA_ERROR = "py4j.protocol.Py4JJavaError: An error occurred while calling o1.save.\n"


SINK = Sink(lambda *_: None)


def test_triggers() -> None:
    assert trigger_options("available-now") == {"availableNow": True}
    assert trigger_options("4 seconds") == {"processingTime": "4 seconds"}
    with pytest.raises(UsageError, match="no trigger 'soon': use available-now or '4 seconds'"):
        trigger_options("soon")


class Progress:
    """A progress record of a batch, or of an idle trigger, which has the next batch's number."""

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
    """A query that only has progress records, and counts how often all of them are fetched."""

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


def test_progress_records_are_collected_once() -> None:
    query = Query()
    run = RunningQuery("silver.event", cast(Any, query), StoragePath(Path("none")), 4, SINK)
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


def test_run_has_no_negative_duration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = RunningQuery("silver.event", cast(Any, Query()), StoragePath(Path("none")), 4, SINK)
    monkeypatch.setattr(time, "time", lambda: 7.0)
    monkeypatch.setattr(time, "time_ns", lambda: 7_000_000_000)
    assert 0 <= run.seconds < 60
    run.mark_recorded()
    assert run.started_at == 7_000_000


def test_sink_error_has_no_stack_trace() -> None:
    """Spark matches a repeated alternative against the message, and dies if it is long."""

    def write(*_: Any) -> None:
        try:
            raise Py4JError(JAVA_ERROR + "\tat java.base\n" * 1000)
        except Py4JError as error:
            raise ValueError("a number\nwas none") from error

    sink = Sink(write)
    with pytest.raises(MedallionError) as raised:
        sink(cast(DataFrame, None), 3)
    assert str(sink.failure) == "batch 3: ValueError: a number"
    expected = "".join(format_exception(raised.value))
    assert "Py4JJavaError" not in expected
    assert len(expected) < 1000


# A repeated alternative in a regular expression: the stack grows with the text.
OVERFLOWING = "repeat('a', 5000000) rlike '(a|b)*c'"


def test_run_reports_the_error_of_its_sink() -> None:
    """Java's root cause of a failed sink, such as a full disk, is only Python's traceback."""
    sink = Sink(lambda rows, batch: None)
    sink.failure = MedallionError("batch 2: [TASK_WRITE_FAILED] no file (No space left on device)")
    failed_query = Mock()
    failed_query._jsq.exception().get().cause().getCause.return_value = None
    failed_query._jsq.exception().get().cause().toString.return_value = (
        "py4j.Py4JException: Traceback"
    )
    run = RunningQuery("publish.t.files", failed_query, StoragePath(Path("none")), 1, sink)
    assert run.error() == str(sink.failure)


def test_fatal_error_ends_the_run(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").load()

    def start(rows_: DataFrame) -> RunningQuery:
        trigger, sink = {"processingTime": "1 second"}, Sink(lambda *_: None)
        return query.start_query(
            rows_.writeStream, "rate.one", StoragePath(tmp_path / "checkpoint"), trigger, sink
        )

    run = start(rows.where(OVERFLOWING))  # constant, so the query's own thread computes it
    with pytest.raises(
        StreamError, match=r"rate\.one: (java.lang.StackOverflowError|its thread in Spark has died)"
    ):
        await_all([run])
    assert not run.is_active
    restarted = start(rows)  # with the same name
    assert restarted.is_active
    restarted.stop()
    assert restarted.error() is None


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_query_stops_after_its_batch(spark: SparkSession, tmp_path: Path) -> None:
    may_write = Event()

    def write(_: DataFrame, __: int) -> None:
        may_write.wait(60)

    rows = spark.readStream.format("rate").load()
    trigger = trigger_options("1 second")
    run = query.start_query(
        rows.writeStream, "rate.slow", StoragePath(tmp_path / "slow"), trigger, Sink(write)
    )
    try:
        wait_until(lambda: run.is_processing)
        may_write.set()
        wait_until(lambda: not run.is_processing)
        assert run.is_active
        may_write.clear()
        wait_until(lambda: run.is_processing)
        planned = checkpoints.last_planned(run.checkpoint)
        Timer(2, may_write.set).start()
        stop_after_batches([run])  # the batch's rows are written and committed
        assert not run.is_active
        assert checkpoints.last_committed(run.checkpoint) >= planned
    finally:
        run.stop()


def test_dead_thread_ends_the_run() -> None:
    """Spark reports such a query as active, without an exception, and would wait forever."""
    calls: list[Any] = []
    streams = SimpleNamespace(notifyQueryTermination=calls.append)
    execution = SimpleNamespace(
        queryExecutionThread=lambda: SimpleNamespace(isAlive=lambda: False),
        sparkSession=lambda: SimpleNamespace(streams=lambda: streams),
    )
    dead_query: Any = SimpleNamespace(
        isActive=True,
        lastProgress=None,
        runId="of no thread",
        exception=lambda: None,
        stop=lambda: calls.append("stopped"),
        _jsq=SimpleNamespace(streamingQuery=lambda: execution),
    )
    run = RunningQuery("silver.event", dead_query, StoragePath(Path("none")), 4, SINK)
    assert not run.is_active
    with pytest.raises(StreamError, match=r"silver\.event: its thread in Spark has died"):
        await_all([run])
    assert calls == ["stopped", execution]  # so that another query can use its name

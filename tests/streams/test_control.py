"""Streams waited for, looked at and stopped; each wait has an end."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from medallion import DataFactory, streams
from medallion.errors import UsageError
from medallion.factory.sample import FILES
from medallion.spark.errors import StreamError
from medallion.spark.signals import handled
from medallion.streams import control
from medallion.streams.control import keep
from tests.support.doors import Doors


def test_the_life_of_a_stream(doors: Doors) -> None:
    timed = doors.df.withWatermark("at", "10 minutes")
    query = streams.write(timed, "memory", name="doors")
    assert streams.until_stream_is_ready("doors").runId == query.runId
    row = streams.streams()[0]
    assert (row.name, row.id, row.run_id) == ("doors", query.id, query.runId)
    assert row.state in ("running", "waiting")  # whether it still looks for its first rows
    assert (row.last_batch, row.watermark) == (None, None)
    assert "Waiting for data" in streams.explain("doors")
    assert streams.exception("doors") is None
    assert streams.await_termination("doors", timeout=0.1) is False

    for _ in range(2):
        doors.open("front")
        query.processAllAvailable()
    row = streams.streams()[0]
    # The second batch goes by the times of the first: 10:02:33 less ten minutes.
    assert (row.last_batch, row.watermark) == (1, "2018-03-02T09:52:33.000Z")
    assert "EventTimeWatermark" in streams.explain(query, extended=True)

    (stopped,) = streams.stop_all_streams()
    assert (stopped.name, stopped.is_stopped) == ("doors", True)
    assert streams.await_termination("doors", timeout=5) is True
    assert [each.state for each in streams.streams() if each.name == "doors"] == ["ended"]
    assert streams.stop_all_streams() == []


def test_a_stream_that_fails(doors: Doors, tmp_path: Path) -> None:
    def fail(batch: DataFrame, number: int) -> None:
        raise ValueError(f"no {number} here")

    doors.open("front")
    streams.write(doors.df, "foreachBatch", fail, name="failing", checkpoint=tmp_path / "ck")
    with pytest.raises(StreamError, match="failing failed: no 0 here"):
        streams.await_termination("failing", timeout=60)
    assert streams.exception("failing") == "no 0 here"
    with pytest.raises(StreamError, match="no 0 here"):
        streams.until_stream_is_ready("failing")
    states = {row.name: row.state for row in streams.streams()}
    assert states["failing"] == "failed: no 0 here"


def test_one_that_hangs_does_not_keep_the_others_running(doors: Doors, tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hang(batch: DataFrame, number: int) -> None:
        begun.set()
        go_on.wait(60)

    doors.open("front")
    hanging = streams.write(
        doors.df, "foreachBatch", hang, name="hanging", checkpoint=tmp_path / "hanging"
    )
    other = streams.write(doors.df, "memory", name="other")
    try:
        assert begun.wait(60)
        outcomes = {row.name: row for row in streams.stop_all_streams(timeout=5)}
        assert outcomes["other"].is_stopped
        assert not other.isActive
        assert not outcomes["hanging"].is_stopped
        assert "still running after 5 seconds" in outcomes["hanging"].outcome
    finally:
        go_on.set()
    assert streams.await_termination(hanging, timeout=60)


def test_what_is_not_there_is_told(doors: Doors) -> None:
    streams.write(doors.df, "memory", name="doors")
    with pytest.raises(UsageError, match=r"no stream 'windows' here; there are: .*doors"):
        streams.until_stream_is_ready("windows")
    streams.write(doors.df, "console")  # which has no name, as what a variable has that is None
    for nothing in (None, ""):
        with pytest.raises(UsageError, match=f"no stream {nothing!r} here"):
            streams.until_stream_is_ready(nothing)  # type: ignore[arg-type]
    for wrong in (None, "5"):
        with pytest.raises(UsageError, match=f"above 0, not {wrong!r}"):
            streams.stop_all_streams(timeout=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="timeout must be a number of seconds above 0, not 0"):
        streams.stop_all_streams(timeout=0)
    with pytest.raises(UsageError, match="timeout must be"):
        streams.await_termination("doors", timeout=float("nan"))


class Dead(StreamingQuery):
    """A query whose thread a fatal Error of Java has ended: Spark calls it active for ever."""

    name, id, runId, isActive, lastProgress = "dead", "1", "2", True, None
    status = {"message": "Processing new data"}  # noqa: RUF012

    def __init__(self, is_dead: bool = True) -> None:
        thread = SimpleNamespace(isAlive=lambda: not is_dead)
        stream = SimpleNamespace(queryExecutionThread=lambda: thread)
        self._jsq = SimpleNamespace(streamingQuery=lambda: stream)

    def exception(self) -> None:
        return None


@pytest.fixture
def _a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(applicationId="app")
    monkeypatch.setattr(control, "session", lambda: SimpleNamespace(sparkContext=context))


@pytest.mark.usefixtures("_a_session")
def test_a_stream_whose_thread_has_died_is_not_waited_for() -> None:
    for wait in (streams.until_stream_is_ready, streams.await_termination):
        with pytest.raises(StreamError, match="dead failed: its thread in Spark has died"):
            wait(Dead(), timeout=600)


@pytest.mark.usefixtures("_a_session")
def test_ctrl_c_ends_a_wait_and_no_stream() -> None:
    """PySpark's handler would cancel all jobs, and every stream with a batch under way fail."""
    cancelled: list[int] = []
    running, hangs = Dead(is_dead=False), threading.Event()
    hanging: Any = SimpleNamespace(runId="run", id="id", name="hangs", stop=hangs.wait)
    with handled(lambda number, _: cancelled.append(number), [signal.SIGINT]):
        for wait in (
            lambda: streams.until_stream_is_ready(running, timeout=60),
            lambda: streams.await_termination(running, timeout=60),
            lambda: control.stop([hanging], timeout=60),
        ):
            threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
            with pytest.raises(KeyboardInterrupt):
                wait()
        signal.raise_signal(signal.SIGINT)  # it has its handler again
    hangs.set()
    assert cancelled == [signal.SIGINT]


def test_there_may_be_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "keep", lambda query: query)
    query: Any = SimpleNamespace(runId="run", id="id", name="doors", stop=lambda: None)
    (outcome,) = control.stop([query], float("inf"))
    assert outcome.is_stopped


def test_a_clean_up_stops_what_reads_or_writes_below_its_root(
    spark: SparkSession, doors: Doors, tmp_path: Path
) -> None:
    root = tmp_path / "a lesson"  # Spark's addresses spell the blank as %20
    factory = DataFactory(root / "landing", given=FILES)
    factory.load(source="event")
    events = spark.readStream.schema("action string").json(str(root / "landing/event"))
    streams.write(events, "memory", name="reads")
    table = root / "bronze/doors"
    streams.write(doors.df, "delta", table, name="writes", checkpoint=tmp_path / "checkpoint")
    streams.write(doors.df, "memory", name="other")
    doors.open("front")
    for query in spark.streams.active:
        query.processAllAvailable()

    cleaned = factory.clean_up()

    assert sorted(cleaned.stopped) == ["reads", "writes"]
    assert [query.name for query in spark.streams.active] == ["other"]
    assert not root.exists()


def test_nothing_is_removed_below_a_stream_that_does_not_stop(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "lesson"
    factory = DataFactory(root / "landing", given=FILES)
    factory.load(source="event")
    events: DataFrame = spark.readStream.schema("action string").json(str(root / "landing/event"))
    query = keep(streams.write(events, "memory", name="stubborn"))
    monkeypatch.setattr(control, "stop_one", lambda query: "still running")
    with pytest.raises(UsageError, match="stubborn did not stop within 30 seconds"):
        factory.clean_up()
    assert query.isActive
    assert (root / "landing/event/file1.json").exists()

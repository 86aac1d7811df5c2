"""Listing, awaiting and stopping streams."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from medallion import streams
from medallion.factory.sample import FILES
from medallion.spark.errors import StreamError
from medallion.spark.signals import replace_handlers
from medallion.streams import control
from notebooks.lesson import Lesson
from tests.support.doors import Doors, in_memory


@pytest.mark.usefixtures("production_streams")
def test_stream_from_start_to_end(doors: Doors) -> None:
    query = in_memory(doors.df, "doors")
    assert streams.until_stream_is_ready(query) is query  # it found no input
    assert streams.exception(query) is None
    assert streams.stop_all_streams() == []
    assert not query.isActive
    assert streams.stop_all_streams() == []


def test_exception_of_a_failed_query(doors: Doors) -> None:
    def fail(batch: DataFrame, number: int) -> None:
        raise ValueError(f"no {number} here")

    doors.open("front")
    query = doors.df.writeStream.queryName("failing").foreachBatch(fail).start()
    with pytest.raises(StreamError, match="failing failed: no 0 here"):
        streams.until_stream_is_ready(query)
    assert streams.exception(query) == "no 0 here"


def test_stop_all_streams_beside_one_that_hangs(doors: Doors) -> None:
    started, resume = threading.Event(), threading.Event()

    def hang(batch: DataFrame, number: int) -> None:
        started.set()
        resume.wait(60)

    doors.open("front")
    hanging = doors.df.writeStream.queryName("hanging").foreachBatch(hang).start()
    other = in_memory(doors.df, "other")
    try:
        assert started.wait(60)
        assert streams.stop_all_streams(timeout=2) == ["hanging"]
        assert not other.isActive
    finally:
        resume.set()
    assert hanging.awaitTermination(60)


def test_ctrl_c_ends_the_wait_but_no_stream(doors: Doors) -> None:
    """PySpark's handler would cancel all jobs, and so fail every stream."""
    cancelled: list[int] = []
    query = in_memory(doors.df, "doors")
    with replace_handlers(lambda number, _: cancelled.append(number), [signal.SIGINT]):
        # To this thread: in another one it would not end the wait.
        here = threading.get_ident()
        threading.Timer(0.5, signal.pthread_kill, [here, signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt), control.plain_interrupts():
            threading.Event().wait(60)
        signal.raise_signal(signal.SIGINT)  # the handler is restored
    assert cancelled == [signal.SIGINT]
    assert query.isActive


def test_clean_up_stops_readers_and_writers(
    spark: SparkSession, doors: Doors, tmp_path: Path
) -> None:
    root = tmp_path / "lesson"
    lesson = Lesson(root, FILES)
    lesson.load(source="event")
    events = spark.readStream.schema("action string").json(str(root / "landing/event"))
    in_memory(events, "reads")
    table = root / "bronze/doors"
    writer = doors.df.writeStream.format("delta").queryName("writes")
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(table))
    doors.open("front")
    for query in spark.streams.active:
        query.processAllAvailable()

    lesson.clean_up()

    assert not spark.streams.active
    assert not root.exists()


def test_clean_up_keeps_files_of_a_running_stream(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "lesson"
    lesson = Lesson(root, FILES)
    lesson.load(source="event")
    events: DataFrame = spark.readStream.schema("action string").json(str(root / "landing/event"))
    query = in_memory(events, "stubborn")
    monkeypatch.setattr(control, "stop_within", lambda query, seconds: False)
    with pytest.raises(RuntimeError, match="stubborn did not stop"):
        lesson.clean_up()
    assert query.isActive
    assert (root / "landing/event/file1.json").exists()

"""`display`: the drawn rows and captions, and when it ends."""

from __future__ import annotations

import signal
import sys
import threading

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from medallion import streams
from medallion.errors import UsageError
from medallion.spark.errors import StreamError
from tests.support.doors import Doors, in_memory
from tests.support.screen import RecordingScreen, rows_of

ENDED = "stopped: all available data was processed"


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> RecordingScreen:
    recording = RecordingScreen()
    monkeypatch.setattr(sys.modules["medallion.streams.display"], "Screen", lambda: recording)
    return recording


def test_display_of_an_aggregation(
    doors: Doors, screen: RecordingScreen, spark: SparkSession
) -> None:
    doors.open("front", "back", "front")
    doors.open("back")
    counts = doors.df.groupBy("door").count().orderBy("door")
    streams.display(counts, "door_counts", trigger="available-now", bar="count")
    # Both batches together: complete mode has all rows in order.
    assert rows_of(screen.tables[-1]) == [("back", "2", "█" * 32), ("front", "2", "█" * 32)]
    assert str(screen.tables[-1].title).startswith("door_counts: batch 1, 2 rows, ")
    assert screen.last_caption == ENDED
    assert spark.table("door_counts").count() == 2
    assert not spark.streams.active


def test_display_shows_newest_rows_up_to_a_limit(
    doors: Doors, screen: RecordingScreen, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["medallion.streams.display"], "_MOST_ROWS", 3)
    doors.open("one", "two", "three")
    streams.display(doors.df.coalesce(1), rows=2)
    assert [row[1] for row in rows_of(screen.tables[-1])] == ["two", "three"]
    assert screen.last_caption == "stopped: its table has 3 rows, all in memory"
    # Without a name the table cannot be queried, so it is removed.
    tables = spark.sql("SHOW TABLES").collect()
    assert not any(table.tableName.startswith("display_") for table in tables)


def test_display_ends_by_ctrl_c(doors: Doors, screen: RecordingScreen) -> None:
    other = in_memory(doors.df, "other")
    before = signal.getsignal(signal.SIGINT)
    doors.open("front")

    def interrupt() -> None:
        if len(screen.tables) == 1:
            signal.raise_signal(signal.SIGINT)

    screen.on_draw = interrupt
    query = streams.display(doors.df, "doors")
    assert screen.last_caption == "stopped: interrupted"
    assert (query.isActive, other.isActive) == (False, True)
    assert signal.getsignal(signal.SIGINT) is before


def test_display_reports_a_failure(doors: Doors, screen: RecordingScreen) -> None:
    doors.open("front")
    failing = doors.df.select(F.raise_error(F.lit("the hinge is gone")))
    with pytest.raises(StreamError, match=r"broken failed: .*the hinge is gone"):
        streams.display(failing, "broken")
    assert "the hinge is gone" in screen.last_caption


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bar": "door"}, "bar='door' is not a column of numbers"),
        ({"rows": 0}, "rows must be a whole number above 0"),
        ({"seconds": -1}, "seconds above 0"),
        ({"trigger": "continuous"}, "no trigger 'continuous'"),
        ({"stream_name": "my-doors"}, "Invalid view name: my-doors"),
    ],
)
def test_display_refuses_invalid_arguments(
    doors: Doors, screen: RecordingScreen, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        streams.display(doors.df, **arguments)  # type: ignore[arg-type]
    assert screen.tables == []


def test_display_continues_beside_other_cells(doors: Doors, screen: RecordingScreen) -> None:
    drawn = threading.Event()
    screen.is_notebook, screen.on_draw = True, drawn.set
    first = streams.display(doors.df, "doors")
    assert screen.tables, "the first output belongs to the calling cell"
    second = streams.display(doors.df, "doors")  # the cell runs again
    assert (first.isActive, second.isActive) == (False, True)
    doors.open("front")
    second.processAllAvailable()
    streams.stop_all_streams()
    while screen.last_caption != ENDED or not rows_of(screen.tables[-1]):
        drawn.clear()
        assert drawn.wait(60)

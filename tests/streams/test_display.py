"""`display`: what is drawn, how much of it, and when it ends."""

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
from medallion.streams import drawing
from tests.support.doors import Doors
from tests.support.screen import RecordingScreen


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> RecordingScreen:
    recording = RecordingScreen()
    monkeypatch.setattr(drawing, "screen", lambda: recording)
    return recording


def test_an_aggregation_is_drawn_batch_by_batch_until_its_stream_ends(
    doors: Doors, screen: RecordingScreen, spark: SparkSession
) -> None:
    doors.open("front", "back", "front")
    doors.open("back", r"\u001b[31mred")
    counts = doors.df.groupBy("door").count().orderBy("door")
    streams.display(counts, "door_counts", trigger="available-now", bar="count")
    last = screen.grids[-1]
    # Both batches together: the sorted whole of it, as the mode complete has it.
    assert last.rows == (("\x1b[31mred", "1"), ("back", "2"), ("front", "2"))
    assert last.bars == (1.0, 2.0, 2.0)
    assert last.right == {1}
    assert last.title.startswith("door_counts: batch 1, 3 rows, ")
    assert last.foot == "stopped: it has come to its end"
    assert spark.table("door_counts").count() == 3
    assert not spark.streams.active


def test_the_newest_rows_are_shown_until_a_table_fills_the_memory(
    doors: Doors, screen: RecordingScreen, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["medallion.streams.display"], "_MOST_ROWS", 3)
    doors.open("one", "two", "three")
    screen.room = 2
    query = streams.display(doors.df.coalesce(1))
    assert query is not None
    assert screen.grids[-1].rows == (
        ("2018-03-02 10:02:33", "two"),
        ("2018-03-02 10:02:33", "three"),
    )
    assert screen.grids[-1].title.startswith(f"{query.name}: batch 0, 3 rows, ")
    assert screen.grids[-1].foot == "stopped: its table holds 3 rows, all of them in memory"
    # What has no name cannot be asked, and does not fill the memory either.
    tables = spark.sql("SHOW TABLES").collect()
    assert not any(table.tableName.startswith("display_") for table in tables)


def test_ctrl_c_ends_the_display_and_its_stream_and_no_other(
    doors: Doors, screen: RecordingScreen
) -> None:
    other = streams.write(doors.df, "memory", name="other")
    before = signal.getsignal(signal.SIGINT)
    screen.on_draw = lambda: signal.raise_signal(signal.SIGINT) if len(screen.grids) == 1 else None
    query = streams.display(doors.df, "doors")
    assert query is not None
    assert screen.grids[-1].foot == "stopped: interrupted"
    assert (query.isActive, other.isActive) == (False, True)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_stream_that_fails_says_why(doors: Doors, screen: RecordingScreen) -> None:
    doors.open("front")
    broken = doors.df.select(F.raise_error(F.lit("the hinge is gone")))
    with pytest.raises(StreamError, match=r"broken failed: .*the hinge is gone"):
        streams.display(broken, "broken")
    assert "the hinge is gone" in screen.grids[-1].foot


def test_in_a_notebook_it_goes_on_while_other_cells_run(
    doors: Doors, screen: RecordingScreen
) -> None:
    drawn = threading.Event()
    screen.outlives_the_call, screen.on_draw = True, drawn.set
    first = streams.display(doors.df, "doors")
    assert first is not None
    assert screen.grids, "the output is that of the cell which called, and not of a later one"
    again = streams.display(doors.df, "doors")  # the cell is run once more
    assert again is not None
    assert (first.isActive, again.isActive) == (False, True)
    doors.open("front")
    again.processAllAvailable()
    while not any(grid.rows for grid in screen.grids):
        drawn.clear()
        assert drawn.wait(60)
    streams.stop_all_streams()
    while screen.grids[-1].foot != "stopped: it has come to its end":
        drawn.clear()
        assert drawn.wait(60)


def test_what_is_no_stream_is_shown_once(spark: SparkSession, screen: RecordingScreen) -> None:
    frame = spark.sql("SELECT 1 AS n, X'00FF' AS n, NULL AS n, repeat('a', 300) AS long, 2 AS m")
    assert streams.display(frame, bar="m") is None
    (grid,) = screen.grids
    assert grid.headers == ("n", "n", "n", "long", "m")
    assert grid.rows == (("1", "00FF", "NULL", "a" * 199 + "…", "2"),)
    assert grid.bars == (2.0,)


def test_what_cannot_be_shown_is_told(doors: Doors, screen: RecordingScreen) -> None:
    for arguments, told in (
        ({"bar": "door"}, "bar='door' is not a column of numbers here; there are none"),
        ({"rows": 0}, "rows must be a whole number above 0, not 0"),
        ({"rows": 0.5}, "rows must be a whole number above 0, not 0.5"),
        ({"seconds": "1"}, "seconds must be above 0, not '1'"),
        ({"seconds": -1}, "seconds must be above 0, not -1"),
        ({"output_mode": "complete"}, "no streaming aggregations"),
        ({"trigger": "continuous 1 second"}, "A display takes no trigger continuous: take an"),
        ({"stream_name": 5}, "`queryName` must be a non-empty string, got '5'"),
        ({"stream_name": "my-doors"}, "Invalid view name: my-doors"),
    ):
        with pytest.raises(UsageError, match=told):
            streams.display(doors.df, **arguments)
    assert screen.grids == []

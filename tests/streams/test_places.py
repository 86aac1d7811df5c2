"""A clean-up stops the streams of its lesson, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from medallion import DataFactory, streams
from medallion.errors import UsageError
from medallion.factory.sample import FILES
from medallion.streams import waiting
from medallion.streams.known import keep
from tests.support.doors import Doors


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
    monkeypatch.setattr(waiting, "stop_one", lambda query: "still running")
    with pytest.raises(UsageError, match="stubborn did not stop within 30 seconds"):
        factory.clean_up()
    assert query.isActive
    assert (root / "landing/event/file1.json").exists()

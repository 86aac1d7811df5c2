"""`write`: sinks and triggers by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from medallion import streams
from medallion.errors import UsageError
from medallion.spark import checkpoints
from medallion.spark.errors import StreamError
from medallion.storage.paths import StoragePath
from medallion.streams import trigger
from tests.support.doors import Doors

NOW = "available-now"


def write_available(df: DataFrame, sink: str, to: Any, **arguments: Any) -> None:
    query = streams.write(df, sink, to, trigger=NOW, **arguments)
    assert streams.await_termination(query, timeout=120)


def test_write_each_row_once_to_each_sink(
    doors: Doors, spark: SparkSession, tmp_path: Path
) -> None:
    marks, batches = tmp_path / "marks", []
    marks.mkdir()

    def mark(row: Row) -> None:
        (marks / row.door).touch(exist_ok=False)

    def collect(batch: DataFrame, number: int) -> None:
        batches.append((number, [row.door for row in batch.collect()]))

    for door in ("front", "back"):  # the second round continues from the checkpoints
        doors.open(door)
        for sink, to in (
            ("delta", tmp_path / "delta"),
            ("files", tmp_path / "files"),
            ("csv", tmp_path / "csv"),
            ("foreach", mark),
            ("foreachBatch", collect),
        ):
            write_available(doors.df, sink, to, checkpoint=tmp_path / "checkpoints" / sink)
    assert batches == [(0, ["front"]), (1, ["back"])]
    assert sorted(path.name for path in marks.iterdir()) == ["back", "front"]
    for format_, folder in (("delta", "delta"), ("parquet", "files")):
        rows = spark.read.format(format_).load(str(tmp_path / folder))
        assert sorted(row.door for row in rows.collect()) == ["back", "front"]
    assert spark.read.csv(str(tmp_path / "csv")).count() == 2


def test_write_refuses_the_checkpoint_of_another_sink(doors: Doors, tmp_path: Path) -> None:
    write_available(doors.df, "delta", tmp_path / "one", checkpoint=tmp_path / "checkpoint")
    with pytest.raises(UsageError, match=r"`to` '.*/one', not '.*/two'. Each stream"):
        write_available(doors.df, "delta", tmp_path / "two", checkpoint=tmp_path / "checkpoint")
    with pytest.raises(UsageError, match="`sink` 'delta', not 'json'"):
        write_available(doors.df, "json", tmp_path / "one", checkpoint=tmp_path / "checkpoint")
    assert not (tmp_path / "two").exists()
    write_available(
        doors.df, "foreachBatch", print, name="one", checkpoint=tmp_path / "of functions"
    )
    with pytest.raises(UsageError, match="`name` 'one', not 'two'"):
        write_available(
            doors.df, "foreachBatch", print, name="two", checkpoint=tmp_path / "of functions"
        )


def test_write_to_a_relative_directory(
    doors: Doors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is relative to Python's current directory, not to that of the Java process."""
    monkeypatch.chdir(tmp_path)
    doors.open("front")
    write_available(doors.df, "delta", "to", checkpoint="checkpoint")
    assert {path.name for path in tmp_path.iterdir()} == {"doors", "to", "checkpoint"}


def test_write_refuses_missing_arguments(doors: Doors, spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path)
    invalid: tuple[tuple[str, Any, dict[str, Any], str], ...] = (
        ("table", None, {}, "no sink 'table'; there are delta, files, parquet"),
        ("delta", None, {}, "needs `to`, a directory"),
        ("delta", " ", {"checkpoint": folder}, "needs `to`, a directory"),
        ("delta", folder, {}, "needs `checkpoint`, a directory"),
        ("delta", folder, {"checkpoint": "file:/ck"}, "must be a local path"),
        ("foreachBatch", print, {}, "needs `checkpoint`"),
        ("foreachBatch", "print", {"checkpoint": folder}, "a function of a DataFrame and a batch"),
        ("foreach", "print", {"checkpoint": folder}, "did not start: .*`process` in provided obj"),
        ("memory", None, {}, "did not start: queryName must be specified for memory sink"),
    )
    for sink, to, arguments, message in invalid:
        with pytest.raises(UsageError, match=message):
            streams.write(doors.df, sink, to, **arguments)
    with pytest.raises(UsageError, match=r"did not start: .*`writeStream` can be called only on"):
        streams.write(spark.range(1), "memory", name="numbers")
    assert not spark.streams.active


def test_write_without_the_jars_of_kafka(
    doors: Doors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The jars are installed here for other tests.
    missing = PySparkException("Failed to find data source: kafka. Use another one.")
    monkeypatch.setattr(DataStreamWriter, "start", Mock(side_effect=missing))
    value = doors.df.select(F.col("door").alias("value"))
    servers = {"kafka.bootstrap.servers": "localhost:9092"}
    with pytest.raises(UsageError, match="Kafka jars are not installed: run medallion setup"):
        streams.write(value, "kafka", "doors", checkpoint=tmp_path / "ck", options=servers)


def test_write_reports_spark_errors_in_one_line(doors: Doors, tmp_path: Path) -> None:
    streams.write(doors.df, "memory", name="doors")
    with pytest.raises(UsageError, match=r"did not start: .*doors.* already active") as error:
        streams.write(doors.df, "memory", name="doors")
    assert "\n" not in str(error.value)
    counts, rate = doors.df.groupBy("door").count(), doors.df.sparkSession.readStream.format("rate")
    delta: dict[str, Any] = {"to": tmp_path / "delta", "checkpoint": tmp_path / "checkpoint"}
    for df, sink, arguments, message in (
        (counts, "delta", {**delta, "output_mode": "update"}, "not support Update output mode"),
        (doors.df, "memory", {"output_mode": "complete"}, "complete. .* no streaming aggregations"),
        (counts, "memory", {}, "append. .* aggregations without watermark"),
        (doors.df, "memory", {"output_mode": "replace"}, "Invalid streaming output mode: replace"),
        (doors.df, "memory", {"trigger": "continuous"}, "Continuous processing does not support"),
    ):
        with pytest.raises(UsageError, match=f"did not start: .*{message}"):
            streams.write(df, sink, name="another", **arguments)
    assert checkpoints.read_document(StoragePath(tmp_path / "checkpoint"), "sink") is None, (
        "no stream uses the checkpoint yet"
    )
    query = streams.write(rate.load(), "delta", **delta, trigger="continuous")
    with pytest.raises(StreamError, match="Unknown type of trigger: ContinuousTrigger"):
        streams.until_stream_is_ready(query)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("default", {"processingTime": "0 seconds"}),
        ("4 seconds", {"processingTime": "4 seconds"}),
        ("once", {"once": True}),
        ("available-now", {"availableNow": True}),
        ("continuous", {"continuous": "1 second"}),
        ("continuous  2 minutes ", {"continuous": "2 minutes"}),
    ],
)
def test_trigger_by_name(text: str, arguments: dict[str, Any]) -> None:
    assert trigger(text) == arguments


@pytest.mark.parametrize("text", ["", "now", "4", "continuous 4", "continuous4 seconds", None])
def test_trigger_unknown(text: Any) -> None:
    with pytest.raises(UsageError, match="use available-now, default, once, continuous"):
        trigger(text)

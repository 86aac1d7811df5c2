"""`write`: sinks by name, and what Spark would let pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from medallion import streams
from medallion.errors import UsageError
from medallion.spark import checkpoints
from medallion.spark.errors import StreamError
from medallion.streams import trigger, writing
from tests.support.doors import Doors

NOW = "available-now"


def end(df: DataFrame, sink: str, to: Any, **arguments: Any) -> None:
    query = streams.write(df, sink, to, trigger=NOW, **arguments)
    assert streams.await_termination(query, timeout=120)


def test_every_sink_gets_each_row_once(doors: Doors, spark: SparkSession, tmp_path: Path) -> None:
    marks, batches = tmp_path / "marks", []
    marks.mkdir()

    def mark(row: Row) -> None:
        (marks / row.door).touch(exist_ok=False)

    def take(batch: DataFrame, number: int) -> None:
        batches.append((number, [row.door for row in batch.collect()]))

    for door in ("front", "back"):  # the second round goes on where the first one ended
        doors.open(door)
        for sink, to in (
            ("delta", tmp_path / "delta"),
            ("files", tmp_path / "files"),
            ("csv", tmp_path / "csv"),
            ("foreach", mark),
            ("foreachBatch", take),
        ):
            end(doors.df, sink, to, checkpoint=tmp_path / "checkpoints" / sink)
    assert batches == [(0, ["front"]), (1, ["back"])]
    assert sorted(path.name for path in marks.iterdir()) == ["back", "front"]
    for read, folder in (("delta", "delta"), ("parquet", "files")):
        found = spark.read.format(read).load(str(tmp_path / folder))
        assert sorted(row.door for row in found.collect()) == ["back", "front"]
    assert spark.read.csv(str(tmp_path / "csv")).count() == 2


def test_a_checkpoint_goes_with_one_sink(
    doors: Doors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end(doors.df, "delta", tmp_path / "one", checkpoint=tmp_path / "checkpoint")
    with pytest.raises(UsageError, match=r"`to` '.*/one', not '.*/two': each stream"):
        end(doors.df, "delta", tmp_path / "two", checkpoint=tmp_path / "checkpoint")
    assert not (tmp_path / "two").exists()
    checkpoint = str(tmp_path / "of memory")
    end(doors.df, "memory", None, name="one", options={"CheckpointLocation": checkpoint})
    with pytest.raises(UsageError, match="`name` 'one', not 'two': each stream"):
        end(doors.df, "memory", None, name="two", checkpoint=checkpoint)
    arguments: dict[str, Any] = {"checkpoint": tmp_path / "of functions"}
    end(doors.df, "foreachBatch", print, name="one", **arguments)
    with pytest.raises(UsageError, match="`name` 'one', not 'two': each"):
        end(doors.df, "foreachBatch", print, name="two", **arguments)
    # A process that dies as soon as its stream has started, which may have written by then.
    killed = tmp_path / "of a killed process"
    with monkeypatch.context() as patch:
        patch.setattr(writing, "keep", Mock(side_effect=SystemExit))
        with pytest.raises(SystemExit):
            end(doors.df, "json", tmp_path / "one json", checkpoint=killed)
    with pytest.raises(UsageError, match=r"one json', not '.*/two json'"):
        end(doors.df, "json", tmp_path / "two json", checkpoint=killed)


def test_a_checkpoint_goes_with_one_stream_at_a_time(doors: Doors, tmp_path: Path) -> None:
    """A cell that is run again, or a second function, which cannot be told from the first."""
    doors.open("front")
    batches: list[int] = []

    def start(name: str | None = None) -> StreamingQuery:
        return streams.write(
            doors.df, "foreachBatch", lambda _, number: batches.append(number), name=name,
            checkpoint=tmp_path / "checkpoint",
        )  # fmt: skip

    first = start()
    with pytest.raises(UsageError, match=f"query with id {first.id} as another .* already active"):
        start()
    with pytest.raises(UsageError, match="`name` '', not 'other'"):
        start("other")
    streams.until_stream_is_ready(first)
    assert batches == [0]
    streams.stop_all_streams()
    doors.open("back")
    streams.until_stream_is_ready(start())
    assert batches == [0, 1]


def test_a_checkpoint_goes_with_one_cluster_of_kafka(
    doors: Doors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose servers come and go; and with one topic."""
    monkeypatch.setattr(DataStreamWriter, "start", Mock())  # which asks no broker anyway
    monkeypatch.setattr(writing, "keep", lambda query: query)
    rows = doors.df.select(F.col("door").alias("value"), F.lit("its own").alias("topic"))

    def start(servers: str, to: str | None = "doors", **more: str) -> None:
        options = {"Kafka.bootstrap.servers": servers, **more}
        streams.write(rows, "kafka", to, checkpoint=tmp_path / "checkpoint", options=options)

    for servers in ("a:9092,", "b:9092, A:9092", "b:9092,c:9092", "c:9092,"):
        start(servers)
    with pytest.raises(UsageError, match=r"`servers` \['c:9092'\], not \['a:9092', 'b:9092'\]"):
        start("a:9092,b:9092,")
    with pytest.raises(UsageError, match="`to` 'doors', not 'windows'"):
        start("c:9092", "windows")
    checkpoints.forget(tmp_path / "checkpoint", "sink")
    start("c:9092", None, Topic="all")
    for topic in ({}, {"topic": "some"}):
        with pytest.raises(UsageError, match="`to` 'all', not"):
            start("c:9092", None, **topic)


def test_a_folder_is_one_wherever_the_next_start_is(
    doors: Doors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    doors.open("front")
    end(doors.df, "delta", "to", checkpoint="checkpoint")
    assert {path.name for path in Path.cwd().iterdir()} == {"to", "checkpoint"}
    monkeypatch.chdir(tmp_path / "there")
    with pytest.raises(UsageError, match=r"`to` '.*/here/to', not '.*/there/to': each"):
        end(doors.df, "delta", "to", checkpoint=tmp_path / "here/checkpoint")
    end(doors.df, "delta", (tmp_path / "here/to"), checkpoint=tmp_path / "here/checkpoint")


def test_what_is_missing_is_told(doors: Doors, spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path)
    wrong: tuple[tuple[str, Any, dict[str, Any], str], ...] = (
        ("table", None, {}, "no sink 'table'; there are delta, files, parquet"),
        ("delta", None, {}, "needs `to`, the folder"),
        ("delta", " ", {"checkpoint": folder}, "needs `to`, the folder"),
        ("delta", folder, {}, "needs `checkpoint`, a folder that keeps"),
        ("delta", folder, {"checkpoint": ""}, "needs `checkpoint`, a folder that keeps"),
        ("delta", folder, {"checkpoint": "  "}, "needs `checkpoint`, a folder that keeps"),
        ("delta", folder, {"checkpoint": 5}, "needs `checkpoint`, a folder that keeps"),
        ("delta", folder, {"checkpoint": "file:/ck"}, "must be a folder of this machine"),
        ("delta", folder, {"checkpoint": folder}, "in the table's own folder, where a VACUUM"),
        ("delta", folder, {"checkpoint": f"{folder}/ck"}, "take one beside it, or .*/_checkpoints"),
        ("foreachBatch", print, {}, "needs `checkpoint`"),
        ("foreachBatch", "print", {"checkpoint": folder}, "a function of a DataFrame and a batch"),
        ("foreach", "print", {"checkpoint": folder}, "did not start: .*`process` in provided obj"),
        ("memory", None, {}, "did not start: queryName must be specified for memory sink"),
    )
    for sink, to, arguments, told in wrong:
        with pytest.raises(UsageError, match=told):
            streams.write(doors.df, sink, to, **arguments)
    with pytest.raises(UsageError, match=r"did not start: .*`writeStream` can be called only on"):
        streams.write(spark.range(1), "memory", name="numbers")
    assert not spark.streams.active


def test_without_the_jars_of_kafka(
    doors: Doors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # They are here, for other tests: what Spark says without them stands in for it.
    missing = PySparkException("Failed to find data source: kafka. Use another one.")
    monkeypatch.setattr(DataStreamWriter, "start", Mock(side_effect=missing))
    value = doors.df.select(F.col("door").alias("value"))
    servers = {"kafka.bootstrap.servers": "localhost:9092"}
    with pytest.raises(UsageError, match="Kafka jars are not installed: make setup-kafka"):
        streams.write(value, "kafka", "doors", checkpoint=tmp_path / "ck", options=servers)


def test_what_spark_alone_knows_is_one_sentence(doors: Doors, tmp_path: Path) -> None:
    streams.write(doors.df, "memory", name="doors")
    with pytest.raises(UsageError, match=r"did not start: .*doors.* already active") as refused:
        streams.write(doors.df, "memory", name="doors")
    assert "\n" not in str(refused.value)
    counts, rate = doors.df.groupBy("door").count(), doors.df.sparkSession.readStream.format("rate")
    delta: dict[str, Any] = {"to": tmp_path / "delta", "checkpoint": tmp_path / "checkpoint"}
    for df, sink, arguments, told in (
        (counts, "delta", {**delta, "output_mode": "update"}, "not support Update output mode"),
        (doors.df, "memory", {"output_mode": "complete"}, "complete. .* no streaming aggregations"),
        (counts, "memory", {}, "append. .* aggregations without watermark"),
        (doors.df, "memory", {"output_mode": "replace"}, "Invalid streaming output mode: replace"),
        (doors.df, "memory", {"trigger": "continuous"}, "Continuous processing does not support"),
    ):
        with pytest.raises(UsageError, match=f"did not start: .*{told}"):
            streams.write(df, sink, name="another", **arguments)
    assert checkpoints.noted(tmp_path / "checkpoint", "sink") is None, "no stream has it yet"
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
def test_triggers_by_name(text: str, arguments: dict[str, Any]) -> None:
    assert trigger(text) == arguments


@pytest.mark.parametrize("text", ["", "now", "4", "continuous 4", "continuous4 seconds", None])
def test_a_trigger_that_there_is_not(text: Any) -> None:
    with pytest.raises(UsageError, match="is none of default, once, available-now, continuous"):
        trigger(text)

"""Kafka messages without a broker: their bytes in bronze, and messages a topic has lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.config.tables import Kafka
from medallion.ingest.kafka.broker import Partition, TopicState
from medallion.ingest.kafka.source import to_bronze_columns
from medallion.state.topics import PartitionProgress
from tests.support.lakehouse import activity_source

MESSAGE_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
AT = datetime(2024, 1, 1, tzinfo=UTC)


def kafka(value: str, *topics: str) -> Kafka:
    return Kafka(("localhost:9092",), topics or ("a",), value, "earliest", 10)


@pytest.mark.parametrize(
    ("value", "values"),
    [
        ("json", ['{"a": 1}', "", "null", "grün"]),
        (
            "text",
            ['{"value":"{\\"a\\": 1}"}', '{"value":""}', '{"value":null}', '{"value":"grün"}'],
        ),
    ],
)
def test_to_bronze_columns_of_values(spark: SparkSession, value: str, values: list[str]) -> None:
    raw: list[Any] = [b'{"a": 1}', b"", None, "grün".encode()]
    messages = spark.createDataFrame(
        [
            (b"k\xff", text, "a", 3, at, AT, [("h", b"\xff"), ("h", None)])
            for at, text in enumerate(raw)
        ],
        MESSAGE_SCHEMA,
    )
    rows = to_bronze_columns(messages, kafka(value)).orderBy("_offset").collect()
    assert [row.value for row in rows] == values
    assert {(row._topic, row._partition, row._timestamp, row._key) for row in rows} == {
        ("a", 3, AT.replace(tzinfo=None), "kÿ")
    }
    assert [tuple(header) for header in rows[0]._headers] == [("h", "ÿ"), ("h", None)]


def test_to_bronze_columns_skips_confluent_headers(spark: SparkSession) -> None:
    avro = b"\x00\x00\x00\x00\x07\x02a"
    raw = [b'\x00\x00\x00\x00\x07{"a":1}', avro]
    frame = spark.createDataFrame(
        [(None, v, "a", 0, n, AT, None) for n, v in enumerate(raw)], MESSAGE_SCHEMA
    )
    rows = to_bronze_columns(frame, kafka("json")).orderBy("_offset").collect()
    assert [row.value for row in rows] == ['{"a":1}', avro.decode()]


def test_to_bronze_columns_keeps_invalid_utf8(spark: SparkSession) -> None:
    """The parser keeps them as Latin-1, like those of a file's line."""
    frame = spark.createDataFrame([(None, b"\xff{", "a", 0, 0, AT, None)], MESSAGE_SCHEMA)
    for value in ("json", "text"):
        rows = to_bronze_columns(frame, kafka(value)).selectExpr(
            "hex(cast(value as binary))", "_headers"
        )
        assert tuple(rows.collect()[0]) == ("FF7B", None)


def progress(
    next_offset: int, topic_id: str | None = "one", topic: str = "a", part: int = 0
) -> PartitionProgress:
    return PartitionProgress("clicks", topic, part, topic_id, 0, next_offset, 7, 0, rows=5)


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (progress(5), Partition("one", 0, 5), None),
        (progress(5), Partition("one", 5, 9), None),
        (progress(0), Partition("one", 0, 0), None),
        (progress(5), Partition("one", 6, 9), "partition 0, offsets 5 to 5"),
        (progress(5), Partition("one", 9, 9), "partition 0, offsets 5 to 8"),
        (progress(5), Partition("one", 0, 3), "read up to offset 4 and now ends at 2"),
        (progress(5), Partition("two", 0, 9), "was recreated after 5 messages of its partition 0"),
        (progress(5, None), Partition("two", 0, 9), None),
        (progress(5), None, "no longer has partition 0, of which 5 messages"),
        # The user has skipped the lost partition, and it exists again.
        (progress(-1), None, None),
        (progress(-1), Partition("two", 0, 4), None),
        (progress(-1), Partition("two", 3, 4), "offsets 0 to 2"),
    ],
)
def test_lost_topics(before: PartitionProgress, now: Partition | None, message: str | None) -> None:
    source = activity_source(name="clicks", format="kafka", stream=kafka("json"))
    partitions = {("a", 0): now} if now else {}
    lost = TopicState(source, {(before.topic, before.partition): before}, partitions).lost_topics()
    assert lost.keys() == ({"a"} if message else set())
    for text in lost.values():
        assert message
        assert message in text
        assert text.endswith("medallion backfill clicks a")


def test_new_partitions_start_at_their_first_message() -> None:
    source = activity_source(name="clicks", format="kafka", stream=kafka("json", "a", "b"))
    known = {("a", 0): progress(5), ("c", 0): progress(9, topic="c")}  # c is no longer configured
    partitions = {
        ("a", 0): Partition("one", 0, 8),
        ("a", 1): Partition("one", 0, 2),  # a new partition
        ("b", 0): Partition("b", 4, 10),  # a new topic whose first messages have expired
    }
    assert TopicState(source, known, partitions).lost_topics() == {}
    assert TopicState(source, known, partitions).count_waiting() == 3 + 2 + 6
    late = replace(kafka("json"), starting_offsets="latest")
    assert TopicState(replace(source, stream=late), {}, partitions).count_waiting() == 0, (
        "a first run starts at the end"
    )
    partitions["a", 1] = Partition("one", 1, 2)
    assert "partition 1, offsets 0 to 0" in TopicState(source, known, partitions).lost_topics()["a"]

"""Messages without a broker: what becomes of their bytes, and what of a topic is gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.config.model import Kafka
from medallion.ingest.kafka.broker import Partition, TopicState
from medallion.ingest.kafka.source import to_bronze_columns
from medallion.state.topics import PartitionProgress
from tests.support.home import activity_source

KINDS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
AT = datetime(2024, 1, 1, tzinfo=UTC)


def kafka(value: str, *topics: str) -> Kafka:
    return Kafka(("localhost:9092",), topics or ("a",), value, "earliest", 10)


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("json", ['{"a": 1}', "", "null", "grün"]),
        (
            "text",
            ['{"value":"{\\"a\\": 1}"}', '{"value":""}', '{"value":null}', '{"value":"grün"}'],
        ),
    ],
)
def test_what_a_value_becomes(spark: SparkSession, value: str, texts: list[str]) -> None:
    raw: list[Any] = [b'{"a": 1}', b"", None, "grün".encode()]
    messages = spark.createDataFrame(
        [
            (b"k\xff", text, "a", 3, at, AT, [("h", b"\xff"), ("h", None)])
            for at, text in enumerate(raw)
        ],
        KINDS,
    )
    found = to_bronze_columns(messages, kafka(value)).orderBy("_offset").collect()
    assert [row.value for row in found] == texts
    assert {(row._topic, row._partition, row._timestamp, row._key) for row in found} == {
        ("a", 3, AT.replace(tzinfo=None), "kÿ")
    }
    assert [tuple(header) for header in found[0]._headers] == [("h", "ÿ"), ("h", None)]


def test_confluent_frame_is_skipped_before_json(spark: SparkSession) -> None:
    avro = b"\x00\x00\x00\x00\x07\x02a"
    raw = [b'\x00\x00\x00\x00\x07{"a":1}', avro]
    frame = spark.createDataFrame(
        [(None, v, "a", 0, n, AT, None) for n, v in enumerate(raw)], KINDS
    )
    found = to_bronze_columns(frame, kafka("json")).orderBy("_offset").collect()
    assert [row.value for row in found] == ['{"a":1}', avro.decode()]


def test_bytes_that_are_no_text_stay_what_they_are(spark: SparkSession) -> None:
    """The parser keeps them as Latin-1, as those of a file's line."""
    frame = spark.createDataFrame([(None, b"\xff{", "a", 0, 0, AT, None)], KINDS)
    for value in ("json", "text"):
        found = to_bronze_columns(frame, kafka(value)).selectExpr(
            "hex(cast(value as binary))", "_headers"
        )
        assert tuple(found.collect()[0]) == ("FF7B", None)


def taken(
    next_offset: int, topic_id: str | None = "one", topic: str = "a", part: int = 0
) -> PartitionProgress:
    return PartitionProgress("clicks", topic, part, topic_id, 0, next_offset, 7, 0, rows=5)


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (taken(5), Partition("one", 0, 5), None),
        (taken(5), Partition("one", 5, 9), None),
        (taken(0), Partition("one", 0, 0), None),
        (taken(5), Partition("one", 6, 9), "partition 0, offsets 5 to 5"),
        (taken(5), Partition("one", 9, 9), "partition 0, offsets 5 to 8"),
        (taken(5), Partition("one", 0, 3), "read up to offset 4 and now ends at 2"),
        (taken(5), Partition("two", 0, 9), "was recreated after 5 messages of its partition 0"),
        (taken(5, None), Partition("two", 0, 9), None),
        (taken(5), None, "no longer has partition 0, of which 5 messages"),
        # Somebody has said to go on without it, and then it is there again.
        (taken(-1), None, None),
        (taken(-1), Partition("two", 0, 4), None),
        (taken(-1), Partition("two", 3, 4), "offsets 0 to 2"),
    ],
)
def test_what_is_gone(before: PartitionProgress, now: Partition | None, told: str | None) -> None:
    source = activity_source(name="clicks", format="kafka", stream=kafka("json"))
    there = {("a", 0): now} if now else {}
    found = TopicState(source, {before.partition_key: before}, there).lost_topics()
    assert found.keys() == ({"a"} if told else set())
    for why in found.values():
        assert told
        assert told in why
        assert why.endswith("medallion backfill clicks a")


def test_what_is_new_of_a_topic_begins_at_its_first_message() -> None:
    source = activity_source(name="clicks", format="kafka", stream=kafka("json", "a", "b"))
    known = {("a", 0): taken(5), ("c", 0): taken(9, topic="c")}  # c is not read any more
    there = {
        ("a", 0): Partition("one", 0, 8),
        ("a", 1): Partition("one", 0, 2),  # a partition more
        ("b", 0): Partition("b", 4, 10),  # a topic more, which began long ago
    }
    assert TopicState(source, known, there).lost_topics() == {}
    assert TopicState(source, known, there).count_waiting() == 3 + 2 + 6
    late = replace(kafka("json"), starting_offsets="latest")
    assert TopicState(replace(source, stream=late), {}, there).count_waiting() == 0, (
        "a first run begins at the end"
    )
    there["a", 1] = Partition("one", 1, 2)
    assert "partition 1, offsets 0 to 0" in TopicState(source, known, there).lost_topics()["a"]

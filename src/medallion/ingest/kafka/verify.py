"""Verification of ingested messages: counted again by another client, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from medallion.config.model import Config, SourceConfig
from medallion.errors import MedallionError
from medallion.ingest.kafka import broker
from medallion.ingest.kafka.broker import Partition
from medallion.ingest.source import Verification
from medallion.state import erasures, topics
from medallion.state.topics import PartitionKey, PartitionProgress
from medallion.storage import delta_tables
from medallion.storage.text import counted

_TIMEOUT_SECONDS = 30.0  # without a message
_CHUNK_SIZE = 1_000_000  # offsets that are compared at once


def verify_messages(config: Config, source: SourceConfig) -> Verification:
    """Compare bronze with its ledger, and with the messages that the broker still has."""
    result = Verification()
    progress = topics.read_progress(config.layout, source.name)
    _compare_ledger(config, source, progress, result)
    try:
        partitions = broker.list_partitions(source, config.login)
        lost = broker.lost_topics(source, progress, partitions)
        for topic, reason in lost.items():
            result.notes.append(f"{source.name}: topic {topic} {reason}: not verified.")
        for place, before in progress.items():
            if before.topic in lost:
                continue
            if place not in partitions:
                reason = "is no longer read, or does not exist"
            elif before.made_anew:
                reason = "was recreated, and its rows cannot be distinguished from older ones"
            else:
                _compare_messages(config, source, before, partitions[place], result)
                continue
            note = f"{source.name}: topic {before.topic} {reason}: not verified."
            if note not in result.notes:  # another partition of it may have the same
                result.notes.append(note)
    except MedallionError as error:
        result.notes.append(f"{source.name}: not verified: {error}")
    return result


def _compare_ledger(
    config: Config,
    source: SourceConfig,
    progress: dict[PartitionKey, PartitionProgress],
    result: Verification,
) -> None:
    """Compare the rows in bronze with the ledger by partition, and report repeated offsets."""
    in_bronze = Counter(
        {
            (topic, int(part)): int(rows)
            for topic, part, rows in _select_bronze(config, source, "count(*)", "group by 1, 2")
        }
    )
    for place in {**progress, **in_bronze}:
        rows = progress[place].rows if place in progress else 0
        if rows != in_bronze[place]:
            result.findings.append(
                f"{source.name}: of topic {place[0]}, partition {place[1]}, the ledger has "
                f"{counted(rows, 'row')} and bronze {in_bronze[place]:,}."
            )
    recreated = [f"'{t.topic}/{t.partition}'" for t in progress.values() if t.made_anew]
    once = f"where _topic || '/' || _partition not in ({', '.join(recreated)})" if recreated else ""
    repeated = f"{once} group by 1, 2, 3 having count(*) > 1 limit 20"
    result.findings += [
        f"{source.name}: bronze has offset {offset:,} of topic {topic}, partition {part}, more "
        "than once."
        for topic, part, offset in _select_bronze(config, source, "_offset", repeated)
    ]


def _select_bronze(
    config: Config, source: SourceConfig, columns: str, clauses: str
) -> list[tuple[Any, ...]]:
    table = config.layout.table(f"bronze.{source.name}")
    return delta_tables.select_rows(table, f"_topic, _partition, {columns}", clauses)


def _compare_messages(
    config: Config,
    source: SourceConfig,
    before: PartitionProgress,
    partition: Partition,
    result: Verification,
) -> None:
    """Report the ingested messages that the broker has and bronze lacks, except erased ones."""
    place = f"{before.topic}/{before.partition}"
    erased = erasures.erased_rows(config.layout, source.name, place)
    where = f"where _topic = '{before.topic}' and _partition = {before.partition}"
    first = max(partition.first, before.first_offset)
    for offsets, between in _read_offsets(config, source, before, first):
        rows = _select_bronze(config, source, "_offset", f"{where} and _offset between {between}")
        lost = offsets - {row[2] for row in rows}
        erased -= len(lost)
        if lost and erased < 0:
            result.findings.append(
                f"{source.name}: bronze lacks {counted(len(lost), 'message')} of topic "
                f"{before.topic}, partition {before.partition}; the first is offset {min(lost):,}."
            )


def _read_offsets(
    config: Config, source: SourceConfig, before: PartitionProgress, first: int
) -> Iterator[tuple[set[int], str]]:
    """Yield the broker's offsets from `first` up to the ledger's next offset, in chunks.

    Yields:
        The offsets, and as SQL the range that contains no other messages.

    Raises:
        MedallionError: the messages do not arrive.
    """
    consumer = _consumer(config, source)
    offsets: set[int] = set()
    start = first
    try:
        consumer.assign([TopicPartition(before.topic, before.partition, first)])
        while first < before.next_offset:
            message = consumer.poll(_TIMEOUT_SECONDS)
            error = message.error() if message else None
            if error and error.code() == KafkaError._PARTITION_EOF:
                break
            if message is None or error:
                reason = (
                    error.str() if error else f"none arrived for {_TIMEOUT_SECONDS:.0f} seconds"
                )
                raise MedallionError(
                    f"topic {before.topic}, partition {before.partition}: no more messages: "
                    f"{reason}."
                )
            first = (message.offset() or 0) + 1
            if first > before.next_offset:
                break
            offsets.add(first - 1)
            if len(offsets) == _CHUNK_SIZE:
                yield offsets, f"{start} and {first - 1}"
                offsets, start = set(), first
    finally:
        consumer.close()
    yield offsets, f"{start} and {before.next_offset - 1}"


def _consumer(config: Config, source: SourceConfig) -> Consumer:
    settings = {
        **broker.client_settings(broker.kafka_settings(source).servers, config.login),
        "group.id": "medallion-audit",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",  # if the broker removes messages in the meantime
        "isolation.level": "read_committed",
        "enable.partition.eof": True,  # transaction markers are not messages
    }
    try:
        return Consumer(settings)
    except KafkaException as error:
        raise broker.login_error(f"bronze.{source.name}", error) from None

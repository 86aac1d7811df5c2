"""Messages counted without Spark: a second way, by another client."""

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
from medallion.state import topics
from medallion.state.topics import PartitionKey, PartitionProgress
from medallion.storage import delta_tables
from medallion.storage.text import counted

_PATIENCE = 30.0  # seconds without a message
_AT_A_TIME = 1_000_000  # messages, whose offsets are held in memory


def verify_messages(config: Config, source: SourceConfig) -> Verification:
    """Count the messages of each partition that are still there, and hold bronze's against them."""
    found = Verification()
    taken = topics.read_progress(config.layout, source.name)
    _hold_ledger(config, source, taken, found)
    try:
        there = broker.list_partitions(source, config.login)
        told = broker.lost_topics(source, taken, there)
        for topic, why in told.items():
            found.notes.append(f"{source.name}: topic {topic} {why}: not counted again.")
        for place, before in taken.items():
            if before.topic in told:
                continue
            if place not in there:
                why = "is not read, or not there, any more"
            elif before.made_anew:
                why = "was made anew, so that its rows are not told from those of the one before"
            else:
                _count(config, source, before, there[place], found)
                continue
            note = f"{source.name}: topic {before.topic} {why}: not counted again."
            if note not in found.notes:  # as of another of its partitions
                found.notes.append(note)
    except MedallionError as error:
        found.notes.append(f"{source.name}: not counted again: {error}")
    return found


def _hold_ledger(
    config: Config,
    source: SourceConfig,
    taken: dict[PartitionKey, PartitionProgress],
    found: Verification,
) -> None:
    """What bronze has, by partition, beside what the ledger says; and no message twice."""
    in_bronze = Counter(
        {
            (topic, int(part)): int(rows)
            for topic, part, rows in _bronze(config, source, "count(*)", "group by 1, 2")
        }
    )
    for place in {**taken, **in_bronze}:
        rows = taken[place].rows if place in taken else 0
        if rows != in_bronze[place]:
            found.findings.append(
                f"{source.name}: of topic {place[0]}, partition {place[1]}, the ledger has "
                f"{counted(rows, 'row')} and bronze {in_bronze[place]:,}."
            )
    anew = [f"'{t.topic}/{t.partition}'" for t in taken.values() if t.made_anew]
    once = f"where _topic || '/' || _partition not in ({', '.join(anew)})" if anew else ""
    twice = f"{once} group by 1, 2, 3 having count(*) > 1 limit 20"
    found.findings += [
        f"{source.name}: bronze has offset {offset:,} of topic {topic}, partition {part}, more "
        "than once."
        for topic, part, offset in _bronze(config, source, "_offset", twice)
    ]


def _bronze(config: Config, source: SourceConfig, what: str, rest: str) -> list[tuple[Any, ...]]:
    table = config.layout.table(f"bronze.{source.name}")
    return delta_tables.select_rows(table, f"_topic, _partition, {what}", rest)


def _count(
    config: Config,
    source: SourceConfig,
    before: PartitionProgress,
    there: Partition,
    found: Verification,
) -> None:
    """Hold the messages of a partition that are there, and taken in, against bronze's rows."""
    where = f"where _topic = '{before.topic}' and _partition = {before.partition}"
    first = max(there.first, before.first_offset)
    for offsets, between in _offsets(config, source, before, first):
        rows = _bronze(config, source, "_offset", f"{where} and _offset between {between}")
        if lost := offsets - {row[2] for row in rows}:
            found.findings.append(
                f"{source.name}: bronze lacks {counted(len(lost), 'message')} of topic "
                f"{before.topic}, partition {before.partition}; the first is offset {min(lost):,}."
            )


def _offsets(
    config: Config, source: SourceConfig, before: PartitionProgress, first: int
) -> Iterator[tuple[set[int], str]]:
    """The offsets of messages from `first` up to where the ledger has it, some at a time.

    With them, the first and the last offset between which these are all there are, as SQL.

    Raises:
        MedallionError: they do not come.
    """
    consumer = _consumer(config, source)
    found: set[int] = set()
    begin = first
    try:
        consumer.assign([TopicPartition(before.topic, before.partition, first)])
        while first < before.next_offset:
            message = consumer.poll(_PATIENCE)
            error = message.error() if message else None
            if error and error.code() == KafkaError._PARTITION_EOF:
                break
            if message is None or error:
                why = error.str() if error else f"none came for {_PATIENCE:.0f} seconds"
                raise MedallionError(
                    f"topic {before.topic}, partition {before.partition}: no more messages: {why}."
                )
            first = (message.offset() or 0) + 1
            if first > before.next_offset:
                break
            found.add(first - 1)
            if len(found) == _AT_A_TIME:
                yield found, f"{begin} and {first - 1}"
                found, begin = set(), first
    finally:
        consumer.close()
    yield found, f"{begin} and {before.next_offset - 1}"


def _consumer(config: Config, source: SourceConfig) -> Consumer:
    settings = {
        **broker.client_settings(broker.kafka_settings(source).servers, config.login),
        "group.id": "medallion-audit",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",  # where the broker removes messages meanwhile
        "isolation.level": "read_committed",
        "enable.partition.eof": True,  # the ends of transactions are no messages
    }
    try:
        return Consumer(settings)
    except KafkaException as error:
        raise broker.login_error(f"bronze.{source.name}", error) from None

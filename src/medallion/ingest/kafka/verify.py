"""Verification of ingested messages: counted again by another client, without Spark."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from medallion.config.model import Config, SourceConfig
from medallion.errors import MedallionError
from medallion.ingest.kafka import broker
from medallion.ingest.kafka.broker import Partition, TopicState
from medallion.ingest.source import Verification
from medallion.state import erasures, topics
from medallion.state.topics import PartitionProgress
from medallion.storage import delta_tables
from medallion.storage.text import counted

_TIMEOUT_SECONDS = 30.0  # without a message
_CHUNK_SIZE = 1_000_000  # offsets that are compared at once


def verify_messages(config: Config, source: SourceConfig) -> Verification:
    """Compare bronze with its ledger, and with the messages that the broker still has."""
    verifier = _Verifier(config, source)
    verifier.compare_ledger()
    try:
        verifier.compare_topics()
    except MedallionError as error:
        verifier.result.notes.append(f"{source.name}: not verified: {error}")
    return verifier.result


class _Verifier:
    """The comparison of one source's table with its ledger and its topics."""

    def __init__(self, config: Config, source: SourceConfig) -> None:
        self._config, self._source, self._name = config, source, source.name
        self._progress = topics.read_progress(config.layout, source.name)
        self.result = Verification()

    def compare_ledger(self) -> None:
        """Compare the rows in bronze with the ledger by partition, and report repeated offsets."""
        rows_by_partition = self._select_bronze("count(*)", "group by 1, 2")
        in_bronze = Counter({(topic, int(part)): int(n) for topic, part, n in rows_by_partition})
        in_ledger = Counter({place: each.rows for place, each in self._progress.items()})
        for place in {**in_ledger, **in_bronze}:
            if in_ledger[place] != in_bronze[place]:
                self.result.findings.append(
                    f"{self._name}: of topic {place[0]}, partition {place[1]}, the ledger has "
                    f"{counted(in_ledger[place], 'row')} and bronze {in_bronze[place]:,}."
                )
        recreated = [t for t in self._progress.values() if t.made_anew]
        names = ", ".join(f"'{each.topic}/{each.partition}'" for each in recreated)
        once = f"where _topic || '/' || _partition not in ({names})" if recreated else ""
        repeated = f"{once} group by 1, 2, 3 having count(*) > 1 limit 20"
        self.result.findings += [
            f"{self._name}: bronze has offset {offset:,} of topic {topic}, partition {part}, more "
            "than once."
            for topic, part, offset in self._select_bronze("_offset", repeated)
        ]

    def compare_topics(self) -> None:
        """Compare bronze with the broker's messages; note the topics that cannot be compared.

        Raises:
            MedallionError: the broker does not answer, or sends no more messages.
        """
        state = TopicState.load(self._config, self._source, accepts_loss=True)
        lost = state.lost_topics()
        reasons, comparable = dict(lost), []
        for place, before in self._progress.items():
            if before.topic in lost:
                continue
            if place not in state.partitions:
                reasons[before.topic] = "is no longer read, or does not exist"
            elif before.made_anew:
                reason = "was recreated, and its rows cannot be distinguished from older ones"
                reasons[before.topic] = reason
            else:
                comparable.append((before, state.partitions[place]))
        self.result.notes += [
            f"{self._name}: topic {topic} {reason}: not verified."
            for topic, reason in reasons.items()
        ]
        for before, partition in comparable:
            self._compare_messages(before, partition)

    def _select_bronze(self, columns: str, clauses: str) -> list[tuple[Any, ...]]:
        table = self._config.layout.table(f"bronze.{self._name}")
        return delta_tables.select_rows(table, f"_topic, _partition, {columns}", clauses)

    def _compare_messages(self, before: PartitionProgress, partition: Partition) -> None:
        """Report the ingested messages that the broker has and bronze lacks, except erased ones."""
        place = f"{before.topic}/{before.partition}"
        erased = erasures.erased_rows(self._config.layout, self._name, place)
        where = f"where _topic = '{before.topic}' and _partition = {before.partition}"
        offsets = self._read_offsets(before, max(partition.first, before.first_offset))
        while chunk := set(islice(offsets, _CHUNK_SIZE)):
            within = f"_offset between {min(chunk)} and {max(chunk)}"
            rows = self._select_bronze("_offset", f"{where} and {within}")
            lost = chunk - {row[2] for row in rows}
            erased -= len(lost)
            if lost and erased < 0:
                self.result.findings.append(
                    f"{self._name}: bronze lacks {counted(len(lost), 'message')} of topic "
                    f"{before.topic}, partition {before.partition}; the first is offset "
                    f"{min(lost):,}."
                )

    def _read_offsets(self, before: PartitionProgress, first: int) -> Iterator[int]:
        """Yield the broker's offsets from `first` up to the ledger's next offset.

        Raises:
            MedallionError: the messages do not arrive.
        """
        consumer = self._consumer()
        try:
            consumer.assign([TopicPartition(before.topic, before.partition, first)])
            while first < before.next_offset:
                message = consumer.poll(_TIMEOUT_SECONDS)
                error = message.error() if message else None
                if error and error.code() == KafkaError._PARTITION_EOF:
                    break
                if message is None or error:
                    reason = error.str() if error else f"none for {_TIMEOUT_SECONDS:.0f} seconds"
                    raise MedallionError(
                        f"topic {before.topic}, partition {before.partition}: no more messages: "
                        f"{reason}."
                    )
                first = (message.offset() or 0) + 1
                if first <= before.next_offset:
                    yield first - 1
        finally:
            consumer.close()

    def _consumer(self) -> Consumer:
        servers = broker.kafka_settings(self._source).servers
        settings = {
            **broker.client_settings(servers, self._config.login),
            "group.id": "medallion-audit",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",  # if the broker removes messages in the meantime
            "isolation.level": "read_committed",
            "enable.partition.eof": True,  # transaction markers are not messages
        }
        try:
            return Consumer(settings)
        except KafkaException as error:
            raise broker.login_error(f"bronze.{self._name}", error) from None

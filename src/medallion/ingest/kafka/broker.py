"""The Kafka brokers: settings of their clients, topics, partitions and offsets; without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medallion.config.model import Kafka, Login, SourceConfig
from medallion.errors import MedallionError, UnreachableError
from medallion.state.topics import PartitionKey, PartitionProgress

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import KafkaError


_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
# Messages of a transaction that was aborted never landed.
_COMMITTED = "read_committed"


def spark_source_options(kafka: Kafka, login: Login) -> dict[str, str]:
    """Options of Spark's source: all but which partitions, and from where."""
    return {
        **spark_sink_options(kafka.servers, login),
        "kafka.isolation.level": _COMMITTED,
        "kafka.allow.auto.create.topics": "false",
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }


def spark_sink_options(servers: Sequence[str], login: Login) -> dict[str, str]:
    """Options of Spark's sink: all but the topic."""
    found = {
        "kafka.bootstrap.servers": ",".join(servers),
        "kafka.security.protocol": login.protocol,
    }
    if login.ca:
        found["kafka.ssl.truststore.type"] = "PEM"
        found["kafka.ssl.truststore.location"] = login.ca
    if login.username:
        name, password = (_quoted(text) for text in (login.username, login.password))
        module = _MODULES[login.mechanism]
        found["kafka.sasl.mechanism"] = login.mechanism
        found["kafka.sasl.jaas.config"] = f"{module} required username={name} password={password};"
    return found


def client_settings(servers: Sequence[str], login: Login) -> dict[str, str | int]:
    """Settings of librdkafka."""
    found: dict[str, str | int] = {
        "bootstrap.servers": ",".join(servers),
        "security.protocol": login.protocol,
        "client.id": "medallion",
        "log_level": 0,  # what goes wrong is raised, in words
    }
    if login.ca:
        found["ssl.ca.location"] = login.ca
    if login.username:
        found["sasl.mechanism"] = login.mechanism
        found["sasl.username"], found["sasl.password"] = login.username, login.password
    return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


TIMEOUT = 10.0  # seconds, for each thing that is asked
# Errors of a client that reaches no broker, and of brokers while one takes another's place.
_FOR_A_WHILE = (
    "_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "BROKER_NOT_AVAILABLE",
    "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "OFFSET_NOT_AVAILABLE", "NETWORK_EXCEPTION",
    "REQUEST_TIMED_OUT",
)  # fmt: skip


@dataclass(frozen=True)
class Partition:
    """The offsets of one partition: from `first` up to, and without, `end`."""

    topic_id: str
    first: int
    end: int


def kafka_settings(source: SourceConfig) -> Kafka:
    """What a source of messages reads."""
    assert isinstance(source.stream, Kafka), f"{source.name} is no source of messages"
    return source.stream


def list_partitions(source: SourceConfig, login: Login) -> dict[PartitionKey, Partition]:
    """The partitions of a source's topics as they are now.

    Raises:
        MedallionError: no broker answers, it refuses the login, or a topic is not there.
    """
    kafka = kafka_settings(source)
    asked, topics = describe_topics(f"bronze.{source.name}", kafka.servers, kafka.topics, login)
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    places = {
        (name, part.id): str(topic.topic_id)
        for name, topic in topics.items()
        for part in topic.partitions
    }

    def offsets(which: Any) -> dict[PartitionKey, int]:
        found = asked.client.list_offsets(
            {TopicPartition(*place): which for place in places},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=TIMEOUT,
        )
        return {
            (part.topic, part.partition): asked.answer(future, part.topic).offset
            for part, future in found.items()
        }

    first, end = offsets(OffsetSpec.earliest()), offsets(OffsetSpec.latest())
    return {place: Partition(id_, first[place], end[place]) for place, id_ in places.items()}


def describe_topics(
    name: str, servers: Sequence[str], topics: Sequence[str], login: Login
) -> tuple[_Asked, dict[str, Any]]:
    """A client of the brokers, and what they say of topics.

    Args:
        name: of the query that asks.

    Raises:
        MedallionError: no broker answers, it refuses the login, or a topic is not there.
    """
    try:
        from confluent_kafka import KafkaException, TopicCollection
        from confluent_kafka.admin import AdminClient
    except ImportError:
        raise missing_client_error(name) from None
    troubles: list[KafkaError] = []
    settings = {**client_settings(servers, login), "error_cb": troubles.append}
    try:
        client = AdminClient(settings)
    except KafkaException as error:
        raise login_error(name, error) from None
    asked = _Asked(name, ", ".join(servers), client, troubles)
    described = client.describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT)
    return asked, {topic: asked.answer(future, topic) for topic, future in described.items()}


def missing_client_error(name: str) -> MedallionError:
    """The error where the client's package is not installed."""
    return MedallionError(
        f"{name}: the package confluent-kafka is not set up here: make setup-kafka."
    )


def login_error(name: str, error: Exception) -> MedallionError:
    """The error where the client library refuses the login's settings."""
    told = error.args[0].str() if error.args else "no reason"
    return MedallionError(f"{name}: the login of MEDALLION_KAFKA_*: {told}.")


class _Asked:
    """A client, and the errors that it met on its way to the brokers."""

    def __init__(self, name: str, servers: str, client: Any, troubles: list[KafkaError]) -> None:
        self._name, self._servers, self.client = name, servers, client
        self._troubles = troubles

    def answer(self, future: Future[Any], topic: str) -> Any:
        """The answer, or why there is none."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            return future.result()
        except KafkaException as error:
            told = error.args[0]
        if told.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise MedallionError(
                f"{self._name}: there is no topic {topic} at {self._servers}: make it, or correct "
                "its name."
            )
        self.client.poll(0)  # what it met is told by this
        refused = [t for t in self._troubles if t.code() == KafkaError._AUTHENTICATION]
        if refused:
            raise MedallionError(
                f"{self._name}: {self._servers} refuses the login of MEDALLION_KAFKA_USERNAME: "
                f"{_last_words(refused[-1].str())}."
            )
        if told.code() in (getattr(KafkaError, name) for name in _FOR_A_WHILE):
            met = f" ({_last_words((self._troubles or [told])[-1].str())})"
            raise UnreachableError(
                f"{self._name}: no Kafka broker answers at {self._servers}{met}: is it on, and are "
                "`servers` and MEDALLION_KAFKA_PROTOCOL right?"
            )
        raise MedallionError(f"{self._name}: {self._servers}: topic {topic}: {told.str()}.")


def _last_words(text: str) -> str:
    return text.rpartition(": ")[2].partition(" (after")[0].strip(" .")


def count_waiting(
    source: SourceConfig,
    there: Mapping[PartitionKey, Partition],
    taken: Mapping[PartitionKey, PartitionProgress],
) -> int:
    """How many offsets are not taken in yet, those at which transactions end included."""
    if not taken and kafka_settings(source).starting_offsets == "latest":
        return 0
    found = 0
    for place, part in there.items():
        before = taken.get(place)
        found += max(part.end - (max(before.next_offset, 0) if before else part.first), 0)
    return found


def expected_progress(
    source: SourceConfig,
    taken: Mapping[PartitionKey, PartitionProgress],
    there: Mapping[PartitionKey, Partition],
) -> dict[PartitionKey, PartitionProgress]:
    """The ledger's rows of the topics that are read; of their new partitions, which begin at 0, the
    rows to come."""
    topics = kafka_settings(source).topics
    known = {topic for topic, _ in taken}
    new = {
        (topic, number): PartitionProgress(source.name, topic, number, now.topic_id, 0, 0, -1, 0)
        for (topic, number), now in there.items()
        if topic in known
    }
    return {**new, **{place: each for place, each in taken.items() if each.topic in topics}}


def lost_topics(
    source: SourceConfig,
    taken: Mapping[PartitionKey, PartitionProgress],
    there: Mapping[PartitionKey, Partition],
) -> dict[str, str]:
    """By topic, why it cannot be gone on with: messages that were to come next are not there.

    Args:
        source: whose topics they are.
        taken: what the ledger has of it.
        there: what the broker has.
    """
    found: dict[str, str] = {}
    for place, before in expected_progress(source, taken, there).items():
        if why := _why_gone(before, there.get(place)):
            command = f"medallion backfill {source.name} {before.topic}"
            found.setdefault(before.topic, f"{why}. To go on with what it has now: {command}")
    return found


def refuse_lost(
    source: SourceConfig,
    taken: Mapping[PartitionKey, PartitionProgress],
    there: Mapping[PartitionKey, Partition],
) -> None:
    """Raise MedallionError where messages that were to come next are not there."""
    if found := lost_topics(source, taken, there):
        told = "; ".join(f"topic {topic} {why}" for topic, why in found.items())
        raise MedallionError(f"bronze.{source.name}: {told}.")


def _why_gone(before: PartitionProgress, now: Partition | None) -> str | None:
    part = f"partition {before.partition}"
    start = max(before.next_offset, 0)
    if now is None:
        had = f"has no {part} any more, of which {before.rows:,} messages were taken in"
        return None if before.is_void else had
    if not before.is_void and before.topic_id not in (None, now.topic_id):
        return f"was made anew after {before.rows:,} messages of its {part} had been taken in"
    if start < now.first:
        offsets = f"offsets {start:,} to {now.first - 1:,}"
        return f"has lost messages before they were taken in: of {part}, {offsets}"
    if start > now.end:
        return (
            f"has lost messages that were taken in: {part} was read up to offset {start - 1:,}, "
            f"and ends at {now.end - 1:,} now"
        )
    return None

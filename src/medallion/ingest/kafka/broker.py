"""Kafka without Spark: settings of clients, topics, partitions and offsets, and the source type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from medallion.config.model import Config, SourceConfig
from medallion.config.operations import Login
from medallion.config.tables import Kafka
from medallion.errors import MedallionError, UnreachableError, UsageError
from medallion.ingest.source import Backlog, Source, SourceScan, SourceType, Verification
from medallion.spark import checkpoints
from medallion.state import pending_work, topics
from medallion.state.topics import PartitionKey, PartitionProgress
from medallion.storage import clock
from medallion.storage.text import counted

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import KafkaError

TIMEOUT = 10.0  # seconds, for each request
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
# Codes of a client that reaches no broker, and of brokers while a leader is replaced.
_TRANSIENT = (
    *("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE"),
    *("BROKER_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION"),
    *("OFFSET_NOT_AVAILABLE", "NETWORK_EXCEPTION", "REQUEST_TIMED_OUT"),
)


@dataclass(frozen=True)
class Partition:
    """The offsets of one partition: from `first` up to `end`, exclusive."""

    topic_id: str
    first: int
    end: int


def kafka_settings(source: SourceConfig) -> Kafka:
    """Return the Kafka settings of a source."""
    assert source.stream, f"{source.name} is not a Kafka source"
    return source.stream


def spark_source_options(kafka: Kafka, login: Login) -> dict[str, str]:
    """Return the options of Spark's Kafka source, without partitions and offsets."""
    return {
        **spark_sink_options(kafka.servers, login),
        "kafka.isolation.level": "read_committed",
        "kafka.allow.auto.create.topics": "false",
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }


def spark_sink_options(servers: Sequence[str], login: Login) -> dict[str, str]:
    """Return the options of Spark's Kafka sink, without the topic."""
    options = {
        "kafka.bootstrap.servers": ",".join(servers),
        "kafka.security.protocol": login.protocol,
    }
    if login.ca:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.location"] = login.ca
    if login.username:
        name, password = (_jaas_string(text) for text in (login.username, login.password))
        jaas = f"{_LOGIN_MODULES[login.mechanism]} required username={name} password={password};"
        options["kafka.sasl.mechanism"] = login.mechanism
        options["kafka.sasl.jaas.config"] = jaas
    return options


def client_settings(servers: Sequence[str], login: Login) -> dict[str, str | int]:
    """Return the settings of librdkafka, the client of confluent-kafka."""
    settings: dict[str, str | int] = {
        "bootstrap.servers": ",".join(servers),
        "security.protocol": login.protocol,
        "client.id": "medallion",
        "log_level": 0,  # errors are raised instead
    }
    if login.ca:
        settings["ssl.ca.location"] = login.ca
    if login.username:
        settings["sasl.mechanism"] = login.mechanism
        settings["sasl.username"], settings["sasl.password"] = login.username, login.password
    return settings


def _jaas_string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def list_partitions(source: SourceConfig, login: Login) -> dict[PartitionKey, Partition]:
    """Return the partitions of a source's topics with their current offsets.

    Raises:
        MedallionError: no broker answers, it refuses the login, or a topic does not exist.
    """
    kafka = kafka_settings(source)
    client, described = describe_topics(f"bronze.{source.name}", kafka.servers, kafka.topics, login)
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    topic_ids = {
        (name, part.id): str(topic.topic_id)
        for name, topic in described.items()
        for part in topic.partitions
    }

    def offsets(spec: Any) -> dict[PartitionKey, int]:
        futures = client.admin.list_offsets(
            {TopicPartition(*place): spec for place in topic_ids},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=TIMEOUT,
        )
        return {
            (part.topic, part.partition): client.result(future, part.topic).offset
            for part, future in futures.items()
        }

    first, end = offsets(OffsetSpec.earliest()), offsets(OffsetSpec.latest())
    return {place: Partition(id_, first[place], end[place]) for place, id_ in topic_ids.items()}


def describe_topics(
    name: str, servers: Sequence[str], names: Sequence[str], login: Login
) -> tuple[_Client, dict[str, Any]]:
    """Return a client of the brokers, and their descriptions of topics.

    Args:
        name: the query, for error messages.
        servers: the bootstrap servers.
        names: the topics.
        login: user, password and certificates.

    Raises:
        MedallionError: no broker answers, it refuses the login, or a topic does not exist.
    """
    try:
        from confluent_kafka import KafkaException, TopicCollection
        from confluent_kafka.admin import AdminClient
    except ImportError:
        raise missing_client_error(name) from None
    errors: list[KafkaError] = []
    settings = {**client_settings(servers, login), "error_cb": errors.append}
    try:
        admin = AdminClient(settings)
    except KafkaException as error:
        raise login_error(name, error) from None
    client = _Client(name, ", ".join(servers), admin, errors)
    futures = admin.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT)
    return client, {topic: client.result(future, topic) for topic, future in futures.items()}


def missing_client_error(name: str) -> MedallionError:
    """Return the error for a missing package confluent-kafka."""
    return MedallionError(
        f"{name}: the package confluent-kafka is not installed: run pip install 'medallion[kafka]'."
    )


def login_error(name: str, error: Exception) -> MedallionError:
    """Return the error for login settings that the client library refuses."""
    reason = error.args[0].str() if error.args else "no reason given"
    return MedallionError(f"{name}: the login settings MEDALLION_KAFKA_* are invalid: {reason}.")


class _Client:
    """An admin client, and the errors that it reported while connecting."""

    def __init__(self, name: str, servers: str, admin: Any, errors: list[KafkaError]) -> None:
        self._name, self._servers, self.admin, self._errors = name, servers, admin, errors

    def result(self, future: Future[Any], topic: str) -> Any:
        """Return the result of a request about a topic, or raise `MedallionError`."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            return future.result()
        except KafkaException as exception:
            error = exception.args[0]
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise MedallionError(
                f"{self._name}: there is no topic {topic} at {self._servers}: create it, or "
                "correct its name."
            )
        self.admin.poll(0)  # calls `error_cb`
        refused = [e for e in self._errors if e.code() == KafkaError._AUTHENTICATION]
        if refused:
            raise MedallionError(
                f"{self._name}: {self._servers} refuses the login of MEDALLION_KAFKA_USERNAME: "
                f"{_last_clause(refused[-1].str())}."
            )
        if error.code() in (getattr(KafkaError, name) for name in _TRANSIENT):
            cause = _last_clause((self._errors or [error])[-1].str())
            raise UnreachableError(
                f"{self._name}: no Kafka broker answers at {self._servers} ({cause}). Check that "
                "it is running, and the settings `servers` and MEDALLION_KAFKA_PROTOCOL."
            )
        raise MedallionError(f"{self._name}: {self._servers}: topic {topic}: {error.str()}.")


def _last_clause(text: str) -> str:
    return text.rpartition(": ")[2].partition(" (after")[0].strip(" .")


@dataclass(frozen=True)
class TopicState:
    """The partitions of a source's topics, in the ledger and at the broker.

    Attributes:
        source: the source.
        progress: its partitions in the ledger.
        partitions: its partitions at the broker.
    """

    source: SourceConfig
    progress: Mapping[PartitionKey, PartitionProgress]
    partitions: Mapping[PartitionKey, Partition]

    @classmethod
    def load(cls, config: Config, source: SourceConfig, accepts_loss: bool = False) -> TopicState:
        """Read the ledger and ask the broker.

        Args:
            source: a source of topics.
            accepts_loss: whether the next messages of a topic may be gone.

        Raises:
            MedallionError: the broker does not answer, or the next messages of a topic are gone.
        """
        progress = topics.read_progress(config.layout, source.name)
        state = cls(source, progress, list_partitions(source, config.login))
        if not accepts_loss and (lost := state.lost_topics()):
            reasons = "; ".join(f"topic {topic} {reason}" for topic, reason in lost.items())
            raise MedallionError(f"bronze.{source.name}: {reasons}.")
        return state

    def count_waiting(self) -> int:
        """Return how many offsets are not ingested yet, including transaction markers."""
        if not self.progress and kafka_settings(self.source).starting_offsets == "latest":
            return 0
        read = {place: max(each.next_offset, 0) for place, each in self.progress.items()}
        return sum(max(p.end - read.get(at, p.first), 0) for at, p in self.partitions.items())

    def expected_progress(self) -> dict[PartitionKey, PartitionProgress]:
        """Return the progress of the topics that the source reads.

        New partitions of a known topic start at offset 0.
        """
        name, wanted = self.source.name, kafka_settings(self.source).topics
        known = {topic for topic, _ in self.progress}
        new = {
            place: PartitionProgress(name, *place, now.topic_id)
            for place, now in self.partitions.items()
            if place[0] in known
        }
        return {**new, **{at: each for at, each in self.progress.items() if each.topic in wanted}}

    def losses(self) -> list[Loss]:
        """Return what is lost, by partition."""
        expected = self.expected_progress()
        found = (_find_loss(each, self.partitions.get(place)) for place, each in expected.items())
        return [loss for loss in found if loss]

    def lost_topics(self) -> dict[str, str]:
        """Return the topics whose next messages are gone, with the reason and the remedy."""
        lost: dict[str, str] = {}
        for loss in self.losses():
            topic = loss.moved.topic
            command = f"medallion backfill {self.source.name} {topic}"
            lost.setdefault(topic, f"{loss.reason}. To continue without them: {command}")
        return lost


@dataclass(frozen=True)
class Loss:
    """The next messages of a partition are gone.

    Attributes:
        reason: why, after the name of the topic.
        moved: the ledger's row, moved to the first message that the broker has.
        offsets: the number of lost offsets; None if it is unknown.
    """

    reason: str
    moved: PartitionProgress
    offsets: int | None = None


def _find_loss(before: PartitionProgress, now: Partition | None) -> Loss | None:
    """Compare the ledger's row of a partition with the broker."""
    part, start = f"partition {before.partition}", max(before.next_offset, 0)
    recreated = replace(before, made_anew=before.made_anew + 1)
    if now is None:  # if the topic gets this partition again, its messages are new
        reason = f"no longer has {part}, of which {before.rows:,} messages were ingested"
        return None if before.is_void else Loss(reason, replace(recreated, next_offset=-1))
    # The same offsets belong to other messages.
    recreated = replace(recreated, topic_id=now.topic_id, next_offset=now.first)
    if not before.is_void and before.topic_id not in (None, now.topic_id):
        reason = f"was recreated after {before.rows:,} messages of its {part} were ingested"
        return Loss(reason, recreated)
    if start < now.first:
        offsets = f"offsets {start:,} to {now.first - 1:,}"
        reason = f"lost messages before they were ingested: {part}, {offsets}"
        lost = now.first - start
        skipped = replace(recreated, made_anew=before.made_anew, lost=before.lost + lost)
        return Loss(reason, skipped, lost)
    if start > now.end:
        reason = f"{part} was read up to offset {start - 1:,} and now ends at {now.end - 1:,}"
        return Loss(f"lost messages that were ingested: {reason}", recreated)
    return None


def _open(*arguments: Any) -> Source:
    from medallion.ingest.kafka.source import KafkaSource  # here: it imports Spark

    return KafkaSource(*arguments)


def _backlog(config: Config, source: SourceConfig) -> Backlog:
    return Backlog(messages=TopicState.load(config, source).count_waiting())


def _scan(config: Config, source: SourceConfig) -> SourceScan:
    """Ask the broker for unread messages, unless bronze has to repair its ledger first.

    Raises:
        MedallionError: the broker does not answer, or messages are lost.
    """
    if pending_work.lacks_entries(config, source.name, topics.ingested_rows(config, source)):
        return SourceScan(has_work=True)  # bronze repairs the ledger, or raises
    state = TopicState.load(config, source)
    # Bronze records where an empty new partition starts, too.
    is_new = not state.partitions.keys() <= state.progress.keys()
    return SourceScan(is_new or state.count_waiting() > 0)


def _losses(config: Config, source: SourceConfig) -> list[str]:
    messages = []
    progress = topics.read_progress(config.layout, source.name).values()
    for topic in dict.fromkeys(each.topic for each in progress):
        lost = sum(each.lost for each in progress if each.topic == topic)
        recreated = max(each.made_anew for each in progress if each.topic == topic)
        if lost:
            messages.append(f"{counted(lost, 'offset')} of topic {topic} lost")
        if recreated:
            times = counted(recreated, "time")
            messages.append(f"topic {topic} was recreated {times}: messages not yet read are lost")
    return messages


def _verify(config: Config, source: SourceConfig) -> Verification:
    try:
        from medallion.ingest.kafka.verify import verify_messages
    except ImportError:
        return Verification(notes=[str(missing_client_error(f"bronze.{source.name}"))])
    return verify_messages(config, source)


def skip_lost(config: Config, source: SourceConfig, topic: str) -> int | None:
    """Move a topic to the first message that it still has, and record the loss in the ledger.

    The caller holds bronze's lock.

    Returns:
        The number of lost offsets, or None if the topic was recreated: then it is unknown.

    Raises:
        UsageError: no messages of the topic are lost, or the ledger lacks rows of bronze.
        MedallionError: the broker does not answer.
        OSError: the checkpoint cannot be removed; the ledger is unchanged.
    """
    kafka, layout = kafka_settings(source), config.layout
    if topic not in kafka.topics:
        raise UsageError(f"{source.name} has no topic {topic}; it has {', '.join(kafka.topics)}.")
    if pending_work.lacks_entries(config, source.name, topics.ingested_rows(config, source)):
        raise UsageError(
            f"bronze.{source.name} has rows that its ledger, ops.topics, lacks: run medallion run "
            "bronze first, which records them."
        )
    state = TopicState.load(config, source, accepts_loss=True)
    losses = [loss for loss in state.losses() if loss.moved.topic == topic]
    if not losses:
        raise UsageError(f"topic {topic} has lost no messages: bronze resumes where it stopped.")
    last = max(each.batch for each in state.progress.values())
    moved = [replace(loss.moved, batch=last, committed_at=clock.now_micros()) for loss in losses]
    # The checkpoint goes first: if the process dies here, the next run refuses again. In the
    # other order Spark would resume from the checkpoint, and skip messages.
    checkpoints.start_generation(layout, f"bronze.{source.name}")
    topics.write_progress(layout, moved)
    offsets = [loss.offsets for loss in losses]
    return None if None in offsets else sum(filter(None, offsets))


KAFKA_SOURCE = SourceType(_open, _backlog, _scan, topics.ingested_rows, _losses, _verify)

"""Kafka as a source type: the operations that need no Spark."""

from dataclasses import replace
from typing import Any

from medallion.config.model import Config, SourceConfig
from medallion.errors import UsageError
from medallion.ingest.kafka import broker
from medallion.ingest.kafka.broker import TopicState
from medallion.ingest.source import Backlog, Source, SourceScan, SourceType, Verification
from medallion.spark import checkpoints
from medallion.state import pending_work, topics
from medallion.storage import clock
from medallion.storage.text import counted


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
        return Verification(notes=[str(broker.missing_client_error(f"bronze.{source.name}"))])
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
    kafka, layout = broker.kafka_settings(source), config.layout
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

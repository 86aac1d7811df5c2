"""Kafka as a source type: the operations that need no Spark."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from medallion.config.model import Config, SourceConfig
from medallion.errors import UsageError
from medallion.ingest.kafka import broker
from medallion.ingest.kafka.broker import Partition
from medallion.ingest.source import Backlog, Source, SourceType, Verification
from medallion.state import pending_work, topics
from medallion.state.topics import PartitionKey, PartitionProgress
from medallion.storage import clock
from medallion.storage.text import Reporter, counted


def _open(*given: Any) -> Source:
    """Open a source; Spark is imported here, so that other commands do not load it."""
    from medallion.ingest.kafka.source import KafkaSource

    return KafkaSource(*given)


def _backlog(config: Config, source: SourceConfig) -> Backlog:
    taken = topics.read_progress(config.layout, source.name)
    there = _messages(config, source, taken)
    return Backlog(messages=broker.count_waiting(source, there, taken))


def _messages(
    config: Config, source: SourceConfig, taken: Mapping[PartitionKey, PartitionProgress]
) -> dict[PartitionKey, Partition]:
    """What the broker has, if it goes together with the ledger."""
    there = broker.list_partitions(source, config.login)
    broker.refuse_lost(source, taken, there)
    return there


def _poll(config: Config, source: SourceConfig, recorded: int, say: Reporter) -> bool:
    taken = topics.read_progress(config.layout, source.name)
    if pending_work.lacks_entries(config, source.name, _rows_in_ledger(config, source)):
        return True  # bronze repairs its ledger, or refuses, before that is compared with topics
    there = _messages(config, source, taken)
    # Where a partition begins is to be put down, even if there is no message yet.
    return broker.count_waiting(source, there, taken) > 0 or not there.keys() <= taken.keys()


def _rows_in_ledger(config: Config, source: SourceConfig) -> int:
    return topics.ingested_rows(config.layout, source.name)


def _losses(config: Config, source: SourceConfig) -> list[str]:
    found = []
    taken = topics.read_progress(config.layout, source.name).values()
    for topic in dict.fromkeys(each.topic for each in taken):
        lost = sum(each.lost for each in taken if each.topic == topic)
        anew = max(each.made_anew for each in taken if each.topic == topic)
        if lost:
            found.append(f"{counted(lost, 'offset')} of topic {topic} lost")
        if anew:
            times = counted(anew, "time")
            found.append(f"topic {topic} was made anew {times}, and what was not read then is lost")
    return found


def _verify(config: Config, source: SourceConfig) -> Verification:
    try:
        from medallion.ingest.kafka.verify import verify_messages
    except ImportError:
        return Verification(notes=[str(broker.missing_client_error(f"bronze.{source.name}"))])
    return verify_messages(config, source)


def skip_lost(config: Config, source: SourceConfig, topic: str) -> int | None:
    """Go on with the first message that a topic has now; the caller holds bronze's lock.

    Returns:
        How many offsets are lost; None where the topic was made anew, for nobody knows.

    Raises:
        UsageError: nothing of the topic is gone, or the ledger does not have all of bronze yet.
        MedallionError: the broker cannot be asked.
        OSError: the checkpoint cannot be removed; the ledger is as it was.
    """
    kafka, layout = broker.kafka_settings(source), config.layout
    if topic not in kafka.topics:
        raise UsageError(f"{source.name} has no topic {topic}; it has {', '.join(kafka.topics)}.")
    taken = topics.read_progress(layout, source.name)
    if pending_work.lacks_entries(config, source.name, topics.ingested_rows(layout, source.name)):
        raise UsageError(
            f"bronze.{source.name} has rows that its ledger, ops.topics, does not have yet: "
            "medallion run bronze enters them, or reports that they cannot be entered."
        )
    there = broker.list_partitions(source, config.login)
    if topic not in broker.lost_topics(source, taken, there):
        raise UsageError(
            f"nothing of topic {topic} is gone: bronze goes on with it by itself, and takes each "
            "message in once."
        )
    last = max(each.batch for each in taken.values())
    known = [e for e in broker.expected_progress(source, taken, there).values() if e.topic == topic]
    moved = [_moved(each, there.get(each.place)) for each in known]
    # In this order: whoever is cut off between the two is refused again, and nothing is skipped.
    # By a checkpoint that cannot be removed, Spark would pass over what it counts as read.
    if (checkpoint := layout.checkpoint(f"bronze.{source.name}")).exists():
        shutil.rmtree(checkpoint)
    topics.write_progress(layout, [replace(each, batch=last) for each in moved])
    if sum(each.made_anew for each in moved) > sum(each.made_anew for each in known):
        return None
    return sum(each.lost for each in moved) - sum(each.lost for each in known)


def _moved(before: PartitionProgress, now: Partition | None) -> PartitionProgress:
    """The ledger's row, for what the broker has of the partition now."""
    then = replace(before, committed_at=clock.now_micros())
    start = max(before.next_offset, 0)
    anew = replace(then, made_anew=before.made_anew + 1)
    if now is None:  # the topic has fewer partitions; should it get more, they begin anew
        return then if before.is_void else replace(anew, next_offset=-1)
    is_other = not before.is_void and before.topic_id not in (None, now.topic_id)
    if is_other or start > now.end:  # offsets come a second time, for other messages: all are new
        return replace(anew, topic_id=now.topic_id, next_offset=now.first)
    lost = before.lost + max(now.first - start, 0)
    return replace(then, topic_id=now.topic_id, next_offset=max(start, now.first), lost=lost)


KAFKA_SOURCE = SourceType(_open, _backlog, _poll, _rows_in_ledger, _losses, _verify)

"""Topics of Kafka as a kind of source: what is asked of them without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from medallion.config.model import Config, SourceConfig
from medallion.ingest.kafka import broker
from medallion.ingest.kafka.broker import Partition
from medallion.ingest.source import Backlog, Source, SourceType, Verification
from medallion.state import pending_work, topics
from medallion.state.topics import Place, Taken
from medallion.storage.text import Say, counted


def _open(*given: Any) -> Source:
    """Open a source; Spark is imported here, so that other commands do not load it."""
    from medallion.ingest.kafka.source import KafkaSource

    return KafkaSource(*given)


def _backlog(config: Config, source: SourceConfig) -> Backlog:
    taken = topics.read(config.layout, source.name)
    there = _messages(config, source, taken)
    return Backlog(messages=broker.waiting(source, there, taken))


def _messages(
    config: Config, source: SourceConfig, taken: Mapping[Place, Taken]
) -> dict[Place, Partition]:
    """What the broker has, if it goes together with the ledger."""
    there = broker.look(source, config.login)
    broker.refuse_gone(source, taken, there)
    return there


def _poll(config: Config, source: SourceConfig, recorded: int, say: Say) -> bool:
    taken = topics.read(config.layout, source.name)
    if pending_work.lacks_entries(config, source.name, _rows_in_ledger(config, source)):
        return True  # bronze repairs its ledger, or refuses, before that is compared with topics
    there = _messages(config, source, taken)
    # Where a partition begins is to be put down, even if there is no message yet.
    return broker.waiting(source, there, taken) > 0 or not there.keys() <= taken.keys()


def _rows_in_ledger(config: Config, source: SourceConfig) -> int:
    return topics.ingested_rows(config.layout, source.name)


def _losses(config: Config, source: SourceConfig) -> list[str]:
    found = []
    taken = topics.read(config.layout, source.name).values()
    for topic in dict.fromkeys(each.topic for each in taken):
        lost = sum(each.lost for each in taken if each.topic == topic)
        anew = max(each.made_anew for each in taken if each.topic == topic)
        if lost:
            found.append(f"{counted(lost, 'offset')} of topic {topic} lost")
        if anew:
            times = counted(anew, "time")
            found.append(f"topic {topic} was made anew {times}, and what was not read then is lost")
    return found


def _recount(config: Config, source: SourceConfig) -> Verification:
    try:
        from medallion.ingest.kafka.recount import recount
    except ImportError:
        return Verification(notes=[str(broker.not_set_up(f"bronze.{source.name}"))])
    return recount(config, source)


KAFKA_SOURCE = SourceType(_open, _backlog, _poll, _rows_in_ledger, _losses, _recount)

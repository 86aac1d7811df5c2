"""A ledger of topics that lacks rows of bronze: nothing is read twice or skipped."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.config.tables import Kafka
from medallion.errors import UsageError
from medallion.ingest.formats import SOURCE_TYPES
from medallion.ingest.kafka import broker
from medallion.ingest.kafka.broker import Partition
from medallion.ingest.kafka.source import KafkaSource, MessageBatch, _Counts
from medallion.state import topics
from medallion.state.topics import PartitionProgress
from medallion.storage import records, table_specs
from tests.support import PROJECT
from tests.support.home import Home

BRONZE = {
    "_topic": "string",
    "_partition": "long",
    "_offset": "long",
}
UNUSED: Any = None


@pytest.fixture
def config(home: Home) -> Config:
    """Configure a source `event` that reads two topics from their ends."""
    project = load({}, PROJECT)
    stream = Kafka(("127.0.0.1:1",), ("a", "b"), "json", "latest", 9)
    source = replace(project.sources["event"], format="kafka", stream=stream)
    return replace(project, layout=home.layout, sources={"event": source}, gold={})


def append_rows(config: Config, topic: str, part: int, offsets: Iterable[int]) -> None:
    """Add rows of a partition to bronze."""
    row = {"_topic": topic, "_partition": part}
    spec = replace(table_specs.table_spec("bronze.event"), columns=BRONZE)
    rows = [{**row, "_offset": n} for n in offsets]
    records.append_records(config.layout.table("bronze.event"), spec, rows)


def progress(
    topic: str, part: int, first: int, next_: int, batch: int, **more: Any
) -> PartitionProgress:
    return PartitionProgress("event", topic, part, "id", first, next_, batch, 0, **more)


def test_older_ledger_after_a_recreated_topic() -> None:
    """Offsets that bronze has twice belong to a recreated topic that the ledger does not know."""
    source: Any = SimpleNamespace(
        name="bronze.event", source=SimpleNamespace(name="event"), topic_ids={}
    )
    old = progress("a", 0, 0, 9, batch=5, rows=9)
    batch = MessageBatch(source, 6, None)
    with pytest.raises(UsageError, match=r"is older than the table.* whole root from one backup"):
        batch._progress(("a", 0), old, _Counts(rows=3, first=0, end=3), 0)
    updated = batch._progress(("a", 0), old, _Counts(rows=3, first=9, end=12), 0)
    assert updated
    assert (updated.next_offset, updated.rows, updated.batch) == (12, 12, 6)


def test_incomplete_ledger_is_repaired_before_lost_topics(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise ingested messages would be reported as lost, and a resumed run would read them
    again."""
    append_rows(config, "a", 0, range(5))
    source = config.sources["event"]
    assert SOURCE_TYPES["kafka"].scan(config, source).has_work, "no broker is asked"
    with pytest.raises(UsageError, match=r"its ledger, ops\.topics, lacks"):
        broker.skip_lost(config, source, "a")
    partitions = {("a", 0): Partition("id", 3, 9), ("b", 0): Partition("id", 0, 4)}
    monkeypatch.setattr(broker, "list_partitions", lambda *_: partitions)
    kafka_source = KafkaSource(UNUSED, config, source, UNUSED, print)
    kafka_source.poll()
    progress_by_partition = topics.read_progress(config.layout, "event")
    assert [entry.next_offset for entry in progress_by_partition.values()] == [3, 0], (
        "this is not a first run"
    )


def test_skip_lost_leaves_the_ledger_if_the_checkpoint_stays(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would resume after the checkpoint's offset, even in another topic."""
    append_rows(config, "a", 0, range(5))
    before = progress("a", 0, 0, 5, batch=7, rows=5)
    topics.write_progress(config.layout, [before])
    monkeypatch.setattr(broker, "list_partitions", lambda *_: {("a", 0): Partition("other", 0, 9)})
    checkpoint = config.layout.checkpoint("bronze.event")
    (checkpoint / "offsets").local.mkdir(parents=True)

    def deny_replace(path: str, *_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", deny_replace)
        with pytest.raises(PermissionError):
            broker.skip_lost(config, config.sources["event"], "a")
    assert topics.read_progress(config.layout, "event") == {("a", 0): before}
    assert broker.skip_lost(config, config.sources["event"], "a") is None
    assert topics.read_progress(config.layout, "event")["a", 0].next_offset == 0
    assert config.layout.checkpoint("bronze.event") == checkpoint / "1"
    assert not (checkpoint / "offsets").local.exists()

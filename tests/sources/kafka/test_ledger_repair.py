"""A ledger of topics that is older than bronze, or gone: nothing is read twice, or passed over."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from medallion.config.connections import Kafka
from medallion.config.loader import load
from medallion.config.model import Config
from medallion.errors import UsageError
from medallion.lakehouse import small_tables, specs
from medallion.ops import topics
from medallion.ops.topics import Taken
from medallion.sources.kafka import broker, ledger_repair, skip
from medallion.sources.kafka.batch import MessageBatch, _Counts
from medallion.sources.kafka.broker import Partition
from medallion.sources.kafka.source import KafkaSource
from medallion.sources.kinds import KINDS
from tests.support import PROJECT
from tests.support.home import Home

BRONZE = {
    "_topic": "string",
    "_partition": "long",
    "_offset": "long",
    "_corrupt_record": "string",
    "_rescued_data": "string",
}
NOTHING: Any = None


@pytest.fixture
def config(home: Home) -> Config:
    """A source `event` that reads two topics, and begins at their ends."""
    known = load({}, PROJECT)
    asked = Kafka(("127.0.0.1:1",), ("a", "b"), "json", "latest", 9)
    source = replace(known.sources["event"], format="kafka", stream=asked)
    return replace(known, layout=home.layout, sources={"event": source}, gold={})


def add(config: Config, topic: str, part: int, offsets: Iterable[int], batch: int = -1) -> None:
    """Rows of a partition in bronze, of which the log says the batch, if there is one."""
    table = config.layout.table("bronze.event")
    row = {"_topic": topic, "_partition": part, "_rescued_data": "{}"}
    rows = [{**row, "_offset": n, "_corrupt_record": "x" if n == 2 else None} for n in offsets]
    small_tables.append(table, replace(specs.of("bronze.event"), columns=BRONZE), rows)
    if batch >= 0:
        with max(table.glob("_delta_log/*.json")).open("a") as commit:
            commit.write(f'\n{{"txn":{{"appId":"q","version":{batch},"lastUpdated":0}}}}')


def taken(topic: str, part: int, first: int, next_: int, batch: int, **more: Any) -> Taken:
    return Taken("event", topic, part, "id", first, next_, batch, 0, **more)


def whole(config: Config, batch: int = 4) -> dict[tuple[str, int], Taken]:
    ledger_repair.make_whole(config.layout, "event", batch)
    return topics.read(config.layout, "event")


def test_what_bronze_has_is_on_record_again(config: Config) -> None:
    """Of a/0 the ledger has the first rows alone, of b/1 nothing, and of a/1 all."""
    old = taken("a", 0, 1, 3, batch=1, rows=2, corrupt_rows=1, rescued_rows=2, lost=5)
    full = taken("a", 1, 0, 9, batch=7, rows=1, rescued_rows=1)
    topics.write(config.layout, [old, full])
    add(config, "a", 0, [1, 2, 3, 5])
    add(config, "a", 1, [8])
    add(config, "b", 1, [2, 6])
    found = whole(config)
    times = {at: each.committed_at for at, each in found.items()}
    changed: dict[str, Any] = {
        "rows": 4,
        "corrupt_rows": 1,
        "rescued_rows": 4,
        "next_offset": 6,
        "batch": 4,
    }
    assert found["a", 0] == replace(old, **changed, committed_at=times["a", 0])
    assert found["a", 1] == full
    new = taken("b", 1, 2, 7, batch=4, rows=2, corrupt_rows=1, rescued_rows=2)
    assert found["b", 1] == replace(new, topic_id=None, committed_at=times["b", 1])
    assert not ledger_repair.is_short(config.layout, "event", topics.read(config.layout, "event"))
    assert whole(config, 9) == found, "there is nothing left to do"


def test_of_a_topic_that_was_made_anew_its_last_batch_tells(config: Config) -> None:
    """Without that one nobody knows which of its offsets were the last."""
    add(config, "a", 0, range(9))
    add(config, "a", 0, range(3), batch=6)
    with pytest.raises(UsageError, match="of topic a, whose offsets have come more than once"):
        whole(config)
    old = taken("a", 0, 0, 9, batch=5, rows=9, made_anew=0)
    source: Any = SimpleNamespace(name="event", topic_ids={})
    batch = MessageBatch(source, 6, None)
    now = batch._after(("a", 0), old, _Counts(rows=3, first=0, end=3), 0)
    assert now
    assert (now.next_offset, now.made_anew, now.rows, now.topic_id) == (3, 1, 12, None)
    topics.write(config.layout, [replace(now, rows=3)])
    found = whole(config)["a", 0]
    assert (found.next_offset, found.made_anew, found.rows, found.batch) == (3, 1, 12, 6)


def test_a_ledger_that_is_short_is_held_against_no_topic(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what was taken in would be told as lost, and whoever went on would read it again."""
    add(config, "a", 0, range(5))
    source = config.sources["event"]
    assert KINDS["kafka"].poll(config, source, 0, print), "no broker is asked"
    with pytest.raises(
        UsageError, match=r"its ledger, ops\.topics, does not have yet: medallion run"
    ):
        skip.go_on(config, source, "a")
    there = {("a", 0): Partition("id", 3, 9), ("b", 0): Partition("id", 0, 4)}
    monkeypatch.setattr(broker, "look", lambda *_: there)
    opened = KafkaSource(NOTHING, config, source, NOTHING, print)
    opened.poll()
    found = topics.read(config.layout, "event")
    assert [each.next_offset for each in found.values()] == [3, 0], "it is no first run"


def test_a_checkpoint_that_cannot_be_removed_leaves_the_ledger_as_it_was(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would go on behind the offset that the checkpoint has, also in another topic."""
    add(config, "a", 0, range(5))
    before = taken("a", 0, 0, 5, batch=7, rows=5)
    topics.write(config.layout, [before])
    monkeypatch.setattr(broker, "look", lambda *_: {("a", 0): Partition("other", 0, 9)})
    checkpoint = config.layout.checkpoint("bronze.event")
    (checkpoint / "offsets").mkdir(parents=True)

    def refused(path: str, **_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", refused)
        with pytest.raises(PermissionError):
            skip.go_on(config, config.sources["event"], "a")
    assert topics.read(config.layout, "event") == {("a", 0): before}
    assert skip.go_on(config, config.sources["event"], "a") is None
    assert topics.read(config.layout, "event")["a", 0].next_offset == 0
    assert not checkpoint.exists()

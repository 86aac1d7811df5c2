"""Changes of gold's tables, in files and in a topic of a real broker."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition

from medallion.config.queries import layers_in_use, queries
from medallion.errors import MedallionError, UsageError
from medallion.inspect.status import query_statuses
from medallion.layers.publish.outputs import FilesOutput
from medallion.runtime import maintenance, refresh
from medallion.spark import checkpoints
from medallion.sql import engine
from medallion.state import pending_work
from medallion.state.runs import Runs
from medallion.storage import delta_tables
from tests.support import PROJECT
from tests.support.broker import Broker
from tests.support.lakehouse import Lakehouse
from tests.support.lines import event

FIRST = [
    event("10:01:00", "a", "open"),
    event("10:02:00", "b", "open"),
    event("10:03:00", "a", "close"),
    # Days that Java's older classes have not.
    json.dumps({"id": "z", "action": "open", "ts": "1582-10-10T10:07:00"}),
]
# Late, in a window that is there; on time, in a new one; and told again.
SECOND = [
    event("10:04:00", "c", "open"),
    event("10:21:00", "a", "close"),
    event("10:01:00", "a", "open"),
]
KEY = "window_start", "action"
FAR, TEN, TWENTY = (
    "1582-10-10T10:00:00.000000Z",
    "2018-03-02T10:00:00.000000Z",
    "2018-03-02T10:20:00.000000Z",
)
FILES, TOPIC = "publish.by_window.files", "publish.by_window.kafka"
AT_LEAST = "expect_table_row_count_to_be_between"
INSERT, UPDATE = "insert", "update_postimage"


def configure(lakehouse: Lakehouse, folder: Path, publish: Any = None) -> None:
    """The source `event`, and one table, with what a test publishes of it."""
    project = yaml.safe_load((PROJECT / "conf/pipeline.yaml").read_text())
    by_window = {
        "source": "silver.event",
        "window": "10 minutes",
        "group_by": ["action"],
        "measure": {"total": "count(*)"},
        "output_mode": "update",
    }
    gold = {"by_window": {**by_window, **({"publish": publish} if publish else {})}}
    source = {"event": project["sources"]["event"]}
    lakehouse.configure(folder, {"sources": source, "gold": gold})


def run(lakehouse: Lakehouse) -> None:
    lakehouse.fill(*layers_in_use(lakehouse.config))


def batches(lakehouse: Lakehouse) -> list[Path]:
    """Return the directories of the published batches, in order."""
    return sorted((lakehouse.root / "publish/by_window").glob("[0-9]*"))


def in_files(lakehouse: Lakehouse) -> list[list[dict[str, Any]]]:
    """Return the changes of each batch that its manifest names, sorted by key."""
    found = []
    for folder in batches(lakehouse):
        names = json.loads((folder / "_files.json").read_text())["files"]
        lines = [line for name in names for line in (folder / name).read_text().splitlines()]
        found.append(sorted(map(json.loads, lines), key=lambda row: [row[key] for key in KEY]))
    return found


def has_input(lakehouse: Lakehouse, name: str) -> bool:
    """Return whether a nightly run would have to start Spark for a query."""
    (query,) = (query for query in queries(lakehouse.config) if query.name == name)
    (table,) = map(lakehouse.config.layout.table, query.upstream)
    return pending_work.has_input(lakehouse.config, name, table)


def published(lakehouse: Lakehouse) -> list[tuple[Any, ...]]:
    """Return the recorded rows in and out of each output."""
    sql = "select query, sum(rows_in), sum(rows_out) from ops.runs where query like 'publish.%'"
    return engine.query(str(lakehouse.root), f"{sql} group by query").rows


def of_topic(broker: Broker, topic: str) -> list[tuple[Any, Any]]:
    """Keys and values of all its messages, in their order; the topic has one partition."""
    consumer = Consumer({"bootstrap.servers": broker.server, "group.id": "tests"})
    try:
        place = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=30)
        consumer.assign([place])
        return [
            (json.loads(message.key()), json.loads(message.value()))
            for message in (consumer.consume(end, timeout=30) if end else [])
        ]
    finally:
        consumer.close()


def told(changes: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(*(c[key] for key in KEY), c["total"], c["_change_type"]) for c in changes]


def newest(changes: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the table as a reader of all changes has it."""
    rows: dict[Any, Any] = {}
    for change in sorted(
        changes, key=lambda c: (c["_commit_version"], c["_change_type"] != "delete")
    ):
        key = tuple(change[key] for key in KEY)
        if change["_change_type"] == "delete":
            del rows[key]
        else:
            rows[key] = change["total"]
    return sorted((*key, total) for key, total in rows.items())


def _full(*_: Any) -> None:
    raise OSError("full")


def test_changes_of_gold_are_published(
    lakehouse: Lakehouse, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_topic = {"servers": [broker.server], "topic": "counts"}
    outputs = {"kafka": to_topic, "files": {"format": "json"}}
    configure(lakehouse, tmp_path, publish=outputs)
    lakehouse.land("event", "0.json", *FIRST)
    with pytest.raises(MedallionError, match="there is no topic counts at"):
        run(lakehouse)
    broker.create("counts")
    lakehouse.fill("publish")
    first = [(FAR, "open", 1, INSERT), (TEN, "close", 1, INSERT), (TEN, "open", 2, INSERT)]
    assert list(map(told, in_files(lakehouse))) == [first]
    messages = of_topic(broker, "counts")
    assert sorted(told([value for _, value in messages])) == first
    assert all(key.items() <= value.items() for key, value in messages)
    assert {tuple(key) for key, _ in messages} == {("window_start", "window_end", "action")}

    lakehouse.land("event", "1.json", *SECOND)
    report = lakehouse.run_without_gates()
    assert report.is_good, report
    second = [(TEN, "open", 3, UPDATE), (TWENTY, "close", 1, INSERT)]
    assert list(map(told, in_files(lakehouse))) == [first, second]
    assert len(of_topic(broker, "counts")) == 5
    assert not any(has_input(lakehouse, query) for query in ("gold.by_window", FILES, TOPIC))
    sent = [q for q in query_statuses(lakehouse.config) if q.query in (FILES, TOPIC)]
    assert [(q.rows_out, q.waiting_rows, q.last_batch) for q in sent] == [(2, 0, 1)] * 2
    # The feed has a row as it was before as well.
    told_of = {query: (rows_in, rows_out) for query, rows_in, rows_out in published(lakehouse)}
    assert told_of == {FILES: (3 + 3, 3 + 2), TOPIC: (3 + 3, 3 + 2)}

    # Batches that were cut off before their ends: gold's changes nothing, and what is published
    # comes once in files, and again as messages.
    for query in ("gold.by_window", FILES, TOPIC):
        (lakehouse.config.layout.checkpoint(query) / "commits/1").local.unlink()
    lakehouse.fill("gold", "publish")
    assert list(map(told, in_files(lakehouse))) == [first, second]
    values = [value for _, value in of_topic(broker, "counts")]
    assert (len(values), sorted(told(values[5:]))) == (7, second)

    # A table that is made anew, and what maintenance takes: who reads on has the table as it is.
    refresh.refresh_table(lakehouse.pipeline(), "gold.by_window")
    lakehouse.land("event", "2.json", event("10:05:00", "d", "open"))
    run(lakehouse)
    expected = [(FAR, "open", 1), (TEN, "close", 1), (TEN, "open", 4), (TWENTY, "close", 1)]
    changes = [change for batch in in_files(lakehouse) for change in batch]
    assert newest(changes) == expected
    assert newest([value for _, value in of_topic(broker, "counts")]) == expected
    assert [total for *_, total in lakehouse.rows("gold.by_window", *KEY, "total")] == [1, 1, 4, 1]

    # Without its checkpoint, all of it would be published twice.
    shutil.rmtree(lakehouse.config.layout.checkpoint(FILES))
    with pytest.raises(UsageError, match=f"medallion refresh {FILES}"):
        lakehouse.fill("publish")
    with monkeypatch.context() as disk:
        disk.setattr(FilesOutput, "write", _full)
        with pytest.raises(MedallionError, match="full"):
            refresh.refresh_table(lakehouse.pipeline(), FILES)
    for _ in range(2):
        lakehouse.fill("publish")
        assert [newest(batch) for batch in in_files(lakehouse)] == [expected]

    # Another topic would get only what changes from now on.
    broker.create("others")
    configure(lakehouse, tmp_path, publish={"kafka": {**to_topic, "topic": "others"}})
    with pytest.raises(UsageError, match=r"with topic 'counts', .*medallion refresh " + TOPIC):
        lakehouse.fill("publish")


def test_an_output_that_is_removed_and_configured_again(
    lakehouse: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = {"files": {"format": "parquet"}}
    configure(lakehouse, tmp_path)
    lakehouse.land("event", "0.json", *FIRST)
    run(lakehouse)
    assert not (lakehouse.root / "publish/by_window").exists()
    configure(lakehouse, tmp_path, publish=outputs)  # of a table that is there
    lakehouse.fill("gold", "publish")
    assert totals(lakehouse) == [{1, 2}]

    # What a gate of gold holds back goes no further, whoever asks.
    lakehouse.expect("gold.by_window", "too_few", AT_LEAST, "stop", min_value=1)
    gate = {"kind": "gate", "query": "gold.by_window", "started_at": 0, "table_version": 1}
    held = {"state": "held", "failed_expectations": "too_few"}
    Runs(lakehouse.config.layout).write([{**gate, **held}])
    lakehouse.land("event", "1.json", *SECOND)
    with pytest.raises(MedallionError, match=r"too_few on gold\.by_window failed, and"):
        run(lakehouse)
    assert totals(lakehouse) == [{1, 2}]
    Runs(lakehouse.config.layout).write([{**gate, "state": "passed"}])
    lakehouse.fill("publish")
    assert totals(lakehouse) == [{1, 2}, {1, 3}]

    # A table that is published no more keeps no feed, and what it changes then nobody knows.
    configure(lakehouse, tmp_path)
    maintenance.maintain_unlocked_layers(lakehouse.config)
    table = delta_tables.open_table(lakehouse.config.layout.table("gold.by_window"))
    assert table.metadata().configuration["delta.enableChangeDataFeed"] == "false"
    lakehouse.land("event", "2.json", event("10:05:00", "d", "open"))
    run(lakehouse)
    configure(lakehouse, tmp_path, publish=outputs)
    with pytest.raises(UsageError, match=r"since the last batch are not .* refresh"):
        lakehouse.fill("gold", "publish")
    refresh.refresh_table(lakehouse.pipeline(), FILES)
    assert totals(lakehouse) == [{1, 4}]
    assert [folder.name for folder in batches(lakehouse)] == ["00000002"]

    # It is older than what was read: what changes next would have versions that are published.
    gold = lakehouse.config.layout.table("gold.by_window")
    plan = lakehouse.config.layout.checkpoint(FILES) / "offsets/2"
    read, version = plan.local.read_text(), delta_tables.table_version(gold)
    plan.local.write_text(read.replace(f'Version":{version + 1},', f'Version":{version + 2},'))
    with pytest.raises(MedallionError, match=r"by_window is older than .* refresh publish.by"):
        lakehouse.fill("publish")
    as_message_refused(lakehouse, monkeypatch)
    plan.local.write_text(read)

    # A table that was moved away is another one when it comes back.
    shutil.rmtree(gold)
    lakehouse.fill("gold")
    assert pending_work.has_input(lakehouse.config, FILES, gold), (
        "or nobody would ask for a refresh"
    )
    with pytest.raises(UsageError, match=r"by_window was replaced by .* refresh publish.by_window"):
        lakehouse.fill("publish")
    as_message_refused(lakehouse, monkeypatch)
    assert totals(lakehouse) == [{1, 4}], "nothing is forgotten"

    # A refresh that was killed once it had put away what there was.
    shutil.rmtree(lakehouse.config.layout.checkpoint(FILES))
    shutil.rmtree(lakehouse.root / "publish/by_window")
    with pytest.raises(UsageError, match="lacks batches that were published"):
        lakehouse.fill("publish")
    refresh.refresh_table(lakehouse.pipeline(), FILES)
    assert [folder.name for folder in batches(lakehouse)] == ["00000003"]
    lakehouse.land("event", "3.json", event("10:06:00", "e", "open"))
    run(lakehouse)
    assert totals(lakehouse) == [{1, 4}, {5}]


def as_message_refused(lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """As messages, they would have lower versions than those that stay in the topic."""
    checkpoint = lakehouse.config.layout.checkpoint(FILES)
    note = checkpoints.read_document(checkpoint, "definition")
    assert note
    checkpoints.write_document(checkpoint, "definition", {**note, "topic id": "one"})
    with monkeypatch.context() as patch:
        patch.setattr(
            FilesOutput, "definition", lambda *_: {"format": "parquet", "topic id": "one"}
        )
        with pytest.raises(UsageError, match=r"_commit_version restarts .* Recreate the topic"):
            refresh.refresh_table(lakehouse.pipeline(), FILES)
    checkpoints.write_document(checkpoint, "definition", note)


def totals(lakehouse: Lakehouse) -> list[set[int]]:
    """The totals that each batch of Parquet files has."""
    found = []
    for folder in batches(lakehouse):
        rows = duckdb.read_parquet(str(folder / "*.parquet"), connection=duckdb.connect())
        found.append({total for (total,) in rows.project("total").fetchall()})
    return found

"""Changes of gold tables, published to files and to a topic of a real broker, over many runs.

Quick tests are in tests/layers/test_publish.py, and with a broker in test_kafka.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from medallion.config.queries import layers_in_use, queries
from medallion.errors import MedallionError, UsageError
from medallion.inspect.status import query_statuses
from medallion.layers.publish import FilesOutput
from medallion.runtime import maintenance, refresh
from medallion.spark import checkpoints
from medallion.sql import engine
from medallion.state import pending_work
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables
from tests.support import PROJECT
from tests.support.broker import Broker, topic_messages
from tests.support.lakehouse import Lakehouse
from tests.support.lines import event

FIRST = [
    event("10:01:00", "a", "open"),
    event("10:02:00", "b", "open"),
    event("10:03:00", "a", "close"),
    # Days that do not exist in Java's older date classes.
    json.dumps({"id": "z", "action": "open", "ts": "1582-10-10T10:07:00"}),
]
# Late, in an existing window; on time, in a new one; and a duplicate.
SECOND = [
    event("10:04:00", "c", "open"),
    event("10:21:00", "a", "close"),
    event("10:01:00", "a", "open"),
]
KEY = "window_start", "action"
OLD, TEN, TWENTY = (
    "1582-10-10T10:00:00.000000Z",
    "2018-03-02T10:00:00.000000Z",
    "2018-03-02T10:20:00.000000Z",
)
FILES, TOPIC = "publish.by_window.files", "publish.by_window.kafka"
AT_LEAST = "expect_table_row_count_to_be_between"
INSERT, UPDATE = "insert", "update_postimage"


def configure(lakehouse: Lakehouse, folder: Path, publish: Any = None) -> None:
    """Configure the source `event`, and one table with the outputs of a test."""
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


def published_changes(lakehouse: Lakehouse) -> list[list[dict[str, Any]]]:
    """Return the changes of each batch in its manifest, sorted by key."""
    changes_by_batch = []
    for folder in batches(lakehouse):
        names = json.loads((folder / "_files.json").read_text())["files"]
        lines = [line for name in names for line in (folder / name).read_text().splitlines()]
        changes_by_batch.append(
            sorted(map(json.loads, lines), key=lambda row: [row[key] for key in KEY])
        )
    return changes_by_batch


def has_input(lakehouse: Lakehouse, name: str) -> bool:
    """Return whether a nightly run would have to start Spark for a query."""
    (query,) = (query for query in queries(lakehouse.config) if query.name == name)
    (table,) = map(lakehouse.config.layout.table, query.upstream)
    return pending_work.has_input(lakehouse.config, name, table)


def output_counts(lakehouse: Lakehouse) -> list[tuple[Any, ...]]:
    """Return the recorded rows in and out of each output."""
    sql = "select query, sum(rows_in), sum(rows_out) from ops.runs where query like 'publish.%'"
    return engine.query(str(lakehouse.root), f"{sql} group by query").rows


def summary(changes: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(*(c[key] for key in KEY), c["total"], c["_change_type"]) for c in changes]


def newest(changes: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the table as a reader of all changes sees it."""
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


def _raise_full(*_: Any) -> None:
    raise OSError("full")


@pytest.mark.slow
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
    first = [(OLD, "open", 1, INSERT), (TEN, "close", 1, INSERT), (TEN, "open", 2, INSERT)]
    assert list(map(summary, published_changes(lakehouse))) == [first]
    messages = topic_messages(broker, "counts")
    assert sorted(summary([value for _, value in messages])) == first
    assert all(key.items() <= value.items() for key, value in messages)
    assert {tuple(key) for key, _ in messages} == {("window_start", "window_end", "action")}

    lakehouse.land("event", "1.json", *SECOND)
    report = lakehouse.run_without_gates()
    assert report.is_good, report
    second = [(TEN, "open", 3, UPDATE), (TWENTY, "close", 1, INSERT)]
    assert list(map(summary, published_changes(lakehouse))) == [first, second]
    assert len(topic_messages(broker, "counts")) == 5
    assert not any(has_input(lakehouse, query) for query in ("gold.by_window", FILES, TOPIC))
    statuses = [q for q in query_statuses(lakehouse.config) if q.query in (FILES, TOPIC)]
    assert [(q.rows_out, q.waiting_rows, q.last_batch) for q in statuses] == [(2, 0, 1)] * 2
    # The change feed also has each updated row's previous version.
    counts = {query: (rows_in, rows_out) for query, rows_in, rows_out in output_counts(lakehouse)}
    assert counts == {FILES: (3 + 3, 3 + 2), TOPIC: (3 + 3, 3 + 2)}

    # Batches interrupted before their commits: gold does not change, files get the changes once,
    # and the topic gets them again.
    for query in ("gold.by_window", FILES, TOPIC):
        (lakehouse.config.layout.checkpoint(query) / "commits/1").local.unlink()
    lakehouse.fill("gold", "publish")
    assert list(map(summary, published_changes(lakehouse))) == [first, second]
    values = [value for _, value in topic_messages(broker, "counts")]
    assert (len(values), sorted(summary(values[5:]))) == (7, second)

    # After a refresh and maintenance, a continuing reader has the current table.
    refresh.refresh_table(lakehouse.pipeline(), "gold.by_window")
    lakehouse.land("event", "2.json", event("10:05:00", "d", "open"))
    run(lakehouse)
    expected = [(OLD, "open", 1), (TEN, "close", 1), (TEN, "open", 4), (TWENTY, "close", 1)]
    changes = [change for batch in published_changes(lakehouse) for change in batch]
    assert newest(changes) == expected
    assert newest([value for _, value in topic_messages(broker, "counts")]) == expected
    assert [total for *_, total in lakehouse.rows("gold.by_window", *KEY, "total")] == [1, 1, 4, 1]

    # Without its checkpoint, all changes would be published twice.
    shutil.rmtree(lakehouse.config.layout.checkpoint(FILES))
    with pytest.raises(UsageError, match=f"medallion refresh {FILES}"):
        lakehouse.fill("publish")
    with monkeypatch.context() as patch:
        patch.setattr(FilesOutput, "write", _raise_full)
        with pytest.raises(MedallionError, match="full"):
            refresh.refresh_table(lakehouse.pipeline(), FILES)
    for _ in range(2):
        lakehouse.fill("publish")
        assert [newest(batch) for batch in published_changes(lakehouse)] == [expected]

    # A new topic would only get future changes.
    broker.create("others")
    configure(lakehouse, tmp_path, publish={"kafka": {**to_topic, "topic": "others"}})
    with pytest.raises(UsageError, match=r"with topic 'counts', .*medallion refresh " + TOPIC):
        lakehouse.fill("publish")


@pytest.mark.slow
def test_output_removed_and_configured_again(
    lakehouse: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = {"files": {"format": "parquet"}}
    configure(lakehouse, tmp_path)
    lakehouse.land("event", "0.json", *FIRST)
    run(lakehouse)
    assert not (lakehouse.root / "publish/by_window").exists()
    configure(lakehouse, tmp_path, publish=outputs)  # the table already exists
    lakehouse.fill("gold", "publish")
    assert totals(lakehouse) == [{1, 2}]

    # Rows blocked by gold's gate are not published by any command.
    lakehouse.expect("gold.by_window", "too_few", AT_LEAST, "stop", min_value=1)
    gate = {"kind": "gate", "query": "gold.by_window", "started_at": 0, "table_version": 1}
    blocked = {"state": "held", "failed_expectations": "too_few"}
    RunRecords(lakehouse.config.layout).write([{**gate, **blocked}])
    lakehouse.land("event", "1.json", *SECOND)
    with pytest.raises(MedallionError, match=r"too_few on gold\.by_window failed, and"):
        run(lakehouse)
    assert totals(lakehouse) == [{1, 2}]
    RunRecords(lakehouse.config.layout).write([{**gate, "state": "passed"}])
    lakehouse.fill("publish")
    assert totals(lakehouse) == [{1, 2}, {1, 3}]

    # A table without outputs keeps no change feed, so its changes in the meantime are unknown.
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

    # The table is older than what was read: its next changes would have published versions.
    gold = lakehouse.config.layout.table("gold.by_window")
    plan = lakehouse.config.layout.checkpoint(FILES) / "offsets/2"
    read, version = plan.local.read_text(), delta_tables.table_version(gold)
    plan.local.write_text(read.replace(f'Version":{version + 1},', f'Version":{version + 2},'))
    with pytest.raises(MedallionError, match=r"by_window is older than .* refresh publish.by"):
        lakehouse.fill("publish")
    check_topic_refresh_is_refused(lakehouse, monkeypatch)
    plan.local.write_text(read)

    # A table that was moved away comes back as a different table.
    shutil.rmtree(gold)
    lakehouse.fill("gold")
    assert pending_work.has_input(lakehouse.config, FILES, gold), (
        "otherwise no run would report the refresh"
    )
    with pytest.raises(UsageError, match=r"by_window was replaced by .* refresh publish.by_window"):
        lakehouse.fill("publish")
    check_topic_refresh_is_refused(lakehouse, monkeypatch)
    assert totals(lakehouse) == [{1, 4}], "published files are kept"

    # A refresh was killed after it removed the published files.
    shutil.rmtree(lakehouse.config.layout.checkpoint(FILES))
    shutil.rmtree(lakehouse.root / "publish/by_window")
    with pytest.raises(UsageError, match="lacks batches that were published"):
        lakehouse.fill("publish")
    refresh.refresh_table(lakehouse.pipeline(), FILES)
    assert [folder.name for folder in batches(lakehouse)] == ["00000003"]
    lakehouse.land("event", "3.json", event("10:06:00", "e", "open"))
    run(lakehouse)
    assert totals(lakehouse) == [{1, 4}, {5}]


def check_topic_refresh_is_refused(lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a topic, new changes would have lower versions than the existing messages."""
    checkpoint = lakehouse.config.layout.checkpoint(FILES)
    definition = checkpoints.read_document(checkpoint, "definition")
    assert definition
    checkpoints.write_document(checkpoint, "definition", {**definition, "topic id": "one"})
    with monkeypatch.context() as patch:
        patch.setattr(
            FilesOutput, "definition", lambda *_: {"format": "parquet", "topic id": "one"}
        )
        with pytest.raises(UsageError, match=r"_commit_version restarts .* Recreate the topic"):
            refresh.refresh_table(lakehouse.pipeline(), FILES)
    checkpoints.write_document(checkpoint, "definition", definition)


def totals(lakehouse: Lakehouse) -> list[set[int]]:
    """Return the totals of each batch of Parquet files."""
    totals_by_batch = []
    for folder in batches(lakehouse):
        rows = duckdb.read_parquet(str(folder / "*.parquet"), connection=duckdb.connect())
        totals_by_batch.append({total for (total,) in rows.project("total").fetchall()})
    return totals_by_batch

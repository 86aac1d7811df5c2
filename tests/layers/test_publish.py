"""Outputs: files and manifests of batches, the order of messages, and queries of one gold table.

No query writes the gold table: the tests change it in SQL.
"""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.operations import Login
from medallion.config.tables import ToFiles, ToKafka
from medallion.errors import MedallionError, UsageError
from medallion.ingest.kafka import broker
from medallion.inspect.status import query_statuses
from medallion.layers import publish
from medallion.layers.publish import MANIFEST, FilesOutput, Publish, TopicOutput, change_messages
from medallion.runtime import refresh
from medallion.spark import checkpoints
from medallion.state import pending_work
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables, files
from medallion.storage.paths import StoragePath
from tests.support import PROJECT
from tests.support.lakehouse import Lakehouse

AT = "2018-03-02T10:00:00.000001Z"
# A row inserted, deleted and inserted again (the last two in one version); one without a device.
ROWS = [
    ("a", 2, "insert", 7),
    ("a", 1, "delete", 7),
    ("a", 1, "insert", 5),
    (None, 3, "update_postimage", 6),
]


@pytest.fixture(scope="module")
def changes(spark: SparkSession) -> DataFrame:
    columns = "device string, total long, _change_type string, _commit_version long"
    rows = spark.createDataFrame(ROWS, columns)
    return rows.selectExpr("*", f"timestamp'{AT}' as at", f"timestamp_ntz'{AT}' as local")


def files_output(tmp_path: Path, format_: str) -> FilesOutput:
    return FilesOutput(StoragePath(tmp_path / "publish/t"), ToFiles(format_))


def fail(*_: Any) -> bool:
    raise OSError("full")


def lines(tmp_path: Path, batch: str) -> list[str]:
    """Return the lines of the files in a batch's manifest."""
    directory = tmp_path / "publish/t" / batch
    manifest = json.loads((directory / MANIFEST).read_text())
    return [
        line for name in manifest["files"] for line in (directory / name).read_text().splitlines()
    ]


def values(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["device"], int(row["total"]), row["_change_type"], int(row["_commit_version"])


def rows_of(tmp_path: Path, batch: str) -> list[tuple[Any, ...]]:
    return sorted((values(json.loads(line)) for line in lines(tmp_path, batch)), key=str)


def test_files_output_skips_a_complete_batch(changes: DataFrame, tmp_path: Path) -> None:
    output = files_output(tmp_path, "json")
    assert output.last_batch == -1
    output.write(changes, 12)
    output.write(changes.limit(1), 12)
    output.write(changes.limit(0), 13)
    assert rows_of(tmp_path, "00000012") == sorted(ROWS, key=str)
    assert {json.loads(line)["at"] for line in lines(tmp_path, "00000012")} == {AT}
    assert [path.name for path in (tmp_path / "publish/t").iterdir()] == ["00000012"]
    for name in ("00000099.done", "notes"):
        (tmp_path / "publish/t" / name).mkdir()
    assert output.last_batch == 12
    output.remove_all()
    assert (output.last_batch, list((tmp_path / "publish").iterdir())) == (-1, [])


def test_files_output_rewrites_a_batch_without_manifest(
    changes: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = files_output(tmp_path, "json")
    output.write(changes, 0)
    with monkeypatch.context() as crash:
        crash.setattr(files, "write_atomic", fail)
        with pytest.raises(OSError, match="full"):
            output.write(changes, 1)
    directory = tmp_path / "publish/t/00000001"
    leftovers = set(directory.glob("part-*"))
    assert leftovers
    assert output.last_batch == 0
    output.write(changes, 1)
    assert rows_of(tmp_path, "00000001") == sorted(ROWS, key=str)
    assert leftovers.isdisjoint(directory.glob("part-*"))
    assert output.last_batch == 1


def test_files_output_csv(changes: DataFrame, tmp_path: Path) -> None:
    output = files_output(tmp_path, "csv")
    assert output.definition() == {"format": "csv"}
    special_device = """ a "b", c\\ """
    special = (
        changes.limit(1).withColumn("device", F.lit(special_device)).withColumn("total", F.lit(9))
    )
    output.write(changes.where("device is not null").unionByName(special).coalesce(1), 0)
    rows = list(csv.DictReader(lines(tmp_path, "00000000")))
    assert [row["device"] for row in rows if row["total"] == "9"] == [special_device]
    assert sorted(map(values, rows[:-1]), key=str) == sorted(ROWS[:3], key=str)
    assert {row["local"] for row in rows} == {AT.removesuffix("Z")}


def test_change_messages_of_a_key_are_in_order(changes: DataFrame) -> None:
    rows = change_messages(changes, ["device"]).collect()
    assert {row["key"] for row in rows} == {'{"device":"a"}', '{"device":null}'}
    values_of_a = [json.loads(row["value"]) for row in rows if row["key"] == '{"device":"a"}']
    assert [values(row) for row in values_of_a] == [ROWS[2], ROWS[1], ROWS[0]]
    unkeyed = [json.loads(row["value"]) for row in change_messages(changes, []).collect()]
    assert [row["_commit_version"] for row in unkeyed] == [5, 6, 7, 7]
    assert {row["local"] for row in unkeyed} == {AT.removesuffix("Z")}
    assert [row["_change_type"] for row in unkeyed][2:] == ["delete", "insert"]
    assert {row["key"] for row in change_messages(changes, []).collect()} == {None}


def test_topic_output_refuses_a_recreated_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers of the new topic would take the next changes for the complete table."""
    topic_description = SimpleNamespace(topic_id="one")
    monkeypatch.setattr(broker, "describe_topics", lambda *_: (None, {"counts": topic_description}))
    sent = MagicMock()
    monkeypatch.setattr(publish, "change_messages", sent)
    topic = TopicOutput("publish.t.kafka", [], ToKafka(("one:9092",), "counts"), Login())
    assert topic.definition() == {"topic": "counts", "topic id": "one"}
    nothing: Any = None
    topic.write(nothing, 0)
    topic_description.topic_id = "two"
    with pytest.raises(MedallionError, match="topic counts was recreated while this query"):
        topic.write(nothing, 1)
    sent.assert_called_once()


QUERY = "publish.totals.files"
FEED = "delta.enableChangeDataFeed"
INSERT, UPDATE = "insert", "update_postimage"
FIRST = [("close", 1, INSERT), ("open", 2, INSERT)]
SECOND = [("open", 3, UPDATE), ("swipe", 1, INSERT)]
CURRENT = [("close", 1, INSERT), ("open", 3, INSERT), ("swipe", 1, INSERT)]


def create_totals(lakehouse: Lakehouse) -> None:
    columns = "action string, total bigint"
    settings = f"USING delta TBLPROPERTIES ('{FEED}' = 'true')"
    lakehouse.spark.sql(f"CREATE TABLE {totals(lakehouse)} ({columns}) {settings}")


def totals(lakehouse: Lakehouse) -> str:
    return f"delta.`{lakehouse.config.layout.table('gold.totals')}`"


def insert(lakehouse: Lakehouse, *rows: tuple[str, int]) -> None:
    lakehouse.spark.sql(f"INSERT INTO {totals(lakehouse)} VALUES {', '.join(map(str, rows))}")


def set_feed(lakehouse: Lakehouse, value: str) -> None:
    settings = f"SET TBLPROPERTIES ('{FEED}' = '{value}')"
    lakehouse.spark.sql(f"ALTER TABLE {totals(lakehouse)} {settings}")


def published_changes(lakehouse: Lakehouse) -> dict[str, list[tuple[Any, ...]]]:
    """Return the changes in the manifest of each batch."""
    changes_by_batch = {}
    for directory in sorted((lakehouse.root / "publish/totals").glob("[0-9]*")):
        names = json.loads((directory / MANIFEST).read_text())["files"]
        rows = [json.loads(li) for n in names for li in (directory / n).read_text().splitlines()]
        changes_by_batch[directory.name] = sorted(
            (row["action"], row["total"], row["_change_type"]) for row in rows
        )
    return changes_by_batch


@pytest.fixture(scope="module")
def published(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """Return a lakehouse whose gold table was published, changed, and published again."""
    folder = tmp_path_factory.mktemp("published")
    lakehouse = Lakehouse(spark, folder / "lakehouse")
    project = yaml.safe_load((PROJECT / "conf/pipeline.yaml").read_text())
    table = {"source": "silver.event", "group_by": ["action"], "measure": {"total": "count(*)"}}
    table |= {"output_mode": "update", "publish": {"files": {"format": "json"}}}
    sources = {"event": project["sources"]["event"]}
    lakehouse.configure(folder, {"sources": sources, "gold": {"totals": table}})
    create_totals(lakehouse)
    insert(lakehouse, ("close", 1), ("open", 2))
    lakehouse.fill("publish")
    spark.sql(f"UPDATE {totals(lakehouse)} SET total = 3 WHERE action = 'open'")
    insert(lakehouse, ("swipe", 1))
    lakehouse.fill("publish")
    return lakehouse


@pytest.fixture
def lakehouse(published: Lakehouse, tmp_path: Path) -> Lakehouse:
    return published.copy(tmp_path / "lakehouse")


def publish_flow(lakehouse: Lakehouse) -> Publish:
    flow = lakehouse.pipeline().flow(QUERY)
    assert isinstance(flow, Publish)
    return flow


def check_refused(lakehouse: Lakehouse, message: str, recorded: int = 1) -> None:
    """Check that the query does not start, without one."""
    with pytest.raises(UsageError, match=message):
        publish_flow(lakehouse).start(None, recorded)


def test_publish_sends_each_change_once(published: Lakehouse) -> None:
    assert published_changes(published) == {"00000000": FIRST, "00000001": SECOND}
    (status,) = (q for q in query_statuses(published.config) if q.query == QUERY)
    assert (status.rows_out, status.waiting_rows, status.last_batch) == (2, 0, 1)
    # The change feed also has each updated row's previous version.
    runs = published.rows("ops.runs", "query", "rows_in", "rows_out")
    assert [row[1:] for row in runs if row[0] == QUERY] == [(2, 2), (3, 2)]
    table = published.config.layout.table("gold.totals")
    assert not pending_work.has_input(published.config, QUERY, table)
    assert publish_flow(published).start(None, 1) is None


def test_publish_writes_an_interrupted_batch_once(lakehouse: Lakehouse) -> None:
    (lakehouse.config.layout.checkpoint(QUERY) / "commits/1").local.unlink()
    lakehouse.fill("publish")
    assert published_changes(lakehouse) == {"00000000": FIRST, "00000001": SECOND}


def test_publish_refresh_interrupted_publishes_all(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch numbers continue, because readers may depend on them."""
    shutil.rmtree(lakehouse.config.layout.checkpoint(QUERY))
    check_refused(lakehouse, f"lacks batches that were published. `medallion refresh {QUERY}`")
    with monkeypatch.context() as patch:
        patch.setattr(FilesOutput, "write", fail)
        with pytest.raises(MedallionError, match="full"):
            refresh.refresh_table(lakehouse.pipeline(), QUERY)
    assert published_changes(lakehouse) == {}
    for _ in range(2):
        lakehouse.fill("publish")
        assert published_changes(lakehouse) == {"00000002": CURRENT}


def test_publish_refuses_lost_batches(lakehouse: Lakehouse) -> None:
    check_refused(lakehouse, "lacks batches that were published", recorded=2)
    # A refresh was killed after it removed the published files.
    shutil.rmtree(lakehouse.config.layout.checkpoint(QUERY))
    shutil.rmtree(lakehouse.root / "publish/totals")
    check_refused(lakehouse, "lacks batches that were published")


def test_publish_refuses_a_changed_output(lakehouse: Lakehouse) -> None:
    table = replace(lakehouse.config.gold["totals"], outputs={"files": ToFiles("parquet")})
    lakehouse.config = replace(lakehouse.config, gold={"totals": table})
    check_refused(lakehouse, f"published with format 'json' .*medallion refresh {QUERY}")


def test_publish_refuses_changes_without_a_feed(lakehouse: Lakehouse) -> None:
    set_feed(lakehouse, "false")
    insert(lakehouse, ("crash", 1))
    set_feed(lakehouse, "true")
    check_refused(lakehouse, rf"since the last batch are not .*medallion refresh {QUERY}")


def test_publish_refuses_a_table_without_a_feed(lakehouse: Lakehouse) -> None:
    shutil.rmtree(lakehouse.config.layout.checkpoint(QUERY))
    shutil.rmtree(lakehouse.root / "publish")
    set_feed(lakehouse, "false")
    message = r"gold\.totals has no change feed yet: run `medallion run gold`"
    check_refused(lakehouse, message, recorded=-1)


def test_publish_refuses_a_table_restored_alone(lakehouse: Lakehouse) -> None:
    """Its next changes would have versions that were published before."""
    gold = lakehouse.config.layout.table("gold.totals")
    plan = lakehouse.config.layout.checkpoint(QUERY) / "offsets/1"
    read, version = plan.local.read_text(), delta_tables.table_version(gold)
    newer = read.replace(f'Version":{version + 1},', f'Version":{version + 2},')
    assert newer != read
    plan.local.write_text(newer)
    with pytest.raises(MedallionError, match=rf"totals is older than .* refresh {QUERY}"):
        lakehouse.fill("publish")


def test_publish_refuses_another_table(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a topic, new changes would have lower versions than the existing messages."""
    layout = lakehouse.config.layout
    shutil.rmtree(gold := layout.table("gold.totals"))
    create_totals(lakehouse)
    insert(lakehouse, ("open", 3))
    assert pending_work.has_input(lakehouse.config, QUERY, gold), "no run would report it"
    check_refused(lakehouse, rf"totals was replaced by another table.*medallion refresh {QUERY}")
    definition = checkpoints.read_document(layout.checkpoint(QUERY), "definition")
    of_topic = {**(definition or {}), "topic id": "one"}
    checkpoints.write_document(layout.checkpoint(QUERY), "definition", of_topic)
    monkeypatch.setattr(FilesOutput, "definition", lambda *_: {"topic id": "one"})
    with pytest.raises(UsageError, match=r"_commit_version restarts .* Recreate the topic"):
        publish_flow(lakehouse).reset(1)
    assert published_changes(lakehouse) == {"00000000": FIRST, "00000001": SECOND}
    monkeypatch.setattr(FilesOutput, "definition", lambda *_: {"topic id": "two"})
    publish_flow(lakehouse).reset(1)
    assert published_changes(lakehouse) == {}


def test_publish_waits_for_the_gate_of_gold(lakehouse: Lakehouse, tmp_path: Path) -> None:
    lakehouse.copy_of_conf(tmp_path)
    at_least = "expect_table_row_count_to_be_between"
    lakehouse.expect("gold.totals", "too_few", at_least, "stop", min_value=1)
    gate = {"kind": "gate", "query": "gold.totals", "started_at": 0, "table_version": 1}
    runs = RunRecords(lakehouse.config.layout)
    runs.write([{**gate, "state": "held", "failed_expectations": "too_few"}])
    insert(lakehouse, ("crash", 1))
    with pytest.raises(MedallionError, match=r"too_few on gold\.totals failed, and"):
        lakehouse.fill("publish")
    runs.write([{**gate, "state": "passed"}])
    lakehouse.fill("publish")
    assert published_changes(lakehouse)["00000002"] == [("crash", 1, INSERT)]

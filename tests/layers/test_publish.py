"""Outputs without a stream: files and manifests of batches, and the order of messages."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.operations import Login
from medallion.config.tables import ToFiles, ToKafka
from medallion.errors import MedallionError, UsageError
from medallion.ingest.kafka import broker
from medallion.layers import publish
from medallion.layers.publish import MANIFEST, FilesOutput, TopicOutput, change_messages
from medallion.storage import files
from medallion.storage.paths import StoragePath

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
    return FilesOutput("publish.t.files", StoragePath(tmp_path / "publish/t"), ToFiles(format_))


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
    flat = {"device": "string", "total": "bigint"}
    assert output.definition(flat) == {"format": "csv"}
    with pytest.raises(UsageError, match="CSV cannot represent the nested columns all, most"):
        output.definition({**flat, "all": "array<string>", "most": "map<string,bigint>"})
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
    assert topic.definition({}) == {"topic": "counts", "topic id": "one"}
    nothing: Any = None
    topic.write(nothing, 0)
    topic_description.topic_id = "two"
    with pytest.raises(MedallionError, match="topic counts was recreated while this query"):
        topic.write(nothing, 1)
    sent.assert_called_once()

"""What is written of changes, without a stream: files a batch, and messages in their order."""

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

from medallion.config.model import Login, ToFiles, ToKafka
from medallion.errors import MedallionError, UsageError
from medallion.ingest.kafka import broker
from medallion.layers.publish import outputs
from medallion.layers.publish.outputs import FilesOutput, TopicOutput, change_messages

AT = "2018-03-02T10:00:00.000001Z"
# A row that came, was taken away, and came again in the same version; and one without a device.
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


def out(tmp_path: Path, kind: str) -> FilesOutput:
    return FilesOutput("publish.t.files", tmp_path / "publish/t", ToFiles(kind))


def lines(tmp_path: Path, batch: str, end: str) -> list[str]:
    files = (tmp_path / "publish/t" / batch).glob(f"*.{end}")
    return [line for file in files for line in file.read_text().splitlines()]


def of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["device"], int(row["total"]), row["_change_type"], int(row["_commit_version"])


def test_a_batch_is_a_folder_and_is_written_once(changes: DataFrame, tmp_path: Path) -> None:
    output = out(tmp_path, "json")
    assert output.last_batch == -1
    output.write(changes, 12)
    output.write(changes.limit(1), 12)  # again, as after a kill
    output.write(changes.limit(0), 13)
    found = [json.loads(line) for line in lines(tmp_path, "00000012", "json")]
    assert sorted(map(of, found), key=str) == sorted(ROWS, key=str)
    assert {row["at"] for row in found} == {AT}
    assert [place.name for place in (tmp_path / "publish/t").iterdir()] == ["00000012"]
    for other in ("00000099.done", "notes"):
        (tmp_path / "publish/t" / other).mkdir()
    assert output.last_batch == 12
    output.empty()
    assert (output.last_batch, list((tmp_path / "publish").iterdir())) == (-1, [])


def test_csv_has_a_header_and_no_nested_values(changes: DataFrame, tmp_path: Path) -> None:
    output = out(tmp_path, "csv")
    flat = {"device": "string", "total": "bigint"}
    assert output.look(flat) == {"format": "csv"}
    with pytest.raises(UsageError, match="csv has no way to write all, most: publish as json or"):
        output.look({**flat, "all": "array<string>", "most": "map<string,bigint>"})
    text = """ a "b", c\\ """
    odd = changes.limit(1).withColumn("device", F.lit(text)).withColumn("total", F.lit(9))
    output.write(changes.where("device is not null").unionByName(odd).coalesce(1), 0)
    found = list(csv.DictReader(lines(tmp_path, "00000000", "csv")))
    assert [row["device"] for row in found if row["total"] == "9"] == [text]
    assert sorted(map(of, found[:-1]), key=str) == sorted(ROWS[:3], key=str)
    assert {row["local"] for row in found} == {AT.removesuffix("Z")}


def test_messages_of_a_key_are_in_their_order(changes: DataFrame) -> None:
    found = change_messages(changes, ["device"]).collect()
    assert {row["key"] for row in found} == {'{"device":"a"}', '{"device":null}'}
    told = [json.loads(row["value"]) for row in found if row["key"] == '{"device":"a"}']
    assert [of(row) for row in told] == [ROWS[2], ROWS[1], ROWS[0]]
    without = [json.loads(row["value"]) for row in change_messages(changes, []).collect()]
    assert [row["_commit_version"] for row in without] == [5, 6, 7, 7]
    assert {row["local"] for row in without} == {AT.removesuffix("Z")}
    assert [row["_change_type"] for row in without][2:] == ["delete", "insert"]
    assert {row["key"] for row in change_messages(changes, []).collect()} == {None}


def test_a_topic_made_anew_gets_no_changes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its readers would have what changes from now on, and take that for all there is."""
    asked = SimpleNamespace(topic_id="one")
    monkeypatch.setattr(broker, "describe_topics", lambda *_: (None, {"counts": asked}))
    sent = MagicMock()
    monkeypatch.setattr(outputs, "change_messages", sent)
    topic = TopicOutput("publish.t.kafka", [], ToKafka(("one:9092",), "counts"), Login())
    assert topic.look({}) == {"topic": "counts", "topic id": "one"}
    nothing: Any = None
    topic.write(nothing, 0)
    asked.topic_id = "two"
    with pytest.raises(MedallionError, match="topic counts was made anew while this published"):
        topic.write(nothing, 1)
    sent.assert_called_once()

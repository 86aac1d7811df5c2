"""Commits with a transaction: what `DataFrame.write` does with `txnAppId`, without its jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from medallion.spark import checkpoints, delta
from medallion.spark.delta import write_once
from medallion.spark.errors import SPARK_ERRORS
from medallion.storage import delta_log, delta_tables
from medallion.storage.paths import StoragePath

COLUMNS = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
    }
)


@pytest.fixture
def table(tmp_path: Path) -> StoragePath:
    table = StoragePath(tmp_path / "t")
    delta_tables.create_table(table, COLUMNS, {})
    return table


def ids(table: StoragePath) -> list[int]:
    return [row[0] for row in delta_tables.select_rows(table, "id", "order by id")]


def commit(table: StoragePath, version: int) -> dict[str, Any]:
    """Return the actions of a commit by name, without what differs from one commit to the next."""
    lines = delta_log.commit_file(table, version).read().decode().splitlines()
    actions = {name: action for line in lines for name, action in json.loads(line).items()}
    for name in ("timestamp", "txnId", "readVersion"):
        del actions["commitInfo"][name]
    return {
        "info": actions["commitInfo"],
        "txn": (actions["txn"]["appId"], actions["txn"]["version"]),
        "rows": json.loads(actions["add"]["stats"])["numRecords"],
        "columns": json.loads(actions["metaData"]["schemaString"])["fields"],
    }


def test_commits_as_spark_does(spark: SparkSession, table: StoragePath, tmp_path: Path) -> None:
    other = StoragePath(tmp_path / "other")
    delta_tables.create_table(other, COLUMNS, {})
    rows = spark.range(3).withColumn("more", F.lit("x"))
    options = checkpoints.once_only("a query", 7)
    options["mergeSchema"] = "true"
    observation = Observation()
    observed = rows.observe(observation, F.count("*").alias("rows"))
    write_once(observed, table, options, counts=lambda: {"read": 7, **observation.get})
    options["userMetadata"] = '{"read": 7, "rows": 3}'
    rows.write.format("delta").mode("append").options(**options).save(str(other))
    ours, sparks = commit(table, 1), commit(other, 1)
    assert sparks["info"]["operationParameters"].pop("canMergeSchema") is True
    assert ours == sparks
    assert ours["info"]["userMetadata"] == '{"read": 7, "rows": 3}'
    assert ours["txn"] == ("a query", 7)


@pytest.mark.parametrize("has_checksum", [True, False])
def test_each_batch_is_written_once(
    spark: SparkSession, table: StoragePath, has_checksum: bool
) -> None:
    write_once(spark.range(2), table, checkpoints.once_only("a", 4))
    write_once(spark.range(10, 11), table, checkpoints.once_only("b", 0))
    if not has_checksum:  # a commit of delta-rs leaves none
        delta_tables.set_missing_properties(table, {"delta.checkpointInterval": "9"})
    for number in (3, 4):
        assert not write_once(spark.range(5, 9), table, checkpoints.once_only("a", number))
    assert ids(table) == [0, 1, 10]
    assert write_once(spark.range(3, 4), table, checkpoints.once_only("a", 5))
    assert ids(table) == [0, 1, 3, 10]
    write_once(spark.range(5), table, checkpoints.once_only("a", 6), "Overwrite")
    assert ids(table) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("application", "is_refused"), [("a", True), ("b", False)])
def test_writer_that_resumes_late_is_refused(
    spark: SparkSession,
    table: StoragePath,
    monkeypatch: pytest.MonkeyPatch,
    application: str,
    is_refused: bool,
) -> None:
    """It looked before another process, which took its place, committed the same batch."""
    write_once(spark.range(1), table, checkpoints.once_only("a", 0))
    look = delta._is_committed

    def look_too_early(transaction: Any, *batch: Any) -> bool:
        is_committed = look(transaction, *batch)
        with monkeypatch.context() as patch:
            patch.setattr(delta, "_is_committed", look)
            write_once(spark.range(20, 21), table, checkpoints.once_only(application, 1))
        return is_committed

    with monkeypatch.context() as patch:
        patch.setattr(delta, "_is_committed", look_too_early)
        if is_refused:
            with pytest.raises(SPARK_ERRORS, match=r"ConcurrentTransaction|CONCURRENT_TRANSACTION"):
                write_once(spark.range(10, 11), table, checkpoints.once_only("a", 1))
        else:
            write_once(spark.range(10, 11), table, checkpoints.once_only("a", 1))
    assert ids(table) == ([0, 20] if is_refused else [0, 10, 20])


@pytest.mark.parametrize("mode", ["Append", "Overwrite"])
def test_a_write_is_one_execution(spark: SparkSession, table: StoragePath, mode: str) -> None:
    """Otherwise each batch of each table takes two to four more, which read its log."""
    write_once(spark.range(1), table, checkpoints.once_only("a", 0), mode)

    def last_execution() -> int:
        """Return the newest number: Spark keeps the last 1,000 executions, so their count stops."""
        java: Any = spark._jsparkSession
        java.sparkContext().listenerBus().waitUntilEmpty(10_000)
        return int(java.sharedState().statusStore().executionsList().last().executionId())

    before = last_execution()
    write_once(spark.range(3), table, checkpoints.once_only("a", 1), mode)
    assert last_execution() - before == 1
    assert ids(table) == ([0, 0, 1, 2] if mode == "Append" else [0, 1, 2])


def actions(table: StoragePath, version: int, name: str) -> list[dict[str, Any]]:
    lines = delta_log.commit_file(table, version).read().decode().splitlines()
    return [action[name] for action in map(json.loads, lines) if name in action]


def test_rows_are_replaced_as_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    ours, sparks = (StoragePath(tmp_path / name) for name in ("a b", "other"))
    options = checkpoints.once_only("a", 1) | {"overwriteSchema": "true"}
    for table in (ours, sparks):
        delta_tables.create_table(table, COLUMNS, {"delta.enableChangeDataFeed": "true"})
        write_once(spark.range(5).repartition(2), table, checkpoints.once_only("a", 0))
    write_once(spark.range(7), ours, options, "Overwrite")
    spark.range(7).write.format("delta").mode("overwrite").options(**options).save(str(sparks))
    assert ids(ours) == ids(sparks) == [*range(7)]
    for table in (ours, sparks):
        added = actions(table, 1, "add")
        removed = actions(table, 2, "remove")
        assert {each["path"] for each in removed} == {each["path"] for each in added}
        assert sum(each["size"] for each in removed) == sum(each["size"] for each in added)
        assert all(each["dataChange"] for each in removed)
        assert [
            each["mode"] for each in (actions(table, 2, "commitInfo")[0]["operationParameters"],)
        ] == ["Overwrite"]
        feed = (
            spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2)
        )
        changes = feed.load(str(table)).groupBy("_change_type").count().collect()
        assert dict(map(tuple, changes)) == {"delete": 5, "insert": 7}
    other_columns = spark.range(2).withColumn("more", F.lit("x"))
    write_once(
        other_columns,
        ours,
        checkpoints.once_only("a", 2) | {"overwriteSchema": "true"},
        "Overwrite",
    )
    assert delta_tables.column_names(ours) == {"id", "more"}
    assert ids(ours) == [0, 1]


def test_files_missing_in_a_checksum_are_replaced(spark: SparkSession, table: StoragePath) -> None:
    """The log decides, whatever the checksum says."""
    write_once(spark.range(3), table, checkpoints.once_only("a", 0))
    write_once(spark.range(4, 6), table, checkpoints.once_only("a", 1))
    checksum = (table / "_delta_log" / f"{2:020}.crc").local
    content = json.loads(checksum.read_text())
    content["allFiles"].pop()
    checksum.with_name(f".{checksum.name}.crc").unlink()
    checksum.write_text(json.dumps(content))
    other = spark.newSession()
    other._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    write_once(other.range(7, 9), table, checkpoints.once_only("a", 2), "Overwrite")
    assert ids(table) == [7, 8]

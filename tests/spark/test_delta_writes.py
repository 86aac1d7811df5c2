"""Commits with a transaction: what `DataFrame.write` does with `txnAppId`, without its jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from medallion.spark import checkpoints, delta_writes
from medallion.spark.delta_writes import write_once
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
        write_once(spark.range(5, 9), table, checkpoints.once_only("a", number))
    assert ids(table) == [0, 1, 10]
    write_once(spark.range(3, 4), table, checkpoints.once_only("a", 5))
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
    look = delta_writes._is_committed

    def look_too_early(transaction: Any, *batch: Any) -> bool:
        is_committed = look(transaction, *batch)
        with monkeypatch.context() as patch:
            patch.setattr(delta_writes, "_is_committed", look)
            write_once(spark.range(20, 21), table, checkpoints.once_only(application, 1))
        return is_committed

    with monkeypatch.context() as patch:
        patch.setattr(delta_writes, "_is_committed", look_too_early)
        if is_refused:
            with pytest.raises(SPARK_ERRORS, match=r"ConcurrentTransaction|CONCURRENT_TRANSACTION"):
                write_once(spark.range(10, 11), table, checkpoints.once_only("a", 1))
        else:
            write_once(spark.range(10, 11), table, checkpoints.once_only("a", 1))
    assert ids(table) == ([0, 20] if is_refused else [0, 10, 20])


def test_a_write_is_one_execution(spark: SparkSession, table: StoragePath) -> None:
    """Otherwise each batch of each table takes two more, which read its log."""
    write_once(spark.range(1), table, checkpoints.once_only("a", 0))

    def executions(write: Callable[[DataFrame], Any]) -> int:
        java: Any = spark._jsparkSession
        java.sparkContext().listenerBus().waitUntilEmpty(10_000)
        before = java.sharedState().statusStore().executionsCount()
        write(spark.range(3))
        java.sparkContext().listenerBus().waitUntilEmpty(10_000)
        return int(java.sharedState().statusStore().executionsCount() - before)

    options = checkpoints.once_only("a", 1)
    assert executions(lambda rows: write_once(rows, table, options)) == 1

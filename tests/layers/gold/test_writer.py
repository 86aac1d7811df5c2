"""Output mode `update`: groups with new rows are recomputed from silver."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import arro3.core as arrow
from deltalake import write_deltalake
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from medallion.config.document import Node
from medallion.config.gold import parse_gold_table
from medallion.layers.gold.transform import gold_rows
from medallion.layers.gold.writer import GroupMerge
from medallion.spark import delta
from medallion.storage import delta_tables
from tests.support import PROJECT
from tests.support.lakehouse import Lakehouse, redefined
from tests.support.updates import BY_WINDOWS, WINDOWS

BATCHES = (
    [("10:01:00", "a", "open"), ("10:02:00", "a", "close"), ("13:00:00", None, "open")],
    [  # in an existing window, and in a new one
        ("10:03:00", "a", "open"),
        ("08:00:00", "b", "open"),
        ("13:04:59", None, "open"),
        ("13:05:00", None, "close"),
        ("08:00:01", "b", "open"),
        ("10:01:00", None, "other"),
    ],
)
ACTIONS = ({"open": 2, "close": 1}, {"open": 6, "close": 2, "other": 1})


def silver(lakehouse: Lakehouse, number: int) -> DataFrame:
    rows = [(f"2018-03-02 {time}", device, action) for time, device, action in BATCHES[number]]
    frame = lakehouse.spark.createDataFrame(rows, "event_at string, device string, action string")
    return frame.selectExpr("timestamp(event_at) as event_at", "device", "action").coalesce(1)


def write(lakehouse: Lakehouse, rows: list[tuple[str, str | None, str]]) -> None:
    """Append rows to silver's table, without Spark."""
    moments = [datetime.fromisoformat(f"2018-03-02T{time}+00:00") for time, *_ in rows]
    micros = [round(moment.timestamp()) * 1_000_000 for moment in moments]
    at = arrow.Array(micros, arrow.DataType.int64())
    strings = [[row[n] for row in rows] for n in (1, 2)]
    columns = [
        at.cast(arrow.DataType.timestamp("us", tz="UTC")),
        *(arrow.Array(column, arrow.DataType.string()) for column in strings),
    ]
    table = arrow.Table.from_arrays(columns, names=["event_at", "device", "action"])
    write_deltalake(lakehouse.config.layout.table("silver.event").local, table, mode="append")


def test_group_merge_recomputes_touched_groups(spark: SparkSession, tmp_path: Path) -> None:
    """Cover windows, no windows and no groups; a repeated batch counts once."""
    lakehouse = Lakehouse(spark, tmp_path / "größe 50% #1")
    config = lakehouse.config
    windows = replace(config.gold["action_counts"], output_mode="update")
    actions = redefined(replace(windows, name="actions"), window=None)
    everything = redefined(replace(actions, name="everything"), group_by=())
    gold = [windows, actions, everything]
    for table in gold:
        rows = gold_rows(lakehouse.spark, config, table, {"silver.event": silver(lakehouse, 0)})
        path = config.layout.table(f"gold.{table.name}")
        delta_tables.create_table(path, rows.schema.json(), config.properties(f"gold.{table.name}"))
    no_rows = silver(lakehouse, 0).limit(0)
    write(lakehouse, [])
    GroupMerge(spark, config, everything)(no_rows, 0)
    assert lakehouse.rows("gold.everything") == []
    counts = []
    for number in range(len(BATCHES)):
        batch = silver(lakehouse, number)
        write(lakehouse, BATCHES[number])
        # Batch 1 of `actions` runs twice, and computes the only group of `everything`.
        for table in ([windows, actions], [*gold, actions])[number]:
            merge = GroupMerge(lakehouse.spark, config, table)
            observation = Observation()
            merge(
                merge.touched(batch).observe(observation, F.count(F.lit(1)).alias("rows")), number
            )
            # Observed like a stream's rows, which count twice if a part runs twice.
            observed: Any = observation._jo
            assert observed.future().isCompleted(), table.name
            assert observation.get == {"rows": len(BATCHES[number])}
        counts.append(dict(lakehouse.rows("gold.actions")))
    assert counts == list(ACTIONS)
    assert lakehouse.rows("gold.everything") == [(9,)]
    assert lakehouse.rows("gold.action_counts", *WINDOWS) == BY_WINDOWS
    counted = delta.rows_at(spark, config.layout.table("gold.actions")).collect()
    assert dict(counted) == ACTIONS[-1]


def test_group_merge_at_a_clock_change(spark: SparkSession, tmp_path: Path) -> None:
    """A local day from 02:30 on starts twice when daylight saving time ends in Berlin.

    Of both times between 02:00 and 03:00, the later minutes belong to the new day.
    """
    lakehouse = Lakehouse(spark, tmp_path / "lakehouse")
    keys = {"window": "1 day", "start": "150 minutes", "time_zone": "Europe/Berlin"}
    entry = {"source": "silver.event", "measure": {"n": "count(*)"}, "output_mode": "update"}
    node = Node(entry | keys, PROJECT / "conf/pipeline.yaml", "gold.days")
    table = parse_gold_table("days", node, lakehouse.config.sources, PROJECT / "conf")
    times = ("2026-10-25 00:45", "2026-10-25 01:15", "2026-10-25 01:45")
    rows = spark.createDataFrame([(time,) for time in times], "event_at string")
    rows = rows.select(F.col("event_at").cast("timestamp"))
    rows.write.format("delta").save(str(lakehouse.config.layout.table("silver.event")))
    path = lakehouse.config.layout.table("gold.days")
    schema = gold_rows(spark, lakehouse.config, table, {"silver.event": rows}).schema.json()
    delta_tables.create_table(path, schema, {})
    merge = GroupMerge(spark, lakehouse.config, table)
    for number in range(len(times)):  # each row is a batch of its own, and silver has all
        merge(merge.touched(rows.where(F.col("event_at") == times[number])), number)
    assert [n for _, _, n in lakehouse.rows("gold.days")] == [1, 2]

"""Gold: one query a table, from a silver table to `gold.<table>`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.loader import Config, GoldTable
from medallion.lakehouse import specs, tables
from medallion.lakehouse.columns import WINDOW
from medallion.layers.definition import refuse_another
from medallion.layers.gold.transform import aggregated, windowed
from medallion.spark import checkpoints
from medallion.spark.query import Run


def start(spark: SparkSession, config: Config, table: GoldTable, trigger: dict[str, Any]) -> Run:
    """Start the query in the table's output mode.

    Raises:
        ConfigError: the table was made by another definition, which would be mixed with this one.
    """
    name = f"gold.{table.name}"
    checkpoint = config.layout.checkpoint(name)
    _refuse_another(config, table, checkpoint)
    silver = config.layout.table(f"silver.{table.source}")
    target = config.layout.table(name)
    stream = _windowed(spark.readStream.format("delta").load(str(silver)), config, table)
    result = aggregated(stream, groups(table), table.measure)
    tables.create(target, result.schema.json(), specs.GOLD)
    if table.output_mode == "complete":
        writer = result.writeStream.outputMode("complete").format("delta")
    else:
        writer = stream.writeStream.foreachBatch(
            lambda batch, _: _merge(spark, config, table, batch)
        )
    before = checkpoints.last_committed(checkpoint)
    writer = writer.queryName(name).option("checkpointLocation", str(checkpoint)).trigger(**trigger)
    query = writer.start(str(target)) if table.output_mode == "complete" else writer.start()
    return Run(name, query, before)


def _refuse_another(config: Config, table: GoldTable, checkpoint: Path) -> None:
    now = {
        "source": table.source,
        "window": table.window.text if table.window else None,
        "slide": table.slide.text if table.slide else None,
        "group_by": list(table.group_by),
        "measure": dict(table.measure),
        "output_mode": table.output_mode,
    }
    refuse_another(config, f"gold.{table.name}", checkpoints.made_by(checkpoint, now), now)


def groups(table: GoldTable) -> tuple[str, ...]:
    """The columns that a row of the table is known by."""
    return (*(WINDOW if table.window else ()), *table.group_by)


def _windowed(rows: DataFrame, config: Config, table: GoldTable) -> DataFrame:
    if not table.window:
        return rows
    event_time = config.sources[table.source].event_time
    return windowed(rows, event_time, table.window, table.slide)


def _merge(spark: SparkSession, config: Config, table: GoldTable, batch: DataFrame) -> None:
    """Count anew the groups that the batch touched, and put them in the place of the old ones.

    No state is kept, so late rows need no second way in; and a batch that runs twice gives the
    same table. Silver may be ahead of the batch: the later batch counts the same once more.
    """
    keys = groups(table)
    touched = batch.select(*keys).distinct().persist()
    try:
        silver = spark.read.format("delta").load(str(config.layout.table(f"silver.{table.source}")))
        if table.window:
            silver = _within(silver, touched, config.sources[table.source].event_time)
        rows = _windowed(silver, config, table)
        fresh = aggregated(_matching(rows, touched, keys), keys, table.measure)
        _replace(spark, config.layout.table(f"gold.{table.name}"), fresh, keys)
    finally:
        touched.unpersist()


def _within(silver: DataFrame, touched: DataFrame, event_time: str) -> DataFrame:
    """Rows between the first and the last window, so that Delta skips the other files."""
    first, last = touched.agg(
        F.min("window_start").cast("string"), F.max("window_end").cast("string")
    ).collect()[0]
    time = F.col(event_time)
    return silver.where(
        (time >= F.lit(first).cast("timestamp")) & (time < F.lit(last).cast("timestamp"))
    )


def _matching(rows: DataFrame, touched: DataFrame, keys: Sequence[str]) -> DataFrame:
    if not keys:
        return rows
    left, right = rows.alias("rows"), touched.alias("touched")
    # Null is a group like any other.
    same = reduce(and_, (F.col(f"rows.{k}").eqNullSafe(F.col(f"touched.{k}")) for k in keys))
    return left.join(F.broadcast(right), on=same, how="left_semi")


def _replace(spark: SparkSession, target: Path, fresh: DataFrame, keys: Sequence[str]) -> None:
    same = " and ".join(f"old.`{k}` <=> new.`{k}`" for k in keys) or "true"
    (
        DeltaTable.forPath(spark, str(target))
        .alias("old")
        .merge(fresh.alias("new"), same)
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .execute()
    )

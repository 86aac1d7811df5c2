"""The sink of gold's mode `update`: the groups that a batch touched are counted anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, VariantType

from medallion.config.model import Aggregate, Config, GoldTable
from medallion.errors import ConfigError
from medallion.layers.gold.transform import per_group, windowed
from medallion.spark.plans import analyzed_plan, catalyst_class, contains_type


def refuse_unmergeable(name: str, found: DataFrame) -> None:
    """Raise ConfigError where a group's row depends on other groups, or a group has several rows or
    none: counted by itself, it would come out otherwise than in the whole table."""
    plan, patterns = analyzed_plan(found), catalyst_class(found, "trees.TreePattern")
    if plan.containsPattern(patterns.WINDOW()) or plan.containsPattern(patterns.GENERATE()):
        raise ConfigError(
            f"{name} has a function OVER other groups or several rows a group (explode), and "
            "output_mode update counts each group by itself: do that where the table is read."
        )


class GroupMerge:
    """Counts anew the groups that a batch touched, and puts them in the place of the old ones.

    They are counted from silver's table and not from state, so late rows are counted like others,
    and a batch that runs twice gives the same table. Silver may have rows of later batches already:
    those are counted with this one, and once more, with the same result, when their turn comes.
    """

    def __init__(self, spark: SparkSession, config: Config, table: GoldTable) -> None:
        assert isinstance(table.definition, Aggregate), (
            "the configuration takes update for no other"
        )
        self._spark, self._made = spark, table.definition
        (source,) = table.sources
        self._silver = config.layout.table(f"silver.{source}")
        self._target = config.layout.table(f"gold.{table.name}")
        self._event_time = config.sources[source].event_time

    def touched(self, silver: DataFrame) -> DataFrame:
        """The rows of a stream of silver, once for each window that they touch."""
        return windowed(silver, self._event_time, self._made)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Merge one batch of silver's rows, `touched`."""
        keys = self._made.groups
        # Without groups nothing else reads the batch, and Spark would count no rows of it as read.
        if not keys and not batch.count():
            return
        touched = batch.select(*keys).distinct().persist()
        try:
            silver = self._spark.read.format("delta").load(str(self._silver))
            if self._made.window:
                silver = _within(silver, touched, self._event_time)
            rows = windowed(silver, self._event_time, self._made)
            fresh = per_group(_matching(rows, touched, keys), keys, self._made.measure)
            _replace(self._spark, self._target, fresh, keys)
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
    """Merge groups by their keys; one that is as it was is no change, for whoever reads changes."""
    same = _alike(keys) or "true"
    measures = [field for field in fresh.schema if field.name not in keys]
    # These cannot be compared.
    is_opaque = any(contains_type(field.dataType, MapType, VariantType) for field in measures)
    changed = f"not ({_alike(field.name for field in measures)})"
    (
        DeltaTable.forPath(spark, str(target))
        .alias("old")
        .merge(fresh.alias("new"), same)
        .whenMatchedUpdateAll(None if is_opaque else changed)
        .whenNotMatchedInsertAll()
        .execute()
    )


def _alike(columns: Iterable[str]) -> str:
    return " and ".join(f"old.`{column}` <=> new.`{column}`" for column in columns)

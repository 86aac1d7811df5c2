"""The sink of output mode `update`: recompute the groups that a batch touched, and merge them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, VariantType

from medallion.config.model import Aggregate, Config, GoldTable
from medallion.errors import ConfigError
from medallion.layers.gold.transform import per_group, windowed
from medallion.spark.plans import analyzed_plan, catalyst_class, contains_type
from medallion.storage.paths import StoragePath


def refuse_unmergeable(name: str, rows: DataFrame) -> None:
    """Raise ConfigError if a group that is recomputed alone would differ from the table's.

    It differs if its row depends on other groups, or if it has several rows or none.
    """
    plan, patterns = analyzed_plan(rows), catalyst_class(rows, "trees.TreePattern")
    if plan.containsPattern(patterns.WINDOW()) or plan.containsPattern(patterns.GENERATE()):
        raise ConfigError(
            f"{name} has a window function (OVER) or several rows per group (explode), but "
            "output_mode update computes each group alone. Do that when you query the table."
        )


class GroupMerge:
    """A sink that recomputes the groups that a batch touched from silver, and merges them.

    The sink keeps no state and reads silver as it is now: late rows count, and a batch may run
    twice. Silver may already have rows of later batches; their own batch computes the group again,
    with the same result.
    """

    def __init__(self, spark: SparkSession, config: Config, table: GoldTable) -> None:
        assert isinstance(table.definition, Aggregate), "update is for aggregates"
        self._spark, self._aggregate = spark, table.definition
        (silver,) = table.tables
        self._silver = config.layout.table(f"silver.{silver}")
        self._target = config.layout.table(f"gold.{table.name}")
        self._event_time = config.sources[silver].event_time

    def touched(self, silver: DataFrame) -> DataFrame:
        """Return each row of a stream of silver once per window that contains it."""
        return windowed(silver, self._event_time, self._aggregate)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Merge one batch of `touched` rows."""
        keys = self._aggregate.groups
        # Without groups nothing else reads the batch, and Spark would report no rows read.
        if not keys and not batch.count():
            return
        touched = batch.select(*keys).distinct().persist()
        try:
            silver = self._spark.read.format("delta").load(str(self._silver))
            if self._aggregate.window:
                silver = _within_windows(silver, touched, self._event_time)
            rows = windowed(silver, self._event_time, self._aggregate)
            groups = per_group(_in_groups(rows, touched, keys), keys, self._aggregate.measure)
            _merge(self._spark, self._target, groups, keys)
        finally:
            touched.unpersist()


def _within_windows(silver: DataFrame, touched: DataFrame, event_time: str) -> DataFrame:
    """Return rows between the first and the last window, so that Delta skips other files."""
    first, last = touched.agg(
        F.min("window_start").cast("string"), F.max("window_end").cast("string")
    ).collect()[0]
    time = F.col(event_time)
    return silver.where(
        (time >= F.lit(first).cast("timestamp")) & (time < F.lit(last).cast("timestamp"))
    )


def _in_groups(rows: DataFrame, touched: DataFrame, keys: Sequence[str]) -> DataFrame:
    if not keys:
        return rows
    left, right = rows.alias("rows"), touched.alias("touched")
    # Null is a group, too.
    same = reduce(and_, (F.col(f"rows.{k}").eqNullSafe(F.col(f"touched.{k}")) for k in keys))
    return left.join(F.broadcast(right), on=same, how="left_semi")


def _merge(
    spark: SparkSession, target: StoragePath, groups: DataFrame, keys: Sequence[str]
) -> None:
    """Merge groups by their keys. An unchanged group is not updated: the change feed omits it."""
    measures = [field for field in groups.schema if field.name not in keys]
    # Maps and variants cannot be compared.
    is_opaque = any(contains_type(field.dataType, MapType, VariantType) for field in measures)
    changed = f"not ({_are_equal(field.name for field in measures)})"
    (
        DeltaTable.forPath(spark, str(target))
        .alias("old")
        .merge(groups.alias("new"), _are_equal(keys) or "true")
        .whenMatchedUpdateAll(None if is_opaque else changed)
        .whenNotMatchedInsertAll()
        .execute()
    )


def _are_equal(columns: Iterable[str]) -> str:
    return " and ".join(f"old.`{column}` <=> new.`{column}`" for column in columns)

"""The sink of output mode `update`: recompute the groups that a batch touched, and merge them."""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Aggregate, Config, GoldTable
from medallion.errors import ConfigError
from medallion.layers.gold.transform import per_group, windowed
from medallion.spark import delta
from medallion.spark.plans import analyzed_plan, catalyst_class, is_comparable
from medallion.storage.paths import StoragePath

_IS_EMPTY = "_is_empty"  # no column of gold starts with an underscore


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
        self._silver = config.layout.table(silver)
        self._target = config.layout.table(f"gold.{table.name}")
        self._can_lose_groups = table.follows_changes
        self._event_time = config.silver_tables[silver].event_time or ""

    def touched(self, silver: DataFrame) -> DataFrame:
        """Return each row of a stream of silver once per window that contains it."""
        return windowed(silver, self._event_time, self._aggregate)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Merge one batch of `touched` rows; a group without rows in silver is deleted."""
        keys = self._aggregate.groups
        # Without groups nothing else reads the batch, and Spark would report no rows read.
        if not keys and not batch.count():
            return
        touched = batch.select(*keys).distinct().persist()
        try:
            silver = delta.read_table(self._spark, self._silver)
            if self._aggregate.where:
                silver = silver.where(F.expr(self._aggregate.where))
            if self._aggregate.window:
                silver = self._within_windows(silver, touched)
            rows = windowed(silver, self._event_time, self._aggregate)
            if keys:
                rows = _join_groups(rows, touched, keys, "left_semi")
            groups = per_group(rows, keys, self._aggregate.measure)
            if self._can_lose_groups and keys:
                gone = _join_groups(touched, groups, keys, "left_anti")
                empty = gone.withColumn(_IS_EMPTY, F.lit(True))
                groups = groups.withColumn(_IS_EMPTY, F.lit(False))
                groups = groups.unionByName(empty, allowMissingColumns=True)
            _merge(self._spark, self._target, groups, keys)
        finally:
            touched.unpersist()

    def _within_windows(self, silver: DataFrame, touched: DataFrame) -> DataFrame:
        """Return rows about the first to the last window, so that Delta skips other files."""
        # A clock change in the first hour of a local day puts some of its rows outside its bounds.
        days = 1 if self._aggregate.calendar_unit else 0
        bounds = touched.agg(
            (F.min("window_start") - F.make_dt_interval(F.lit(days))).cast("string"),
            (F.max("window_end") + F.make_dt_interval(F.lit(days))).cast("string"),
        )
        first, last = (F.lit(time).cast("timestamp") for time in bounds.collect()[0])
        return silver.where(F.col(self._event_time).between(first, last))


def _join_groups(left: DataFrame, right: DataFrame, keys: Sequence[str], how: str) -> DataFrame:
    # Null is a group, too.
    same = (F.col(f"left.{key}").eqNullSafe(F.col(f"right.{key}")) for key in keys)
    return left.alias("left").join(right.alias("right"), reduce(and_, same), how)


def _merge(
    spark: SparkSession, target: StoragePath, groups: DataFrame, keys: Sequence[str]
) -> None:
    """Merge groups by their keys. An unchanged group is not updated: the change feed omits it."""
    measures = [field for field in groups.schema if field.name not in (*keys, _IS_EMPTY)]
    are_comparable = all(is_comparable(field.dataType) for field in measures)
    changed = f"not ({_are_equal(field.name for field in measures)})"
    has_empty = _IS_EMPTY in groups.columns
    old = DeltaTable.forPath(spark, str(target)).alias("old")
    merge = old.merge(groups.alias("new"), _are_equal(keys) or "true")
    if has_empty:
        merge = merge.whenMatchedDelete(f"new.{_IS_EMPTY}")
    merge = merge.whenMatchedUpdateAll(changed if are_comparable else None)
    merge.whenNotMatchedInsertAll(f"not new.{_IS_EMPTY}" if has_empty else None).execute()


def _are_equal(columns: Iterable[str]) -> str:
    return " and ".join(f"old.`{column}` <=> new.`{column}`" for column in columns)

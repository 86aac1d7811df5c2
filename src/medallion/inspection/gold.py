"""Gold counted again: silver aggregated once more, as one batch, and compared group by group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config, GoldTable
from medallion.inspection.recount import Recount
from medallion.lakehouse import tables
from medallion.lakehouse.text import counted
from medallion.layers.gold.transform import aggregated, groups, windowed
from medallion.spark import checkpoints
from medallion.spark.errors import one_line
from medallion.spark.session import spark_session

# Sums of fractions depend on the order of their terms: so much, of the greater one, is the same.
_NEAR = 1e-9


def recount(config: Config, say: Callable[[str], None]) -> Recount:
    """Compare each table that has read all of silver; Spark is started for that, and said to be."""
    read, found = _comparable(config)
    if read:
        with _session(config, say) as spark:
            for pair in read:
                _compare(spark, config, pair, found)
    return found


@contextmanager
def _session(config: Config, say: Callable[[str], None]) -> Iterator[SparkSession]:
    """The session that is on already, or one of its own."""
    if there := SparkSession.getActiveSession():
        yield there
        return
    say("starting Spark, to aggregate silver anew and compare gold with it")
    spark = spark_session(config, "medallion audit")
    try:
        yield spark
    finally:
        spark.stop()


@dataclass(frozen=True)
class _Pair:
    """A table of gold, and the versions of it and of silver that have the same rows."""

    table: GoldTable
    gold: int
    silver: int


def _comparable(config: Config) -> tuple[list[_Pair], Recount]:
    """The tables that have read all of silver, and a note on each of the others; no JVM."""
    found, read = Recount(), []
    for table in config.gold.values():
        if not tables.exists(config.layout.table(f"gold.{table.name}")):
            continue
        if pair := _pair(config, table):
            read.append(pair)
        else:
            note = f"gold.{table.name}: not compared, for it has not read all of silver yet."
            found.notes.append(note)
    return read, found


def _pair(config: Config, table: GoldTable) -> _Pair | None:
    """Versions to compare, beside a stream that is on as well: in this order of looking, gold has
    no rows of silver's beyond those that its checkpoint had read before and after."""
    checkpoint = config.layout.checkpoint(f"gold.{table.name}")
    silver = config.layout.table(f"silver.{table.source}")
    before = checkpoints.last_committed(checkpoint)
    gold = tables.version(config.layout.table(f"gold.{table.name}"))
    read = checkpoints.delta_offset(checkpoint, before)
    version = tables.version(silver)
    is_behind = tables.rows_written(silver, after=read.version - 1, until=version) > 0
    if is_behind or checkpoints.last_committed(checkpoint) != before:
        return None
    return _Pair(table, gold, version)


def _compare(spark: SparkSession, config: Config, pair: _Pair, found: Recount) -> None:
    name = f"gold.{pair.table.name}"
    try:
        differing = _differing(spark, config, pair).count()
    except PySparkException as error:
        found.notes.append(f"{name}: not compared ({one_line(str(error))}).")
        return
    if differing:
        many = counted(differing, "group")
        found.findings.append(f"{name}: it differs from silver's rows in {many}.")


def _differing(spark: SparkSession, config: Config, pair: _Pair) -> DataFrame:
    """The groups that only one of the two has, or has twice, or with other measures."""
    table = pair.table

    def rows_of(name: str, version: int) -> DataFrame:
        then = spark.read.format("delta").option("versionAsOf", str(version))
        return then.load(str(config.layout.table(name)))

    gold = rows_of(f"gold.{table.name}", pair.gold)
    silver = rows_of(f"silver.{table.source}", pair.silver)
    keys = groups(table.window, table.group_by)
    event_time = config.sources[table.source].event_time
    rows = windowed(silver, event_time, table.window, table.slide)
    again = aggregated(rows, keys, table.measure)
    if silver.isEmpty():  # a count of nothing is a row to a batch, and none to a stream
        again = again.limit(0)
    measures = list(table.measure)
    columns = [*(F.col(f"`{key}`") for key in keys), F.struct(*measures).alias("measures")]
    there = gold.select(*columns, F.lit(1).alias("side"))
    both = there.unionByName(again.select(*columns, F.lit(-1).alias("side")))

    def of(side: int) -> Column:
        return F.first(F.when(F.col("side") == side, F.col("measures")), ignorenulls=True)

    compared = both.groupBy(*(f"`{key}`" for key in keys)).agg(
        F.count("*").alias("rows"),
        F.sum("side").alias("sides"),
        of(1).alias("there"),
        of(-1).alias("again"),
    )
    types = dict(gold.dtypes)
    same = (_same(F.col(f"there.`{m}`"), F.col(f"again.`{m}`"), types[m]) for m in measures)
    is_once = (F.col("rows") == 2) & (F.col("sides") == 0)
    return compared.where(~reduce(and_, same, is_once))


def _same(one: Column, other: Column, kind: str) -> Column:
    same = one.eqNullSafe(other)
    if kind not in ("double", "float"):
        return same
    near = F.abs(one - other) <= _NEAR * F.greatest(F.abs(one), F.abs(other))
    return same | F.coalesce(near, F.lit(False))

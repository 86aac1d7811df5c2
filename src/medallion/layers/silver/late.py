"""Late rows: what silver's watermark dropped is found again in bronze, and admitted once.

The engine only counts what it drops. Its rule is known, though: batch N drops the rows whose event
time is not after the watermark of batch N-1. (Source: Spark's IncrementalExecution; each count
is held against the engine's own.) Which versions of bronze a batch read is in its checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config, SourceConfig
from medallion.errors import MedallionError
from medallion.lakehouse.columns import FAILED_RULES, INGESTED_AT, SOURCE_FILE
from medallion.layers.silver import transform as transforms
from medallion.layers.silver.rules import Check
from medallion.spark import checkpoints, feed

RULE = "late"  # what late rows have broken, where they are to be set aside


@dataclass(frozen=True)
class Settled:
    """What became of the rows of one batch that silver's query did not write."""

    late: int
    duplicates: int


def settle(
    spark: SparkSession,
    config: Config,
    source: SourceConfig,
    batch: int,
    dropped: int | None,
    check: Check,
) -> Settled:
    """Admit the late rows of one batch of `silver.<source>`; safe to repeat.

    Where the configuration says `late: quarantine`, they are set aside under the rule `late`.

    Args:
        dropped: how many rows the engine dropped as late; None where its record is lost, and then
            the duplicates that it met on time are counted again too.
        check: the rules that the query began with; the suites may have been edited since.

    Returns:
        Rows admitted to silver, and rows found to be duplicates.

    Raises:
        MedallionError: other rows are found than the engine dropped.
    """
    bronze = rows_of_batch(spark, config, source, batch)
    checked = check(bronze, keep_all=source.late == "quarantine")
    rows = transforms.split(checked, source.keys)[0]
    watermark = checkpoints.watermark(_checkpoint(config, source), batch - 1) or 0
    is_late = F.col(source.event_time) <= F.timestamp_millis(F.lit(watermark))
    late = rows.where(is_late).persist()
    try:
        found = late.count()
        if dropped is not None and found != dropped:
            raise MedallionError(
                f"silver.{source.name} batch {batch}: the watermark dropped {dropped} rows, "
                f"but {found} late rows are in bronze; run medallion audit."
            )
        admitted = 0
        duplicates = 0
        # Before there is a watermark Spark drops what is of before 1970, which is late for nobody.
        if found and source.late == "quarantine" and watermark:
            duplicates = found - _set_aside(spark, config, source, late, batch)
        elif found:
            _insert(spark, config, source, transforms.good(late, source.silver))
            admitted = _came_into_silver(spark, config, source, late)
            duplicates = found - admitted
    finally:
        late.unpersist()
    if dropped is None:
        on_time = rows.where(~is_late)
        duplicates += on_time.count() - _came_into_silver(spark, config, source, on_time)
    return Settled(admitted, duplicates)


def rows_of_batch(
    spark: SparkSession, config: Config, source: SourceConfig, batch: int
) -> DataFrame:
    """The rows of bronze that one batch of silver read."""
    checkpoint = _checkpoint(config, source)
    start = checkpoints.delta_offset(checkpoint, batch - 1)
    end = checkpoints.delta_offset(checkpoint, batch)
    if not (start.is_whole and end.is_whole):
        raise MedallionError(f"{checkpoint}: batch {batch} does not end with a version of bronze.")
    bronze = config.layout.table(f"bronze.{source.name}")
    if end.version <= start.version:  # a batch without data, which only evicts state
        return spark.read.format("delta").load(str(bronze)).limit(0)
    if batch == 0:  # it begins with the table as it is: older commits need not be there
        then = spark.read.format("delta").option("versionAsOf", str(end.version - 1))
        return then.load(str(bronze))
    return feed.added(spark, bronze, start.version, end.version - 1)


def _checkpoint(config: Config, source: SourceConfig) -> Path:
    return config.layout.checkpoint(f"silver.{source.name}")


def _insert(spark: SparkSession, config: Config, source: SourceConfig, late: DataFrame) -> None:
    """Insert rows whose keys silver does not have; the bounds let Delta skip files."""
    time = source.event_time
    first, last = late.agg(F.min(time).cast("string"), F.max(time).cast("string")).collect()[0]
    within = f"old.`{time}` between timestamp'{first}' and timestamp'{last}'"
    same = " and ".join(f"old.`{key}` = new.`{key}`" for key in source.keys)
    silver = DeltaTable.forPath(spark, str(config.layout.table(f"silver.{source.name}")))
    (
        silver.alias("old")
        .merge(late.dropDuplicates(list(source.keys)).alias("new"), f"{within} and {same}")
        .whenNotMatchedInsertAll()
        .execute()
    )


def _set_aside(
    spark: SparkSession, config: Config, source: SourceConfig, late: DataFrame, batch: int
) -> int:
    """Append rows whose keys silver does not have to quarantine, once; how many they are."""
    silver = spark.read.format("delta").load(str(config.layout.table(f"silver.{source.name}")))
    keys = list(source.keys)
    new = late.dropDuplicates(keys).join(silver.select(keys), on=keys, how="left_anti")
    rows = new.withColumn(FAILED_RULES, F.array(F.lit(RULE)))
    once_only = {
        "txnAppId": f"{checkpoints.query_id(_checkpoint(config, source))}-late",
        "txnVersion": str(batch),
    }
    count = rows.count()
    if count:
        table = str(config.layout.table(f"quarantine.{source.name}"))
        broken = transforms.broken(rows).write.format("delta").mode("append")
        broken.options(**once_only, mergeSchema="true").save(table)
    return count


def _came_into_silver(
    spark: SparkSession, config: Config, source: SourceConfig, rows: DataFrame
) -> int:
    """How many of these rows silver took: of rows with one key it can only have taken one."""
    silver = spark.read.format("delta").load(str(config.layout.table(f"silver.{source.name}")))
    on = [*source.keys, SOURCE_FILE, INGESTED_AT]
    return rows.select(on).distinct().join(silver.select(on), on=on, how="left_semi").count()

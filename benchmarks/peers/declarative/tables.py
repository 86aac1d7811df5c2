"""The tables of the pipeline, as its users write them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from benchmarks.measure import configured

ROOT = Path(os.environ["MEDALLION_HOME"])
SOURCE = configured(ROOT).sources["activity"]
spark = SparkSession.active()
DELTA: Any = {"format": "delta"}  # which the types of these decorators leave out


@dp.table(**DELTA)
def bronze() -> DataFrame:
    declared = ", ".join(f"`{name}` {kind}" for name, kind in (SOURCE.schema or {}).items())
    lines = spark.readStream.schema(declared).json(str(ROOT / "landing/activity"))
    landed = lines.withColumn("_source_file", F.col("_metadata.file_path"))
    return landed.withColumn("_ingested_at", F.current_timestamp())


# A stream over a table of the pipeline cannot be deduplicated: Spark Connect looks for the table's
# columns as soon as it is told to (`withWatermark`, `dropDuplicates`), and the table is not there.
@dp.materialized_view(**DELTA)
def silver() -> DataFrame:
    columns = [F.expr(sql).alias(name) for name, sql in SOURCE.silver.items()]
    typed = spark.read.table("bronze").select(*columns, "_source_file", "_ingested_at")
    twins = Window.partitionBy(*SOURCE.keys).orderBy("_source_file")
    first = typed.withColumn("_twin", F.row_number().over(twins)).where("_twin = 1")
    return first.select(*SOURCE.silver, "_source_file", "_ingested_at")


@dp.materialized_view(**DELTA)
def device_counts() -> DataFrame:
    window = F.window(SOURCE.event_time, "10 minutes")
    counted = spark.read.table("silver").groupBy(window, "device").agg(F.count(F.lit(1)).alias("n"))
    return counted.select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        "device",
        F.col("n").alias("total_recordings"),
    )


@dp.materialized_view(**DELTA)
def device_totals() -> DataFrame:
    count = F.count(F.lit(1)).alias("total_recordings")
    return spark.read.table("silver").groupBy("device").agg(count)

"""The way of a course's notebook: the schema of a first look, one file a trigger, Spark's defaults.

200 shuffle partitions, a cell a layer, each awaited before the next.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def main(root: Path) -> None:
    """Make the tables of `root`."""
    spark = (
        SparkSession.builder.appName("notebook")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    landing = str(root / "landing/activity")
    schema = spark.read.json(landing).schema

    def stream(table: str) -> DataFrame:
        return spark.readStream.format("delta").load(str(root / table))

    def run(rows: DataFrame, table: str, mode: str = "append") -> None:
        checkpoint = root / "checkpoints" / table
        query = (
            rows.writeStream.format("delta")
            .outputMode(mode)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(root / table))
        )
        query.awaitTermination()

    landed = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(landing)
    run(landed.withColumn("_source_file", F.col("_metadata.file_path")), "bronze/activity")
    clean = (
        stream("bronze/activity")
        .select(
            F.to_timestamp("Recorded_At").alias("recorded_at"),
            F.col("Device").alias("device"),
            F.col("Index").alias("user_id"),
            F.col("Model").alias("model"),
            F.col("User").alias("user"),
            *("gt", "x", "y", "z"),
        )
        .withWatermark("recorded_at", "1 hour")
        .dropDuplicates(["device", "user_id", "recorded_at"])
    )
    run(clean, "silver/activity")
    silver = stream("silver/activity")
    count = F.count("*").alias("total_recordings")
    windows = silver.groupBy(F.window("recorded_at", "10 minutes"), "device").agg(count)
    windows = windows.selectExpr(
        "window.start as window_start", "window.end as window_end", "device", "total_recordings"
    )
    run(windows, "gold/device_counts", "complete")
    run(silver.groupBy("device").agg(count), "gold/device_totals", "complete")
    spark.stop()


if __name__ == "__main__":
    main(Path(os.environ["MEDALLION_HOME"]))

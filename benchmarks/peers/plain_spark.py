"""Plain Spark, tuned: three layers with the schema given, medallion's settings, and all at once.

No gates, quarantine, rescue, ledger or record of runs.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.measure import configured, plain_bronze, write
from medallion.spark.session import spark_session

SOURCE = "activity"


def main(root: Path) -> None:
    """Make the tables of `root`."""
    config = configured(root)
    source, layout = config.sources[SOURCE], config.layout
    spark = spark_session(config, "plain")

    def stream(table: str) -> DataFrame:
        return spark.readStream.format("delta").load(str(layout.table(table)))

    def finish(*queries: StreamingQuery) -> None:
        for query in queries:
            query.awaitTermination()

    finish(plain_bronze(spark, config, SOURCE))

    columns = [F.expr(sql).alias(name) for name, sql in source.silver.items()]
    typed = stream(f"bronze.{SOURCE}").select(*columns, "_source_file", "_ingested_at")
    once = typed.withWatermark(source.event_time, source.watermark.text)
    finish(write(config, once.dropDuplicates(list(source.keys)), f"silver.{SOURCE}"))

    silver = stream(f"silver.{SOURCE}")
    count = F.count(F.lit(1)).alias("total_recordings")
    window = F.window(source.event_time, "10 minutes")
    by_window = silver.groupBy(window, "device").agg(count)
    by_window = by_window.select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        "device",
        "total_recordings",
    )
    finish(
        write(config, by_window, "gold.device_counts", "complete"),
        write(config, silver.groupBy("device").agg(count), "gold.device_totals", "complete"),
    )
    spark.stop()


if __name__ == "__main__":
    main(Path(os.environ["MEDALLION_HOME"]))

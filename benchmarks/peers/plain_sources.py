"""Plain Spark for many small sources: three layers with medallion's settings for little work.

    python -m benchmarks.peers.plain_sources

It reads the configuration of `benchmarks.many_sources`. The queries of a layer run at once. No
gates, quarantine, rescue, ledger or record of runs.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.measure import configured, plain_bronze, plain_silver, stream_table, write
from medallion.spark.session import spark_session
from medallion.spark.settings import Workload
from medallion.storage.layout import LAYERS


def main(root: Path, conf: str) -> None:
    """Make the tables of `root`, once."""
    config = configured(root, MEDALLION_CONF=conf)
    spark = spark_session(config, "plain", work=Workload.LITTLE)

    def hours(name: str) -> DataFrame:
        silver = stream_table(spark, config, f"silver.{name}")
        grouped = silver.groupBy(F.window("at", "1 hour"), "id")
        rows = grouped.agg(F.count(F.lit(1)).alias("rows"), F.sum("value").alias("total"))
        bounds = (
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
        )
        return rows.select(*bounds, "id", "rows", "total")

    def query(layer: str, name: str) -> StreamingQuery:
        if layer == "bronze":
            return plain_bronze(spark, config, name)
        if layer == "silver":
            return plain_silver(spark, config, name)
        return write(config, hours(name), f"gold.{name}_hours", "complete")

    for layer in LAYERS:
        for started in [query(layer, name) for name in config.sources]:
            started.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(os.environ["MEDALLION_HOME"]), os.environ["MEDALLION_CONF"])

"""Plain Spark, tuned: three layers with the schema given, medallion's settings, and all at once.

    python -m benchmarks.peers.plain_spark [interval]

With an interval it stays on. No gates, quarantine, rescue, ledger or record of runs.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.measure import configured, plain_bronze, plain_silver, stream_table, write
from medallion.spark.session import spark_session

SOURCE = "activity"


def main(root: Path, interval: str | None = None) -> None:
    """Make the tables of `root`, once or until the process is told to end."""
    config = configured(root)
    source = config.sources[SOURCE]
    spark = spark_session(config, "plain")

    def written(rows: DataFrame, table: str, mode: str = "append") -> StreamingQuery:
        return write(config, rows, table, mode, interval)

    def until_written(*queries: StreamingQuery) -> None:
        for query in queries:
            if not interval:
                query.awaitTermination()
                continue
            while not query.lastProgress:
                time.sleep(0.2)

    until_written(plain_bronze(spark, config, SOURCE, interval))
    until_written(plain_silver(spark, config, SOURCE, interval))

    silver = stream_table(spark, config, f"silver.{SOURCE}")
    count = F.count(F.lit(1)).alias("total_recordings")
    window = F.window(source.event_time, "10 minutes")
    by_window = silver.groupBy(window, "device").agg(count)
    by_window = by_window.select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        "device",
        "total_recordings",
    )
    until_written(
        written(by_window, "gold.device_counts", "complete"),
        written(silver.groupBy("device").agg(count), "gold.device_totals", "complete"),
    )
    if interval:
        told = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: told.set())
        while not told.is_set():
            spark.streams.awaitAnyTermination(1)  # raises what a query has failed of
    spark.stop()


if __name__ == "__main__":
    main(Path(os.environ["MEDALLION_HOME"]), *sys.argv[1:])

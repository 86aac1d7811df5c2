"""A bare session: Spark starts, writes one row to Delta, reads it, and ends."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession


def main(root: Path) -> None:
    """Make a table in `root`."""
    spark = (
        SparkSession.builder.appName("bare")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    table = str(root / "table")
    spark.range(1).write.format("delta").save(table)
    assert spark.read.format("delta").load(table).count() == 1
    spark.stop()


if __name__ == "__main__":
    main(Path(os.environ["MEDALLION_HOME"]))

"""Tables and views by name in Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.errors import ConfigError
from medallion.spark.catalog import register_tables
from medallion.storage.paths import Layout
from tests.support import PROJECT
from tests.support.sql import write


def test_register_tables_and_views(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "o'clock"
    write(root, "gold.catalog_totals", "SELECT * FROM (VALUES ('a', 1), ('b', 2)) AS t(device, n)")
    views = {
        "catalog_sum": "SELECT sum(n) AS n FROM gold.catalog_totals",
        "catalog_more": "SELECT n + 1 AS n FROM catalog_sum",
    }
    config = replace(load({}, PROJECT), layout=Layout(root), views=views)
    for _ in range(2):  # a second call changes nothing
        register_tables(spark, config)
    assert spark.table("gold.catalog_totals").count() == 2
    assert spark.table("catalog_more").collect()[0].n == 4
    wrong = replace(config, views={"catalog_wrong": "SELECT m FROM gold.catalog_totals"})
    with pytest.raises(ConfigError, match=r"views\.catalog_wrong: "):
        register_tables(spark, wrong)
    for view in views:
        spark.catalog.dropTempView(view)
    spark.sql("DROP TABLE gold.catalog_totals")
    spark.sql("DROP SCHEMA gold CASCADE")

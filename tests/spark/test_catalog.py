"""Tables and views by name in Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from medallion.errors import ConfigError
from medallion.spark.catalog import register_tables
from tests.support.lakehouse import Lakehouse
from tests.support.sql import write


def test_register_tables_and_views(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "o'clock"
    write(root, "gold.catalog_totals", "SELECT * FROM (VALUES ('a', 1), ('b', 2)) AS t(device, n)")
    views = {
        "catalog_sum": "SELECT sum(n) AS n FROM gold.catalog_totals",
        "catalog_more": "SELECT n + 1 AS n FROM catalog_sum",
    }
    config = replace(Lakehouse(None, root).config, views=views)
    for _ in range(2):  # a second call changes nothing
        assert [*register_tables(spark, config)] == []
    assert spark.table("gold.catalog_totals").count() == 2
    assert spark.table("catalog_more").collect()[0].n == 4
    invalid = replace(config, views={"catalog_wrong": "SELECT m FROM gold.catalog_totals"})
    (error,) = register_tables(spark, invalid)
    assert isinstance(error, ConfigError)
    assert error.key == "views.catalog_wrong"
    for view in views:
        spark.catalog.dropTempView(view)
    spark.sql("DROP TABLE gold.catalog_totals")
    spark.sql("DROP SCHEMA gold CASCADE")
    assert (root / "gold/catalog_totals/_delta_log").is_dir()


def test_register_tables_for_other_sessions(spark: SparkSession, tmp_path: Path) -> None:
    """Other sessions see tables and views, and follow new columns; DROP SCHEMA keeps the files."""
    write(tmp_path, "gold.served_totals", "SELECT * FROM (VALUES ('a', 1)) AS t(device, n)")
    views = {"served_sum": "SELECT sum(n) AS n FROM gold.served_totals"}
    config = replace(Lakehouse(None, tmp_path).config, views=views)
    assert [*register_tables(spark, config, is_server=True)] == []
    other_session = spark.newSession()
    assert [row.n for row in other_session.table("served_sum").collect()] == [1]
    path = str(tmp_path / "gold/served_totals")
    rows = spark.sql("SELECT 'b' AS device, 2L AS n, true AS is_new")
    rows.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    assert other_session.table("gold.served_totals").columns == ["device", "n", "is_new"]
    other_session.sql("DROP SCHEMA gold CASCADE")
    other_session.sql("DROP VIEW served_sum")
    assert spark.read.format("delta").load(path).count() == 2

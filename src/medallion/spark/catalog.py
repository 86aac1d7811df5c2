"""The lakehouse's tables and views by name in Spark: `spark.table("gold.device_counts")`."""

from __future__ import annotations

from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.errors import ConfigError
from medallion.spark import session
from medallion.spark.errors import SPARK_ERRORS, one_line
from medallion.storage import delta_tables
from medallion.storage.table_specs import quote_identifier, string_literal


def spark_session(config: Config | None = None) -> SparkSession:
    """Start Spark, or join the one that spark-submit has started, with all tables and views.

    Tables are named `layer.table`, and views by their names in pipeline.yaml. A table that is
    created later is known to the next call.

    Args:
        config: the configuration; without one, that of this process.

    Raises:
        ConfigError: Spark does not start with these settings, or a view is invalid.
    """
    config = config or load()
    spark = session.spark_session(config)
    register_tables(spark, config)
    return spark


def register_tables(spark: SparkSession, config: Config) -> None:
    """Register the tables and views that the session's catalog lacks.

    Raises:
        ConfigError: Spark refuses the SQL of a view.
    """
    tables = config.layout.tables()
    for layer in dict.fromkeys(name.partition(".")[0] for name in tables):
        location = string_literal(str(config.layout.root / layer))
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {layer} LOCATION {location}")
    for name, path in tables.items():
        quoted = ".".join(map(quote_identifier, name.split(".", 1)))
        # Its first commit may not be complete yet.
        if delta_tables.table_exists(path) and not spark.catalog.tableExists(quoted):
            spark.sql(f"CREATE TABLE {quoted} USING delta LOCATION {string_literal(str(path))}")
    for name, sql in config.views.items():
        try:
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {quote_identifier(name)} AS {sql}")
        except SPARK_ERRORS as error:
            raise ConfigError(
                f"{config.pipeline_file}: views.{name}: {one_line(str(error))}", f"views.{name}"
            ) from None

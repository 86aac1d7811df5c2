"""The lakehouse's tables and views by name in Spark: `spark.table("gold.device_counts")`."""

from collections.abc import Iterator

from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.errors import ITEM_ERRORS, ConfigError, MedallionError
from medallion.spark import session
from medallion.spark.errors import SPARK_ERRORS, as_medallion_error, one_line
from medallion.storage import delta_tables
from medallion.storage.layout import layer_of
from medallion.storage.root_format import read_format
from medallion.storage.table_specs import quote_identifier, string_literal


def spark_session(config: Config | None = None) -> SparkSession:
    """Start Spark, or join the one that spark-submit has started, with all tables and views.

    Tables are named `layer.table`, and views by their names in pipeline.yaml. A table that is
    created later is known to the next call.

    Args:
        config: the configuration; without one, that of this process.

    Raises:
        ConfigError: Spark does not start with these settings, or a view is invalid.
        MedallionError: a table cannot be read.
    """
    config = config or load()
    read_format(config.layout)  # refuse that of a newer release
    spark = session.spark_session(config)
    for error in register_tables(spark, config):
        raise error
    return spark


def register_tables(
    spark: SparkSession, config: Config, is_server: bool = False
) -> Iterator[MedallionError]:
    """Register the tables that the catalog lacks, and the views, while the errors are read.

    Args:
        is_server: whether views are for all sessions of this Spark.

    Yields:
        The errors of tables that Spark cannot read, and of views whose SQL it refuses.
    """
    tables = config.layout.tables()
    for layer in dict.fromkeys(map(layer_of, tables)):
        # Not the folder of the layer: DROP SCHEMA deletes the folder.
        location = string_literal(f"{spark.sparkContext._temp_dir}/{layer}")
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {layer} LOCATION {location}")
    for name, path in tables.items():
        quoted = ".".join(map(quote_identifier, name.split(".", 1)))
        create = f"CREATE TABLE {quoted} USING delta LOCATION {string_literal(str(path))}"
        try:
            # Its first commit may not be complete yet.
            if delta_tables.table_exists(path) and not spark.catalog.tableExists(quoted):
                spark.sql(create)
        except (*ITEM_ERRORS, *SPARK_ERRORS) as error:
            yield as_medallion_error(error, f"{name} cannot be read")
    view = "VIEW default." if is_server else "TEMPORARY VIEW "
    for name, sql in config.views.items():
        key = f"views.{name}"
        try:
            spark.sql(f"CREATE OR REPLACE {view}{quote_identifier(name)} AS {sql}")
        except SPARK_ERRORS as error:
            yield ConfigError(f"{config.pipeline_file}: {key}: {one_line(str(error))}", key)

"""`medallion check --sql`: Spark analyzes the SQL of the configuration; it writes nothing."""

from contextlib import suppress

from pyspark.errors import AnalysisException

from medallion.config.model import Config
from medallion.layers.flow import Flow
from medallion.runtime.check import CheckResult
from medallion.runtime.pipeline import Pipeline
from medallion.spark.session import session_of_command
from medallion.storage import delta_tables


def check_sql(config: Config, result: CheckResult) -> None:
    """Add an error for each expression that Spark refuses, and a note for what it cannot know."""
    with session_of_command(config, "medallion check") as spark:
        pipeline = Pipeline(spark, config, "check", lambda _: None)
        for flow in (*pipeline.flows("silver"), *pipeline.flows("gold")):
            result.attempt(flow.name, _check_flow, flow, result)


def _check_flow(flow: Flow, result: CheckResult) -> None:
    if flow.source.is_debezium or not all(map(delta_tables.table_exists, flow.upstream_paths)):
        reason = f"{' or '.join(flow.upstream)} has no rows yet, or those of Debezium"
        result.note(flow.name, f"Spark has not checked the SQL of {flow.name}: {reason}.")
        return
    with suppress(AnalysisException):  # of a part that later parts need
        for part in flow.sql_parts(flow.upstream_rows()):
            try:
                part.rows()
            except AnalysisException as error:
                result.add_error(part.describe(error), flow.name)

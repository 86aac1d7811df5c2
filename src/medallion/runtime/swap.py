"""The last step of a refresh: the new table replaces the old one.

One Delta commit overwrites the old table, so that readers see the old rows or the new ones, and the
checkpoint follows. If the process dies in between, the next one repeats all steps.
"""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from medallion.config.model import Config
from medallion.errors import MedallionError
from medallion.spark import checkpoints
from medallion.spark.errors import describe_error
from medallion.state import refresh_plan
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables
from medallion.storage.paths import layer_of
from medallion.storage.text import Reporter


def resume_swap(
    spark: SparkSession, config: Config, runs: RunRecords, layers: Sequence[str], report: Reporter
) -> None:
    """Complete the swap of an interrupted refresh, or remove incomplete staged tables.

    A failure is reported. The queries of that table, and those that read it, then do not start
    until it is rebuilt.

    Args:
        spark: the session.
        config: the configuration.
        runs: the records to add to.
        layers: the locked layers, gold among them; a table of another layer is left alone.
        report: reports progress and failures.
    """
    layout = config.layout
    refresh_plan.remove_unfinished(layout)
    plan = refresh_plan.read_plan(layout)
    if not (plan and plan.built and layer_of(plan.table) in layers):
        return
    report(f"refresh   {plan.table}: resumes")
    try:
        swap_tables(spark, config, runs, plan)
    except Exception as error:
        report(f"refresh   {plan.table}: {describe_error(error)}")


def swap_tables(
    spark: SparkSession, config: Config, runs: RunRecords, plan: refresh_plan.RefreshPlan
) -> None:
    """Replace the old tables and their checkpoint by the new ones; every step may be repeated.

    Args:
        spark: the session.
        config: the configuration.
        runs: the records to add to.
        plan: the table, and the staged tables.

    Raises:
        MedallionError: the new table or checkpoint is missing.
    """
    layout, table = config.layout, plan.table
    staged = refresh_plan.StagingLayout(layout.root, plan.built)
    # With the last batch's transaction id, a repeated batch is not written twice.
    options = checkpoints.once_only(plan.query, plan.batch) if plan.batch >= 0 else {}
    for name in plan.built:
        new = staged.table(name)
        if not delta_tables.table_exists(new):
            raise MedallionError(f"{new} is missing, which the refresh had built")
        frame = spark.read.format("delta").load(str(new))
        properties = config.properties(name)
        delta_tables.create_table(layout.table(name), frame.schema.json(), properties)
        # An existing table may have a new output, which needs its change feed.
        delta_tables.set_missing_properties(layout.table(name), properties)
        writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.options(**options).save(str(layout.table(name)))
    if staged.checkpoint(table).is_stored():
        checkpoints.start_generation(layout, table)
    checkpoints.remove_old_generations(layout, table)  # if the process died after the start
    checkpoint = layout.checkpoint(table)
    if not (checkpoint / "metadata").is_stored() or checkpoints.query_id(checkpoint) != plan.query:
        raise MedallionError(f"{staged.checkpoint(table)} is missing, which the refresh had built")
    # The next record counts the rows of later versions.
    row = {**plan.row, "table_version": delta_tables.table_version(layout.table(table))}
    if len(plan.built) > 1:
        row["quarantine_version"] = delta_tables.table_version(layout.table(plan.built[1]))
    if (row["query"], row["run_id"]) not in runs.run_state.planned_runs:
        runs.write([row])
    refresh_plan.write_plan(layout, refresh_plan.RefreshPlan(table, then=plan.then))
    remove_staged(staged, table)


def remove_staged(staged: refresh_plan.StagingLayout, table: str) -> None:
    """Remove the staged tables and their checkpoint."""
    for leftover in (*map(staged.table, staged.names), staged.checkpoint(table)):
        leftover.delete_prefix()

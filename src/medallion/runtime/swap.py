"""What a refresh has built, put in the place of the old table.

One Delta commit overwrites the old table, so that whoever reads sees a whole one before and after,
and the checkpoint follows. A process may die within: each step may be repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from pyspark.sql import SparkSession

from medallion.config.model import Config
from medallion.errors import MedallionError
from medallion.spark import checkpoints
from medallion.spark.errors import describe_error
from medallion.state import refresh_plan
from medallion.state.runs import Runs
from medallion.storage import delta_tables
from medallion.storage.paths import layer_of
from medallion.storage.text import Reporter


def resume_swap(
    spark: SparkSession, config: Config, runs: Runs, layers: Sequence[str], report: Reporter
) -> None:
    """End what an earlier refresh was cut off in, as far as it is a table of these layers: what it
    had built goes in the place of the old tables, or is removed where it was not whole yet.

    Where that fails, it is told, and keeps no other query back: those of this table, and of those
    that read it, are not started before it is rebuilt.

    Args:
        layers: their locks are held, and that of gold.
    """
    layout = config.layout
    refresh_plan.remove_unfinished(layout)
    plan = refresh_plan.read_plan(layout)
    if not (plan and plan.built and layer_of(plan.table) in layers):
        return
    report(f"refresh   {plan.table}: goes on where it was cut off")
    try:
        swap(spark, config, runs, plan)
    except Exception as error:
        report(f"refresh   {plan.table}: {describe_error(error)}")


def swap(spark: SparkSession, config: Config, runs: Runs, plan: refresh_plan.RefreshPlan) -> None:
    """Put what was built in the place of the old tables; every step may be repeated.

    Raises:
        MedallionError: what was built is gone.
    """
    layout, table = config.layout, plan.table
    staged = refresh_plan.StagingLayout(layout.root, plan.built)
    # The tables know the last batch again: should its end be torn, it is not written twice.
    known = {"txnAppId": plan.query, "txnVersion": str(plan.batch)}
    once = known if plan.batch >= 0 else {}
    for name in plan.built:
        new = staged.table(name)
        if not delta_tables.table_exists(new):
            raise MedallionError(f"{new}, which it has built, is gone")
        frame = spark.read.format("delta").load(str(new))
        kept = config.properties(name)
        delta_tables.create_table(layout.table(name), frame.schema.json(), kept)
        delta_tables.set_missing_properties(
            layout.table(name), kept
        )  # it may be published from now on
        writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.options(**once).save(str(layout.table(name)))
    place = layout.checkpoint(table)
    if staged.checkpoint(table).is_dir():
        shutil.rmtree(place, ignore_errors=True)
        staged.checkpoint(table).rename(place)
    elif not (place / "metadata").is_file() or checkpoints.query_id(place) != plan.query:
        raise MedallionError(f"{staged.checkpoint(table)}, which it has built, is gone")
    # What the table's log counts from now on comes after this version.
    row = {**plan.row, "table_version": delta_tables.table_version(layout.table(table))}
    if len(plan.built) > 1:
        row["quarantine_version"] = delta_tables.table_version(layout.table(plan.built[1]))
    if (row["query"], row["run_id"]) not in runs.run_state.refreshing_runs:
        runs.write([row])
    refresh_plan.write_plan(layout, refresh_plan.RefreshPlan(table, then=plan.then))
    clear(staged, table)


def clear(staged: refresh_plan.StagingLayout, table: str) -> None:
    """Remove what was built; a copy of a table is large."""
    for leftover in (*map(staged.table, staged.names), staged.checkpoint(table)):
        shutil.rmtree(leftover, ignore_errors=True)

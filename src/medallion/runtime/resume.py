"""The last steps of refreshes and replays, whose rows are staged; the next run resumes them.

One Delta commit writes a table, so that readers see the old rows or the new ones, and a checkpoint
follows. If the process dies in between, the next one repeats the step.
"""

from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from medallion.config.model import Config
from medallion.errors import MedallionError
from medallion.layers.silver.writer import SilverTables, note_replayed
from medallion.runtime.pipeline import Pipeline
from medallion.spark import checkpoints, delta
from medallion.spark.errors import describe_error
from medallion.state import journal
from medallion.state.journal import Entry, Rebuild, Replay
from medallion.storage import delta_tables
from medallion.storage.layout import Layout, StagingLayout, short_name
from medallion.storage.paths import StoragePath

SILVER, QUARANTINE = "silver", "quarantine"
"""The staged rows of a replay: the new ones of silver, and all of quarantine."""


def resume_commands(pipeline: Pipeline, layers: Sequence[str]) -> None:
    """Complete interrupted refreshes and replays, as far as the held locks permit.

    Only the swap of a refresh is completed: its other tables are rebuilt with their layers, between
    the gates. If a swap fails, that is reported, and its table has to be rebuilt. Backfills are
    enqueued by bronze, and an erasure is completed by `medallion erase`.

    Args:
        layers: the locked layers.
    """
    config = pipeline.config
    if "gold" in layers:
        journal.remove_abandoned_tables(config)
        for entry in journal.read_entries(config, Rebuild):
            if entry.arguments.built and entry.layer in layers:
                pipeline.report(f"refresh   {entry.subject}: resumes")
                try:
                    swap_tables(pipeline, entry)
                except Exception as error:
                    pipeline.report(f"refresh   {entry.subject}: {describe_error(error)}")
    for replay in journal.read_entries(config, Replay) if "silver" in layers else ():
        if short_name(replay.subject) in config.sources:  # else nothing reads its tables
            pipeline.report(f"replay    {replay.subject}: resumes")
            complete_replay(pipeline, replay)


def swap_tables(pipeline: Pipeline, entry: Entry[Rebuild]) -> None:
    """Replace the old tables and their checkpoint by the new ones; every step may be repeated.

    Raises:
        MedallionError: the new table or checkpoint is missing.
    """
    rebuild, layout = entry.arguments, pipeline.config.layout
    new = map(layout.table, rebuild.built)
    steps = (
        ("tables", partial(_overwrite_tables, pipeline.spark, pipeline.config, rebuild)),
        ("checkpoint", partial(_replace_checkpoint, layout, entry.subject, rebuild)),
        ("record", partial(pipeline.runs.write_once, rebuild.row, *new)),
    )
    journal.run_steps(layout, entry, steps)
    journal.remove_abandoned_tables(pipeline.config)


def _overwrite_tables(spark: SparkSession, config: Config, rebuild: Rebuild) -> None:
    layout, staged = config.layout, StagingLayout(config.layout.root, rebuild.built)
    # With the last batch's transaction id, a repeated batch is not written twice.
    options = checkpoints.once_only(rebuild.query, rebuild.batch) if rebuild.batch >= 0 else {}
    for name in rebuild.built:
        new = staged.table(name)
        if not delta_tables.table_exists(new):
            raise MedallionError(f"{new} is missing, which the refresh had built")
        frame = delta.read_table(spark, new)
        properties = config.properties(name)
        delta_tables.create_table(layout.table(name), frame.schema.json(), properties)
        # An existing table may have a new output, which needs its change feed.
        delta_tables.set_missing_properties(layout.table(name), properties)
        writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.options(**options).save(str(layout.table(name)))


def _replace_checkpoint(layout: Layout, table: str, rebuild: Rebuild) -> None:
    new = layout.checkpoint(table, ahead=1)
    if new.is_stored():
        checkpoints.start_generation(layout, table)
    checkpoints.remove_old_generations(layout, table)  # if the process died after the start
    current = layout.checkpoint(table)
    if not (current / "metadata").is_stored() or checkpoints.query_id(current) != rebuild.query:
        raise MedallionError(f"{new} is missing, which the refresh had built")


def replay_staging(config: Config, source: str) -> StoragePath:
    """Return the directory of the rows that a replay writes to the tables of a source."""
    return config.layout.checkpoint(config.sources[source].rows_table) / "replay"


def complete_replay(pipeline: Pipeline, entry: Entry[Replay]) -> None:
    """Write the staged rows to both tables, and record the replay; every step may be repeated.

    Raises:
        MedallionError: staged rows are missing.
    """
    config, replay, name = pipeline.config, entry.arguments, short_name(entry.subject)
    tables, staged = SilverTables.of_source(config, name), replay_staging(config, name)
    application = checkpoints.replay_id(tables.checkpoint)
    once_only = checkpoints.once_only(application, replay.quarantine_version)

    def write(name: str, table: StoragePath, mode: str) -> None:
        rows = _staged_rows(pipeline.spark, staged / name, table)
        delta.write_once(rows, table, once_only, mode)

    steps = (
        ("note", partial(note_replayed, tables.checkpoint, replay.until)),
        ("silver", partial(write, SILVER, tables.silver, "Append")),
        ("quarantine", partial(write, QUARANTINE, tables.quarantine, "Overwrite")),
        ("record", partial(pipeline.runs.write_once, replay.row, tables.silver, tables.quarantine)),
        ("staged rows", staged.delete_prefix),
    )
    journal.run_steps(config.layout, entry, steps)


def _staged_rows(spark: SparkSession, staged: StoragePath, table: StoragePath) -> DataFrame:
    if not delta_tables.table_exists(staged):
        cause = "which an interrupted replay had written"
        raise MedallionError(f"{staged} is missing, {cause}: restore the root from one backup.")
    columns = delta.read_table(spark, table).columns
    return delta.read_table(spark, staged).select(*columns)

"""The replay of quarantined rows: those that pass today's rules move to silver, exactly once.

The rows that both tables get are staged beside silver's checkpoint first. Then the journal has the
replay, and the next run completes it if it is interrupted.
"""

from dataclasses import dataclass
from functools import partial

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config
from medallion.errors import MedallionError
from medallion.layers.flow import Flow
from medallion.layers.silver import transform
from medallion.layers.silver.keys import key_range
from medallion.layers.silver.writer import SilverTables, note_replayed, row_order
from medallion.spark import checkpoints
from medallion.state import journal
from medallion.state.journal import Entry, Replay
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables
from medallion.storage.paths import StoragePath

_SILVER, _QUARANTINE = "silver", "quarantine"  # staged rows: new ones of silver, all of quarantine


@dataclass(frozen=True)
class ReplayCounts:
    """Counts of quarantined rows.

    Attributes:
        validated: rows that were validated again.
        replayed: rows that move to silver.
        duplicate: rows that leave quarantine because silver has their key.
        quarantined: rows that stay, also those that were not selected.
    """

    validated: int
    replayed: int
    duplicate: int
    quarantined: int


def staging(config: Config, source: str) -> StoragePath:
    """Return the directory of the rows that a replay writes to the tables of a source."""
    return config.layout.checkpoint(config.sources[source].rows_table) / "replay"


def stage_rows(flow: Flow, validated: DataFrame, others: DataFrame) -> tuple[ReplayCounts, int]:
    """Write the rows that silver and quarantine get, unless no row passes.

    Args:
        flow: the flow of silver, started without a trigger.
        validated: selected rows of quarantine, with the result of today's rules.
        others: the other rows of quarantine.

    Returns:
        The counts, and the last event time of the rows that move, in milliseconds since 1970; 0
        for change records, which are not compared with silver.
    """
    source, silver = flow.source, flow.rows()
    validated = validated.persist(StorageLevel.DISK_ONLY)
    try:
        if source.cdc:  # each change is kept
            rows = validated.withColumn(transform.DUPLICATE, F.lit(False))
        else:
            taken = silver.where(key_range(validated.where(transform.is_good()), source.keys))
            order = row_order(validated, source)
            rows = transform.mark_duplicates(validated, taken, source.keys, order)
        new = transform.silver_rows(rows.where(f"not {transform.DUPLICATE}"), source.silver_columns)
        left = transform.quarantine_rows(rows).unionByName(others, allowMissingColumns=True)
        is_deduplicated = source.event_time and not source.cdc
        # Rounded up: a watermark of that millisecond is not after the row.
        last = F.unix_millis(F.max(source.event_time)) + 1 if is_deduplicated else F.lit(0)
        replayed, until = new.agg(F.count(F.lit(1)), last).collect()[0]
        counts = ReplayCounts(
            validated=validated.count(),
            replayed=replayed,
            duplicate=rows.where(transform.DUPLICATE).count(),
            quarantined=left.count(),
        )
        if counts.replayed or counts.duplicate:
            staged = staging(flow.config, source.name)
            for name, frame in ((_SILVER, new), (_QUARANTINE, left)):
                (staged / name).delete_prefix()
                frame.write.format("delta").save(str(staged / name))
    finally:
        validated.unpersist()
    return counts, until or 0


def complete_replay(
    spark: SparkSession, config: Config, runs: RunRecords, entry: Entry[Replay]
) -> None:
    """Write the staged rows to both tables, and record the replay; every step may be repeated.

    Args:
        spark: the session.
        config: the configuration.
        runs: the records to add to.
        entry: the replay of `quarantine.<source>`.

    Raises:
        MedallionError: staged rows are missing.
    """
    replay, name = entry.arguments, entry.subject.partition(".")[2]
    tables, staged = SilverTables.of_source(config, name), staging(config, name)
    application = checkpoints.replay_id(tables.checkpoint)
    once_only = checkpoints.once_only(application, replay.quarantine_version)

    def write(name: str, table: StoragePath, mode: str) -> None:
        rows = _staged_rows(spark, staged / name, table)
        rows.write.format("delta").mode(mode).options(**once_only).save(str(table))

    steps = (
        ("note", partial(note_replayed, tables.checkpoint, replay.until)),
        ("silver", partial(write, _SILVER, tables.silver, "append")),
        ("quarantine", partial(write, _QUARANTINE, tables.quarantine, "overwrite")),
        ("record", partial(runs.write_once, replay.row, tables.silver, tables.quarantine)),
        ("staged rows", staged.delete_prefix),
    )
    journal.run_steps(config.layout, entry, steps)


def _staged_rows(spark: SparkSession, staged: StoragePath, table: StoragePath) -> DataFrame:
    if not delta_tables.table_exists(staged):
        raise MedallionError(
            f"{staged} is missing, which an interrupted replay had written: restore the complete "
            "root from one backup."
        )
    columns = spark.read.format("delta").load(str(table)).columns
    return spark.read.format("delta").load(str(staged)).select(*columns)

"""The replay of quarantined rows: those that pass today's rules move to silver, exactly once.

The rows that both tables get are written beside silver's checkpoint first, then the plan, and then
the tables. Each step may be repeated: the next run completes an interrupted replay.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config
from medallion.errors import MedallionError
from medallion.layers.flow import Flow
from medallion.layers.silver import transform
from medallion.layers.silver.writer import SilverTables, append_rows, mark_duplicates, note_replayed
from medallion.spark import checkpoints
from medallion.state import replay_plan
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
    source = flow.source
    validated = validated.persist(StorageLevel.DISK_ONLY)
    try:
        if source.cdc:  # each change is kept
            rows = validated.withColumn(transform.DUPLICATE, F.lit(False))
        else:
            rows = mark_duplicates(validated, flow.rows(), source)
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
            staged = replay_plan.directory(flow.config, source.name)
            for name, frame in ((_SILVER, new), (_QUARANTINE, left)):
                (staged / name).delete_prefix()
                frame.write.format("delta").save(str(staged / name))
    finally:
        validated.unpersist()
    return counts, until or 0


def complete_replay(spark: SparkSession, config: Config, runs: RunRecords, name: str) -> None:
    """Write the staged rows to both tables, and record the replay; every step may be repeated.

    Args:
        spark: the session.
        config: the configuration.
        runs: the records to add to.
        name: the source.

    Raises:
        MedallionError: staged rows are missing.
    """
    tables, staged = SilverTables.of_source(config, name), replay_plan.directory(config, name)
    plan = replay_plan.read_plan(config, name)
    assert plan, f"a replay of {name} is planned"
    application = checkpoints.replay_id(tables.checkpoint)
    once_only = checkpoints.once_only(application, plan["quarantine_version"])
    note_replayed(tables.checkpoint, plan["until"])
    append_rows(_staged_rows(spark, staged / _SILVER, tables.silver), tables.silver, once_only)
    left = _staged_rows(spark, staged / _QUARANTINE, tables.quarantine)
    _replace_rows(left, tables.quarantine, once_only)
    row = plan["row"]
    row["table_version"] = delta_tables.table_version(tables.silver)
    row["quarantine_version"] = delta_tables.table_version(tables.quarantine)
    if (row["query"], row["run_id"]) not in runs.run_state.planned_runs:
        runs.write([row])
    replay_plan.delete_plan(config, name)


def _replace_rows(rows: DataFrame, table: StoragePath, options: Mapping[str, str]) -> None:
    rows.write.format("delta").mode("overwrite").options(**options).save(str(table))


def _staged_rows(spark: SparkSession, staged: StoragePath, table: StoragePath) -> DataFrame:
    if not delta_tables.table_exists(staged):
        raise MedallionError(
            f"{staged} is missing, which an interrupted replay had written: restore the complete "
            "root from one backup."
        )
    columns = spark.read.format("delta").load(str(table)).columns
    return spark.read.format("delta").load(str(staged)).select(*columns)

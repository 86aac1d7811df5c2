"""The replay of quarantined rows: those that pass today's rules move to silver, exactly once.

The rows that both tables get are staged beside silver's checkpoint first. Then the journal has the
replay, and the next run completes it if it is interrupted.
"""

import time
from dataclasses import dataclass
from typing import cast

from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.config.expressions import refuse_wrong_condition
from medallion.config.model import Config
from medallion.errors import MedallionError, UsageError
from medallion.inspect.edits import refuse_waiting
from medallion.layers import recovery
from medallion.layers.flow import Flow
from medallion.layers.silver import transform
from medallion.layers.silver.flow import Silver
from medallion.layers.silver.rules import LATE_RULE
from medallion.layers.silver.writer import mark_duplicates
from medallion.runtime.pipeline import Pipeline
from medallion.runtime.refresh import refresh_table
from medallion.runtime.resume import QUARANTINE, SILVER, complete_replay, replay_staging
from medallion.spark import delta
from medallion.spark.errors import one_line, raise_combined
from medallion.state import journal
from medallion.state.journal import Entry, Replay
from medallion.state.runs import REPLAYED, run_row
from medallion.storage import clock, delta_tables
from medallion.storage.layout import short_name
from medallion.storage.table_specs import FAILED_RULES


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


def source_to_replay(config: Config, table: str, where: str | None) -> str:
    """Return the source of `quarantine.<source>`.

    Raises:
        UsageError: no source has that quarantine, it does not exist yet, or the condition is wrong.
    """
    known = [f"quarantine.{source}" for source in config.sources]
    if table not in known:
        raise UsageError(f"{table} cannot be replayed; these can: {', '.join(known)}.")
    name = short_name(table)
    if not delta_tables.table_exists(config.layout.table(table)):
        raise UsageError(f"{table} does not exist yet: run medallion run silver first.")
    refuse_waiting(config, [config.sources[name].rows_table])
    columns = delta_tables.column_names(config.layout.table(table))
    refuse_wrong_condition("--where", where or "true", columns, table)
    return name


def replay_rows(pipeline: Pipeline, name: str, where: str | None) -> ReplayCounts:
    """Move the rows of a source's quarantine that pass today's rules to silver.

    Args:
        pipeline: with the lock of silver.
        where: SQL over the columns of quarantine that selects the rows; None for all.

    Raises:
        UsageError: the condition is not valid, or batches of silver are not recorded.
        MedallionError: silver's query cannot start.
    """
    config, spark, started = pipeline.config, pipeline.spark, time.monotonic()
    flow = cast(Silver, pipeline.flow(config.sources[name].rows_table))
    recorded = pipeline.runs.last_batch(flow.name)
    if recovery.has_unrecorded(flow.checkpoint, flow.target_paths, recorded):
        raise UsageError(f"{flow.name} has unrecorded batches: run medallion run silver first.")
    pipeline.start_flow(flow, trigger=None)
    path = config.layout.table(f"quarantine.{name}")
    version, before = delta_tables.table_version(path), delta_tables.row_count(path)
    quarantine = delta.read_table(spark, path)
    bronze = delta.read_table(spark, flow.upstream_paths[0])
    try:
        selected = F.coalesce(F.expr(where), F.lit(False)) if where else F.lit(True)
        if flow.source.late == "quarantine":
            selected &= ~F.array_contains(FAILED_RULES, LATE_RULE)
        if where:
            quarantine.where(where)  # it must be a boolean
        rows, others = quarantine.where(selected), quarantine.where(~selected)
    except AnalysisException as error:
        raise UsageError(f"--where {where!r} is not valid: {one_line(str(error))}.") from None
    complete = transform.with_bronze_columns(rows.drop(FAILED_RULES), bronze)
    counts, until = _stage_rows(flow, flow.validate(complete), others)
    if counts.replayed + counts.duplicate + counts.quarantined != before:
        raise MedallionError(
            f"quarantine.{name} has {before:,} rows, but not each was found once: --where must "
            "give the same result for a row each time."
        )
    if counts.replayed or counts.duplicate:
        now, seconds = clock.now_micros(), time.monotonic() - started
        row = run_row("replay", flow.name, REPLAYED, now, seconds) | {
            "run_id": pipeline.run_id,
            "command": pipeline.command,
            "rows_out": counts.replayed,
            "duplicate_rows": counts.duplicate,
            "quarantined_rows": -counts.replayed - counts.duplicate,  # they leave it
        }
        entry = Entry(f"quarantine.{name}", Replay(version, until, row))
        journal.write_entry(config.layout, entry)
        complete_replay(pipeline, entry)
        if flow.source.cdc:  # the rows are in the log of changes
            merged = pipeline.run_flows([pipeline.flow(f"silver.{name}")])
            raise_combined(error for _, error in merged)
    return counts


def _stage_rows(flow: Flow, validated: DataFrame, others: DataFrame) -> tuple[ReplayCounts, int]:
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
        duplicates = rows.where(transform.DUPLICATE).count()
        counts = ReplayCounts(validated.count(), replayed, duplicates, left.count())
        if counts.replayed or counts.duplicate:
            staged = replay_staging(flow.config, source.name)
            for name, frame in ((SILVER, new), (QUARANTINE, left)):
                (staged / name).delete_prefix()
                frame.write.format("delta").save(str(staged / name))
    finally:
        validated.unpersist()
    return counts, until or 0


def replay_rescued(pipeline: Pipeline, name: str) -> ReplayCounts:
    """Replay also rows whose rescued values today's schema has columns for.

    Bronze must have these values as well, so it is rewritten under today's schema, and its silver
    and gold tables are rebuilt, which validates all rows.

    Args:
        pipeline: with the locks of all layers.
    """

    def counts() -> tuple[int, int]:
        """Return the numbers of quarantined rows and of duplicates."""
        state = pipeline.runs.run_state.totals_of(pipeline.config.sources[name].rows_table)
        table = pipeline.config.layout.table(f"quarantine.{name}")
        return delta_tables.row_count(table), state.duplicate_rows

    before, duplicates_before = counts()
    refresh_table(pipeline, f"bronze.{name}")
    after, duplicates = counts()
    duplicates -= duplicates_before
    return ReplayCounts(before, before - after - duplicates, duplicates, after)

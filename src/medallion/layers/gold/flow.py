"""Gold: one query a table, from silver tables to `gold.<table>`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config, GoldTable, Join
from medallion.config.queries import Query
from medallion.layers import recovery
from medallion.layers.definition import (
    RETURN_NULL_ADVICE,
    DefinitionPart,
    failing_part_reason,
    refuse_nondeterministic,
    refuse_unstreamable,
)
from medallion.layers.flow import Flow, ValidationInput
from medallion.layers.gold.definition import definition_parts, gold_definition, refuse_changed_gold
from medallion.layers.gold.transform import gold_rows, has_place
from medallion.layers.gold.writer import GroupMerge, refuse_unmergeable
from medallion.spark import checkpoints, delta_reads, query
from medallion.spark.query import BatchProgress, Run, Sink
from medallion.storage import delta_tables
from medallion.storage.text import Reporter, counted

_NO_PLACE = "no place: "
_MEND = (
    f"have it {RETURN_NULL_ADVICE}, or quarantine such rows by a rule of silver, and rebuild that "
    "with medallion refresh"
)
TOO_LATE = "medallion nightly, or refresh, makes the table anew"


class Gold(Flow):
    """The query of one table, in the table's output mode."""

    is_gated = True

    def __init__(self, spark: SparkSession, config: Config, query: Query, say: Reporter) -> None:
        super().__init__(spark, config, query, say)
        self.table = config.gold[query.name.partition(".")[2]]

    def start(self, trigger: Mapping[str, Any] | None, recorded: int) -> Run | None:
        """Start the query.

        Raises:
            ConfigError: the table was made by another definition, which would be mixed with this
                one; or its SQL is not deterministic, or cannot be counted group by group.
            UsageError: its rows are appended, and its checkpoint is gone or torn; or merged, and
                it is gone.
        """
        table, checkpoint, (target,) = self.table, self.checkpoint, self.target_paths
        now = gold_definition(table)
        self._refuse_changed(now)
        if table.output_mode == "append":  # a new checkpoint would append all of it again
            recovery.refuse_lost_checkpoint(self.name, checkpoint, self.target_paths, recorded)
        elif why := recovery.find_mismatch(checkpoint, self.target_paths):
            recovery.drop_checkpoint(checkpoint)
            self.say(f"  {self.name}: {why}: all of silver is counted anew")
        self.log_pinned_settings()
        stream = self._stream()
        result = gold_rows(self.spark, self.config, table, stream)
        where = f"{self.config.conf_dir / 'pipeline.yaml'}: {self.name}"
        refuse_nondeterministic(where, result, now)
        if table.output_mode == "update":
            refuse_unmergeable(where, result)
        if checkpoints.last_planned(checkpoint) < 0:
            delta_tables.drop_empty_table(target, result.schema.json())
        properties = self.config.properties(self.name)
        delta_tables.create_table(target, result.schema.json(), properties)
        delta_tables.set_missing_properties(
            target, properties
        )  # whoever publishes it needs a feed from now on
        mode: str = table.output_mode
        sink: Sink | Path = target
        if mode == "update":
            merge = GroupMerge(self.spark, self.config, table)
            result, mode, sink = merge.touched(*stream.values()), "append", Sink(merge)
        if trigger is None:
            refuse_unstreamable(result, mode)
            return None
        writer = result.writeStream.outputMode(mode)
        if mode == "complete":  # counted anew, it may be by another definition
            writer = writer.option("overwriteSchema", "true")
        self.run = query.start_query(writer, self.name, checkpoint, trigger, sink)
        self.run.blame = self._blame
        return self.run

    def _refuse_changed(self, now: dict[str, Any]) -> None:
        """Raise an error where the table has rows by another definition, or by an unknown one."""
        checkpoint, noted = self.checkpoint, checkpoints.noted(self.checkpoint, "definition")
        if self.table.output_mode != "update":
            has_written = recovery.has_started_writing(checkpoint, self.target_paths)
        else:  # merges have no number
            if noted is None:
                recovery.refuse_lost_checkpoint(self.name, checkpoint, self.target_paths, -1)
            has_written = delta_tables.row_count(self.target_paths[0]) > 0
        is_made = checkpoints.last_committed(checkpoint) >= 0 or has_written
        if not is_made and noted not in (None, now):
            recovery.drop_checkpoint(
                checkpoint
            )  # its first batch failed, and left state of other types
        then = checkpoints.first_definition(checkpoint, now, has_written)
        refuse_changed_gold(self.config, self.table, then)

    def _stream(self) -> dict[str, DataFrame]:
        """The silver tables that it reads, by source."""
        reader = self.spark.readStream.format("delta")
        if isinstance(self.table.definition, Join):
            # Its first batch is each table as it is, whole: no row of it can come too late.
            reader = reader.option("maxFilesPerTrigger", 2**31 - 1)
        found = {}
        for source, table in zip(self.sources, self.upstream_paths, strict=True):
            rows = reader.load(str(table))
            if isinstance(self.table.definition, Join):
                rows = rows.observe(_NO_PLACE + source.name, _rows_without(source.event_time))
            found[source.name] = rows
        return found

    def _blame(self) -> str | None:
        """The part of its SQL that fails at a row of the batch that was cut off, if one does.

        What fails only beside rows of before (a sum, a pair of a join) is told as Spark does.
        """
        try:
            return failing_part(self.spark, self.config, self.table, self._rows_cut_off())
        except Exception:  # whatever it is, what has stopped the query is told all the same
            return None

    def _rows_cut_off(self) -> dict[str, DataFrame]:
        """The rows of the batch that was cut off, by source; of a version that it has read in part,
        all of them."""
        batch, found = checkpoints.last_planned(self.checkpoint), dict[str, DataFrame]()
        for source, table in zip(self.sources, self.upstream_paths, strict=True):
            start, end = (
                checkpoints.delta_offset(self.checkpoint, number, table)
                for number in (batch - 1, batch)
            )
            last = end.version - end.is_between_versions
            if start.version == 0 or start.is_initial_snapshot:  # it begins with the table as it is
                found[source.name] = delta_reads.rows_at(self.spark, table, last)
            else:
                rows = delta_reads.added_rows(self.spark, table, start.version, last)
                found[source.name] = rows
        return found

    def finish_batches(self, since: int) -> dict[str, Any]:
        """The rows that the batches read. They are in no balance: batches whose figures are lost,
        as those of a run that was cut off, are left out.

        Rows that came too late for a join are told, and stay on record until a refresh takes them
        in. Whether a batch whose figures are lost had any nobody knows, so it counts as one row.
        """
        batches = self.started_run.batches
        ended = self.started_run.unrecorded_batches(since)
        late = sum(batch.late for batch in batches.values())
        if isinstance(self.table.definition, Join):
            late += sum(number not in batches for number in ended)
            if late:
                self.say(f"  {self.name}: {counted(late, 'row')} came too late for it: {TOO_LATE}")
            if out := sum(map(_without_place, batches.values())):
                self.say(f"  {self.name}: {counted(out, 'row')} of 1970 or before it leaves out")
        return {
            "rows_in": sum(batch.rows for batch in batches.values()),
            "late_rows": late,
            "first_batch": since + 1,
            "last_batch": ended.stop - 1,
        }

    def validation_input(self, files: Sequence[Path] | None) -> ValidationInput:
        """All rows, whatever the files: complete mode writes the whole table, and a merge rewrites
        files of older rows."""
        return ValidationInput(delta_reads.rows_at(self.spark, self.target_paths[0]))


def _rows_without(time: str) -> Column:
    return F.count_if(~has_place(time)).alias("rows")


def _without_place(batch: BatchProgress) -> int:
    """The rows of a batch that a join leaves out."""
    return sum(int(v["rows"]) for k, v in batch.observed.items() if k.startswith(_NO_PLACE))


def failing_part(
    spark: SparkSession, config: Config, table: GoldTable, rows: Mapping[str, DataFrame]
) -> str | None:
    """The part of a table's definition that fails at one of these rows, in words; or None."""
    make = partial(gold_rows, spark, config, rows=rows)
    parts = (
        DefinitionPart(f"its {what}", _MEND, make(part))
        for what, part in definition_parts(table).items()
    )
    return failing_part_reason(rows.values(), make(table), parts, "the table stays as it is")

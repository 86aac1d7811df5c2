"""Bronze: one query a source, which streams what the source hands over to `bronze.<source>`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from threading import Event
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from medallion.config.model import TYPED_FORMATS, Config
from medallion.config.queries import Query
from medallion.errors import UsageError
from medallion.ingest.formats import SOURCE_TYPES, record_format, refuse_format_change
from medallion.ingest.schema.evolution import Schema, TableChange
from medallion.ingest.source import Source
from medallion.layers import recovery
from medallion.layers.bronze.rewrite import rewrite_rows
from medallion.layers.bronze.writer import BronzeWriter
from medallion.layers.flow import Flow
from medallion.layers.rescued import RescuedValues
from medallion.quality.rules import load_rules
from medallion.spark import checkpoints, query
from medallion.spark.plans import fields_in
from medallion.spark.query import BatchProgress, Run, Sink
from medallion.state import pending_work
from medallion.state.runs import Runs
from medallion.storage import delta_log, delta_tables
from medallion.storage.text import Reporter, counted


class Bronze(Flow):
    """The query of one source."""

    def __init__(self, spark: SparkSession, config: Config, query: Query, say: Reporter) -> None:
        super().__init__(spark, config, query, say)
        self._writer: BronzeWriter | None = None

    def start(self, trigger: Mapping[str, Any] | None, recorded: int) -> Run | None:
        """Look for what is new, and start the query that takes it in.

        Raises:
            ConfigError: the declared schema is not valid, or not that of the table.
            UsageError: the source has only what comes while it is read, and this is for what waits;
                or the table is gone.
        """
        source_type = SOURCE_TYPES[self.source.format]
        if trigger and "availableNow" in trigger and not source_type.supports_available_now:
            raise UsageError(
                f"{self.name}: a {self.source.format} keeps nothing for later, and what nobody "
                "reads is lost: use medallion stream, which reads it while it is on."
            )
        refuse_format_change(self.config, self.source)
        self._refuse_gone(recorded)
        schema = self.schema()
        if schema.table_change() is TableChange.REWRITE:
            raise UsageError(
                f"{self.name} has columns of other types than its schema says: medallion refresh "
                f"{self.name} rewrites it, and rebuilds silver and gold from it."
            )
        opened = self._opened(schema)
        stopping = Event()
        self._writer = BronzeWriter(
            self.spark, self.config, opened, schema, self.name, self.say, stopping
        )
        self._recover(self._writer, recorded)
        record_format(self.config, self.source)
        self._writer.prepare()
        if trigger is None:
            return None
        sink, stream = Sink(self._writer.take_in, stopping), opened.stream().writeStream
        self.run = query.start_query(stream, self.name, self.checkpoint, trigger, sink)
        return self.run

    def schema(self, can_rewrite: bool = False) -> Schema:
        """Return the source's schema; see `Schema` for the argument and what is raised."""
        rules = load_rules(self.config.conf_dir, self.name)
        sql = (*self.source.silver.values(), *(rule.broken for rule in rules))
        named = set[tuple[str, ...]]()
        with suppress(ParseException):  # which silver reports, by its column or rule
            named = fields_in(self.spark, sql)
        return Schema(self.config, self.source, named, can_rewrite)

    def has_other_types(self) -> bool:
        """Return whether the table has to be rewritten before the query can start."""
        return self.schema().table_change() is TableChange.REWRITE

    def recast(self, schema: Schema) -> None:
        """Rewrite the table under a schema in one commit, from its own rows."""
        (table,) = self.target_paths
        is_typed = self.source.format in TYPED_FORMATS
        rows = rewrite_rows(self.rows(), schema.columns, self.source.origin_columns, is_typed)
        if not is_typed and schema.add_full_times(rows):
            rows = rewrite_rows(self.rows(), schema.columns, self.source.origin_columns)
        options = {"overwriteSchema": "true"}
        rows.write.format("delta").mode("overwrite").options(**options).save(str(table))

    def _opened(self, schema: Schema) -> Source:
        kind = SOURCE_TYPES[self.source.format]
        return kind.open(self.spark, self.config, self.source, schema, self.say)

    def _refuse_gone(self, recorded: int) -> None:
        """What was taken in does not land again: the table would come back without it."""
        (table,) = self.target_paths
        begun = checkpoints.last_planned(self.checkpoint)
        if max(begun, recorded) >= 0 and not delta_tables.table_exists(table):
            raise UsageError(
                f"{self.name} cannot go on, for {table} is gone, and nothing else has all of its "
                "rows: put it back from a copy."
            )

    def _recover(self, writer: BronzeWriter, recorded: int) -> None:
        """Make a new checkpoint where it is gone, torn or of no use: the source knows what was
        taken in. The numbers of batches go on, for they are on record.

        Torn offsets of the last batch are planned anew where that gives the same batch: always for
        files, which were handed over in an order; for messages, of which more may have come, only
        if the batch has written nothing.
        """
        checkpoint, (bronze,) = self.checkpoint, self.target_paths
        written = [bronze] if self.source.stream else []  # files make the same plan again
        begun = checkpoints.last_planned(checkpoint)
        is_torn = recovery.repair_checkpoint(checkpoint, written) is not None
        newest = max([recorded, *map(delta_log.newest_transaction, written)])
        is_lost = (
            is_torn
            or begun < newest  # an older copy of it was restored
            or (begun < 0 and delta_tables.row_count(bronze) > 0)
        )
        begins_anew = is_lost or not writer.source.can_resume(checkpoint)
        if begins_anew:
            shutil.rmtree(checkpoint, ignore_errors=True)
        in_ledger = writer.source.last_in_ledger  # None where it keeps no ledger
        if in_ledger is not None:
            writer.repair_ledger(in_ledger)
        if begins_anew:
            writer.source.recreate_checkpoint(checkpoint, max(begun, newest))
        if is_lost:
            self.say(f"  {self.name}: its checkpoint is gone or torn: a new one goes by the ledger")

    def finish_batches(self, since: int) -> dict[str, Any]:
        """The lines that landed in the batches after `since`, and their values that did not fit."""
        batches = self.started_run.unrecorded_batches(since)
        known = self._confirmed_lines(since + 1)
        # What a process that was cut off had counted is lost.
        lost = [batch for batch in batches if batch not in known]
        lines = sum(known[batch] for batch in batches if batch in known)
        if lost:
            opened = self._opened(self.schema())
            lines += sum(opened.count_rows(batch) for batch in lost)
        rules = load_rules(self.config.conf_dir, self.name)
        conditions = [rule.broken for rule in rules]
        rescued = RescuedValues(self.spark, self.source, self.target_paths[0], batches, conditions)
        if report := rescued.report():
            self.say(f"  {report}")
        return {
            "rows_in": lines,
            "first_batch": since + 1,
            "last_batch": batches.stop - 1,
            **rescued.found.record(),
        }

    def _confirmed_lines(self, first: int) -> Mapping[int, int]:
        """The lines that Spark counted in each batch from `first` on, without the batches for which
        the table's log has another number: on a cluster, what is computed twice counts twice."""
        lines = self._writer.lines if self._writer else {}
        for batch in list(lines):  # a batch may be adding to it
            if batch < first:
                del lines[batch]  # it is on record
        read = dict(lines)
        if not read:
            return {}
        written = delta_log.rows_by_transaction(
            self.target_paths[0], checkpoints.query_id(self.checkpoint), first
        )
        return {batch: n for batch, n in read.items() if n == written.get(batch, 0)}

    def has_unknown_schema(self) -> bool:
        """Never: files may land at any time."""
        return False

    def has_work(self, runs: Runs) -> bool:
        """Return whether the source has new input, or an interrupted batch has to be recorded."""
        refuse_format_change(self.config, self.source)
        return pending_work.is_unfinished(self.config, runs, self.name) or SOURCE_TYPES[
            self.source.format
        ].has_work(self.config, self.source)

    def tidy(self, runs: Runs) -> None:
        """Release the input of recorded batches, and record what became of other files."""
        poll = SOURCE_TYPES[self.source.format].poll
        poll(self.config, self.source, runs.last_batch(self.name), self.say)

    def poll(self) -> bool:
        """Hand over what is new, unless a batch is under way.

        What is handed over is a batch: one file at a time, as they come, would be more batches than
        can be taken in, where one takes longer than the next file. So they grow with what waits.
        """
        if not (self.run and self._writer and self.run.is_active):
            return True
        if self.run.is_processing:
            return False
        self._writer.source.poll()
        return True

    def release(self, batch: int) -> None:
        """Put away what the batches up to this one took in, whose rows are on record.

        Not before that, for their rows might have to be counted again.
        """
        if self._writer:
            self._writer.source.release(batch)

    def describe_batch(self, batch: BatchProgress) -> str | None:
        """The query itself may stream paths, and read their rows inside of its batches."""
        if not batch.rows:
            return None
        lines = counted(self._writer.lines.get(batch.id, 0) if self._writer else 0, "row")
        return lines if self.source.stream else f"{counted(batch.rows, 'file')}, {lines}"

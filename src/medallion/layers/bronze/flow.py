"""Bronze: one query per source, from the source to `bronze.<source>`."""

from collections.abc import Mapping
from threading import Event
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from medallion.config.model import TYPED_FORMATS, Config
from medallion.config.queries import Query
from medallion.errors import UsageError
from medallion.ingest.formats import SOURCE_TYPES, record_format, refuse_format_change
from medallion.ingest.parsing.partitions import with_partition_columns
from medallion.ingest.schema.evolution import Schema, TableChange
from medallion.ingest.source import Source
from medallion.layers import recovery
from medallion.layers.bronze.named_fields import NamedFields
from medallion.layers.bronze.rewrite import rewrite_rows
from medallion.layers.bronze.writer import BronzeWriter
from medallion.layers.flow import Flow
from medallion.layers.rescued import rescued_report, rescued_summary
from medallion.spark import checkpoints, delta
from medallion.spark.query import BatchProgress, RunningQuery, Sink
from medallion.storage import delta_log, delta_tables, objects
from medallion.storage.table_specs import SOURCE_FILE
from medallion.storage.text import Reporter, counted


class Bronze(Flow):
    """The query of one source."""

    def __init__(self, spark: SparkSession, config: Config, query: Query, say: Reporter) -> None:
        super().__init__(spark, config, query, say)
        self._source_type = SOURCE_TYPES[self.source.format]
        (self._table,) = self.target_paths
        self._writer: BronzeWriter | None = None

    def start(self, trigger: Mapping[str, Any] | None, recorded: int) -> RunningQuery | None:
        """Poll the source, and start the query that ingests its input.

        Raises:
            ConfigError: the declared schema is invalid, or does not match the table.
            UsageError: the table is missing or has to be rewritten.
        """
        refuse_format_change(self.config, self.source)
        self._refuse_missing_table(recorded)
        schema = self.schema()
        self._refuse_table_rewrite(schema)
        source, stopping = self._open_source(schema), Event()
        self._writer = BronzeWriter(self, source, schema, stopping)
        self._recover(source, self._writer, recorded)
        record_format(self.config, self.source)
        try:
            self._writer.prepare(self.scan)
            if trigger:
                sink = Sink(self._writer.write_batch, stopping)
                return self.start_query(source.stream().writeStream, trigger, sink)
        finally:
            if not self.run:  # no batch writes what was enqueued to the ledger
                source.release(recorded)
        return None

    def _refuse_missing_table(self, recorded: int) -> None:
        """Raise UsageError if the table is missing: what was ingested does not arrive again."""
        last = max(checkpoints.last_planned(self.checkpoint), recorded)
        if last >= 0 and not delta_tables.table_exists(self._table):
            raise UsageError(
                f"{self.name} cannot start: {self._table} is missing, and nothing else has all of "
                "its rows. Restore the whole root from one backup."
            )

    def _refuse_table_rewrite(self, schema: Schema) -> None:
        if schema.table_change() is TableChange.REWRITE:
            raise UsageError(
                f"{self.name} has other column types than its schema. Run medallion refresh "
                f"{self.name}, which rewrites it and rebuilds silver and gold."
            )

    def _recover(self, source: Source, writer: BronzeWriter, recorded: int) -> None:
        """Repair checkpoint and ledger; recreate a lost checkpoint from the ledger.

        Batch numbers continue, because they are recorded. If the last batch's offsets are corrupt,
        it may be planned again only if it stays the same or has written nothing. A batch of files
        stays the same, because files are queued in order; for messages, more may have arrived.
        """
        checkpoint = self.checkpoint
        message_targets = [self._table] if self.source.stream else []
        planned = checkpoints.last_planned(checkpoint)
        is_corrupt = recovery.repair_checkpoint(checkpoint, message_targets) is not None
        written = (delta_log.newest_transaction(table) for table in message_targets)
        newest = max([recorded, *written])
        is_lost = (
            is_corrupt
            or planned < newest  # an older copy of it was restored
            or (planned < 0 and delta_tables.row_count(self._table) > 0)
        )
        should_recreate = is_lost or not source.can_resume(checkpoint)
        if should_recreate:
            checkpoints.start_generation(self.config.layout, self.name)
        writer.repair_ledger(source.last_in_ledger)
        if should_recreate:
            source.recreate_checkpoint(self.checkpoint, max(planned, newest))
        if is_lost:
            self.say(f"  {self.name}: recreated its missing or corrupt checkpoint from the ledger")

    def _open_source(self, schema: Schema) -> Source:
        return self._source_type.open(self.spark, self.config, self.source, schema, self.say)

    def schema(self, can_rewrite: bool = False) -> Schema:
        """Return the source's schema; see `Schema` for the argument and what is raised."""
        named = NamedFields(self.spark, self.config, self.source)
        schema = Schema(self.config, self.source, named, can_rewrite)
        if can_rewrite and self.source.partition_columns:
            paths = delta_tables.select_rows(self._table, f"distinct {SOURCE_FILE}")
            schema.add_partition_columns(path for (path,) in paths)
        return schema

    def needs_rewrite(self) -> bool:
        """Return whether the table has to be rewritten before the query can start."""
        return self.schema().table_change() is TableChange.REWRITE

    def rewrite_table(self, schema: Schema) -> None:
        """Rewrite the table's rows to a schema, in one commit."""
        rows = self._rewritten(self.rows(), schema)
        if schema.names:
            rows = rows.to(schema.table_type())  # comments
        options = {"overwriteSchema": "true"}
        rows.write.format("delta").mode("overwrite").options(**options).save(str(self._table))
        objects.forget(str(self._table))

    def _rewritten(self, rows: DataFrame, schema: Schema) -> DataFrame:
        partitions = schema.partition_types
        strings = dict.fromkeys(partitions, "string")  # the values in paths are read again
        columns, fields = {**schema.columns, **strings}, {**schema.fields, **strings}
        origin, is_typed = self.source.origin_columns, self.source.format in TYPED_FORMATS
        rewritten = rewrite_rows(
            rows, columns, origin, is_typed, fields, schema.names, self.source.format == "csv"
        )
        return with_partition_columns(rewritten, partitions)

    def batch_metrics(self, batches: range) -> dict[str, Any]:
        """Return the rows that the batches ingested, and their rescued values."""
        # On a cluster, Spark counts a row twice if it computes it twice.
        rows = {
            each.number: each.rows
            for each in self.commits(batches)
            if each.rows == each.user_metadata.get(delta.ROWS_READ)
        }
        lines = sum(rows.values())
        if uncounted := [batch for batch in batches if batch not in rows]:
            lines += sum(map(self._open_source(self.schema()).count_rows, uncounted))
        names = self._writer.schema.names if self._writer else {}
        rescued = rescued_summary(self, batches, names)
        if report := rescued_report(self.source, rescued):
            self.say(f"  {report}")
        return {"rows_in": lines, **rescued.record()}

    def unknown_schema_reason(self) -> None:
        """Return None: bronze infers the schema."""

    def poll(self) -> bool:
        """Enqueue new input, unless a batch is running; return False if one is.

        Input that is enqueued together is one batch, so batches grow with the backlog. A batch per
        file could arrive faster than the query processes it.
        """
        if not (self.run and self._writer and self.run.is_active):
            return True
        if self.run.is_processing:
            return False
        self._writer.source.poll()
        return True

    def release(self, batch: int) -> None:
        """Archive or delete the input of the batches up to `batch`, whose rows are recorded.

        It is kept until then, because its rows might have to be counted again.
        """
        if self._writer:
            self._writer.source.release(batch)

    def describe_batch(self, batch: BatchProgress) -> str | None:
        """Return the number of rows of a batch, and the number of files if it reads files."""
        if not batch.rows:
            return None
        commits = self.commits(range(batch.id, batch.id + 1))
        lines = counted(sum(commit.rows for commit in commits), "row")
        return lines if self.source.stream else f"{counted(batch.rows, 'file')}, {lines}"

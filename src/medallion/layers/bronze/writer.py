"""The sink of bronze: parses the rows of a micro-batch and appends them, exactly once."""

from collections.abc import Sequence
from contextlib import suppress
from threading import Event

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from medallion.config.expressions import did_you_mean
from medallion.errors import MedallionError
from medallion.ingest.parsing.fast_path import LineLayout
from medallion.ingest.parsing.parse import NEEDS_EXACT_PATH, parse_lines
from medallion.ingest.parsing.partitions import with_partition_columns
from medallion.ingest.parsing.typed import has_typed_columns
from medallion.ingest.schema.evolution import Growth, Schema, TableChange
from medallion.ingest.source import Source, SourceBatch, SourceScan, stale_ledger_error
from medallion.layers.flow import Flow
from medallion.spark import checkpoints, delta
from medallion.spark.errors import SPARK_ERRORS, one_line, raised_code
from medallion.spark.settings import INTERPRETED
from medallion.storage import delta_log, delta_tables
from medallion.storage.table_specs import RESCUED
from medallion.storage.text import json_object

_GROWS = "SCHEMA_GROWS"  # raised by Spark at a row that has a new field


class BronzeWriter:
    """Writes the micro-batches of one source; a batch that runs twice is written once.

    Attributes:
        source: the source.
        schema: its schema, which may grow with each batch.
    """

    def __init__(self, flow: Flow, source: Source, schema: Schema, stopping: Event) -> None:
        """Open the table of a source.

        Args:
            flow: the flow of the source.
            schema: its schema, which may grow with each batch.
            stopping: is set when the query is to be stopped.
        """
        self._flow, self._spark, self._name, self._say = flow, flow.spark, flow.name, flow.say
        self.source, self.schema, self._stopping = source, schema, stopping
        (self._table,) = flow.target_paths
        self._properties = flow.config.properties(flow.name)
        # If there is little work, planning the exact path would take most of its time.
        settings = flow.spark.conf
        self._is_fast_only = all(settings.get(key) == on for key, on in INTERPRETED.items())

    def prepare(self, scan: SourceScan) -> None:
        """Poll the source, infer an unknown schema, and create the table or add columns to it.

        Args:
            scan: see `Source.poll`.
        """
        self.source.poll(scan)
        # Ignore errors here: the first batch meets them again, and there they stop only this query.
        with suppress(MedallionError, *SPARK_ERRORS):
            self._infer(self.source.sample_batch())
        self._add_configured_fields()
        if not delta_tables.table_exists(self._table):
            table_json = self.schema.table_type().json()
            delta_tables.create_table(self._table, table_json, self._properties)
        elif self.schema.table_change() is TableChange.WIDER:
            self._flow.add_columns(self._table, self.schema.table_type())

    def _add_configured_fields(self) -> None:
        known = list(self.schema.columns)
        for name in self.schema.add_configured_fields():
            self._say(
                f"  {self._name}: no row has had a field {name} yet{did_you_mean(name, known)}. It "
                "is added as a column of nulls: a string, unless hints give it another type"
            )

    def repair_ledger(self, last: int) -> None:
        """Add missing ledger entries for batches after `last` whose rows are in bronze.

        They are missing if a process died between bronze's commit and the ledger. Call this before
        the source is polled, or a file that was deleted since would count as never read.

        Raises:
            UsageError: the ledger is older than bronze: bronze's log lacks some of these batches,
                and maintenance removes only recorded ones.
        """
        # In order, because a source numbers them consecutively.
        for each in reversed([*delta_log.transactions(self._table, last + 1)]):
            if delta_log.are_readable(self._table, [each.version]):
                self.source.interrupted_batch(each.number).record_in_ledger(each.version)
        if self.source.rows_in_ledger < delta_tables.row_count(self._table):
            raise stale_ledger_error(self._name)

    def write_batch(self, queued: DataFrame, number: int) -> None:
        """Write the rows of a batch to bronze, and record it in the ledger."""
        version = self._committed(number)
        if version is None:
            batch = self.source.batch(number, queued)
            self._infer(batch)
            self._write(batch, number)
            version = self._committed(number)
        else:  # the process died after the commit; a file of the batch may have been rejected
            batch = self.source.interrupted_batch(number)
        batch.record_in_ledger(version)

    def _infer(self, batch: SourceBatch) -> None:
        """Infer the schema from a batch if it is unknown, and report notes about it."""

        def infer(rows: DataFrame) -> None:
            for note in self.schema.infer(rows, batch.summary):
                self._say(f"  {self._name}: {note}")

        is_unknown = not self.schema.is_known
        if is_unknown:
            batch.read(infer, f"{self._name}, to infer its schema")
        if added := self.schema.add_partition_columns(batch.paths):
            self._say(f"  {self._name}: partition columns from directory names: {', '.join(added)}")
        if is_unknown:
            self._add_configured_fields()

    def _write(self, batch: SourceBatch, number: int) -> None:
        """Append the rows of a batch in one commit."""

        def append(rows: DataFrame) -> None:
            try:
                self._append(rows, batch.first_lines() or _first_lines(rows), number)
            except SPARK_ERRORS:
                # Without this, a stopped job looks like an unreadable file, which the source seeks.
                if self._stopping.is_set():
                    raise MedallionError("the query was stopped within this batch") from None
                raise

        batch.read(append, f"{self._name} batch {number}")

    def _append(self, rows: DataFrame, first_lines: Sequence[str], number: int) -> None:
        """Write rows, and add columns for new fields.

        The write fails at the first row with a new field. Then the schema is extended by the new
        fields of the batch, and the batch is written again; likewise at a line for the exact path.

        Raises:
            MedallionError: there are new fields, and `schema_evolution` is failOnNewColumns; or a
                column needs another type, for which the table has to be rewritten first.
        """
        if has_typed_columns(rows):
            self._report(self.schema.grow_by_file_types(rows, number))
        # Other lines need the exact path: do not fail at one first.
        self._is_fast_only &= all(map(json_object, filter(str.strip, first_lines)))
        condition = self.schema.growth_condition()
        while True:
            try:
                self._write_parsed(rows, first_lines, number, condition)
                return
            except SPARK_ERRORS as error:
                code = raised_code(error)
                if code not in (_GROWS, NEEDS_EXACT_PATH):
                    raise
            if code == NEEDS_EXACT_PATH:
                self._is_fast_only = False
                continue
            self._add_new_fields(self._parsed(rows, first_lines), number)
            previous, condition = condition, self.schema.growth_condition()
            if condition == previous:  # fields that cannot become columns stay rescued
                condition = "false"

    def _parsed(
        self, rows: DataFrame, first_lines: Sequence[str], is_fast_only: bool = False
    ) -> DataFrame:
        types = self.schema.partition_types
        # If a row has a field with the name of a partition column, the value from the path wins.
        strings = dict.fromkeys(types, "string")
        columns, fields = {**self.schema.columns, **strings}, {**self.schema.fields, **strings}
        layout = LineLayout.from_lines(first_lines, fields)
        parsed = parse_lines(rows, columns, layout, fields, is_fast_only)
        return with_partition_columns(parsed, types)

    def _write_parsed(
        self, rows: DataFrame, first_lines: Sequence[str], number: int, growth_condition: str
    ) -> None:
        """Append parsed rows in one commit.

        Args:
            rows: rows of the batch, with JSON text in `value`.
            first_lines: a few of them, to detect the layout of most.
            number: the batch.
            growth_condition: SQL; the write fails with the code `_GROWS` if it is true for a row.
        """
        if self.schema.names and self.schema.table_change() is TableChange.WIDER:
            # With their comments, which the rows do not have.
            self._flow.add_columns(self._table, self.schema.table_type())
        read = Observation(f"landed-{number}")
        observed = rows.observe(read, F.count(F.lit(1)).alias(delta.ROWS_READ))
        parsed = self._parsed(observed, first_lines, self._is_fast_only)
        if growth_condition != "false":
            stop = f"case when {growth_condition} then raise_error('{_GROWS}') else {RESCUED} end"
            parsed = parsed.withColumn(RESCUED, F.expr(stop))
        once = {**checkpoints.once_only(self._query(), number), "mergeSchema": "true"}
        delta.write_once(parsed, self._table, once, counts=lambda: read.get)

    def _add_new_fields(self, rows: DataFrame, number: int) -> None:
        """Add columns for the new fields of a batch; on error they stay in `_rescued_data`."""
        try:
            growth = self.schema.grow(rows, number)
        except (MedallionError, OSError, *SPARK_ERRORS) as error:
            self._say(
                f"  {self._name}: the new fields of batch {number} stay in {RESCUED}, because no "
                f"columns could be added: {one_line(str(error))}"
            )
            growth = Growth()
        if self.schema.stops_at_new_fields and not growth.added:
            names = ", ".join(self.schema.new_field_names(rows))
            raise MedallionError(
                f"{self._name}: new fields ({names}) stop the query because of schema_evolution "
                "failOnNewColumns; nothing of this batch was written. Declare them in the schema, "
                "or choose another mode."
            )
        self._report(growth)

    def _report(self, growth: Growth) -> None:
        """Report how a schema has grown; raise MedallionError if the table has to be rewritten."""
        if growth.added:
            self._say(f"  {self._name}: new columns: {', '.join(growth.added)}")
        for note in growth.notes:
            self._say(f"  {self._name}: {note}")
        if growth.widened:
            self._say(f"  {self._name}: wider types: {', '.join(growth.widened)}")
            raise MedallionError(
                f"{self._name} has to be rewritten for wider types; nothing of this batch was "
                f"written. Run medallion nightly, or medallion refresh {self._name}."
            )

    def _committed(self, number: int) -> int | None:
        """Return the version of bronze that added the rows of a batch."""
        return delta_log.committed_version(self._table, self._query(), number)

    def _query(self) -> str:
        return checkpoints.query_id(self._flow.checkpoint)


def _first_lines(rows: DataFrame) -> list[str]:
    """Return a few values of `value`, truncated because they are sent to the driver."""
    if has_typed_columns(rows):
        return []
    return [row.text for row in rows.select(F.left("value", F.lit(1 << 14)).alias("text")).take(20)]

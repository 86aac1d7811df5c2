"""The rows of a micro-batch become rows of bronze."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from threading import Event

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.model import Config
from medallion.errors import MedallionError
from medallion.ingest.parsing.fast_path import LineLayout
from medallion.ingest.parsing.parse import parse_lines
from medallion.ingest.parsing.typed import has_typed_columns
from medallion.ingest.schema.evolution import Growth, Schema, TableChange
from medallion.ingest.source import Source, SourceBatch, stale_ledger_error
from medallion.spark import checkpoints
from medallion.spark.errors import SPARK_ERRORS, one_line, raised_code
from medallion.storage import delta_log, delta_tables
from medallion.storage.table_specs import RESCUED
from medallion.storage.text import Reporter

_GROWS = "SCHEMA_GROWS"  # raised within the engine at a row that has a new field


class BronzeWriter:
    """Takes in one micro-batch of a source after the other; each may be repeated.

    Attributes:
        source: where the rows come from.
        lines: how many the engine read in each batch.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        source: Source,
        schema: Schema,
        name: str,
        say: Reporter,
        stopping: Event,
    ) -> None:
        self._spark, self._schema, self._name, self._say = spark, schema, name, say
        self._stopping = stopping  # is set when the query is to be stopped
        self.source = source
        self.lines: dict[int, int] = {}
        self._table = config.layout.table(name)
        self._properties = config.properties(name)
        self._checkpoint = config.layout.checkpoint(name)

    def prepare(self) -> None:
        """Poll the source, infer the schema if it is not known, and make or widen the table."""
        self.source.poll()
        # If nothing of it is to blame, the first batch fails as well, and reports it: it is a
        # query's failure then, and the other sources start.
        with suppress(MedallionError, *SPARK_ERRORS):
            self._infer(self.source.sample_batch())
        self._add_named()
        if not delta_tables.table_exists(self._table):
            delta_tables.create_table(self._table, self._schema.table_json(), self._properties)
        elif self._schema.table_change() is TableChange.WIDER:
            self._widen()

    def _add_named(self) -> None:
        if added := self._schema.add_configured_fields():
            self._say(
                f"  {self._name}: no row has {', '.join(added)} yet: null, as a string, until one "
                "has; for another type set hints"
            )

    def _widen(self) -> None:
        """Add the schema's new columns to the table, so that silver can name them at once."""
        rows = self._spark.createDataFrame(
            [], T.StructType.fromJson(json.loads(self._schema.table_json()))
        )
        options = {"mergeSchema": "true"}
        rows.write.format("delta").mode("append").options(**options).save(str(self._table))

    def repair_ledger(self, last: int) -> None:
        """Enter in the ledger all batches after `last` whose rows are in bronze.

        They are missing if a process died between bronze's commit and the ledger. Call this before
        the source is polled: a file that has gone since would count as one that was never read.

        Raises:
            UsageError: bronze's log does not have all of these batches any more. Maintenance
                removes only recorded ones, so the ledger is older than bronze.
        """
        # In their order, in which a source counts them up.
        for version, number in sorted(delta_log.transactions_after(self._table, last)):
            if delta_log.are_readable(self._table, [version]):
                self.source.interrupted_batch(number).record_in_ledger(version)
        if self.source.rows_in_ledger < delta_tables.row_count(self._table):
            raise stale_ledger_error(self._name)

    def take_in(self, handed: DataFrame, number: int) -> None:
        """Write the rows of what a batch was handed to bronze, and enter it in the ledger."""
        version = self._committed(number)
        if version is None:
            batch = self.source.batch(number, handed)
            self._infer(batch)
            self._write(batch, number)
            version = self._committed(number)
            if version is None:
                self.lines[number] = 0
        else:  # a file that it was handed, and has no rows of, may have been left out
            batch = self.source.interrupted_batch(number)
        batch.record_in_ledger(version)

    def _infer(self, batch: SourceBatch) -> None:
        """Infer the schema from a batch if none is declared, and report what does not fit it."""

        def infer(rows: DataFrame) -> None:
            for note in self._schema.infer(rows, batch.summary):
                self._say(f"  {self._name}: {note}")

        if not self._schema.is_known:
            batch.read(infer, f"{self._name}, to infer its schema")
            self._add_named()

    def _write(self, batch: SourceBatch, number: int) -> None:
        """Append the rows of a batch in one commit."""
        tries = 0

        def append(rows: DataFrame) -> None:
            nonlocal tries
            tries += 1
            if tries > 1 and self._committed(number) is not None:
                return  # it failed after its commit
            try:
                self._append(rows, batch.first_lines() or _first_lines(rows), number)
            except SPARK_ERRORS:
                if self._stopping.is_set():  # else files would be looked for that are to blame
                    raise MedallionError("the query was stopped within this batch") from None
                raise

        batch.read(append, f"{self._name} batch {number}")

    def _append(self, rows: DataFrame, first_lines: Sequence[str], number: int) -> None:
        """Write rows by the columns that they need.

        The write fails at the first row with a new field. Then the schema learns what the batch
        has, and the batch is written again, so that a field's first batch has it in its column.

        Raises:
            MedallionError: there are new fields, and `schema_evolution` is failOnNewColumns; or a
                column needs another type, for which the table has to be rewritten first.
        """
        if has_typed_columns(rows):
            self._report(self._schema.grow_by_file_types(rows, number))
        growing = self._schema.growth_condition()
        while growing != "false":
            try:
                self._write_parsed(rows, first_lines, number, growing)
                return
            except SPARK_ERRORS as error:
                if raised_code(error) != _GROWS:
                    raise
            self._learn(self._parsed(rows, first_lines), number)
            before, growing = growing, self._schema.growth_condition()
            if growing == before:  # what cannot be learned stays rescued
                break
        self._write_parsed(rows, first_lines, number, "false")

    def _parsed(self, rows: DataFrame, first_lines: Sequence[str]) -> DataFrame:
        columns = self._schema.columns
        return parse_lines(rows, columns, LineLayout.of(first_lines, columns))

    def _write_parsed(
        self, rows: DataFrame, first_lines: Sequence[str], number: int, growing: str
    ) -> None:
        """Append parsed rows in one commit.

        Args:
            rows: rows of the batch, with JSON text in `value`.
            first_lines: a few of them, which tell how most are written.
            number: of the batch.
            growing: SQL; the write fails with the code `_GROWS` at a row for which it is true.
        """
        read = Observation(f"landed-{number}")
        observed = rows.observe(read, F.count(F.lit(1)).alias("rows"))
        parsed = self._parsed(observed, first_lines)
        if growing != "false":
            stop = f"case when {growing} then raise_error('{_GROWS}') else {RESCUED} end"
            parsed = parsed.withColumn(RESCUED, F.expr(stop))
        once_only = {"txnAppId": self._query(), "txnVersion": str(number)}
        (
            parsed.write.format("delta")
            .mode("append")
            .options(**once_only, mergeSchema="true")
            .save(str(self._table))
        )
        self.lines[number] = int(read.get["rows"])

    def _learn(self, rows: DataFrame, number: int) -> None:
        """Add columns for the new fields of a batch.

        What fails is reported, and the fields stay in `_rescued_data`: the rows are worth more.
        """
        growth = self._grow(rows, number)
        if self._schema.stops_at_new_fields and not growth.added:
            names = ", ".join(self._schema.new_field_names(rows))
            raise MedallionError(
                f"{self._name} stops at new fields ({names}), as "
                "schema_evolution failOnNewColumns asks for: declare them in the schema, or choose "
                "another mode. Nothing of this batch was written."
            )
        self._report(growth)

    def _report(self, growth: Growth) -> None:
        """Report what a schema has gained; raise MedallionError if it needs another table."""
        if growth.added:
            self._say(f"  {self._name}: new columns: {', '.join(growth.added)}")
        if growth.widened:
            self._say(f"  {self._name}: wider types: {', '.join(growth.widened)}")
            raise MedallionError(
                f"{self._name} has to be rewritten for wider types: medallion nightly does it, or "
                f"medallion refresh {self._name}. Nothing of this batch was written."
            )

    def _grow(self, rows: DataFrame, number: int) -> Growth:
        try:
            return self._schema.grow(rows, number)
        except (MedallionError, OSError, *SPARK_ERRORS) as error:
            self._say(
                f"  {self._name}: the new fields of batch {number} stay in {RESCUED}; they could "
                f"not become columns: {one_line(str(error))}"
            )
            return Growth()

    def _committed(self, number: int) -> int | None:
        """The version of bronze that has the rows of a batch."""
        return delta_log.committed_version(self._table, self._query(), number)

    def _query(self) -> str:
        return checkpoints.query_id(self._checkpoint)


def _first_lines(rows: DataFrame) -> list[str]:
    """A few texts of `value`; of long ones the beginning, for they come to the driver."""
    if has_typed_columns(rows):
        return []
    return [row.text for row in rows.select(F.left("value", F.lit(1 << 14)).alias("text")).take(20)]

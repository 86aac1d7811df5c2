"""The rows of a micro-batch become rows of bronze."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from threading import Event

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config
from medallion.errors import MedallionError
from medallion.lakehouse import log, tables
from medallion.lakehouse.columns import RESCUED
from medallion.lakehouse.text import Say
from medallion.parsing.layout import LineLayout
from medallion.parsing.parse import parse
from medallion.parsing.typed import is_typed
from medallion.schema.evolution import Schema
from medallion.sources.base import Source, SourceBatch
from medallion.spark import checkpoints, table_files
from medallion.spark.errors import SPARK_ERRORS, one_line


class Writer:
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
        say: Say,
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
        """Look for what is new, infer the schema from it if nobody declared it, make the table."""
        self.source.poll()
        # Where nothing of it is to blame, the first batch fails as well, and tells: it is a query's
        # failure then, and the other sources start.
        with suppress(MedallionError, *SPARK_ERRORS):
            self._infer(self.source.sample())
        tables.create(self._table, self._schema.table_json(), self._properties)

    def enter_after(self, recorded: int, ended: int) -> None:
        """Enter in the ledger all batches after one whose rows are in bronze.

        They are not in it where a run died before it wrote its ledger, or where the ledger is an
        older copy. This has to be done before the source is looked at: a file that has gone since
        would be taken for one that was never read, and another one under its name for the first.

        Maintenance may have removed commits since, or their files, but only those of batches that
        are in `ops.runs`. So the rows that the log does not tell of are those of batches before the
        first one that it does tell of; they are entered as a batch before that, which is on record.

        Args:
            recorded: the last batch that is in the ledger, or on record where there is no ledger.
            ended: the last one that has ended.
        """
        can_be_counted = self.source.last_in_ledger is not None
        before = ended
        # In their order, in which a source counts them up.
        for version, number in sorted(log.transactions_after(self._table, recorded)):
            if can_be_counted and not log.are_there(self._table, [version]):
                continue
            before = min(before, number - 1)
            self._enter(self.source.cut_off(number), number, version)
        self.source.make_whole(max(before, 0))

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
            batch = self.source.cut_off(number)
        self._enter(batch, number, version)

    def _infer(self, batch: SourceBatch) -> None:
        """Make a first schema from a batch, where nobody declared one."""
        if not self._schema.is_known:
            batch.read(
                lambda rows: self._schema.infer(rows, batch.summary),
                f"{self._name}, to infer its schema",
            )

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
        if new := self._schema.add_file_columns(rows, number):
            self._say(f"  {self._name}: new columns: {', '.join(new)}")
        layout = LineLayout.of(first_lines, self._schema.columns)
        self._schema.refuse_new(rows, layout)
        read = Observation(f"landed-{number}")
        observed = rows.observe(read, F.count(F.lit(1)).alias("rows"))
        once_only = {"txnAppId": self._query(), "txnVersion": str(number)}
        (
            parse(observed, self._schema.columns, layout)
            .write.format("delta")
            .mode("append")
            .options(**once_only, mergeSchema="true")
            .save(str(self._table))
        )
        self.lines[number] = int(read.get["rows"])

    def _enter(self, batch: SourceBatch, number: int, version: int | None) -> None:
        """Enter a batch in the ledger, and learn the fields that it had to rescue."""
        rescued = batch.enter_in_ledger(version)
        if version is not None and rescued:
            written = table_files.added_rows(self._spark, self._table, version, version)
            self._learn(written.where(f"{RESCUED} is not null"), number)

    def _learn(self, rescued: DataFrame, number: int) -> None:
        """Make columns of new fields; what fails is told, for the rows are there whatever comes."""
        try:
            new = self._schema.learn(rescued, number)
        except Exception as error:
            self._say(
                f"  {self._name}: batch {number} is in, and its new fields are kept in {RESCUED}; "
                f"they could not be made columns: {one_line(str(error))}"
            )
        else:
            if new:
                self._say(f"  {self._name}: new columns from now on: {', '.join(new)}")

    def _committed(self, number: int) -> int | None:
        """The version of bronze that has the rows of a batch."""
        return log.committed_version(self._table, self._query(), number)

    def _query(self) -> str:
        return checkpoints.query_id(self._checkpoint)


def _first_lines(rows: DataFrame) -> list[str]:
    """A few texts of `value`; of long ones the beginning, for they come to the driver."""
    if is_typed(rows):
        return []
    return [row.text for row in rows.select(F.left("value", F.lit(1 << 14)).alias("text")).take(20)]

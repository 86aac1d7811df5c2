"""The rows that a batch of silver's query read from bronze, and wrote, by the logs of the tables.

Spark's own figures of a batch are held against these. It counts rows as it computes them, and on a
cluster those that it has to compute a second time count twice; a log has each commit once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config, SourceConfig
from medallion.errors import MedallionError, UsageError
from medallion.layers.definition import RETURN_NULL_ADVICE, DefinitionPart, failing_part_reason
from medallion.layers.silver import transform
from medallion.layers.silver.lookup import LookupJoin
from medallion.layers.silver.rules import BoundRules
from medallion.spark import checkpoints, delta_reads
from medallion.spark.errors import SPARK_ERRORS
from medallion.spark.query import BatchProgress
from medallion.storage import delta_log, delta_tables


class BatchRows:
    """How many rows some batches of `silver.<source>` read and wrote."""

    def __init__(
        self, spark: SparkSession, config: Config, source: SourceConfig, batches: range
    ) -> None:
        self._spark = spark
        self._bronze = config.layout.table(f"bronze.{source.name}")
        self._checkpoint = config.layout.checkpoint(f"silver.{source.name}")
        self._read: dict[int, int] = {}
        self._written: dict[int, int] = {}
        if batches:
            query = checkpoints.query_id(self._checkpoint)
            for table in (f"silver.{source.name}", f"quarantine.{source.name}"):
                found = delta_log.rows_by_transaction(
                    config.layout.table(table), query, batches.start
                )
                for batch, rows in found.items():
                    self._written[batch] = self._written.get(batch, 0) + rows

    def rows_read(self, batch: int) -> int:
        """The rows that bronze's commits gave a batch."""
        if batch not in self._read:
            rows = delta_log.rows_added(
                self._bronze, *bronze_versions_read(self._checkpoint, batch)
            )
            if rows is None:  # the log does not go back that far
                found = read_batch_rows(self._spark, self._bronze, self._checkpoint, batch)
                rows = found.count()
            self._read[batch] = rows
        return self._read[batch]

    def rows_dropped(self, batch: int) -> int:
        """The rows that a batch read and did not write: duplicates, and late ones.

        Where there are none, bronze need not be read again to find them, which takes seconds.
        """
        return self.rows_read(batch) - self._written.get(batch, 0)

    def confirmed(self, batch: BatchProgress | None) -> BatchProgress | None:
        """Spark's record of a batch, if there is one and its figures agree with the logs."""
        if not batch or rows_observed(batch) != self.rows_read(batch.id):
            return None
        dropped = batch.duplicates + batch.late
        return batch if dropped == self.rows_dropped(batch.id) else None


def rows_observed(batch: BatchProgress) -> int:
    """The rows that Spark read, which the query counts on both its branches."""
    return sum(metric["rows"] for metric in batch.observed.values())


def bronze_versions_read(checkpoint: Path, batch: int) -> tuple[int, int]:
    """The first and the last version of bronze that a batch of silver read.

    The last is before the first where it read none: a batch without data only evicts state.

    Raises:
        MedallionError: the batch does not end with a version.
    """
    start = checkpoints.delta_offset(checkpoint, batch - 1)
    end = checkpoints.delta_offset(checkpoint, batch)
    if not (start.is_between_versions and end.is_between_versions):
        raise MedallionError(f"{checkpoint}: batch {batch} does not end with a version of bronze.")
    return start.version, end.version - 1


def read_batch_rows(spark: SparkSession, bronze: Path, checkpoint: Path, batch: int) -> DataFrame:
    """The rows of bronze that one batch of silver read.

    Raises:
        UsageError: they cannot be read any more.
    """
    first, last = bronze_versions_read(checkpoint, batch)
    if last < first:
        return spark.read.format("delta").load(str(bronze)).limit(0)
    _refuse_removed(bronze, checkpoint, batch)
    if batch == 0:  # it begins with the table as it is: older commits need not be there
        then = spark.read.format("delta").option("versionAsOf", str(last))
        return then.load(str(bronze))
    return delta_reads.added_rows(spark, bronze, first, last)


def _refuse_removed(bronze: Path, checkpoint: Path, batch: int) -> None:
    """Raise UsageError where the files that a batch read are gone. Maintenance removes those that
    are on record as read, and an older copy of the record, or a new one, does not have them so."""
    first, last = bronze_versions_read(checkpoint, batch)
    files = (
        delta_log.added_files(bronze, first, last)
        if batch
        else delta_tables.data_files(bronze, last)
    )
    if not all(file.exists() for file in files):
        name = checkpoint.name
        raise UsageError(
            f"{name}: batch {batch} is not on record, and rows that it has read are not kept any "
            f"more: medallion refresh {name} rebuilds the table and its checkpoint."
        )


MAX_UNRECORDED_BATCHES = 80
"""Batches. To settle one, the offsets of its checkpoint are read, and Spark keeps those of 100."""
_PAUSE = 0.2  # seconds


class Backpressure:
    """Holds a query that stays on back while too many of its batches are not on record.

    The late rows of a batch are admitted as it is put on record, which may take longer than the
    batch did. Where that fails, whoever puts it on record says why.
    """

    def __init__(self, recorded: int, stopping: Event) -> None:
        """Begin.

        Args:
            recorded: the last batch that is on record.
            stopping: is set when the query is to be stopped.
        """
        self._recorded, self._stopping = recorded, stopping

    def settled(self, batch: int) -> None:
        """All batches up to this one are on record."""
        self._recorded = batch

    def wait(self, batch: int) -> None:
        """Wait until a batch may begin.

        Raises:
            MedallionError: the query is stopped.
        """
        while batch - self._recorded > MAX_UNRECORDED_BATCHES:
            if self._stopping.wait(_PAUSE):
                raise MedallionError("the query was stopped before this batch")


class SilverWriter:
    """Writes `checked` rows; a batch that runs twice is written once.

    `unmatched` are the rows of each batch that a reference has none for, if there is a reference.
    """

    def __init__(
        self,
        config: Config,
        source: SourceConfig,
        check: BoundRules,
        stopping: Event,
        enrichment: LookupJoin | None = None,
        backpressure: Backpressure | None = None,
    ) -> None:
        """Make one.

        Args:
            config: of the lakehouse.
            source: whose rows they are.
            check: the rules that the query began with.
            stopping: is set when the query is to be stopped: what it does then fails of that.
            enrichment: what they get from a reference, if there is one.
            backpressure: of a query that stays on.
        """
        layout, name = config.layout, source.name
        self._bronze, self._silver, self._quarantine = (
            layout.table(f"{layer}.{name}") for layer in ("bronze", "silver", "quarantine")
        )
        self._checkpoint = layout.checkpoint(f"silver.{name}")
        self._source, self._check, self._stopping = source, check, stopping
        self._enrichment, self._backpressure = enrichment, backpressure
        self.unmatched: dict[int, int] = {}

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one batch; nothing of one that only drops state: a commit is news to gold.

        Raises:
            MedallionError: the SQL of a column, or of a rule, fails at a row.
        """
        if self._backpressure:
            self._backpressure.wait(batch_id)
        try:
            self._write_once(batch, batch_id)
        except SPARK_ERRORS:
            if not self._stopping.is_set():
                self._blame_an_expression(batch.sparkSession, batch_id)
            raise

    def _blame_an_expression(self, spark: SparkSession, batch_id: int) -> None:
        """Raise MedallionError for the column, or the rule, that fails at a row, if one does."""
        try:
            rows = read_batch_rows(spark, self._bronze, self._checkpoint, batch_id)
        except (UsageError, *SPARK_ERRORS):
            return
        whole = self._check(rows)
        if self._enrichment:
            whole = self._enrichment.of_now(whole)
        whole = whole.drop(transform.BRONZE)
        if told := failing_part_reason([rows], whole, self._parts(rows), "all rows wait in bronze"):
            raise MedallionError(told)

    def _parts(self, bronze: DataFrame) -> Iterator[DefinitionPart]:
        """Each column and each rule by itself."""
        name, rules = self._source.name, self._check.keywords
        silver = self._check(bronze, bronze_rules=(), silver_rules=())
        for column in self._source.silver:
            mend = f"have sources.{name}.silver.{column} {RETURN_NULL_ADVICE}"
            yield DefinitionPart(f"its column {column}", mend, silver.select(column))
        judged = [
            ("bronze", bronze, rules["bronze_rules"]),
            ("silver", silver, rules["silver_rules"]),
        ]
        if self._enrichment:
            judged.append(("silver", self._enrichment.of_now(silver), self._enrichment.judges))
        for layer, rows, some in judged:
            for rule in some:
                mend = f"put its expectation right, in the suite of {layer}.{name}"
                yield DefinitionPart(
                    f"the rule {rule.name}", mend, rows.select(F.expr(rule.broken))
                )

    def _write_once(self, batch: DataFrame, batch_id: int) -> None:
        # The query's id changes with a new checkpoint: its batches are not taken for old ones.
        query = checkpoints.query_id(self._checkpoint)
        once = {"txnAppId": query, "txnVersion": str(batch_id)}
        if self._enrichment:
            batch = self._enrichment.of_batch(batch, batch_id)
        has_bronze = transform.BRONZE in batch.columns  # or its broken rows are read again
        if has_bronze:  # not in memory, which the state and the sorting need
            batch.persist(StorageLevel.DISK_ONLY)
        try:
            is_there = delta_log.committed_version(self._silver, query, batch_id) is not None
            if is_there or not self._was_given_rows(batch_id):
                found = batch.agg(*self._counts()).collect()[0].asDict()  # for the state
            else:
                found = self._write(batch, once)
            if self._enrichment:
                self.unmatched[batch_id] = found["unmatched"]
            if found["broken"]:
                rows = batch if has_bronze else self._read_again(batch, batch_id)
                append_rows(transform.quarantine_rows(rows), self._quarantine, once | MERGE_SCHEMA)
        finally:
            batch.unpersist()

    def _was_given_rows(self, batch_id: int) -> bool:
        """Whether bronze's log says so; also where it does not say."""
        return (
            delta_log.rows_added(self._bronze, *bronze_versions_read(self._checkpoint, batch_id))
            != 0
        )

    def _write(self, batch: DataFrame, once: Mapping[str, str]) -> dict[str, Any]:
        """Append the good rows, and count all rows as they pass: to ask for the batch twice would
        run it through the state twice."""
        seen = Observation()
        rows = batch.observe(seen, *self._counts())
        append_rows(transform.silver_rows(rows, self._source.in_silver), self._silver, once)
        return seen.get

    def _read_again(self, batch: DataFrame, batch_id: int) -> DataFrame:
        """The rows that a batch was given, with bronze's columns where they are broken."""
        rows = read_batch_rows(batch.sparkSession, self._bronze, self._checkpoint, batch_id)
        return self._check(rows)

    def _counts(self) -> list[Column]:
        counts = [F.count_if(~transform.is_good()).alias("broken")]
        if self._enrichment:
            counts.append(F.count_if(transform.UNMATCHED).alias("unmatched"))
        return counts


MERGE_SCHEMA = {"mergeSchema": "true"}  # bronze may have new columns, and so has quarantine then


def append_rows(rows: DataFrame, table: Path, options: Mapping[str, str]) -> None:
    """Append rows to a Delta table in one commit."""
    rows.write.format("delta").mode("append").options(**options).save(str(table))

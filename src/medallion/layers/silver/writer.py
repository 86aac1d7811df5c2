"""The sink of silver: writes good rows to the table, others to quarantine, exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config, SourceConfig
from medallion.errors import MedallionError, UsageError
from medallion.layers.silver import transform
from medallion.layers.silver.lookup import LookupJoin
from medallion.layers.silver.rules import bind_rules
from medallion.spark import checkpoints, delta_reads
from medallion.storage import delta_log, delta_tables
from medallion.storage.paths import StoragePath

# Recording a batch reads its offsets, and Spark keeps those of the last 100 batches.
MAX_UNRECORDED_BATCHES = 80
_PAUSE = 0.2  # seconds
MERGE_SCHEMA = {"mergeSchema": "true"}  # quarantine gets bronze's new columns


class Backpressure:
    """Makes the query of a stream wait while too many of its batches are not recorded.

    Late rows are inserted when a batch is recorded, which may take longer than the batch did.
    """

    def __init__(self, recorded: int, stopping: Event) -> None:
        """Start after a batch.

        Args:
            recorded: the last recorded batch.
            stopping: is set when the query is to be stopped.
        """
        self._recorded, self._stopping = recorded, stopping

    def mark_recorded(self, batch: int) -> None:
        """Note that all batches up to this one are recorded."""
        self._recorded = batch

    def wait(self, batch: int) -> None:
        """Wait until a batch may start.

        Raises:
            MedallionError: the query is stopped.
        """
        while batch - self._recorded > MAX_UNRECORDED_BATCHES:
            if self._stopping.wait(_PAUSE):
                raise MedallionError("the query was stopped before this batch")


@dataclass(frozen=True)
class SilverTables:
    """The paths of the tables of one source, and of the checkpoint of silver's query."""

    bronze: StoragePath
    silver: StoragePath
    quarantine: StoragePath
    checkpoint: StoragePath

    @classmethod
    def of_source(cls, config: Config, name: str) -> SilverTables:
        """Return the paths for a source."""
        rows = config.sources[name].rows_table
        bronze, quarantine = (config.layout.table(f"{t}.{name}") for t in ("bronze", "quarantine"))
        return cls(bronze, config.layout.table(rows), quarantine, config.layout.checkpoint(rows))

    def versions_read(self, batch: int) -> tuple[int, int]:
        """Return the first and the last version of bronze that a batch of silver read.

        The last is before the first if it read none: a batch without data only evicts state.

        Raises:
            UsageError: Spark removed its offsets; it keeps those of the last 100 batches.
            MedallionError: the batch does not end with a complete version.
        """
        try:
            start = checkpoints.delta_offset(self.checkpoint, batch - 1)
            end = checkpoints.delta_offset(self.checkpoint, batch)
        except MedallionError as error:
            name = f"silver.{self.silver.name}"
            raise UsageError(
                f"{name}: batch {batch} is not recorded, and its checkpoint no longer has what it "
                f"read. Rebuild the table and its checkpoint with medallion refresh {name}."
            ) from error
        if not (start.is_between_versions and end.is_between_versions):
            raise MedallionError(
                f"{self.checkpoint}: batch {batch} does not end with a complete version of bronze."
            )
        return start.version, end.version - 1

    def batch_rows(self, spark: SparkSession, batch: int) -> DataFrame:
        """Return the rows of bronze that one batch of silver read.

        Raises:
            UsageError: data files that it read are gone. Maintenance removes only those of
                recorded batches, but a restored `ops.runs` may lack some of these batches.
        """
        first, last = self.versions_read(batch)
        if last < first:
            return spark.read.format("delta").load(str(self.bronze)).limit(0)
        is_first = batch == 0  # it reads a snapshot of the table: older commits may be gone
        files = (
            delta_tables.data_files(self.bronze, last)
            if is_first
            else delta_log.added_files(self.bronze, first, last)
        )
        if not all(file.is_stored() for file in files):
            name = f"silver.{self.silver.name}"
            raise UsageError(
                f"{name}: batch {batch} is not recorded, and rows that it read are gone. Rebuild "
                f"the table and its checkpoint with medallion refresh {name}."
            )
        if is_first:
            return delta_reads.rows_of(spark, self.bronze, files)
        return delta_reads.added_rows(spark, self.bronze, first, last)


class SilverWriter:
    """Writes the micro-batches of one source; a batch that runs twice is written once.

    Attributes:
        unmatched: number of rows without a row in the lookup table, by batch.
    """

    def __init__(
        self,
        config: Config,
        source: SourceConfig,
        rules: dict[str, Any],
        lookup: LookupJoin | None = None,
        backpressure: Backpressure | None = None,
    ) -> None:
        """Open the tables of a source.

        Args:
            config: the configuration.
            source: the source.
            rules: the document of the rules that the query started with.
            lookup: the lookup join, if the source has one.
            backpressure: for a query that runs continuously.
        """
        self._tables = SilverTables.of_source(config, source.name)
        self._source, self._apply_rules = source, bind_rules(source, rules)
        self._lookup, self._backpressure = lookup, backpressure
        self.unmatched: dict[int, int] = {}

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write silver, then quarantine; each commit has the query id and the batch number.

        A new checkpoint has a new query id, so its batches are not mistaken for earlier ones. A
        batch that only evicts state commits nothing.
        """
        if self._backpressure:
            self._backpressure.wait(batch_id)
        tables, query = self._tables, checkpoints.query_id(self._tables.checkpoint)
        once_only = {"txnAppId": query, "txnVersion": str(batch_id)}
        if self._lookup:
            batch = self._lookup.join_batch(batch, batch_id)
        has_bronze = transform.BRONZE in batch.columns  # else quarantined rows are read again
        if has_bronze:  # on disk, because state and sorting need the memory
            batch.persist(StorageLevel.DISK_ONLY)
        try:
            is_written = delta_log.committed_version(tables.silver, query, batch_id) is not None
            # None counts as input: bronze's log no longer reaches back to the batch.
            has_input = delta_log.rows_added(tables.bronze, *tables.versions_read(batch_id)) != 0
            if is_written or not has_input:
                # The batch is computed nevertheless, for its state.
                counts = batch.agg(*self._count_columns()).collect()[0].asDict()
            else:
                counts = self._write_silver(batch, once_only)
            if self._lookup:
                self.unmatched[batch_id] = counts["unmatched"]
            if counts["broken"]:
                rows = batch
                if not has_bronze:
                    rows = self._apply_rules(tables.batch_rows(batch.sparkSession, batch_id))
                quarantined = transform.quarantine_rows(rows)
                append_rows(quarantined, tables.quarantine, once_only | MERGE_SCHEMA)
        finally:
            batch.unpersist()

    def _write_silver(self, batch: DataFrame, once_only: Mapping[str, str]) -> dict[str, Any]:
        """Append the good rows, and count all rows in the same job.

        A separate job would run the batch through the state a second time.
        """
        counts = Observation()
        rows = batch.observe(counts, *self._count_columns())
        good = transform.silver_rows(rows, self._source.silver_columns)
        append_rows(good, self._tables.silver, once_only)
        return counts.get

    def _count_columns(self) -> list[Column]:
        counts = [F.count_if(~transform.is_good()).alias("broken")]
        if self._lookup:
            counts.append(F.count_if(transform.UNMATCHED).alias("unmatched"))
        return counts


def append_rows(rows: DataFrame, table: StoragePath, options: Mapping[str, str]) -> None:
    """Append rows to a Delta table in one commit, with options of Delta's writer."""
    rows.write.format("delta").mode("append").options(**options).save(str(table))

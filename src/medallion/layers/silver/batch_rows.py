"""The rows that a batch of silver's query read from bronze, and wrote, by the logs of the tables.

Spark's own figures of a batch are held against these. It counts rows as it computes them, and on a
cluster those that it has to compute a second time count twice; a log has each commit once.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from medallion.config.model import Config, SourceConfig
from medallion.errors import MedallionError, UsageError
from medallion.spark import checkpoints, delta_reads
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
            rows = delta_log.rows_added(self._bronze, *versions(self._checkpoint, batch))
            if rows is None:  # the log does not go back that far
                found = rows_of_batch(self._spark, self._bronze, self._checkpoint, batch)
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


def versions(checkpoint: Path, batch: int) -> tuple[int, int]:
    """The first and the last version of bronze that a batch of silver read.

    The last is before the first where it read none: a batch without data only evicts state.

    Raises:
        MedallionError: the batch does not end with a version.
    """
    start = checkpoints.delta_offset(checkpoint, batch - 1)
    end = checkpoints.delta_offset(checkpoint, batch)
    if not (start.is_whole and end.is_whole):
        raise MedallionError(f"{checkpoint}: batch {batch} does not end with a version of bronze.")
    return start.version, end.version - 1


def rows_of_batch(spark: SparkSession, bronze: Path, checkpoint: Path, batch: int) -> DataFrame:
    """The rows of bronze that one batch of silver read.

    Raises:
        UsageError: they cannot be read any more.
    """
    first, last = versions(checkpoint, batch)
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
    first, last = versions(checkpoint, batch)
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

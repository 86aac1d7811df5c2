"""What the tables' logs say of silver's batches, to hold the engine's record against.

The engine counts as it computes: on a cluster, what it has to compute a second time it counts
twice. What was committed is in the logs once.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from medallion.config.model import Config, SourceConfig
from medallion.lakehouse import log
from medallion.layers.silver import late
from medallion.spark import checkpoints
from medallion.spark.progress import BatchProgress


class Accounts:
    """Some batches of `silver.<source>`: the rows that they read, and those that they wrote."""

    def __init__(
        self, spark: SparkSession, config: Config, source: SourceConfig, batches: range
    ) -> None:
        self._spark = spark
        self._bronze = config.layout.table(f"bronze.{source.name}")
        self._checkpoint = config.layout.checkpoint(f"silver.{source.name}")
        self._written: dict[int, int] = {}
        if batches:
            query = checkpoints.query_id(self._checkpoint)
            for table in (f"silver.{source.name}", f"quarantine.{source.name}"):
                found = log.rows_by_transaction(config.layout.table(table), query, batches.start)
                for batch, rows in found.items():
                    self._written[batch] = self._written.get(batch, 0) + rows

    def rows_read(self, batch: int) -> int:
        """The rows that bronze's commits gave a batch."""
        rows = log.rows_added(self._bronze, *late.versions(self._checkpoint, batch))
        if rows is None:  # the log does not go back that far
            found = late.rows_of_batch(self._spark, self._bronze, self._checkpoint, batch)
            rows = found.count()
        return rows

    def bear_out(self, batch: BatchProgress) -> bool:
        """Whether the engine's record of a batch is what the logs say of it."""
        read = self.rows_read(batch.id)
        dropped = batch.duplicates + batch.late
        return rows_observed(batch) == read == self._written.get(batch.id, 0) + dropped


def rows_observed(batch: BatchProgress) -> int:
    """The rows that the engine read, which the query counts on both its ways."""
    return sum(metric["rows"] for metric in batch.observed.values())

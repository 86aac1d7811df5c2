"""Demonstration sources: Spark's own `rate` and `socket`, which cannot replay their rows."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.config.model import Rate, Socket
from medallion.ingest.source import SparkBatch, SparkSource
from medallion.spark import checkpoints
from medallion.storage.paths import StoragePath


class DemoBatch(SparkBatch):
    """The rows of one micro-batch; see `ingest.source.SourceBatch`."""

    summary = "demonstration rows"

    def record_in_ledger(self, version: int | None) -> None:
        """Do nothing: there is no ledger."""


class DemoSource(SparkSource):
    """Generated rows, or lines from a socket; `ingest.source.Source` documents the methods."""

    last_in_ledger = None
    rows_in_ledger = 0  # never used

    def poll(self) -> None:
        """Do nothing: Spark polls by itself."""

    def stream(self) -> DataFrame:
        settings = self.source.stream
        if isinstance(settings, Rate):
            rate = self.spark.readStream.format("rate")
            rows = rate.option("rowsPerSecond", settings.rows_per_second).load()
            return rows.select(F.to_json(F.struct("timestamp", "value")).alias("value"))
        assert isinstance(settings, Socket), f"{self.name} is not rate or socket"
        self.report(f"  {self.name}: socket is for demos: lines sent between runs are lost")
        reader = self.spark.readStream.format("socket")
        return reader.options(host=settings.host, port=settings.port).load()

    def batch(self, number: int, queued: DataFrame) -> DemoBatch:
        return DemoBatch(queued)

    def interrupted_batch(self, number: int) -> DemoBatch:
        return DemoBatch(None)

    def can_resume(self, checkpoint: StoragePath) -> bool:
        """Return whether this is a checkpoint of `rate`: a socket starts from 0 each time."""
        is_rate = isinstance(self.source.stream, Rate) and (checkpoint / "sources").is_stored()
        return is_rate or not checkpoint.is_stored()

    def recreate_checkpoint(self, checkpoint: StoragePath, last: int) -> None:
        """Write a checkpoint that only continues the numbering of batches."""
        checkpoints.write_start(self.spark, checkpoint, max(last, 0), None)

    def sample_batch(self) -> DemoBatch:
        """Return no rows: the schema is inferred from the first batch."""
        return DemoBatch(None)

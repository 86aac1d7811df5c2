"""Demonstration sources: Spark's own `rate` and `socket`, which cannot replay their rows."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config, Rate, Socket, SourceConfig
from medallion.ingest.schema.evolution import Schema
from medallion.ingest.source import SparkBatch
from medallion.spark import checkpoints
from medallion.storage import delta_log
from medallion.storage.paths import StoragePath
from medallion.storage.text import Reporter


class DemoBatch(SparkBatch):
    """The rows of one micro-batch; see `ingest.source.SourceBatch`."""

    summary = "demonstration rows"

    def record_in_ledger(self, version: int | None) -> None:
        """Do nothing: there is no ledger."""


class DemoSource:
    """Generated rows, or lines from a socket; `ingest.source.Source` documents the methods."""

    last_in_ledger = None
    rows_in_ledger = 0  # never used

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        source: SourceConfig,
        schema: Schema,
        report: Reporter,
    ) -> None:
        assert isinstance(source.stream, Rate | Socket), f"{source.name} is not rate or socket"
        self._spark, self._settings, self._report = spark, source.stream, report
        self._name = f"bronze.{source.name}"
        self._bronze = config.layout.table(self._name)

    def poll(self) -> None:
        """Do nothing: Spark polls by itself."""

    def stream(self) -> DataFrame:
        if isinstance(self._settings, Rate):
            rate = self._spark.readStream.format("rate")
            rows = rate.option("rowsPerSecond", self._settings.rows_per_second).load()
            return rows.select(F.to_json(F.struct("timestamp", "value")).alias("value"))
        self._report(
            f"  {self._name}: socket is for demonstrations: lines sent between runs are lost"
        )
        reader = self._spark.readStream.format("socket")
        return reader.options(host=self._settings.host, port=self._settings.port).load()

    def batch(self, number: int, queued: DataFrame) -> DemoBatch:
        return DemoBatch(queued)

    def interrupted_batch(self, number: int) -> DemoBatch:
        return DemoBatch(None)

    def can_resume(self, checkpoint: StoragePath) -> bool:
        """Return whether this is a checkpoint of `rate`: a socket starts from 0 each time."""
        is_rate = isinstance(self._settings, Rate) and (checkpoint / "sources").is_stored()
        return is_rate or not checkpoint.is_stored()

    def recreate_checkpoint(self, checkpoint: StoragePath, last: int) -> None:
        """Write a checkpoint that only continues the numbering of batches."""
        checkpoints.write_start(self._spark, checkpoint, max(last, 0), None)

    def sample_batch(self) -> DemoBatch:
        """Return no rows: the schema is inferred from the first batch."""
        return DemoBatch(None)

    def count_rows(self, number: int) -> int:
        """Return the rows that bronze has of a batch: the source cannot replay them."""
        return delta_log.rows_by_transaction(self._bronze, None, number).get(number, 0)

    def release(self, number: int) -> None:
        """Do nothing: there are no files to archive."""

"""Rows for demonstrations: Spark's own sources `rate` and `socket`, which keep nothing.

What they gave cannot be asked for again: bronze's own commits stand for it.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config, Rate, Socket, SourceConfig
from medallion.ingest.schema.evolution import Schema
from medallion.ingest.source import SparkBatch
from medallion.spark import checkpoints
from medallion.storage import delta_log
from medallion.storage.text import Reporter


class DemoBatch(SparkBatch):
    """What one batch was handed; see `ingest.source.SourceBatch`."""

    summary = "a demonstration"

    def record_in_ledger(self, version: int | None) -> None:
        """Do nothing: there is no ledger."""


class DemoSource:
    """A source that makes rows up, or takes lines from a port; see `ingest.source.Source`."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        source: SourceConfig,
        schema: Schema,
        say: Reporter,
    ) -> None:
        assert isinstance(source.stream, Rate | Socket), f"{source.name} is no demonstration"
        self._spark, self._settings, self._say = spark, source.stream, say
        self._bronze = config.layout.table(f"bronze.{source.name}")
        self._name = f"bronze.{source.name}"

    def poll(self) -> None:
        """Nothing: Spark looks itself."""

    def stream(self) -> DataFrame:
        """`value`, JSON text."""
        if isinstance(self._settings, Rate):
            rate = self._spark.readStream.format("rate")
            made = rate.option("rowsPerSecond", self._settings.rows_per_second).load()
            return made.select(F.to_json(F.struct("timestamp", "value")).alias("value"))
        self._say(f"  {self._name}: a socket is for demonstrations: what nobody reads is lost")
        reader = self._spark.readStream.format("socket")
        return reader.options(host=self._settings.host, port=self._settings.port).load()

    def batch(self, number: int, queued: DataFrame) -> DemoBatch:
        """What one batch was handed."""
        return DemoBatch(queued)

    def interrupted_batch(self, number: int) -> DemoBatch:
        """A batch whose rows are in bronze."""
        return DemoBatch(None)

    @property
    def last_in_ledger(self) -> None:
        """It has no ledger."""

    @property
    def rows_in_ledger(self) -> int:
        """None: it has no ledger."""
        return 0

    def can_resume(self, checkpoint: Path) -> bool:
        """Not from that of another connection: a socket counts its lines anew each time, and `rate`
        goes on from the moment that it has put down."""
        is_rate = isinstance(self._settings, Rate) and (checkpoint / "sources").exists()
        return is_rate or not checkpoint.exists()

    def recreate_checkpoint(self, checkpoint: Path, last: int) -> None:
        """Go on with the numbers of the batches, and with rows that are new."""
        checkpoints.write_start(self._spark, checkpoint, max(last, 0), None)

    def sample_batch(self) -> DemoBatch:
        """Nothing: the first batch itself tells the schema."""
        return DemoBatch(None)

    def count_rows(self, number: int) -> int:
        """The rows that bronze has of one batch."""
        return delta_log.rows_by_transaction(self._bronze, None, number).get(number, 0)

    def release(self, number: int) -> None:
        """Nothing is kept."""

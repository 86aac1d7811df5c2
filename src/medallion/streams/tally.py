"""How far a stream into a table in memory has come, from Spark's records of its batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from medallion.lakehouse.text import counted
from medallion.spark import progress


@dataclass
class Tally:
    """The batches of one run. In `complete` mode each one replaces the rows of the one before."""

    mode: str
    batches: int = 0
    rows: int = 0
    last: dict[str, Any] = field(default_factory=dict)

    def take(self, query: StreamingQuery) -> None:
        """Take up the records of the batches that have ended since the last call."""
        for record in progress.records_after(query, self.batches - 1):
            self.batches, self.last = record["batchId"] + 1, record
            written = max(0, record["sink"]["numOutputRows"])
            self.rows = written if self.mode == "complete" else self.rows + written

    def summary(self) -> str:
        """The same in words, with the last batch's rate and watermark."""
        if not self.last:
            return "no batch yet"
        words = [
            f"batch {self.batches - 1}",
            counted(self.rows, "row"),
            f"{self.last['processedRowsPerSecond']:,.1f} rows a second",
        ]
        if watermark := progress.watermark_of(self.last):
            words.append(f"watermark {watermark}")
        return ", ".join(words)

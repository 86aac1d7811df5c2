"""The sink of silver: a batch's good rows to the table, its broken ones to quarantine, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.layers.silver import transform
from medallion.layers.silver.enrichment import Enrichment
from medallion.layers.silver.pace import Pace
from medallion.spark import checkpoints


class Writer:
    """Writes `checked` rows; a batch that runs twice is written once.

    `unmatched` are the rows of each batch that a reference has none for, if there is a reference.
    """

    def __init__(
        self,
        targets: tuple[Path, Path],
        columns: Sequence[str],
        checkpoint: Path,
        enrichment: Enrichment | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._silver, self._quarantine = targets
        self._columns, self._checkpoint = columns, checkpoint
        self._enrichment, self._pace = enrichment, pace
        self.unmatched: dict[int, int] = {}

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one batch; nothing where there is nothing, for an empty commit is news to gold."""
        if self._pace:
            self._pace.wait(batch_id)
        # The query's id changes with a new checkpoint: its batches are not taken for old ones.
        once = {"txnAppId": checkpoints.query_id(self._checkpoint), "txnVersion": str(batch_id)}
        if self._enrichment:
            batch = self._enrichment.of_batch(batch, batch_id)
        # Not in memory, which the state and the sorting need: a large batch takes a tenth less.
        batch.persist(StorageLevel.DISK_ONLY)
        try:
            is_good = transform.is_good()
            looked_up = [F.count_if(transform.UNMATCHED)] if self._enrichment else []
            counts = batch.agg(F.count_if(is_good), F.count_if(~is_good), *looked_up).collect()[0]
            if self._enrichment:
                self.unmatched[batch_id] = counts[2]
            if counts[0]:
                append(transform.good(batch, self._columns), self._silver, once)
            if counts[1]:
                append(transform.broken(batch), self._quarantine, once | WIDER)
        finally:
            batch.unpersist()


WIDER = {"mergeSchema": "true"}  # bronze may have new columns, and so has quarantine then


def append(rows: DataFrame, table: Path, options: Mapping[str, str]) -> None:
    """Append rows to a Delta table in one commit."""
    rows.write.format("delta").mode("append").options(**options).save(str(table))

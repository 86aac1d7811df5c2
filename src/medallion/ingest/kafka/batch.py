"""The messages of one micro-batch, and what the ledger is to say of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame

from medallion.ingest.source import SparkBatch, stale_ledger_error
from medallion.state import topics
from medallion.state.topics import Place, Taken
from medallion.storage import clock, delta_tables
from medallion.storage.table_specs import OFFSET, PARTITION, ROW_COUNTS, TOPIC
from medallion.storage.text import counted

if TYPE_CHECKING:
    from medallion.ingest.kafka.source import KafkaSource


class _Counts(NamedTuple):
    """The rows that bronze has of one partition, the first offset, and the first after them."""

    rows: int = 0
    corrupt: int = 0
    rescued: int = 0
    first: int = 0
    end: int = 0


class MessageBatch(SparkBatch):
    """What one batch was handed; see `ingest.source.SourceBatch`."""

    def __init__(self, source: KafkaSource, number: int, handed: DataFrame | None) -> None:
        super().__init__(handed)
        self._source, self._number = source, number

    @property
    def summary(self) -> str:
        """Which topics are read."""
        return counted(len(self._source.kafka.topics), "topic")

    def record_in_ledger(self, version: int | None) -> None:
        """Write down how far each partition is ingested."""
        layout, name = self._source.config.layout, self._source.name
        found = _by_partition(layout.table(f"bronze.{name}"), version)
        ends = self._source.read_up_to(self._number)
        known = topics.read(layout, name)
        now = [
            self._after(place, known.get(place), found.get(place, _Counts()), ends.get(place, 0))
            for place in {**ends, **found}
        ]
        topics.write(layout, [taken for taken in now if taken])

    def _after(self, place: Place, before: Taken | None, counts: _Counts, end: int) -> Taken | None:
        """The ledger's row of a partition after this batch; None where it has it already.

        Raises:
            UsageError: the ledger is older than another topic that took the name since.
        """
        topic, partition = place
        if before is None:
            first = counts.first if counts.rows else end
            before = Taken(
                self._source.name, topic, partition, None, first, 0, batch=-1, committed_at=0
            )
        elif before.batch >= self._number:
            return None
        if counts.rows and counts.first < before.next_offset:  # it does not know of another topic
            raise stale_ledger_error(f"bronze.{self._source.name}")
        return replace(
            before,
            topic_id=self._source.topic_ids.get(topic, before.topic_id),
            next_offset=max(end, counts.end, before.next_offset),
            batch=self._number,
            committed_at=clock.now(),
            rows=before.rows + counts.rows,
            corrupt_rows=before.corrupt_rows + counts.corrupt,
            rescued_rows=before.rescued_rows + counts.rescued,
        )


def _by_partition(bronze: Path, version: int | None) -> dict[Place, _Counts]:
    """The rows that one version of bronze added, read back and counted by their partitions."""
    what = f"{TOPIC}, {PARTITION}, {ROW_COUNTS}, min({OFFSET}), max({OFFSET}) + 1"
    found = delta_tables.select_added_rows(bronze, version, what, f"group by {TOPIC}, {PARTITION}")
    return {(topic, partition): _Counts(*counts) for topic, partition, *counts in found}

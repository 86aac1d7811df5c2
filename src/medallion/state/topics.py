"""The ledger of topics, `ops.topics`: how far each partition of a broker's topics is taken in.

It is written with each batch, by the one process that holds bronze's lock; to write it again says
the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from medallion.storage import records
from medallion.storage.paths import Layout
from medallion.storage.table_specs import TableSpec

TABLE = "ops.topics"
PartitionKey = tuple[str, int]  # a topic, and the number of one of its partitions


@dataclass(frozen=True)
class PartitionProgress:
    """One row of the ledger. Times are microseconds since 1970.

    Attributes:
        first_offset: where the partition's messages were first taken in from.
        next_offset: up to where, and without it; -1: there is no such partition any more.
        rows: of all batches up to `batch`; likewise those that are corrupt or hold rescued fields.
        lost: the offsets that were gone before they were taken in.
        made_anew: how often another topic of the same name took its place, or its offsets began to
            come a second time, where somebody said to go on.
    """

    source: str
    topic: str
    partition: int
    topic_id: str | None
    first_offset: int
    next_offset: int
    batch: int
    committed_at: int
    rows: int = 0
    corrupt_rows: int = 0
    rescued_rows: int = 0
    lost: int = 0
    made_anew: int = 0

    @property
    def place(self) -> PartitionKey:
        """The partition that it is about."""
        return self.topic, self.partition

    @property
    def is_void(self) -> bool:
        """Whether there is no such partition any more, which somebody has said to go on without."""
        return self.next_offset < 0


_COLUMNS = records.record_columns(PartitionProgress)


def read_progress(layout: Layout, source: str) -> dict[PartitionKey, PartitionProgress]:
    """The partitions of one source; no JVM."""
    where = f"where source = '{source}' order by topic, partition"
    found = records.read_records(layout.table(TABLE), _COLUMNS, PartitionProgress, where)
    return {taken.place: taken for taken in found}


def ingested_rows(layout: Layout, source: str) -> int:
    """Return the rows in bronze by the ledger of a source."""
    return sum(taken.rows for taken in read_progress(layout, source).values())


def write_progress(layout: Layout, taken: Iterable[PartitionProgress]) -> None:
    """Put rows in the place of those of the same partition, or add them."""
    rows = [asdict(each) for each in taken]
    if rows:
        keys = ("source", "topic", "partition")
        records.upsert_records(layout.table(TABLE), TableSpec(_COLUMNS), rows, keys)

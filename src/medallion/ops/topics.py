"""The ledger of topics, `ops.topics`: how far each partition of a broker's topics is taken in.

It is written with each batch, by the one process that holds bronze's lock; to write it again says
the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from medallion.lakehouse import small_tables
from medallion.lakehouse.columns import TOPICS
from medallion.lakehouse.layout import Layout
from medallion.lakehouse.specs import LEDGER_OF_TOPICS

TABLE = "ops.topics"
Place = tuple[str, int]  # a topic, and the number of one of its partitions


@dataclass(frozen=True)
class Taken:
    """One row of the ledger; see `lakehouse.columns.TOPICS`. Times are microseconds since 1970."""

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
    def place(self) -> Place:
        """The partition that it is about."""
        return self.topic, self.partition

    @property
    def is_void(self) -> bool:
        """Whether there is no such partition any more, which somebody has said to go on without."""
        return self.next_offset < 0


def read(layout: Layout, source: str) -> dict[Place, Taken]:
    """The partitions of one source; no JVM."""
    where = f"where source = '{source}' order by topic, partition"
    found = small_tables.read(layout.table(TABLE), TOPICS, Taken, where)
    return {taken.place: taken for taken in found}


def write(layout: Layout, taken: Iterable[Taken]) -> None:
    """Put rows in the place of those of the same partition, or add them."""
    rows = [asdict(each) for each in taken]
    if rows:
        keys = ("source", "topic", "partition")
        small_tables.upsert(layout.table(TABLE), LEDGER_OF_TOPICS, rows, keys)

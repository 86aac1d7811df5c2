"""The topic ledger, `ops.topics`: how far each partition of Kafka topics is ingested.

The process that holds bronze's lock writes it with each batch. Each write may be repeated.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from medallion.config.model import Config, SourceConfig
from medallion.storage import records
from medallion.storage.layout import Layout
from medallion.storage.table_specs import TableSpec

TABLE = "ops.topics"
PartitionKey = tuple[str, int]  # a topic, and the number of one of its partitions


@dataclass(frozen=True)
class PartitionProgress:
    """One row of the ledger. Times are microseconds since 1970.

    Attributes:
        first_offset: the first offset that was ingested.
        next_offset: the first offset that was not; -1: the partition does not exist any more.
        rows: of all batches up to `batch`; likewise those that are corrupt or have rescued fields.
        lost: the offsets that were gone before they were ingested.
        made_anew: how often the user continued with a recreated topic, or with offsets that
            restarted.
    """

    source: str
    topic: str
    partition: int
    topic_id: str | None = None
    first_offset: int = 0
    next_offset: int = 0
    batch: int = -1
    committed_at: int = 0
    rows: int = 0
    corrupt_rows: int = 0
    rescued_rows: int = 0
    lost: int = 0
    made_anew: int = 0

    @property
    def is_void(self) -> bool:
        """Return whether the partition is gone, and the user continues without it."""
        return self.next_offset < 0


_COLUMNS = records.record_columns(PartitionProgress)


def read_progress(layout: Layout, source: str) -> dict[PartitionKey, PartitionProgress]:
    """Return the partitions of one source; no JVM."""
    where = f"where source = '{source}' order by topic, partition"
    rows = records.read_records(layout.table(TABLE), _COLUMNS, PartitionProgress, where)
    return {(each.topic, each.partition): each for each in rows}


def ingested_rows(config: Config, source: SourceConfig) -> int:
    """Return the rows in bronze by the ledger of a source."""
    return sum(progress.rows for progress in read_progress(config.layout, source.name).values())


def write_progress(layout: Layout, progress: Iterable[PartitionProgress]) -> None:
    """Insert rows, or replace those of the same partition."""
    rows = [asdict(each) for each in progress]
    if rows:
        keys = ("source", "topic", "partition")
        records.upsert_records(layout.table(TABLE), TableSpec(_COLUMNS), rows, keys)

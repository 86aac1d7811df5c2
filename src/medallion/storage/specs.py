"""How each table is kept: the one place that lists them all."""

from __future__ import annotations

from dataclasses import dataclass

from medallion.storage.columns import Columns, quoted
from medallion.storage.layout import layer_of

# How long what is replaced stays, unless the configuration says otherwise. A table that is written
# whole every four seconds has 21,600 versions of itself by then.
RETENTION = "1 day"


@dataclass(frozen=True)
class TableSpec:
    """What a table's log and files carry, whoever writes them.

    Attributes:
        columns: of a table that is written without Spark; None of the others.
        is_streamed: a stream reads its commits one after the other. One that was switched off for
            longer than the log is kept could not go on where it stopped, so only `maintain`, which
            knows what the streams still need, takes old commits away.
        has_feed: each commit says which rows it has changed, for a stream of them.
        statistics: the columns of which each file's least and greatest value are kept, so that a
            query can skip files; None for all of them. They cost as much as half of the writing,
            and of a text of megabytes Delta's writer makes a copy for each row that comes after it.
            The count of rows is always kept.
    """

    columns: Columns | None = None
    is_streamed: bool = False
    has_feed: bool = False
    statistics: tuple[str, ...] | None = None

    def properties(self, retention: str = RETENTION, known_days: int = 3) -> dict[str, str]:
        """The properties of its Delta table.

        Args:
            retention: how long commits stay.
            known_days: how long the log knows of a file that was replaced. It must know of it for
                longer than the file stays, for maintenance removes those that it knows of.

        A checkpoint every ten commits is Spark's own default, and not that of the other writer
        here: opening a table reads all the commits since the last one.
        """
        found = {
            "delta.checkpointInterval": "10",
            "delta.enableChangeDataFeed": str(self.has_feed).lower(),
            "delta.enableExpiredLogCleanup": str(not self.is_streamed).lower(),
            "delta.logRetentionDuration": f"interval {retention}",
            "delta.deletedFileRetentionDuration": f"interval {known_days} days",
        }
        if self.statistics is None:
            return found
        if not self.statistics:
            return {**found, "delta.dataSkippingNumIndexedCols": "0"}
        return {**found, "delta.dataSkippingStatsColumns": ",".join(map(quoted, self.statistics))}


BRONZE = TableSpec(is_streamed=True, statistics=())
SILVER = TableSpec(is_streamed=True)
PUBLISHED = TableSpec(is_streamed=True, has_feed=True)  # a table of gold whose changes are read
INTAKE = TableSpec(
    {"path": "string", "version": "long", "size": "long", "modified_at": "timestamp"},
    is_streamed=True,
)
RECORDS = ("ops.files", "ops.topics", "ops.runs")


def of(table: str) -> TableSpec:
    """The spec of `layer.name`; where nothing is said of a layer here, it is the plain one."""
    return {"bronze": BRONZE, "silver": SILVER}.get(layer_of(table), TableSpec())

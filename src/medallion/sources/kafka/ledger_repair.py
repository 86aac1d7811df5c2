"""The ledger of topics made whole from bronze, which has every row with the place it came from.

Somebody may have put back an older copy of the ledger, or lost it, and what tells which batch added
which rows may be gone by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from medallion.errors import UsageError
from medallion.lakehouse import clock, log, tables
from medallion.lakehouse.columns import OFFSET, PARTITION, ROW_COUNTS, TOPIC
from medallion.lakehouse.layout import Layout
from medallion.ops import topics
from medallion.ops.topics import Place, Taken

_COUNTS = (
    f"{TOPIC}, {PARTITION}, {ROW_COUNTS}, min({OFFSET}), max({OFFSET}), count(distinct {OFFSET})"
)


def rows_in_ledger(taken: Mapping[Place, Taken]) -> int:
    """The rows that a ledger says were taken in."""
    return sum(each.rows for each in taken.values())


def is_short(layout: Layout, source: str, taken: Mapping[Place, Taken]) -> bool:
    """Whether bronze has more rows than the ledger, which its log says at once.

    Whoever holds the topics against such a ledger takes for new, or for lost, what was taken in.
    """
    return rows_in_ledger(taken) < tables.row_count(layout.table(f"bronze.{source}"))


def make_whole(layout: Layout, source: str, batch: int) -> None:
    """Enter what bronze has of each partition, as what batches up to this one took in.

    Which topic of its name it was, nobody knows any more: one that was made anew since, and has
    as many messages by now, is gone on with.

    Raises:
        UsageError: bronze has offsets of a topic more than once, and which came last is not known.
    """
    table, known = layout.table(f"bronze.{source}"), topics.read(layout, source)
    if not is_short(layout, source, known):
        return
    newest, now, found = log.newest_transaction(table), clock.now(), []
    for topic, part, *counts in tables.select(table, _COUNTS, "group by 1, 2"):
        rows, corrupt, rescued, first, last, different = counts
        new = Taken(source, topic, int(part), None, first, 0, -1, now)
        before = known.get(new.place, new)
        if before.rows >= rows:
            continue
        came_again = different < rows or before.made_anew > 0
        if came_again and not 0 <= newest <= before.batch:  # its last batch is not in the ledger
            raise _unknown(layout, source, topic)
        whole = replace(
            before,
            first_offset=min(before.first_offset, first),
            next_offset=before.next_offset if came_again else max(before.next_offset, last + 1),
            batch=max(before.batch, batch),
            committed_at=now,
        )
        found.append(replace(whole, rows=rows, corrupt_rows=corrupt, rescued_rows=rescued))
    topics.write(layout, found)


def _unknown(layout: Layout, source: str, topic: str) -> UsageError:
    return UsageError(
        f"bronze.{source} cannot go on: {layout.table(topics.TABLE)} does not have all that was "
        f"taken in of topic {topic}, whose offsets have come more than once, so that nobody knows "
        "which were the last: put it back from a copy of bronze's time, or have a source of "
        "another name read the topic."
    )

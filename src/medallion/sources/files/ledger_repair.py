"""The ledger of files made whole from bronze, which has every row with the file that it came from.

Somebody may have put back an older copy of the ledger, and what tells which batch added which rows
may be gone by then: commits leave a log, and files that were put together with others are removed.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from medallion.config.model import SourceConfig
from medallion.lakehouse import tables
from medallion.lakehouse.columns import ROW_COUNTS, SOURCE_FILE, SOURCE_MODIFIED_AT
from medallion.lakehouse.layout import Layout
from medallion.ops.ledger import PENDING, REPLACED, TAKEN, Entry, Ledger
from medallion.sources.files.listing import stat
from medallion.sources.files.put_away import found_again, put_away

Key = tuple[str, int]  # a file's path and its modification time: one version of a file
Rows = tuple[int, ...]  # of a file: all, those that are corrupt, those that hold rescued fields


def in_bronze(layout: Layout, source: str) -> dict[Key, Rows]:
    """The rows that bronze has, by their files."""
    what = f"{SOURCE_FILE}, arrow_cast({SOURCE_MODIFIED_AT}, 'Int64'), {ROW_COUNTS}"
    table, each = layout.table(f"bronze.{source}"), f"{SOURCE_FILE}, {SOURCE_MODIFIED_AT}"
    found = tables.select(table, what, f"group by {each}")
    return {(path, at): tuple(counts) for path, at, *counts in found}


def is_short(layout: Layout, ledger: Ledger) -> bool:
    """Whether bronze has more rows than the ledger, which its log says at once.

    Whoever looks for new files then takes for new what was taken in.
    """
    bronze = layout.table(f"bronze.{ledger.source}")
    return rows_in_ledger(ledger.every()) < tables.row_count(bronze)


def rows_in_ledger(entries: Iterable[Entry]) -> int:
    """The rows of the files that were taken in."""
    return sum(entry.rows or 0 for entry in entries if entry.state in TAKEN)


def make_whole(layout: Layout, source: SourceConfig, ledger: Ledger, batch: int) -> None:
    """Enter the files that bronze has rows of and the ledger does not have, as those of a batch
    that has ended: which one it was, nobody knows any more. And where those lie that were archived
    before, whoever has entered them."""
    if is_short(layout, ledger):
        entries = lacking(layout, ledger, in_bronze(layout, source.name), batch)
        ledger.write(entries)
        older = (old for entry in entries if (old := ledger.before(entry)))
        ledger.write(replace(old, state=REPLACED) for old in older)
    if source.clean_source != "off":  # then all stay where they landed, and may be many to look at
        ledger.write(found_again(layout, source, ledger.every(), put_away(layout, source)))


def lacking(
    layout: Layout, ledger: Ledger, in_bronze: Mapping[Key, Rows], batch: int
) -> list[Entry]:
    """The rows that the ledger does not have of files that bronze has, as those of a batch."""
    known = _taken(ledger)
    apart = {key: tuple(map(operator.sub, rows, known[key])) for key, rows in in_bronze.items()}
    found = sorted((key for key, rows in apart.items() if rows[0] > 0), key=lambda key: key[::-1])
    if not found:
        return []
    versions = _Versions(layout, ledger)
    return [versions.of(key).taken_in(batch, *apart[key]) for key in found]


def _taken(ledger: Ledger) -> dict[Key, Rows]:
    """The rows that the ledger has; versions of a file that share a time are one to bronze."""
    found: dict[Key, Rows] = defaultdict(lambda: (0, 0, 0))
    for entry in (entry for entry in ledger.every() if entry.state in TAKEN):
        key = (entry.path, entry.modified_at)
        rows = (entry.rows or 0, entry.corrupt_rows or 0, entry.rescued_rows or 0)
        found[key] = tuple(map(operator.add, found[key], rows))
    return found


class _Versions:
    """Which version of its path a file was, by what was handed over, where that still says so."""

    def __init__(self, layout: Layout, ledger: Ledger) -> None:
        self._layout, self._ledger = layout, ledger
        self._given: dict[str, int] = {}  # the newest ones that were found here
        what = "path, arrow_cast(modified_at, 'Int64'), version, size"
        rows = tables.select(layout.intake(ledger.source), what, "order by version")
        self._handed: dict[Key, tuple[int, int]] = {(p, at): (v, size) for p, at, v, size in rows}

    def of(self, key: Key) -> Entry:
        """The ledger's row of a file, which is new to it or waits there."""
        path, modified_at = key
        newest = self._ledger.newest(path)
        if newest and newest.state == PENDING and newest.modified_at == modified_at:
            return newest
        number, size = self._handed.get(key, (0, 0))
        last = max(newest.version if newest else 0, self._given.get(path, 0))
        known = self._ledger.version(path, number)
        if not number or (known and known.state in TAKEN):
            number = last + 1
        self._given[path] = max(last, number)
        now = stat(self._layout, path)
        if now and now.modified_at == modified_at:
            size = now.size
        return Entry(self._ledger.source, path, number, size, modified_at, modified_at)

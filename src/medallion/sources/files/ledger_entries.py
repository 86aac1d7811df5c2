"""What a batch was handed, what bronze has of it, and what the ledger is to say of the two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Row, SparkSession

from medallion.lakehouse import log, tables
from medallion.lakehouse.columns import ROW_COUNTS, SOURCE_FILE, SOURCE_MODIFIED_AT
from medallion.lakehouse.layout import Layout
from medallion.ops.ledger import INGESTED, PENDING, TAKEN, Entry, File, Ledger
from medallion.sources.files.listing import stat
from medallion.spark import checkpoints, table_files

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Handed(NamedTuple):
    """A file as it was when it was handed over, and which version of its path it was then."""

    file: File
    version: int


class Counts(NamedTuple):
    """The rows that bronze has of one file, and its modification time when Spark read it."""

    rows: int
    corrupt: int
    rescued: int
    modified_at: int


def handed(rows: Iterable[Row]) -> list[Handed]:
    """Rows of the intake."""
    return [Handed(File(r.path, r.size, _micros(r.modified_at)), r.version) for r in rows]


def handed_to(spark: SparkSession, intake: Path, checkpoint: Path, batch: int) -> list[Handed]:
    """What one batch was handed, by the checkpoint of its query."""
    start = checkpoints.delta_offset(checkpoint, batch - 1)
    end = checkpoints.delta_offset(checkpoint, batch)
    if not log.are_there(intake, range(start.version, end.version)):
        return []  # maintenance has removed them
    return handed(table_files.added_rows(spark, intake, start.version, end.version - 1).collect())


def by_file(bronze: Path, version: int | None) -> dict[str, Counts]:
    """The rows that one version of bronze added, read back and counted by the paths of their files.

    Not by Spark, which takes ten times as long for that.
    """
    read_at = f"max(arrow_cast({SOURCE_MODIFIED_AT}, 'Int64'))"
    what = f"{SOURCE_FILE}, {ROW_COUNTS}, {read_at}"
    found = tables.select_added(bronze, version, what, f"group by {SOURCE_FILE}")
    return {path: Counts(*counts) for path, *counts in found}


def to_take_in(ledger: Ledger, handed: Handed, batch: int) -> Entry | None:
    """The ledger's row of a path, if the batch is to take it in.

    A run that was cut off may have handed a file over twice, and the ledger has none of it.
    """
    entry = ledger.version(handed.file.path, handed.version) or _new(ledger, handed, handed.file)
    return entry if _is_open(entry, batch) and entry.file == handed.file else None


def _new(ledger: Ledger, handed: Handed, file: File) -> Entry:
    known = ledger.version(file.path, handed.version)
    seen = known.first_seen_at if known else file.modified_at
    return Entry(ledger.source, file.path, handed.version, file.size, file.modified_at, seen)


def ingested(
    ledger: Ledger,
    layout: Layout,
    handed: Sequence[Handed],
    entries: Iterable[Entry],
    batch: int,
    found: Mapping[str, Counts],
) -> list[Entry]:
    """The ledger's new rows of what a batch took in.

    Args:
        handed: what it was handed, or all that it may have been.
        entries: the ledger's rows of the files that it read, with rows or without.
        found: the rows that bronze has of it, by the files' paths.
    """
    listed = _by_path(handed, found)
    done = []
    for path, counts in found.items():
        if entry := _of_rows(ledger, layout, path, listed.get(path), counts, batch):
            done.append(entry.taken_in(batch, *counts[:3]))
    return done + [e.taken_in(batch, 0, 0, 0) for e in entries if e.path not in found]


def _by_path(handed: Iterable[Handed], found: Mapping[str, Counts]) -> dict[str, Handed]:
    """What was handed over with each path last, or rather with the time of the rows: a batch is
    handed a path once, but where nobody knows which batch was handed what, there are all versions.
    """

    def likely(each: Handed) -> tuple[bool, int]:
        counts = found.get(each.file.path)
        return counts is not None and counts.modified_at == each.file.modified_at, each.version

    return {each.file.path: each for each in sorted(handed, key=likely)}


def _of_rows(
    ledger: Ledger, layout: Layout, path: str, handed: Handed | None, counts: Counts, batch: int
) -> Entry | None:
    """The row of the file that bronze has rows of; None where it needs none any more.

    It need not be the one that was handed over: another one may have taken its place just before
    Spark opened it. And a poll may have entered something else under its path.
    """
    newest = ledger.newest(path)
    if handed is None:  # the table of what was is an older copy
        is_it = newest and newest.state == PENDING and newest.modified_at == counts.modified_at
        return newest if is_it else None
    file = handed.file
    if counts.modified_at != file.modified_at:
        now = stat(layout, file.path)
        is_there = now is not None and now.modified_at == counts.modified_at
        file = now if now and is_there else replace(file, modified_at=counts.modified_at)
    if newest and newest.file == file and _is_open(newest, batch):
        return newest  # a later version, where the file was gone for a while
    known = ledger.version(file.path, handed.version)
    if known and known.state in TAKEN:
        return known if _is_open(known, batch) else None
    return _new(ledger, handed, file)


def _is_open(entry: Entry, batch: int) -> bool:
    """Whether a batch may take a file in; where it is repeated, it has done so before."""
    return entry.state == PENDING or (entry.state == INGESTED and entry.batch == batch)


def _micros(time: datetime) -> int:
    # Not by way of a float, which is a millisecond off for some years' times.
    return (time.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1) * 1000

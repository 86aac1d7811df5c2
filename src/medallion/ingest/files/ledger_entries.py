"""The ledger's rows of the files that a batch takes in: which of those that it was handed it is to
read, and how many rows bronze has of each afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Row, SparkSession

from medallion.ingest.files.listing import stat
from medallion.spark import checkpoints, delta_reads
from medallion.state.ledger import INGESTED, INGESTED_STATES, PENDING, Entry, File, Ledger
from medallion.storage import delta_log, delta_tables
from medallion.storage.paths import Layout
from medallion.storage.table_specs import ROW_COUNTS, SOURCE_FILE, SOURCE_MODIFIED_AT

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Counts(NamedTuple):
    """The rows that bronze has of one file, and its modification time when Spark read it."""

    rows: int
    corrupt: int
    rescued: int
    modified_at: int


def handed(source: str, rows: Iterable[Row]) -> list[Entry]:
    """Files as they were when they were handed over, as rows of the ledger: what that has of them
    by now may be something else, or nothing."""
    times = ((row, _micros(row.modified_at)) for row in rows)
    return [Entry(source, row.path, row.version, row.size, at, at) for row, at in times]


def handed_to(
    spark: SparkSession, source: str, intake: Path, checkpoint: Path, batch: int
) -> list[Entry]:
    """What one batch was handed, by its query's checkpoint; nothing where maintenance has removed
    it."""
    start = checkpoints.delta_offset(checkpoint, batch - 1)
    end = checkpoints.delta_offset(checkpoint, batch)
    if not delta_log.are_readable(intake, range(start.version, end.version)):
        return []
    added = delta_reads.added_rows(spark, intake, start.version, end.version - 1)
    return handed(source, added.collect())


def by_file(bronze: Path, version: int | None) -> dict[str, Counts]:
    """How many rows one version of bronze added, by the paths of their files.

    They are read back without Spark, which takes ten times as long for that.
    """
    read_at = f"max(arrow_cast({SOURCE_MODIFIED_AT}, 'Int64'))"
    what = f"{SOURCE_FILE}, {ROW_COUNTS}, {read_at}"
    found = delta_tables.select_added_rows(bronze, version, what, f"group by {SOURCE_FILE}")
    return {path: Counts(*counts) for path, *counts in found}


def to_take_in(ledger: Ledger, handed: Entry, batch: int) -> Entry | None:
    """The ledger's row of a file that was handed over, if the batch is to take it in.

    A run that was cut off may have handed it over twice, and may not have entered it at all.
    """
    entry = ledger.version(handed.path, handed.version) or handed
    return entry if _is_open(entry, batch) and entry.file == handed.file else None


def ingested(
    ledger: Ledger,
    layout: Layout,
    handed: Iterable[Entry],
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
            done.append(entry.as_ingested(batch, *counts[:3]))
    return done + [e.as_ingested(batch, 0, 0, 0) for e in entries if e.path not in found]


def _by_path(handed: Iterable[Entry], found: Mapping[str, Counts]) -> dict[str, Entry]:
    """What was handed over under each path.

    A batch is handed a path once. But where nobody knows which batch was handed what, these are all
    that ever were: of several with one path the one with the time of the rows counts, else the
    newest.
    """

    def likely(each: Entry) -> tuple[bool, int]:
        counts = found.get(each.path)
        return counts is not None and counts.modified_at == each.modified_at, each.version

    return {each.path: each for each in sorted(handed, key=likely)}


def _of_rows(
    ledger: Ledger, layout: Layout, path: str, handed: Entry | None, counts: Counts, batch: int
) -> Entry | None:
    """The ledger's row of the file that bronze has rows of; None where another batch has taken that
    in.

    The file need not be the one that was handed over: another one may have taken its place just
    before Spark opened it. And a poll may have entered something else under its path.
    """
    newest = ledger.newest(path)
    if handed is None:  # a corrupt commit of what was queued was moved away
        is_it = newest and newest.state == PENDING and newest.modified_at == counts.modified_at
        return newest if is_it else None
    read_at, size = counts.modified_at, handed.size
    if read_at != handed.modified_at and (now := stat(layout, path)) and now.modified_at == read_at:
        size = now.size
    if newest and newest.file == File(path, size, read_at) and _is_open(newest, batch):
        return newest  # a later version, where the file was gone for a while
    known = ledger.version(path, handed.version)
    if known and known.state in INGESTED_STATES:
        return known if _is_open(known, batch) else None
    seen = known.first_seen_at if known else read_at
    return replace(handed, size=size, modified_at=read_at, first_seen_at=seen)


def _is_open(entry: Entry, batch: int) -> bool:
    """Whether a batch may take a file in, or has done so before, and is repeated now."""
    return entry.state == PENDING or (entry.state == INGESTED and entry.batch == batch)


def _micros(time: datetime) -> int:
    # Not by way of a float, which is a millisecond off for some years' times.
    return (time.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1) * 1000

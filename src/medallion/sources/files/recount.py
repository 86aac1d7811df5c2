"""The files of a source counted again without Spark, and held against ledger and bronze; and files
that were put away and that no table knows."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from medallion.config.model import Config, SourceConfig
from medallion.config.patterns import fits
from medallion.lakehouse import storage
from medallion.lakehouse.layout import Layout
from medallion.lakehouse.text import counted, reason_of
from medallion.ops import ledger
from medallion.ops.ledger import INGESTED, REJECTED, TAKEN, UNREADABLE, Entry, File
from medallion.sources.base import Recount
from medallion.sources.files import ledger_repair
from medallion.sources.files.codecs import READ_ERRORS
from medallion.sources.files.ledger_repair import Key, in_bronze
from medallion.sources.files.line_counts import rows_of
from medallion.sources.files.listing import below_folder
from medallion.sources.files.put_away import (
    found_again,
    is_lost,
    landed_below,
    names_before,
    put_away,
)


def recount(config: Config, source: SourceConfig) -> Recount:
    """Count the rows of the files of a source, and those in bronze; name the files that differ."""
    layout = config.layout
    files = list(put_away(layout, source))  # before the ledger is asked
    book, rows = ledger.Ledger(layout, source.name), in_bronze(layout, source.name)
    entries, bronze = book.every(), {key: counts[0] for key, counts in rows.items()}
    # As the next run enters it, where the ledger is gone, or an older copy.
    more = ledger_repair.lacking(layout, book, rows, 0)
    found = {(e.path, e.version): e for e in found_again(layout, source, [*entries, *more], files)}
    entries, more = ([found.get((e.path, e.version), e) for e in each] for each in (entries, more))
    newest = ledger.newest(entries)
    findings, unread = _differing(config, source, entries, newest, bronze)
    findings += _gone_from_rejected(layout, entries, newest)
    findings += _unknown(layout, source, [*entries, *more], bronze, files)
    told = f"{counted(unread, 'file')} deleted or overwritten, and not counted again: the "
    notes = [f"{source.name}: {told}ledger's figures stand."] if unread else []
    return Recount([f"{source.name}: {finding}" for finding in findings], notes)


def _differing(
    config: Config,
    source: SourceConfig,
    entries: list[Entry],
    newest: Mapping[str, Entry],
    bronze: Mapping[Key, int],
) -> tuple[list[str], int]:
    """The files of which the ledger or bronze has other rows; how many files cannot be counted."""
    findings, unread = [], 0
    taken: dict[Key, list[Entry]] = defaultdict(list)
    for entry in (entry for entry in entries if entry.state in TAKEN):
        # Versions of a file may share a time, and are then one to bronze.
        taken[entry.path, entry.modified_at].append(entry)
    for (path, at), versions in taken.items():
        recounted = [_count(config, source, each, newest[path].version) for each in versions]
        unread += sum(each.is_unread for each in recounted)
        problems = [f"{path}: {each.problem}" for each in recounted if each.problem]
        lines = sum(each.lines for each in recounted)
        rows, there = sum(entry.rows or 0 for entry in versions), bronze.get((path, at), 0)
        if not problems and not lines == rows == there:
            told = f"{counted(rows, 'row')} in the ledger and {there:,} in bronze."
            problems = [f"{path} has {counted(lines, 'line')}, {told}"]
        findings += problems
    more = ((path, rows) for (path, at), rows in bronze.items() if (path, at) not in taken)
    told = "which the ledger does not have as taken in."
    findings += [f"bronze has {counted(rows, 'row')} of {path}, {told}" for path, rows in more]
    return findings, unread


class _Counted(NamedTuple):
    """The lines of a file: the ledger's figure, where it is not there to be read."""

    lines: int
    is_unread: bool = False
    problem: str | None = None


def _count(config: Config, source: SourceConfig, entry: Entry, newest: int) -> _Counted:
    """Count a file that was taken in."""
    known = entry.rows or 0
    is_gone = entry.state == ledger.ARCHIVED and entry.moved_to is None  # deleted, as configured
    if is_gone or (entry.moved_to is None and newest > entry.version):  # another one lies there
        return _Counted(known, is_unread=True)
    place = entry.moved_to or entry.path
    try:
        return _Counted(rows_of(config.layout.root / place, source))
    except FileNotFoundError:
        if _is_its_owner_s(config, source, entry):
            return _Counted(known, is_unread=True)
        problem = f"it was taken in, and {place} is not there any more."
    except READ_ERRORS as error:
        problem = f"{place} cannot be read: {reason_of(error)}."
    return _Counted(known, problem=problem)


def _is_its_owner_s(config: Config, source: SourceConfig, entry: Entry) -> bool:
    """Whether a file that was taken in is left to whoever put it there, who may delete it: one of a
    backfill, and any where `clean_source` is `off`."""
    if entry.moved_to is not None:
        return False
    is_a_backfill_s = below_folder(config.layout, source, config.layout.root / entry.path) is None
    return source.clean_source == "off" or is_a_backfill_s


def _gone_from_rejected(
    layout: Layout, entries: list[Entry], newest: Mapping[str, Entry]
) -> list[str]:
    """Rejected files may be repaired and land anew; gone without that, they are lost."""
    moved = ((e.path, e.moved_to) for e in entries if e.state == REJECTED and newest[e.path] is e)
    return [
        f"{path} was rejected, and {place} is not there any more."
        for path, place in moved
        if place and not os.path.lexists(layout.root / place)
    ]


def _unknown(
    layout: Layout,
    source: SourceConfig,
    entries: list[Entry],
    bronze: Collection[Key],
    files: list[File],
) -> list[str]:
    """Files in `archive/` and `rejected/` that no table knows: they were put away after the copies
    of the tables were made that somebody has put back.

    Left out are files whose rows are in bronze, though the ledger does not say that they lie here;
    and files that have landed once more since, for they would be taken in twice. The others are to
    go where they landed: there paths and bytes are compared, and none is taken in twice. But one
    that may be what is left of a file whose rows are there, and which itself is not, goes nowhere.
    """
    places = {path for path, _ in bronze} | {p for e in entries for p in (e.path, e.moved_to) if p}
    moving = {(e.path, e.modified_at) for e in entries if e.state in (INGESTED, UNREADABLE)}
    times = {(landed_below(layout, source, path), at) for path, at in (*bronze, *moving)}
    copies: dict[Path, list[Path]] = defaultdict(list)
    lost: dict[Path, Entry] = {}
    for entry in (entry for entry in entries if entry.state in TAKEN):
        below = landed_below(layout, source, entry.path)
        copies[below].append(layout.root / (entry.moved_to or entry.path))
        if is_lost(layout, entry):
            lost[below] = entry
    found = []
    for file in sorted(files, key=lambda file: file.modified_at):  # as they came
        names = names_before(layout, source, file)
        landed = next((each for each in names if fits(each.name, source.pattern)), None)
        is_known = file.path in places or any(
            (each, file.modified_at) in times or _is_one_of(layout.root / file.path, copies[each])
            for each in names
        )
        if is_known or not landed:
            continue
        if other := next((lost[each] for each in names if each in lost), None):
            told = (
                f"may be {other.path}, changed: of that bronze has "
                f"{counted(other.rows or 0, 'row')}, and it is not there any more. Leave it; if it "
                f"has other rows, move it to {layout.relative(layout.landing(source.name))} by a "
                "name of its own."
            )
        else:
            to = " or ".join(layout.relative(place / landed) for place in source.places(layout))
            told = f"no table has it: move it (mv -n) to {to}, from where it is taken in."
        found.append(f"{file.path} lies there, and {told}")
    return found


def _is_one_of(file: Path, others: Iterable[Path]) -> bool:
    for other in others:
        with suppress(OSError):
            if storage.have_same_bytes(file, other):
                return True
    return False

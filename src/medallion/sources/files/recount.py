"""Files and rows counted again by Python and DataFusion, neither of which is Spark."""

from __future__ import annotations

import filecmp
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from medallion.config.model import Config, SourceConfig
from medallion.config.patterns import fits
from medallion.lakehouse.layout import Layout
from medallion.lakehouse.text import counted
from medallion.ops import ledger
from medallion.ops.ledger import INGESTED, REJECTED, TAKEN, Entry, File
from medallion.sources.base import Recount
from medallion.sources.files.codecs import FAULTS
from medallion.sources.files.ledger_repair import Key, in_bronze
from medallion.sources.files.line_counts import rows_of
from medallion.sources.files.listing import below_folder, stat
from medallion.sources.files.walk import is_hidden


def recount(config: Config, source: SourceConfig) -> Recount:
    """Count the rows of the files of a source, and those in bronze; name the files that differ."""
    found = Recount()
    put_away = _put_away(config, source)  # by what the ledger says afterwards
    entries = ledger.read(config.layout, source.name)
    counts = in_bronze(config.layout, source.name)
    there = Counter({key: rows.all for key, rows in counts.items()})
    newest = {path: entry.version for path, entry in ledger.newest(entries).items()}
    known: dict[Key, list[Entry]] = {}
    for entry in (entry for entry in entries if entry.state in TAKEN):
        # Versions of a file may share a time, and are then one to bronze.
        known.setdefault((entry.path, entry.modified_at), []).append(entry)
    unread = 0
    for key, versions in known.items():
        recounted = [_count(config, source, entry, newest[entry.path]) for entry in versions]
        unread += sum(each.is_unread for each in recounted)
        problems = [each.problem for each in recounted if each.problem]
        found.findings += [f"{source.name}: {key[0]}: {problem}" for problem in problems]
        lines = sum(each.lines for each in recounted)
        rows = sum(entry.rows or 0 for entry in versions)
        if not problems and not lines == rows == there[key]:
            found.findings.append(
                f"{source.name}: {key[0]} has {counted(lines, 'line')}, "
                f"{counted(rows, 'row')} in the ledger and {there[key]:,} in bronze."
            )
    found.findings += [
        f"{source.name}: bronze has {counted(there[key], 'row')} of {key[0]}, which the "
        "ledger does not have as taken in."
        for key in there
        if key not in known
    ]
    found.findings += _gone_from_rejected(config, source, entries, newest)
    found.findings += _unknown(config, source, entries, there, put_away)
    if unread:
        found.notes.append(
            f"{source.name}: {unread:,} files are deleted or overwritten, and cannot be counted "
            "again: the ledger's figures stand for them."
        )
    return found


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
        problem = f"it was taken in, and {place} is not there any more."
    except FAULTS as error:
        problem = f"{place} cannot be read: {getattr(error, 'strerror', None) or error}."
    return _Counted(known, problem=problem)


def _gone_from_rejected(
    config: Config, source: SourceConfig, entries: list[Entry], newest: dict[str, int]
) -> list[str]:
    """Rejected files may be repaired and land anew; gone without that, they are lost."""
    return [
        f"{source.name}: {entry.path} was rejected, and {entry.moved_to} is not there any more."
        for entry in entries
        if entry.state == REJECTED
        and entry.moved_to
        and newest[entry.path] == entry.version
        and not os.path.lexists(config.layout.root / entry.moved_to)
    ]


def _put_away(config: Config, source: SourceConfig) -> list[File]:
    """What lies in `archive/` and `rejected/` of a source, but for the reasons."""
    layout = config.layout
    found = []
    for top in (layout.archive(source.name), layout.rejected(source.name)):
        for folder, below, names in os.walk(top):
            below[:] = sorted(name for name in below if not is_hidden(name))
            paths = (Path(folder, name) for name in sorted(names) if not is_hidden(name))
            there = (stat(layout, layout.relative(p)) for p in paths if not layout.is_reason(p))
            found += [file for file in there if file]
    return found


def _unknown(
    config: Config,
    source: SourceConfig,
    entries: list[Entry],
    in_bronze: Collection[Key],
    there: list[File],
) -> list[str]:
    """Files that are in no table: they were put away after the copy that somebody has put back.

    Not those whose rows are there, though the ledger does not say yet, or any more, that they lie
    here; nor those that have come once more since: they would be taken in twice. From where they
    landed they are not, for there paths and bytes are compared: so that is where they are to go.
    """
    layout = config.layout
    known = {place for entry in entries for place in (entry.path, entry.moved_to) if place}
    known |= {path for path, _ in in_bronze}
    moving = ((e.path, e.modified_at) for e in entries if e.state == INGESTED)
    taken = {(_landed_below(layout, source, path), at) for path, at in (*in_bronze, *moving)}
    again: dict[Path, list[Path]] = defaultdict(list)
    for entry in (entry for entry in entries if entry.state in TAKEN):
        place = layout.root / (entry.moved_to or entry.path)
        again[_landed_below(layout, source, entry.path)].append(place)
    found = []
    for file in sorted(there, key=lambda file: file.modified_at):  # as they came
        if any(str(place) in known for place in (file.path, *Path(file.path).parents)):
            continue
        below = _names_before(layout, source, file)
        if any((b, file.modified_at) in taken or _is_among(layout, file, again[b]) for b in below):
            continue
        if landed := next((b for b in below if fits(b.name, source.pattern)), None):
            places = (layout.relative(folder / landed) for folder in source.places(layout))
            found.append(
                f"{source.name}: {file.path} lies there, and no table has it: move it (mv -n) to "
                f"{' or '.join(places)}, from where it is taken in."
            )
    return found


def _landed_below(layout: Layout, source: SourceConfig, path: str) -> Path:
    """Where a file landed below its folder; its name alone, where that is none of the source's."""
    return below_folder(layout, source, layout.root / path) or Path(Path(path).name)


def _names_before(layout: Layout, source: SourceConfig, file: File) -> tuple[Path, Path]:
    """Where a file that was put away can have landed: the number may be one that it was given."""
    tops = (layout.archive(source.name), layout.rejected(source.name))
    path = layout.root / file.path
    below = next(path.relative_to(top) for top in tops if path.is_relative_to(top))
    return below.with_name(re.sub(r"^[0-9]+~(?=.)", "", below.name)), below


def _is_among(layout: Layout, file: File, others: list[Path]) -> bool:
    """Whether one of these has the bytes of a file."""
    filecmp.clear_cache()  # it goes by sizes and times, which tell nothing here
    for other in others:
        with suppress(OSError):
            if filecmp.cmp(layout.root / file.path, other, shallow=False):  # of one size alone
                return True
    return False

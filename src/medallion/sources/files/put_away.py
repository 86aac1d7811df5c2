"""Files that were put away: what lies in `archive/` and `rejected/`, and which of the ledger's each
is, where that does not say so."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from medallion.config.model import SourceConfig
from medallion.lakehouse.layout import Layout
from medallion.ops.ledger import ARCHIVED, INGESTED, REPLACED, Entry, File
from medallion.sources.files.codecs import READ_ERRORS
from medallion.sources.files.line_counts import rows_of
from medallion.sources.files.listing import below_folder, number_of, stat, without_number
from medallion.sources.files.walk import is_hidden


def put_away(layout: Layout, source: SourceConfig) -> Iterator[File]:
    """What lies in `archive/` and `rejected/` of a source, but for the reasons."""
    for top in (layout.archive(source.name), layout.rejected(source.name)):
        for folder, below, names in os.walk(top):
            below[:] = sorted(name for name in below if not is_hidden(name))
            paths = (Path(folder, name) for name in sorted(names) if not is_hidden(name))
            there = (stat(layout, layout.relative(p)) for p in paths if not layout.is_reason(p))
            yield from filter(None, there)


def landed_below(layout: Layout, source: SourceConfig, path: str) -> Path:
    """Where a file landed below its folder; its name alone, where that is none of the source's."""
    return below_folder(layout, source, layout.root / path) or Path(Path(path).name)


def names_before(layout: Layout, source: SourceConfig, file: File) -> tuple[Path, Path]:
    """Where a file that was put away can have landed: the number may be one that it was given."""
    tops = (layout.archive(source.name), layout.rejected(source.name))
    path = layout.root / file.path
    below = next(path.relative_to(top) for top in tops if path.is_relative_to(top))
    return without_number(below), below


def is_lost(layout: Layout, entry: Entry) -> bool:
    """Whether a file was taken in, and does not lie where the ledger has it."""
    if entry.state not in (INGESTED, REPLACED) or entry.moved_to:
        return False
    there = stat(layout, entry.path)
    return there is None or there.size != entry.size


def found_again(
    layout: Layout, source: SourceConfig, entries: Iterable[Entry], files: Iterable[File]
) -> list[Entry]:
    """The new rows of files that were taken in, and lie in `archive/` though the ledger does not
    say so: it was made whole from bronze, which knows a file's path and time.

    A file has its time, or at least its size, where a copy has not kept the times: of several of a
    name the oldest has the lowest number. Where nothing tells its size any more, it has its rows.

    Args:
        entries: all that the ledger has.
        files: what was put away; not looked at, where no file is lost.
    """
    every = list(entries)
    lost = sorted(
        (entry for entry in every if is_lost(layout, entry)),
        key=lambda entry: (entry.version, entry.modified_at),
    )
    if not any(entry.state == INGESTED for entry in lost):
        return []  # the others were overwritten where they landed
    free = _by_name(layout, source, files, {entry.moved_to for entry in every})
    found = dict[tuple[str, int], Entry]()

    def take(is_it: Callable[[Entry, File], bool]) -> None:
        for entry in (each for each in lost if (each.path, each.version) not in found):
            named = free[landed_below(layout, source, entry.path)]
            if file := next((f for f in named if is_it(entry, f)), None):
                for below in names_before(layout, source, file):
                    with suppress(ValueError):
                        free[below].remove(file)
                row = replace(entry, size=file.size, moved_to=file.path)
                if entry.state == INGESTED:
                    row = row.turned(ARCHIVED, None)
                found[entry.path, entry.version] = row

    def is_like(entry: Entry, file: File) -> bool:
        if entry.size or not entry.rows:
            return file.size == entry.size
        with suppress(*READ_ERRORS):
            return rows_of(layout.root / file.path, source) == entry.rows
        return False

    take(lambda entry, file: file.modified_at == entry.modified_at and is_like(entry, file))
    take(is_like)
    return list(found.values())


def _by_name(
    layout: Layout, source: SourceConfig, files: Iterable[File], known: Container[str | None]
) -> dict[Path, list[File]]:
    """Files in `archive/` whose rows of the ledger nobody knows, by where they can have landed, in
    the order of their numbers."""
    top, found = layout.relative(layout.archive(source.name)), defaultdict[Path, list[File]](list)
    for file in files:
        if file.path not in known and file.path.startswith(f"{top}/"):
            for below in {*names_before(layout, source, file)}:
                found[below].append(file)
    for named in found.values():
        named.sort(key=lambda file: number_of(Path(file.path)))
    return found

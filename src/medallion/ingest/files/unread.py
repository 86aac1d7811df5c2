"""Files that nobody reads: of a misspelled source, or with names that no pattern fits."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from medallion.config.model import Config
from medallion.config.values import matches_pattern
from medallion.ingest.files.walk import is_hidden
from medallion.storage.paths import Layout, resolved_path
from medallion.storage.text import counted


def unread(config: Config) -> list[str]:
    """A line for each folder of landing/, or of a source, with files that no source takes in, now
    or later.

    A name that begins with a dot is still to be renamed, and one with _ is a writer's mark; so is a
    folder's.
    """
    layout, landing = config.layout, config.layout.landing("")
    sources = (source for source in config.sources.values() if not source.stream)
    read = [
        (resolved_path(place), place, s.pattern) for s in sources for place in s.folders_in(layout)
    ]
    tops: dict[Path, Path] = {resolved_path(landing): landing}
    for actual, place, _ in read:
        tops.setdefault(actual, place)
    found: Counter[tuple[Path, tuple[str, ...]]] = Counter()
    for actual, top in tops.items():
        if any(actual != other and actual.is_relative_to(other) for other in tops):
            continue
        for folder, below, files in _walk(layout, actual):
            here = [each for each in read if folder.is_relative_to(each[0])]
            patterns = tuple(sorted({pattern for _, _, pattern in here}))
            if "*" in patterns:  # all are read, and there may be many
                below.clear()
                continue
            own = max(here, default=None, key=lambda each: len(each[0].parts))
            place = own[1] if own else top.joinpath(*folder.relative_to(actual).parts[:1])
            found[place, patterns] += sum(
                not any(matches_pattern(n, p) for p in patterns) for n in files
            )
    return [
        f"{layout.relative(folder)}: {counted(files, 'file')} that no source of pipeline.yaml reads"
        + (f": not named as {' or '.join(patterns)}" if patterns else "")
        for (folder, patterns), files in sorted(found.items())
        if files
    ]


def left_out(layout: Layout, folder: Path, pattern: str) -> int:
    """How many files below a folder have names that do not fit; of no single file."""
    found = _walk(layout, resolved_path(folder))
    return sum(not matches_pattern(name, pattern) for _, _, files in found for name in files)


def _walk(layout: Layout, top: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """As `os.walk` does it from a real path on, without what is hidden, or the lakehouse's own."""
    ours = {resolved_path(folder) for folder in layout.internal_directories()}
    for path, below, files in os.walk(top):
        folder = Path(path)
        below[:] = [n for n in below if n[0] not in "._" and folder / n not in ours]
        yield folder, below, [name for name in files if not is_hidden(name)]

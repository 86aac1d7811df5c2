"""Files that nobody reads: of a misspelled source, or with names that no pattern fits."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from medallion.config.model import Config
from medallion.config.patterns import fits
from medallion.lakehouse.layout import Layout
from medallion.lakehouse.text import counted
from medallion.sources.files.walk import is_hidden

Patterns = frozenset[str]
_NONE: Patterns = frozenset()


def unread(config: Config) -> list[str]:
    """A line for each folder of landing/, or of a source, with files that no source takes in, now
    or later.

    A name that begins with a dot is still to be renamed, and one with _ is a writer's mark; so is a
    folder's.
    """
    landing = config.layout.landing("")
    patterns: dict[Path, Patterns] = defaultdict(frozenset)
    tops = {Path(os.path.realpath(landing)): landing}
    for source in (source for source in config.sources.values() if not source.stream):
        for place in source.places(config.layout):
            real = Path(os.path.realpath(place))
            patterns[real] |= {source.pattern}
            tops.setdefault(real, place)
    found: Counter[tuple[Path, Patterns]] = Counter()
    for real, top in tops.items():
        if not any(real != other and real.is_relative_to(other) for other in tops):
            for folder, fit, files in _unread(top, patterns, config.layout):
                found[folder, fit] += files
    return [
        f"{config.layout.relative(folder)}: {counted(files, 'file')} that no source of "
        f"pipeline.yaml reads{_pattern_note(fit)}"
        for (folder, fit), files in sorted(found.items(), key=lambda each: each[0][0])
        if files
    ]


def left_out(layout: Layout, folder: Path, pattern: str) -> int:
    """How many files below a folder have names that do not fit; of no single file."""
    patterns = {Path(os.path.realpath(folder)): frozenset({pattern})}
    return sum(files for _, _, files in _unread(folder, patterns, layout))


def _unread(
    top: Path, read: Mapping[Path, Patterns], layout: Layout
) -> Iterator[tuple[Path, Patterns, int]]:
    """How many files below a folder are not read, by the source's folder, or that of landing/, that
    they lie in. Where all names fit, nothing is listed: there may be many."""
    above: dict[str, tuple[Path, Patterns]] = {}
    ours = {os.path.realpath(folder) for folder in layout.own_folders()}
    for folder, below, files in os.walk(top):
        place, fit = above.get(os.path.dirname(folder), (top, _NONE))  # noqa: PTH120
        if own := read.get(Path(os.path.realpath(folder))):
            place, fit = Path(folder), fit | own
        elif place == top and not fit:
            place = Path(folder)
        if "*" in fit:
            below.clear()
            continue
        above[folder] = place, fit
        below[:] = [
            name
            for name in below
            if name[0] not in "._" and os.path.realpath(os.path.join(folder, name)) not in ours  # noqa: PTH118
        ]
        yield place, fit, sum(not (is_hidden(n) or any(fits(n, p) for p in fit)) for n in files)


def _pattern_note(fit: Patterns) -> str:
    return f": their names do not fit {' or '.join(sorted(fit))}" if fit else ""

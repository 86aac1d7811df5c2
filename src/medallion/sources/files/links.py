"""One file under several names, by way of links: which of them counts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from medallion.config.loader import Source
from medallion.lakehouse.layout import Layout
from medallion.sources.files.listing import File


def one_spelling(layout: Layout, source: Source, path: Path) -> Path:
    """A path as the source's folders or the root spell it, else without any link to a folder."""
    real = Path(os.path.realpath(path if path.is_dir() else path.parent))
    real = real if path.is_dir() else real / path.name
    for folder in (*source.places(layout), layout.root):
        place = os.path.realpath(folder)
        if real.is_relative_to(place):
            return folder / real.relative_to(place)
    return real


def twins(
    layout: Layout, new: Iterable[File], listed: Iterable[File], known: Iterable[File]
) -> Mapping[str, str]:
    """The paths of new files that are others' under another name, with the names that count.

    Args:
        listed: the files that are there.
        known: those that are taken in or wait; the name that the ledger has counts.
    """
    real = _Real(layout)
    root = os.path.realpath(layout.root)
    doubtful = {f: place for f in new if (place := real(f.path)) != f"{root}/{f.path}"}
    looks = {(f.size, f.modified_at) for f in doubtful}
    if not looks:
        return {}

    def rank(file: File) -> tuple[bool, bool, bool, str]:
        path = file.path
        is_link = (layout.root / path).is_symlink()
        return path.startswith("/"), is_link, path != doubtful[file], path

    # The later ones win.
    names = {doubtful[f]: f.path for f in sorted(doubtful, key=rank, reverse=True)}
    for file in (*(f for f in listed if f not in doubtful), *known):
        if (file.size, file.modified_at) in looks:
            names[real(file.path)] = file.path
    return {f.path: names[place] for f, place in doubtful.items() if names[place] != f.path}


class _Real:
    """Where paths lead to; each folder is asked for once."""

    def __init__(self, layout: Layout) -> None:
        self._root = layout.root
        self._folders: dict[str, str] = {}

    def __call__(self, path: str) -> str:
        folder, name = os.path.split(self._root / path)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        place = f"{self._folders[folder]}/{name}"
        return os.path.realpath(place) if os.path.islink(place) else place  # noqa: PTH114

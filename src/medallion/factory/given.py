"""Files that are there already, landed one after the other: `<folder>/<source>/<file>`."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from medallion.errors import UsageError
from medallion.factory.landed import Landed
from medallion.factory.state import StateFile
from medallion.factory.writing import hidden
from medallion.lakehouse import storage


@dataclass(frozen=True)
class GivenFiles:
    """The files of a folder as the batches of a lesson: a file of each source is a batch."""

    folder: Path
    landing: Path
    state: StateFile

    def land(self, source: str | None, everything: bool) -> dict[str, Landed]:
        """Land the next file of each source, or of one, or all that are left: each whole, and once.

        Raises:
            UsageError: the folder is not there, or has no files (of that source); or another file
                of a name is in the landing zone.
        """
        found, result = self._found(source), dict[str, Landed]()
        with self.state.locked():
            for name, files in found.items():
                landed = self.state.load(name).given
                left = [file for file in files if file.name not in landed]
                for file in left if everything else left[:1]:
                    result[name] = result.get(name, Landed()) + self._land(file, name)
        return result

    def _found(self, source: str | None) -> dict[str, list[Path]]:
        folders = self.folder.iterdir() if self.folder.is_dir() else ()
        found = {p.name: _files(p) for p in sorted(folders) if p.is_dir() and _files(p)}
        if not found:
            raise UsageError(
                f"{self.folder}: no files to land; they lie there in a folder a source."
            )
        if source is None:
            return found
        if source not in found:
            raise UsageError(f"{self.folder}: no files of {source!r}, only of {', '.join(found)}.")
        return {source: found[source]}

    def _land(self, file: Path, source: str) -> Landed:
        place = self.landing / source / file.name
        # The same one is there where a run was cut off before it was noted.
        if place.exists() and not storage.have_same_bytes(file, place):
            raise UsageError(
                f"{place} is there already, and was not landed from {self.folder}: move it away, "
                "or land on a new root."
            )
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, hidden(place))
        hidden(place).replace(place)
        before = self.state.load(source)
        self.state.save(source, replace(before, given=(*before.given, file.name)))
        with file.open("rb") as lines:
            return Landed(files=1, lines=sum(bool(line.strip()) for line in lines), batches=1)


def _files(folder: Path) -> list[Path]:
    files = (p for p in folder.iterdir() if p.is_file() and not p.name.startswith((".", "_")))
    return sorted(files, key=lambda file: _order(file.name))


def _order(name: str) -> list[tuple[str, int]]:
    """file2 before file10."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name)]

"""The root of a lesson, which may be removed again, and the given files that it lands."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from medallion.errors import UsageError
from medallion.factory.plan import Landed, StateFile
from medallion.factory.writing import hidden
from medallion.storage import files as small_files
from medallion.storage import locks
from medallion.storage.paths import LAYERS, PUBLISH, REASON_SUFFIX, Layout

_MADE = re.compile(r"(\w+)-(\d{6})-\d{5}\.json")


@dataclass(frozen=True)
class CleanedUp:
    """What a clean-up stopped, removed, and left because nobody knows whose it is."""

    stopped: tuple[str, ...] = ()
    removed: tuple[Path, ...] = ()
    left: tuple[Path, ...] = ()

    def __str__(self) -> str:
        """A line for each of the three that there is."""
        told = {
            "stopped": self.stopped,
            "removed": self.removed,
            "left, as no lesson made it": self.left,
        }
        lines = [f"{what}: {', '.join(map(str, these))}" for what, these in told.items() if these]
        return "\n".join(lines) or "nothing to clean up"


@dataclass(frozen=True)
class Lesson:
    """The root above a landing zone, as the place of a lesson."""

    landing: Path
    state: StateFile

    @property
    def root(self) -> Path:
        """Where the lesson's tables and checkpoints lie."""
        return self.landing.parent

    @property
    def _mark(self) -> Path:
        return self.state.path.with_name("lesson")

    def begin(self) -> None:
        """Note that a lesson began here, where nothing but folders was before."""
        if not any(path.is_file() for path in self.root.rglob("*")):
            self._mark.parent.mkdir(parents=True, exist_ok=True)
            small_files.write_atomic(self._mark, "")

    def clean_up(self, timeout: float) -> CleanedUp:
        """Stop the streams below the root, and remove what a lesson made there.

        Raises:
            UsageError: the root held files before the lesson began, another process writes there,
                or a stream does not stop within `timeout` seconds. Nothing is removed then.
        """
        layout = Layout(self.root)
        if not set(layout.internal_directories()) - set(self._shared):
            return CleanedUp()
        if not self._mark.exists():
            raise UsageError(
                f"{self.root} held files before the first load() of a data factory, so they are "
                "not a lesson's: clean_up() removes nothing there."
            )
        with locks.lock_layers(layout, (*LAYERS, PUBLISH), "clean-up"):
            stopped = _stop_streams(self.root, timeout)
            landed = list(self._landed())
            for file in landed:
                file.unlink()
            # The mark goes last, so that a clean-up that was cut off can be done again.
            memory = self.state.path.parent
            ours = set(layout.internal_directories()) - set(self._shared)
            folders = sorted(ours, key=lambda folder: (folder == memory, folder))
            for folder in folders:
                folder.delete_prefix()
        for place in (self.landing, *self._shared):
            for each in (*place.glob("*"), place):
                _remove_empty(each)
        _remove_empty(self.root)
        left = (path for path in self.root.rglob("*") if path.is_file())
        return CleanedUp(stopped, (*landed, *folders), tuple(sorted(left)))

    @property
    def _shared(self) -> tuple[Path, ...]:
        """Where files lie that have landed, whoever landed them."""
        layout = Layout(self.root)
        return layout.archive(""), layout.rejected("")

    def _landed(self) -> Iterator[Path]:
        """The files that the factory landed, where they lie now, and why they were rejected."""
        moved = (file for place in self._shared for file in _files_below(place))
        files = sorted((*self.landing.glob("*/*"), *moved))
        progress = {name: self.state.load(name) for name in {file.parent.name for file in files}}
        for file in files:
            source = file.parent.name
            known = progress[source]
            shown = file.name.removeprefix(".").removesuffix(".tmp")
            if Layout(self.root).is_reason_file(file):
                shown = shown.removesuffix(REASON_SUFFIX)
            made = _MADE.fullmatch(shown)
            is_made = made and made[1] == source and int(made[2]) <= known.last
            if file.is_file() and (is_made or shown in known.given):
                yield file


def _stop_streams(root: Path, timeout: float) -> tuple[str, ...]:
    if "pyspark" not in sys.modules:  # then no stream can be running here
        return ()
    from medallion.streams.control import stop_below

    found = stop_below(root, timeout)
    if running := [stream.name for stream in found if not stream.is_stopped]:
        raise UsageError(
            f"{', '.join(running)} did not stop within {timeout:g} seconds, and reads or writes "
            f"below {root}: nothing was removed; try again when its batch has ended."
        )
    return tuple(stream.name for stream in found)


def _files_below(place: Path) -> Iterator[Path]:
    """What lies in its folders; behind a link are somebody else's."""
    for folder in () if place.is_symlink() else place.glob("*"):
        if not folder.is_symlink():
            yield from folder.glob("*")


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        folder.rmdir()


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
        if place.exists() and not small_files.have_same_bytes(file, place):
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

"""Lessons: given files that land one by one, on a root that is deleted afterwards."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from medallion.errors import UsageError
from medallion.factory.plan import Landed, StateFile
from medallion.storage import locks
from medallion.storage.paths import LAYERS, PUBLISH, REASON_SUFFIX, Layout, StoragePath

_MARK = "lesson"
_GENERATED = re.compile(r"\w+-\d{6}-\d{5}\.json")


@dataclass(frozen=True)
class CleanedUp:
    """The streams that a clean-up stopped, and the directories that it deleted."""

    stopped: tuple[str, ...] = ()
    removed: tuple[Path, ...] = ()


def given_files(directory: Path, source: str | None) -> dict[str, list[Path]]:
    """Return the files to land by source, in their order.

    Args:
        directory: has one directory per source.
        source: only this source; None for all.

    Raises:
        UsageError: there are no files (of that source).
    """
    directories = sorted(directory.iterdir()) if directory.is_dir() else []
    files = {p.name: _visible_files(p) for p in directories if p.is_dir() and _visible_files(p)}
    if not files or source not in (None, *files):
        known = ", ".join(files) or "none"
        raise UsageError(f"{directory}: no files to land; the folders of sources are {known}.")
    return {name: files[name] for name in files if source in (None, name)}


def land_given(
    landing: StoragePath, files: Mapping[str, list[Path]], everything: bool
) -> dict[str, Landed]:
    """Land the next given file of each source.

    Args:
        landing: the landing zone.
        files: all given files by source.
        everything: land all files that are left.

    Raises:
        UsageError: the landing zone has another file of that name.
    """
    state, landed = StateFile(landing.parent), dict[str, Landed]()
    if not any(path.is_file() for path in landing.parent.local.rglob("*")):
        (state.directory / _MARK).write_atomic("")
    for source, given in files.items():
        left = [file for file in given if file.name not in state.load(source).given]
        for file in left if everything else left[:1]:
            content, path = file.read_bytes(), landing / source / file.name
            if path.is_stored() and path.read() != content:
                raise UsageError(f"{path} already exists with other content: move it away.")
            path.write_atomic(content)
            before = state.load(source)
            state.save(source, replace(before, given=(*before.given, file.name)))
            lines = sum(bool(line.strip()) for line in content.splitlines())
            landed[source] = landed.get(source, Landed()) + Landed(1, lines, batches=1)
    return landed


def clean_up(landing: StoragePath, timeout: float) -> CleanedUp:
    """Stop the streams below a lesson's root, and delete what the lesson wrote there.

    Raises:
        UsageError: see `DataFactory.clean_up`. Nothing is deleted then.
    """
    layout = Layout(landing.parent)
    state = StateFile(layout.root)
    if not landing.is_stored() and not layout.internal_directories():
        return CleanedUp()
    if not (state.directory / _MARK).is_stored():
        raise UsageError(f"{layout.root} had files before the first load(): it is no lesson.")
    with locks.lock_layers(layout, (*LAYERS, PUBLISH), "clean-up"):
        zones = (landing, layout.archive(""), layout.rejected(""))
        if other := sorted(_other_files(zones, state)):
            raise UsageError(f"{other[0]} is not the lesson's: move it away.")
        stopped = _stop_streams(layout.root, timeout)
        # The mark is deleted last, so that an interrupted clean-up can be repeated.
        directories = [landing, *layout.internal_directories()]
        directories.sort(key=lambda directory: directory == state.directory)
        for directory in directories:
            directory.delete_prefix()
    if not layout.root.children():
        layout.root.delete_prefix()
    return CleanedUp(stopped, tuple(each.local for each in directories))


def _other_files(zones: Iterable[StoragePath], state: StateFile) -> Iterator[Path]:
    """Yield files that no factory landed."""
    for zone in zones:
        for file in (path for path in zone.local.rglob("*") if path.is_file()):
            name = file.name.removeprefix(".").removesuffix(".tmp").removesuffix(REASON_SUFFIX)
            if not _GENERATED.fullmatch(name) and name not in state.load(file.parent.name).given:
                yield file


def _stop_streams(root: StoragePath, timeout: float) -> tuple[str, ...]:
    if "pyspark" not in sys.modules:  # then no stream can be running here
        return ()
    from medallion.streams.control import stop_below

    streams = stop_below(root.local, timeout)
    if running := [stream.name for stream in streams if not stream.is_stopped]:
        names = ", ".join(running)
        raise UsageError(f"{names} did not stop within {timeout:g} seconds: nothing was deleted.")
    return tuple(stream.name for stream in streams)


def _visible_files(directory: Path) -> list[Path]:
    files = (p for p in directory.iterdir() if p.is_file() and not p.name.startswith((".", "_")))
    return sorted(files, key=lambda file: _natural_order(file.name))


def _natural_order(name: str) -> list[tuple[str, int]]:
    """Return a sort key that puts file2 before file10."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name)]

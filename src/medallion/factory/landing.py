"""The data factory: realistic input files in any number, and the given files of a lesson."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from medallion.errors import UsageError
from medallion.factory.plan import SOURCE_NAMES, BatchPlan, Landed, StateFile, batch_files
from medallion.factory.rows import file_lines
from medallion.storage import locks
from medallion.storage.paths import LAYERS, PUBLISH, REASON_SUFFIX, Layout, StoragePath

_LESSON_MARK = "lesson"
_GENERATED = re.compile(r"\w+-\d{6}-\d{5}\.json")


@dataclass(frozen=True)
class CleanedUp:
    """The streams that a clean-up stopped, and the directories that it deleted."""

    stopped: tuple[str, ...] = ()
    removed: tuple[Path, ...] = ()


@dataclass(frozen=True)
class DataFactory:
    """Generates and lands batches of activity and event files.

    >>> DataFactory("data/lakehouse/landing", seed=7, dirty=True).land(batches=2, rows=10_000)

    A batch covers about an hour of event time and starts at least two hours after the one before,
    whatever the clock of the machine says. `_factory/state.json` beside the landing zone has the
    progress of each source.

    With `dirty`, some lines have one defect each, all counted. Late rows (from a source's second
    batch on) are late for the pipeline only if an earlier run ingested the batch before.

    For lessons, `load` lands the files of `given`, a directory with one directory per source, and
    `clean_up` removes everything again.
    """

    landing: str | os.PathLike[str]
    seed: int = 1
    dirty: bool = False
    given: str | os.PathLike[str] | None = None

    def land(
        self, batches: int = 1, files: int = 2, rows: int = 1000, source: str | None = None
    ) -> dict[str, Landed]:
        """Land the next batches.

        Args:
            batches: number of batches. An interrupted batch is completed first, and counts.
            files: files of each source in a batch; no file is empty.
            rows: rows of each source in a batch.
            source: only this source; None for all.

        Returns:
            The figures of each source.

        Raises:
            UsageError: an argument is invalid, or another process lands there.
        """
        for name, value in (("batches", batches), ("files", files), ("rows", rows)):
            if value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}.")
        if source not in (None, *SOURCE_NAMES):
            known = " and ".join(SOURCE_NAMES)
            raise UsageError(f"the data factory generates {known}, not {source!r}.")
        sources, landing = (source,) if source else SOURCE_NAMES, self._landing
        state = StateFile(landing.parent)
        landed = dict.fromkeys(sources, Landed())
        with locks.lock_layers(Layout(landing.parent), [state.directory.name], "land"):
            for name in (name for _ in range(batches) for name in sources):
                landed[name] += self._land_next(state, name, rows, min(files, rows))
        return landed

    def load(self, continuous: bool = False, *, source: str | None = None) -> dict[str, Landed]:
        """Land the next file of each source in `given`; return {} if none is left.

        Args:
            continuous: land all files that are left.
            source: only this source; None for all.

        Raises:
            UsageError: there is no such directory, file or source, or another file has its name.
        """
        if self.given is None:
            raise UsageError("load() lands existing files: name their directory as given=...")
        files, landing = _given_files(Path(self.given), source), self._landing
        state, landed = StateFile(landing.parent), dict[str, Landed]()
        if not any(path.is_file() for path in landing.parent.local.rglob("*")):
            (state.directory / _LESSON_MARK).write_atomic("")
        for name, given in files.items():
            progress = state.load(name)
            left = [file for file in given if file.name not in progress.given]
            for file in left if continuous else left[:1]:
                content, path = file.read_bytes(), landing / name / file.name
                if path.is_stored() and path.read() != content:
                    raise UsageError(f"{path} already exists with other content: move it away.")
                path.write_atomic(content)
                progress = replace(progress, given=(*progress.given, file.name))
                state.save(name, progress)
                lines = sum(bool(line.strip()) for line in content.splitlines())
                landed[name] = landed.get(name, Landed()) + Landed(1, lines, batches=1)
        return landed

    def clean_up(self) -> CleanedUp:
        """Stop all streams of this process, and delete what a lesson wrote below the root.

        Raises:
            UsageError: the root has files that are not the lesson's, another process writes there,
                or a stream does not stop. Nothing is deleted then.
        """
        landing = self._landing
        layout = Layout(landing.parent)
        state = StateFile(layout.root)
        if not landing.is_stored() and not layout.internal_directories():
            return CleanedUp()
        if not (state.directory / _LESSON_MARK).is_stored():
            raise UsageError(f"{layout.root} had files before the first load(): it is no lesson.")
        with locks.lock_layers(layout, (*LAYERS, PUBLISH), "clean-up"):
            zones = (landing, layout.archive(""), layout.rejected(""))
            if other := sorted(_other_files(zones, state)):
                raise UsageError(f"{other[0]} is not the lesson's: move it away.")
            stopped = _stop_streams()
            # The mark is deleted last, so that an interrupted clean-up can be repeated.
            directories = [landing, *layout.internal_directories()]
            directories.sort(key=lambda directory: directory == state.directory)
            for directory in directories:
                directory.delete_prefix()
        if not layout.root.children():
            layout.root.delete_prefix()
        return CleanedUp(stopped, tuple(each.local for each in directories))

    def _land_next(self, state: StateFile, source: str, rows: int, files: int) -> Landed:
        progress = state.load(source)
        plan = progress.started or self._plan_next(progress.done, source, rows, files)
        landed = Landed(batches=1)
        for file in batch_files(plan, progress.done):
            lines, figures = file_lines(file)
            path = self._landing / source / file.name
            # An interrupted run has landed the first files, which may be archived since.
            if file.number > progress.files and not path.is_stored():
                state.save(source, replace(progress, started=plan, files=file.number - 1))
                path.write_atomic("\n".join(lines) + "\n")
            landed += figures
        state.save(source, replace(progress, started=None, files=0, done=plan))
        return landed

    def _plan_next(self, done: BatchPlan | None, source: str, rows: int, files: int) -> BatchPlan:
        if done is None:
            plan = BatchPlan(source, 1, self.seed, self.dirty, rows, files)
        else:
            plan = done.following(seed=self.seed, dirty=self.dirty, rows=rows, files=files)
        path = self._landing / source / batch_files(plan, None)[0].name
        if path.is_stored():
            raise UsageError(f"{path} already exists, but not in the factory's state: restore it.")
        return plan

    @property
    def _landing(self) -> StoragePath:
        if "://" in os.fspath(self.landing):
            raise UsageError(f"the data factory lands in local folders only, not {self.landing}.")
        return StoragePath(Path(self.landing).absolute())


def _given_files(directory: Path, source: str | None) -> dict[str, list[Path]]:
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


def _other_files(zones: Iterable[StoragePath], state: StateFile) -> Iterator[Path]:
    """Yield files that no factory landed."""
    for zone in zones:
        for file in (path for path in zone.local.rglob("*") if path.is_file()):
            name = file.name.removeprefix(".").removesuffix(".tmp").removesuffix(REASON_SUFFIX)
            if not _GENERATED.fullmatch(name) and name not in state.load(file.parent.name).given:
                yield file


def _stop_streams() -> tuple[str, ...]:
    if "pyspark" not in sys.modules:  # then no stream can be running here
        return ()
    from medallion.streams.control import stop_all_streams

    streams = stop_all_streams()
    if running := ", ".join(stream.name for stream in streams if not stream.is_stopped):
        raise UsageError(f"{running} did not stop in time: nothing was deleted.")
    return tuple(stream.name for stream in streams)


def _visible_files(directory: Path) -> list[Path]:
    files = (p for p in directory.iterdir() if p.is_file() and not p.name.startswith((".", "_")))
    return sorted(files, key=lambda file: _natural_order(file.name))


def _natural_order(name: str) -> list[tuple[str, int]]:
    """Return a sort key that puts file2 before file10."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name)]

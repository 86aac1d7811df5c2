"""The data factory: believable input files, as many as wanted, the same for the same seed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from medallion.errors import UsageError
from medallion.factory.lesson import CleanedUp, GivenFiles, Lesson
from medallion.factory.plan import SOURCE_NAMES, BatchPlan, Landed, StateFile
from medallion.factory.writing import batch_files, landed_of, show_batch, write_batch


@dataclass(frozen=True)
class DataFactory:
    """Lands the next batches of activity and event files.

    >>> DataFactory("data/lakehouse/landing", seed=7, dirty=True).land(batches=2, rows=10_000)

    Time goes on from batch to batch, however many processes and days lie between them, and never
    follows the machine's clock: a batch covers about an hour, and begins at least two hours after
    the one before. What a batch holds depends on the seed, the arguments, and the batches before.
    How far each source has come is kept in `_factory/state.json`, beside the landing zone.

    With `dirty`, some lines have one defect each, all counted. Its late rows (from a source's
    second batch on) lie more than an hour before every row of the previous batch; the pipeline
    counts them as late only if it took in that batch in an earlier run.

    For lessons there are `load`, which lands the files in `given`, a folder with a folder of files
    a source, and `clean_up`.

    >>> factory = DataFactory("data/lesson/landing", given="data/sample")
    >>> factory.load(source="event")
    >>> factory.clean_up()
    """

    landing: str | os.PathLike[str]
    seed: int = 1
    dirty: bool = False
    given: str | os.PathLike[str] | None = None

    @property
    def state_path(self) -> Path:
        """Where the factory remembers what it has landed."""
        return self._landing.parent / "_factory" / "state.json"

    def land(
        self, batches: int = 1, files: int = 2, rows: int = 1000, source: str | None = None
    ) -> dict[str, Landed]:
        """Land the next batches, of all sources or of one, and say what was landed.

        `files` and `rows` are those of each batch and source; there is no file without a row. A
        batch that was interrupted is finished first, as it was begun, and counts as one of
        `batches`.
        """
        sources = _checked(batches=batches, files=files, rows=rows, source=source)
        state = StateFile(self.state_path)
        landed = dict.fromkeys(sources, Landed())
        with state.locked():
            for name in (name for _ in range(batches) for name in sources):
                landed[name] += self._land_next(state, name, rows, min(files, rows))
        return landed

    def load(self, continuous: bool = False, *, source: str | None = None) -> dict[str, Landed]:
        """Land the next file of each source in `given`, or with `continuous` all that are left; {}
        at the end.

        Raises:
            UsageError: there is no such folder, file or source, or another file is in the way.
        """
        if self.given is None:
            raise UsageError("load() lands files that are there: name their folder as given=...")
        given = GivenFiles(_folder(self.given), self._landing, StateFile(self.state_path))
        self._lesson.begin()
        return given.land(source, continuous)

    def clean_up(self, timeout: float = 30) -> CleanedUp:
        """Stop the streams that read or write below the lakehouse's root, and remove what a lesson
        made there: the files that this factory landed, tables and checkpoints, and nothing else.

        Raises:
            UsageError: the root held files before the first `load`, another process writes there,
                or a stream does not stop within `timeout` seconds. Nothing is removed then.
        """
        return self._lesson.clean_up(timeout)

    @property
    def _lesson(self) -> Lesson:
        return Lesson(self._landing, StateFile(self.state_path))

    def _land_next(self, state: StateFile, source: str, rows: int, files: int) -> Landed:
        progress = state.load(source)
        folder, done = self._landing / source, progress.done
        plan = progress.written or progress.begun
        if plan is None:
            plan = self._plan_next(done, source, rows, files)
            self._refuse_used_names(plan)
            progress = replace(progress, begun=plan)
            state.save(source, progress)
        if progress.written:
            landed = landed_of(plan, done)
        else:
            landed = write_batch(folder, plan, done)
            progress = replace(progress, begun=None, written=plan)
            state.save(source, progress)
        show_batch(folder, plan)
        state.save(source, replace(progress, written=None, done=plan))
        return landed

    def _plan_next(self, done: BatchPlan | None, source: str, rows: int, files: int) -> BatchPlan:
        if done is None:
            plan = BatchPlan(source, 1, self.seed, self.dirty, rows, files)
        else:
            plan = done.following(seed=self.seed, dirty=self.dirty, rows=rows, files=files)
        # The clock decides nothing but this: rows of the future would all be quarantined.
        if plan.end > time.time():
            raise UsageError(
                f"batch {plan.number} of {source} would be dated in the future, because the data "
                "factory's calendar has caught up with today: land on a new root."
            )
        return plan

    def _refuse_used_names(self, plan: BatchPlan) -> None:
        for file in batch_files(plan, None):
            path = self._landing / plan.source / file.name
            if path.exists():
                raise UsageError(
                    f"{path} is there already, though {self.state_path} does not know of it: "
                    "put the right state back, or land on a new root."
                )

    @property
    def _landing(self) -> Path:
        if "://" in os.fspath(self.landing):
            raise UsageError(
                f"the data factory lands in local folders only, not in {self.landing}."
            )
        return _folder(self.landing).absolute()


def _folder(path: str | os.PathLike[str]) -> Path:
    """A folder that was named; to pathlib, one without a name is that of the process."""
    if not os.fspath(path).strip():
        raise UsageError("the data factory was given an empty path: name a folder.")
    return Path(path)


def _checked(*, batches: int, files: int, rows: int, source: str | None) -> tuple[str, ...]:
    """The sources to land; wrong arguments are errors that name them."""
    for name, value in (("batches", batches), ("files", files), ("rows", rows)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}.")
    if source is None:
        return SOURCE_NAMES
    if source not in SOURCE_NAMES:
        known = " and ".join(SOURCE_NAMES)
        raise UsageError(f"the data factory makes up {known}, not {source!r}.")
    return (source,)

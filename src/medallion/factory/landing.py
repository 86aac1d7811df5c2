"""The data factory: realistic input files in any number."""

import os
from dataclasses import dataclass, replace

from medallion.errors import UsageError
from medallion.factory.plan import SOURCE_NAMES, BatchPlan, Landed, StateFile, batch_files
from medallion.factory.rows import file_lines
from medallion.storage import locks
from medallion.storage.layout import Layout
from medallion.storage.paths import StoragePath


@dataclass(frozen=True)
class DataFactory:
    """Generates and lands batches of activity and event files.

    >>> DataFactory("data/lakehouse/landing", seed=7, dirty=True).land(batches=2, rows=10_000)

    A batch covers about an hour of event time and starts at least two hours after the one before,
    whatever the clock of the machine says. `_factory/state.json` beside the landing zone has the
    progress of each source.

    With `dirty`, some lines have one defect each, all counted. Late rows (from a source's second
    batch on) are late for the pipeline only if an earlier run ingested the batch before.
    """

    landing: str | os.PathLike[str]
    seed: int = 1
    dirty: bool = False

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
        return StoragePath(self.landing).normalized()

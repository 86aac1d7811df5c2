"""What the factory remembers between two calls: for each source, its last batch's plan, and which
files of a lesson have landed, for the pipeline moves files out of landing.

A batch is noted as begun before its first file is written, as written before the first is shown,
and as done after the last. One that was interrupted is therefore known, and is finished as it was
begun: no name ever gets other bytes, and no file lands a second time.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from medallion.errors import UsageError
from medallion.factory.plan import BatchPlan
from medallion.lakehouse import lock, storage

GENERATOR = 1
"""To be raised with every change that gives a plan other bytes."""


@dataclass(frozen=True)
class Progress:
    """How far a source has come: the last batch done, and the one after it, begun or written; and
    the names of the given files that have landed."""

    done: BatchPlan | None = None
    begun: BatchPlan | None = None
    written: BatchPlan | None = None
    given: tuple[str, ...] = ()

    @property
    def last(self) -> int:
        """The number of the newest batch that has files; 0 if there is none."""
        plans = (plan for plan in (self.done, self.begun, self.written) if plan)
        return max((plan.number for plan in plans), default=0)


class StateFile:
    """The factory's memory, a small JSON file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def locked(self) -> AbstractContextManager[None]:
        """Wait for other processes that land into the same root, and keep them waiting."""
        return lock.alone(self.path)

    def load(self, source: str) -> Progress:
        """A source's progress; none when it never landed."""
        try:
            known = dict(self._read().get(source, {}))
            given = tuple(known.pop("given", ()))
            plans = {when: BatchPlan(**plan) for when, plan in known.items() if plan}
            return Progress(**plans, given=given)
        except (TypeError, ValueError) as error:
            raise self._unreadable(error) from error

    def save(self, source: str, progress: Progress) -> None:
        """Remember a source's progress; the others' stays."""
        sources = {**self._read(), source: asdict(progress)}
        document = {"generator": GENERATOR, "sources": sources}
        storage.write(self.path, json.dumps(document, indent=1) + "\n")

    def _read(self) -> dict[str, Any]:
        if not self.path.exists():
            return {}
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
            generator, sources = document["generator"], dict(document["sources"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._unreadable(error) from error
        if generator != GENERATOR:
            raise UsageError(
                f"{self.path} was written by generator {generator} of the data factory, "
                f"this is generator {GENERATOR}: land on a new root."
            )
        return sources

    def _unreadable(self, error: Exception) -> UsageError:
        return UsageError(
            f"{self.path} is not the data factory's state ({error}): "
            "put it back, or land on a new root."
        )

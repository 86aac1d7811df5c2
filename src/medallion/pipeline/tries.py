"""When a query that has stopped, or could not start, is begun again while others stay on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from medallion.layers.flow import Flow

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 600.0  # seconds
LONGEST_WAIT = 60.0  # seconds, where it is somebody else who has to come back
_WELL_AFTER = 60.0  # seconds that it has been on


class Tries:
    """One thing that is tried until it goes well: at once, then after pauses that double.

    What was wrong may pass (a full disk, a reference that is just being replaced, a broker that is
    away), and nobody may be there to start it by hand.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pause = 0.0  # before the next try
        self._since = clock()
        self._has_failed = False
        self.failure: str | None = None
        """Why it is not on; None where it is, or where it waits for somebody else."""

    @property
    def is_due(self) -> bool:
        """Whether it may be tried again."""
        return not self._has_failed or self._clock() - self._since >= self._pause

    def failed(self, failure: str | None) -> None:
        """It has failed; or it waits, where there is no failure to tell."""
        if self._has_failed:
            longest = LONGEST_PAUSE if failure else LONGEST_WAIT
            self._pause = min(max(2 * self._pause, FIRST_PAUSE), longest)
        self._has_failed, self.failure = True, failure
        self._since = self._clock()

    def begun(self) -> None:
        """It has been begun again, and how that goes is to be seen."""
        self._since = self._clock()

    def has_recovered(self, has_done: bool) -> bool:
        """Whether it was not well, and is now: it has done something, or been on for a minute."""
        if not self._has_failed or not (has_done or self._clock() - self._since > _WELL_AFTER):
            return False
        self._pause, self._has_failed, self.failure = 0.0, False, None
        return True


@dataclass
class Kept:
    """A flow of a stream, with the tries to keep its query on, and those to look for new input."""

    flow: Flow
    tries: Tries = field(default_factory=Tries)
    polls: Tries = field(default_factory=Tries)
    has_stopped: bool = False  # which is told, and on record

    @property
    def is_active(self) -> bool:
        """Whether its query is on."""
        return self.flow.run is not None and self.flow.run.is_active

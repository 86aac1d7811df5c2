"""When a query that has stopped, or could not start, is begun again while others stay on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from medallion.layers.flow import Flow

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 600.0  # seconds
LONGEST_WAIT = 60.0  # seconds, where it is somebody else who has to come back
_WELL_AFTER = 60.0  # seconds that it has been on


class Tries:
    """One thing that is tried until it goes well: at once, then after pauses that double.

    What was wrong may pass (a full disk, a reference that is just being replaced, a broker that is
    away), and nobody may be there to start it by hand.

    Attributes:
        failure: why it is not on; None where it is, or where it waits for somebody else.
        has_failed: it did when it was tried last, and has not gone well since.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pause = 0.0  # before the next try
        self._since = clock()
        self.has_failed = False
        self.failure: str | None = None

    @property
    def is_due(self) -> bool:
        """Whether it may be tried again."""
        return not self.has_failed or self._clock() - self._since >= self._pause

    def failed(self, failure: str | None, is_final: bool = False) -> None:
        """It has failed, for ever if nothing can take its place; or it waits, where there is no
        failure to tell."""
        if self.has_failed:
            longest = LONGEST_PAUSE if failure else LONGEST_WAIT
            self._pause = min(max(2 * self._pause, FIRST_PAUSE), longest)
        if is_final:
            self._pause = inf
        self.has_failed, self.failure = True, failure
        self._since = self._clock()

    def begun(self) -> None:
        """It has been begun again, and how that goes is to be seen."""
        self._since = self._clock()

    @property
    def is_final(self) -> bool:
        """Whether it is not tried again."""
        return self._pause == inf

    @property
    def has_lasted(self) -> bool:
        """Whether it has been on for a minute."""
        return self._clock() - self._since > _WELL_AFTER

    def went_well(self) -> bool:
        """It has done what it is for, or all that there is to do; whether it had failed before."""
        had_failed = self.has_failed
        self._pause, self.has_failed, self.failure = 0.0, False, None
        return had_failed


@dataclass
class Kept:
    """A flow of a stream, with the tries to keep its query on, and those to look for new input."""

    flow: Flow
    tries: Tries = field(default_factory=Tries)
    polls: Tries = field(default_factory=Tries)
    has_stopped: bool = False  # which is told, and on record
    restart_note: str | None = None  # what was told when it had to be started again last
    polled_at: float = -inf
    asked_at: float = -inf  # whether it can be started

    @property
    def is_off(self) -> bool:
        """Whether there is no query, or one that has stopped and is taken care of."""
        return self.flow.run is None or self.has_stopped

    @property
    def has_recovered(self) -> bool:
        """Whether its query had failed, and has done a batch, or been on for a minute with none."""
        if not self.tries.has_failed or self.flow.run is None:
            return False
        run = self.flow.run
        return run.has_done_batch or (self.tries.has_lasted and not run.is_in_batch)

    @property
    def is_active(self) -> bool:
        """Whether its query is on."""
        return self.flow.run is not None and self.flow.run.is_active

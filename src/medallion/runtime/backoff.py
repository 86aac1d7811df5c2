"""When something that goes on for ever is tried again after it has failed."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 600.0  # seconds
LONGEST_WAIT = 60.0  # seconds, where it is somebody else who has to come back


class Backoff:
    """Says when one thing is to be tried: at once after its first failure, then after pauses that
    double.

    What was wrong may pass (a full disk, a reference that is just being replaced, a broker that is
    away), and nobody may be there to start it by hand.

    Attributes:
        has_failed: it did when it was tried last, and has not gone well since.
        failure: what it failed of; None where it has not, or only waits for somebody else.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock  # in seconds
        self._pause = 0.0  # after the last failure
        self._next = -inf
        self.has_failed = False
        self.failure: str | None = None

    @property
    def is_due(self) -> bool:
        """Whether it may be tried now."""
        return self._clock() >= self._next

    @property
    def is_final(self) -> bool:
        """Whether it is never tried again."""
        return self._next == inf

    def failed(self, failure: str | None, is_final: bool = False) -> None:
        """It has failed.

        Args:
            failure: of what; None where it waits for somebody else, which is no failure to tell.
            is_final: it is never to be tried again.
        """
        if self.has_failed:
            longest = LONGEST_PAUSE if failure else LONGEST_WAIT
            self._pause = min(max(2 * self._pause, FIRST_PAUSE), longest)
        self.has_failed, self.failure = True, failure
        self._next = inf if is_final else self._clock() + self._pause

    def went_well(self) -> bool:
        """It has done what it is for, or all that there is to do; whether it had failed before."""
        had_failed = self.has_failed
        self._pause, self.has_failed, self.failure = 0.0, False, None
        self._next = self._clock()
        return had_failed

    def wait(self, seconds: float) -> None:
        """It is not tried before so many seconds have passed, nor sooner than it was to be."""
        self._next = max(self._next, self._clock() + seconds)

"""Silver's query does not run away from its record."""

from __future__ import annotations

import time
from threading import Event

from medallion.errors import MedallionError

MOST_UNSETTLED = 80
"""Batches. To settle one, the offsets of its checkpoint are read, and Spark keeps those of 100."""
_PATIENCE = 240.0  # seconds; after 300 in which nothing happens a query is given up
_PAUSE = 0.2


class Pace:
    """Holds a query that stays on back while too many of its batches are not on record.

    Late rows are admitted as batches are settled, which may take longer than the batches do.
    """

    def __init__(self, recorded: int, stopping: Event, patience: float = _PATIENCE) -> None:
        """Begin.

        Args:
            recorded: the last batch that is on record.
            stopping: is set when the query is to be stopped.
            patience: the seconds to wait.
        """
        self._recorded, self._stopping, self._patience = recorded, stopping, patience

    def settled(self, batch: int) -> None:
        """All batches up to this one are on record."""
        self._recorded = batch

    def wait(self, batch: int) -> None:
        """Wait until a batch may begin.

        Raises:
            MedallionError: it may not for minutes, or the query is stopped.
        """
        until = time.monotonic() + self._patience
        while batch - self._recorded > MOST_UNSETTLED:
            if self._stopping.wait(_PAUSE):
                raise MedallionError("the query was stopped before this batch")
            if time.monotonic() > until:
                raise MedallionError(
                    f"the batches after {self._recorded} cannot be put on record, and this one "
                    "waits for that: it is said why where that was tried"
                )

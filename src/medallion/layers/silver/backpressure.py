"""Silver's query waits where too many of its batches are not on record yet."""

from __future__ import annotations

from threading import Event

from medallion.errors import MedallionError

MOST_UNSETTLED = 80
"""Batches. To settle one, the offsets of its checkpoint are read, and Spark keeps those of 100."""
_PAUSE = 0.2  # seconds


class Backpressure:
    """Holds a query that stays on back while too many of its batches are not on record.

    The late rows of a batch are admitted as it is put on record, which may take longer than the
    batch did. Where that fails, whoever puts it on record says why.
    """

    def __init__(self, recorded: int, stopping: Event) -> None:
        """Begin.

        Args:
            recorded: the last batch that is on record.
            stopping: is set when the query is to be stopped.
        """
        self._recorded, self._stopping = recorded, stopping

    def settled(self, batch: int) -> None:
        """All batches up to this one are on record."""
        self._recorded = batch

    def wait(self, batch: int) -> None:
        """Wait until a batch may begin.

        Raises:
            MedallionError: the query is stopped.
        """
        while batch - self._recorded > MOST_UNSETTLED:
            if self._stopping.wait(_PAUSE):
                raise MedallionError("the query was stopped before this batch")

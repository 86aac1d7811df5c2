"""The seam between bronze and where its rows come from: what a kind of source has to do.

A source hands something over to each micro-batch (paths of files, say), and bronze reads the rows
of that within the batch. So what cannot be read holds up nothing else, and every batch can be read
with the columns that are known by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Say = Callable[[str], None]


@dataclass(frozen=True)
class Backlog:
    """What waits to be taken in: how much, bytes, and microseconds since 1970 of the oldest."""

    files: int
    bytes: int
    oldest: int | None


class Batch(Protocol):
    """What one micro-batch was handed."""

    @property
    def told(self) -> str:
        """How much it is, for people: `2 files`."""

    def read(self, work: Callable[[DataFrame], None], what: str) -> None:
        """Do some work with its rows: `value` (JSON text), `_source_file`, `_source_modified_at`.

        What cannot be read is put aside and told, and the work done again with the others; there
        is none to do where nothing is left.

        Args:
            what: what is being done, for the error.

        Raises:
            MedallionError: the work fails, and nothing in the batch is to blame.
        """

    def record(self, written: DataFrame | None) -> int:
        """Put on record what bronze has of the batch; how many of these rows hold rescued fields.

        Args:
            written: the rows that bronze has of it; None where there are none.
        """


class Source(Protocol):
    """Where the rows of one table of bronze come from."""

    def poll(self) -> None:
        """Look for what is new; beside batches that run, too."""

    def stream(self) -> DataFrame:
        """What batches are handed, as a stream."""

    def batch(self, number: int, handed: DataFrame) -> Batch:
        """One batch, with what it was handed of the stream."""

    def cut_off(self, number: int) -> Batch:
        """A batch whose rows are in bronze and not on record: its run was cut off between them."""

    def begin_anew(self, checkpoint: Path, recorded: int) -> None:
        """Make a checkpoint in the place of one that was lost: what is known is not taken again.

        Args:
            checkpoint: where; there is nothing now.
            recorded: the last batch on record: the numbers go on from there.
        """

    def sample(self) -> Batch:
        """What waits, to infer a schema from: as much as one batch may take."""

    def recount(self, number: int) -> int:
        """The rows of one batch, which is on record, counted again."""

    def release(self, number: int) -> None:
        """Put away what the batches up to this one took in: their rows are accounted for."""

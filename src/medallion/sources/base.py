"""The seam between bronze and where its rows come from: what a kind of source has to do.

A source hands something over to each micro-batch (paths of files, say, or messages), and bronze
reads the rows of that within the batch. So what cannot be read holds up nothing else, and every
batch can be read with the columns that are known by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from medallion.config.model import Config, SourceConfig
    from medallion.lakehouse.text import Say
    from medallion.schema.evolution import Schema


@dataclass(frozen=True)
class Backlog:
    """What waits to be taken in: files with their bytes, also as they are `unpacked`, or messages.

    `oldest` are the microseconds since 1970 of the oldest one, where they are known.
    """

    files: int = 0
    bytes: int = 0
    unpacked: int = 0
    oldest: int | None = None
    messages: int = 0


@dataclass
class Recount:
    """What was found, and what could not be looked at, a line each."""

    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class SourceBatch(Protocol):
    """What one micro-batch was handed."""

    @property
    def summary(self) -> str:
        """How much it is, for people: `2 files`."""

    def read(self, work: Callable[[DataFrame], None], what: str) -> None:
        """Do some work with its rows: `value` (JSON text), and where each row came from.

        What cannot be read is put aside and told, and the work done again with the others; there
        is none to do where nothing is left.

        Args:
            what: what is being done, for the error.

        Raises:
            MedallionError: the work fails, and nothing in the batch is to blame.
        """

    def first_lines(self) -> list[str]:
        """A few of its lines of JSON text, where that takes no job of Spark's; else none."""

    def enter_in_ledger(self, version: int | None) -> int:
        """Enter what bronze has of the batch, if there is a ledger; how many of these rows hold
        rescued fields.

        Args:
            version: that of bronze which added its rows; None where it has none.
        """


class Source(Protocol):
    """Where the rows of one table of bronze come from."""

    def poll(self) -> None:
        """Look for what is new; beside batches that run, too.

        Raises:
            MedallionError: what comes next cannot be had, and what to do.
        """

    def stream(self) -> DataFrame:
        """What batches are handed, as a stream.

        Raises:
            MedallionError: something has to be set up first.
        """

    def batch(self, number: int, handed: DataFrame) -> SourceBatch:
        """One batch, with what it was handed of the stream."""

    def cut_off(self, number: int) -> SourceBatch:
        """A batch whose rows are in bronze, and not in the ledger: its run was cut off between."""

    @property
    def last_in_ledger(self) -> int | None:
        """The last batch in the source's ledger, -1 if none; None where it keeps none.

        Somebody may have put back an older copy of the ledger.
        """

    def make_whole(self, batch: int) -> None:
        """Enter what bronze has and the ledger does not, as that of a batch that has ended.

        Where there is `last_in_ledger`; the log may not say any more which batch added what.
        """

    def can_go_on(self, checkpoint: Path) -> bool:
        """Whether a checkpoint, if there is one, is of use to what is read now."""

    def begin_anew(self, checkpoint: Path, last: int) -> None:
        """Make a checkpoint in the place of another one: what is known is not taken in again.

        Args:
            checkpoint: where; there is nothing now.
            last: the last batch that is known: the numbers go on from there.
        """

    def sample(self) -> SourceBatch:
        """What waits, to infer a schema from: as much as one batch may take."""

    def recount(self, number: int) -> int:
        """The rows of one batch, which is on record, counted again."""

    def release(self, number: int) -> None:
        """Put away what the batches up to this one took in: their rows are accounted for."""


@dataclass(frozen=True)
class Kind:
    """How a kind of source is opened, and what is asked of one without Spark.

    Attributes:
        open: the source, for a session.
        backlog: what waits in it.
        poll: hands over what is new, puts away what the batches up to a number took in, as they
            are on record, and says whether there is anything to do. No batch may be cut off then.
        rows_in_ledger: how many rows its ledger has as taken in; None where it keeps none.
        losses: what its ledger has as gone before it was taken in, or as waiting; for people.
        recount: counts what it gave once more, and holds bronze against that.
        can_wait: what came in while nobody read is still there, so that a batch can be run later.
    """

    open: Callable[[SparkSession, Config, SourceConfig, Schema, Say], Source]
    backlog: Callable[[Config, SourceConfig], Backlog]
    poll: Callable[[Config, SourceConfig, int, Say], bool]
    rows_in_ledger: Callable[[Config, SourceConfig], int | None]
    losses: Callable[[Config, SourceConfig], list[str]]
    recount: Callable[[Config, SourceConfig], Recount]
    can_wait: bool = True

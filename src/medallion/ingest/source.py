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

from medallion.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from medallion.config.model import Config, SourceConfig
    from medallion.ingest.schema.evolution import Schema
    from medallion.storage.text import Say


@dataclass(frozen=True)
class Backlog:
    """What waits to be taken in: files, or messages.

    Attributes:
        bytes: of the files as they lie there.
        unpacked: about how many bytes they have without their compression.
        oldest: modification time of the oldest file, in microseconds since 1970.
    """

    files: int = 0
    bytes: int = 0
    unpacked: int = 0
    oldest: int | None = None
    messages: int = 0


@dataclass
class Recount:
    """What an audit found to be wrong, and what it could not check (`notes`), a sentence each."""

    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class SourceBatch(Protocol):
    """What a source handed to one micro-batch: files, or messages."""

    @property
    def summary(self) -> str:
        """How much that is, for people: `2 files`."""

    def read(self, work: Callable[[DataFrame], None], what: str) -> None:
        """Do some work with its rows: `value` (JSON text), or the columns of files that bring their
        types (`parsing.typed`), and where each row came from.

        What cannot be read is put aside and told, and the work is done again with the rest. Where
        nothing is left, no work is done.

        Args:
            what: what is being done, for the error.

        Raises:
            MedallionError: the work fails, and not because of anything in the batch.
        """

    def first_lines(self) -> list[str]:
        """A few of its lines of JSON text; none where it takes a Spark job to get at them."""

    def enter_in_ledger(self, version: int | None) -> None:
        """Enter in the ledger, if there is one, what bronze has of the batch.

        Args:
            version: the version of bronze that added its rows; None where it has none.
        """


class Streamed:
    """Of a `SourceBatch`, what is the same wherever Spark itself reads the rows.

    Args:
        handed: the rows; None where they are not to be read.
    """

    def __init__(self, handed: DataFrame | None) -> None:
        self._handed = handed

    def read(self, work: Callable[[DataFrame], None], what: str) -> None:
        """Do some work with the rows."""
        from medallion.spark.errors import SPARK_ERRORS, ours  # here: it brings Spark

        if self._handed is not None:
            try:
                work(self._handed)
            except SPARK_ERRORS as error:
                raise ours(error, what) from error

    def first_lines(self) -> list[str]:
        """None: they are not to be had without a job."""
        return []


class Source(Protocol):
    """Where the rows of one table of bronze come from."""

    def poll(self) -> None:
        """Look for what is new. Another thread may be running a batch.

        Raises:
            MedallionError: what comes next cannot be had, and what to do.
        """

    def stream(self) -> DataFrame:
        """The stream of what is handed to batches.

        Raises:
            MedallionError: something has to be set up first.
        """

    def batch(self, number: int, handed: DataFrame) -> SourceBatch:
        """One batch: its number, and what it was handed of the stream."""

    def cut_off(self, number: int) -> SourceBatch:
        """A batch whose rows are in bronze and not in the ledger, because its run was cut off."""

    @property
    def last_in_ledger(self) -> int | None:
        """The last batch in the source's ledger, -1 if none; None where it keeps none."""

    @property
    def rows_in_ledger(self) -> int:
        """The rows in bronze by the source's ledger. Called only if there is a ledger."""

    def can_go_on(self, checkpoint: Path) -> bool:
        """Whether the query can go on from a checkpoint, or without one."""

    def begin_anew(self, checkpoint: Path, last: int) -> None:
        """Make a new checkpoint, from which nothing that was taken in is read again.

        Args:
            checkpoint: its folder, which is not there.
            last: the last batch that is known: the numbers of batches go on from there.
        """

    def sample(self) -> SourceBatch:
        """What waits, as much as one batch may take: to infer a schema from."""

    def rows_of(self, number: int) -> int:
        """The rows of one batch, counted again: its run was cut off before they were on record."""

    def release(self, number: int) -> None:
        """Put away what the batches up to this one took in: their rows are accounted for."""


def older_ledger(name: str) -> UsageError:
    """Return the error of a ledger that is older than bronze's table `name`."""
    return UsageError(
        f"{name} cannot start: the ledger of its source is older than the table, and lacks rows "
        "that were ingested. Restore the whole root from one backup."
    )


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

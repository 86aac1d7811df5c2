"""The protocol between bronze and its sources: files and Kafka topics.

A source streams file paths or messages, and bronze reads the rows within the micro-batch.
Unreadable input does not block the rest, and each batch is parsed with the newest schema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from medallion.errors import UsageError
from medallion.storage.paths import StoragePath
from medallion.storage.text import Reporter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from medallion.config.model import Config, SourceConfig
    from medallion.ingest.schema.evolution import Schema


@dataclass(frozen=True)
class Backlog:
    """The files or messages that are not ingested yet.

    Attributes:
        files: number of files.
        bytes: size of the files as stored.
        unpacked: estimated size of the files without compression, in bytes.
        oldest: modification time of the oldest file, in microseconds since 1970.
        messages: number of offsets, for Kafka.
    """

    files: int = 0
    bytes: int = 0
    unpacked: int = 0
    oldest: int | None = None
    messages: int = 0


@dataclass
class Verification:
    """The result of an audit check.

    Attributes:
        findings: what is wrong, a sentence each.
        notes: what could not be checked, a sentence each.
    """

    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SourceScan:
    """The result of comparing a source's input with its ledger; nothing is written yet.

    Attributes:
        has_work: whether bronze has input to read or a ledger to repair.
        enqueue: writes the result, and releases the input of all batches up to the last recorded
            one, whose number is its argument. Call it only if no batch was interrupted.
        backlog: the input that is not ingested yet; None if it was not counted.
        result: what the scan found, if the source can enqueue that instead of scanning again.
    """

    has_work: bool
    enqueue: Callable[[int, Reporter], None] = lambda *_: None
    backlog: Backlog | None = None
    result: Any = None


NO_SCAN = SourceScan(has_work=False)


class SourceBatch(Protocol):
    """The files or messages of one micro-batch."""

    @property
    def summary(self) -> str:
        """The size of the batch for messages: `2 files`."""

    @property
    def paths(self) -> Sequence[str]:
        """The paths of the files to read, as in the ledger; empty for messages."""

    def read(self, work: Callable[[DataFrame], None], description: str) -> None:
        """Call `work` with the rows of the batch.

        Unreadable files are rejected and reported, and `work` is called again without them. It is
        not called if nothing is left.

        Args:
            work: takes `value` (JSON text), or the columns of typed files (`parsing.typed`), and
                the columns of the source that say where each row came from.
            description: describes the work in error messages.

        Raises:
            MedallionError: the work failed, and no file of the batch is the cause.
        """

    def first_lines(self) -> list[str]:
        """Return a few JSON lines of the batch, or none if that needs a Spark job."""

    def record_in_ledger(self, version: int | None) -> None:
        """Record in the source's ledger which rows of the batch are in bronze.

        Args:
            version: the version of the bronze table that added the rows, or None if there are none.
        """


class Source(Protocol):
    """The source of the rows of one bronze table."""

    def poll(self, scan: SourceScan = NO_SCAN) -> None:
        """Enqueue new input. Another thread may be running a batch.

        Args:
            scan: a scan of this input, made since the locks of the layers are held.

        Raises:
            MedallionError: the next input is not available; the message says what to do.
        """

    def stream(self) -> DataFrame:
        """Return the stream whose micro-batches are passed to `batch`."""

    def batch(self, number: int, queued: DataFrame) -> SourceBatch:
        """Return the batch with this number.

        Args:
            number: Spark's number of the micro-batch.
            queued: the rows of the stream that belong to it.
        """

    def interrupted_batch(self, number: int) -> SourceBatch:
        """Return a batch whose rows are in bronze but not in the ledger, to record it."""

    @property
    def last_in_ledger(self) -> int:
        """The number of the last batch in the ledger, -1 if there is none."""

    @property
    def rows_in_ledger(self) -> int:
        """The number of rows in bronze according to the ledger."""

    def can_resume(self, checkpoint: StoragePath) -> bool:
        """Return whether the query can start with this checkpoint, which may not exist."""

    def recreate_checkpoint(self, checkpoint: StoragePath, last: int) -> None:
        """Write a new checkpoint that skips all input that is already ingested.

        Args:
            checkpoint: its directory, which does not exist.
            last: the last known batch, after which the numbering continues.
        """

    def sample_batch(self) -> SourceBatch:
        """Return at most one batch of pending input, to infer a schema from it."""

    def count_rows(self, number: int) -> int:
        """Count the rows of one batch again, after a run died before recording them."""

    def release(self, number: int) -> None:
        """Archive or delete the input of all batches up to this one; their rows are recorded."""


@dataclass
class SourceContext:
    """What a source is opened with.

    Attributes:
        spark: the session.
        config: the configuration.
        source: the source's settings.
        schema: its schema, which grows with the batches.
        report: reports files that are rejected or deferred, and what may be lost.
    """

    spark: SparkSession
    config: Config
    source: SourceConfig
    schema: Schema
    report: Reporter

    @property
    def name(self) -> str:
        """The bronze table."""
        return f"bronze.{self.source.name}"


def stale_ledger_error(name: str) -> UsageError:
    """Return the error for a ledger that is older than the bronze table `name`."""
    return UsageError(
        f"{name} cannot start: the ledger of its source is older than the table, and lacks rows "
        "that were ingested. Restore the whole root from one backup."
    )


@dataclass(frozen=True)
class SourceType:
    """The functions of one type of source; all but `open` work without Spark.

    Attributes:
        open: opens a source in a Spark session.
        backlog: returns the input that is not ingested yet.
        scan: compares the source's input with its ledger; writes nothing.
        rows_in_ledger: returns the number of ingested rows.
        losses: returns messages about input that was lost before ingestion, or that is pending.
        verify: compares bronze with the input, read again.
    """

    open: Callable[[SparkSession, Config, SourceConfig, Schema, Reporter], Source]
    backlog: Callable[[Config, SourceConfig], Backlog]
    scan: Callable[[Config, SourceConfig], SourceScan]
    rows_in_ledger: Callable[[Config, SourceConfig], int]
    losses: Callable[[Config, SourceConfig], list[str]]
    verify: Callable[[Config, SourceConfig], Verification]

"""The files of one micro-batch: reading them, rejecting bad ones, and the ledger's new entries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession

from medallion.config.model import TYPED_FORMATS, Config, SourceConfig
from medallion.errors import MedallionError
from medallion.ingest.files import archive, content, csv_dialect, reader, trial, typed
from medallion.ingest.files.listing import current_file
from medallion.ingest.parsing.parse import parse_lines
from medallion.ingest.schema.evolution import Schema
from medallion.spark import checkpoints, delta_reads, signals
from medallion.spark.delta_reads import escaped
from medallion.spark.errors import SPARK_ERRORS, FailureCode, classify, one_line
from medallion.state.ledger import (
    INGESTED,
    INGESTED_STATES,
    PENDING,
    REJECTED,
    REPLACED,
    UNREADABLE,
    VANISHED,
    Entry,
    File,
    Ledger,
    Reason,
    ReasonCode,
)
from medallion.storage import delta_log, delta_tables
from medallion.storage.paths import Layout
from medallion.storage.table_specs import ROW_COUNTS, SOURCE_FILE, SOURCE_MODIFIED_AT
from medallion.storage.text import Reporter, counted, printable

_A_LINE = "SELECT '{}' AS value"
# Errors that a file may cause: in Spark, or in Python, which checks it first.
_ERRORS = (*SPARK_ERRORS, *content.READ_ERRORS)
# Limits of `first_lines`: files, and lines and bytes of each.
_FILES, _LINES, _BYTES = 8, 20, 1 << 16


@dataclass(frozen=True)
class BatchContext:
    """The part of a file source that its batches share.

    Attributes:
        schema: grows with each batch.
        ledger_lock: a stream polls beside its batches, and neither may overwrite the other.
        attempts: the marker of the files that are being read.
    """

    spark: SparkSession
    config: Config
    source: SourceConfig
    schema: Schema
    ledger: Ledger
    report: Reporter
    ledger_lock: threading.RLock = field(default_factory=threading.RLock)
    attempts: trial.ReadAttempts = field(init=False)

    def __post_init__(self) -> None:
        """Read the marker that an earlier process has left."""
        attempts = trial.ReadAttempts(self.spark, self.config.layout.checkpoint(self.name))
        object.__setattr__(self, "attempts", attempts)

    @property
    def name(self) -> str:
        """The bronze table."""
        return f"bronze.{self.source.name}"

    def path(self, entry: Entry) -> Path:
        """Return the path of a file."""
        return self.config.layout.root / entry.path

    def read_rows(self, paths: list[str]) -> DataFrame:
        """Return the rows of some files by the columns that are known now."""
        return reader.read_rows(self.spark, self.config, self.source, paths, self.schema.columns)

    def parse_only(self, entries: Iterable[Entry]) -> None:
        """Read and parse files without writing, to find out whether that fails."""
        self._parse_all(self.read_rows([entry.path for entry in entries]))

    def parse_without_files(self) -> None:
        """Parse a line that is in no file: if that fails, no file is the cause."""
        metadata = self.config.layout.checkpoint(self.name) / "metadata"
        has_started = metadata.is_file()
        line = self.spark.read.text(escaped(metadata)) if has_started else self.spark.sql(_A_LINE)
        self._parse_all(line)

    def _parse_all(self, rows: DataFrame) -> None:
        # A count would not do: it reads no values of Parquet.
        parsed = parse_lines(rows, self.schema.columns)
        parsed.write.format("noop").mode("overwrite").save()

    def trial_process(self) -> Callable[[trial.Groups], trial.TrialResult]:
        """Return a child process that reads files, to find those that crash the engine."""
        folder = self.config.layout.checkpoint(self.name) / "trial"
        columns = self.schema.columns
        return trial.TrialProcess(self.spark, self.config, self.source, columns, folder)

    def check_unchanged(self, entry: Entry) -> bool:
        """Return whether a file is as it was listed; record one that is gone as vanished.

        The next scan enqueues a changed file again.
        """
        found = current_file(self.config.layout, entry.path)
        if found is None:
            why = "gone between its listing and its reading"
            self.ledger.write([entry.with_state(VANISHED, Reason(ReasonCode.GONE, why))])
            self.report(f"  {self.name}: {printable(entry.path)}: {VANISHED}: {why}")
        return found == entry.file

    def reject_invalid(self, entries: list[Entry], problem: content.Problem) -> list[Entry]:
        """Move the files that have a problem to `rejected/`, and return the others."""
        good, bad = [], []
        with ThreadPoolExecutor() as pool:  # Python unpacks files in parallel
            reasons = list(pool.map(problem, map(self.path, entries)))
        for entry, why in zip(entries, reasons, strict=True):
            if why is None:
                good.append(entry)
            elif self.check_unchanged(entry):  # a missing or changed file is not the cause
                bad.append(entry.with_state(UNREADABLE, Reason(ReasonCode.UNREADABLE, why)))
                self.report(f"  {self.name}: {printable(entry.path)}: {REJECTED}: {printable(why)}")
        with self.ledger_lock:  # a stream archives files beside its batches
            archive.reject_files(self.config.layout, self.source, self.ledger, bad)
        return good


class FileBatch:
    """The files of one micro-batch; see `ingest.source.SourceBatch`.

    Args:
        files: the context of its source.
        number: Spark's number of the micro-batch.
        queued: its files as they were when they were enqueued.
        entries: the ledger's entries of the files to read.
    """

    def __init__(
        self,
        files: BatchContext,
        number: int,
        queued: Sequence[Entry],
        entries: list[Entry],
    ) -> None:
        self.files, self._number, self._queued = files, number, queued
        self._entries = entries
        self._is_checked = False

    @property
    def summary(self) -> str:
        """The number of files to read."""
        return counted(len(self._entries), "file")

    def read(self, work: Callable[[DataFrame], None], what: str) -> None:
        """Call `work` with the rows of the files, without the files that cannot be read."""
        if not self._is_checked:
            # Files with rows in the ledger are in bronze, by a batch of a deleted checkpoint.
            new = [e for e in self._entries if not e.rows and self.files.check_unchanged(e)]
            self._entries = self._without_crashing(self._without_invalid(new))
            self._is_checked = True
        while self._entries:
            try:
                with self.files.attempts.of(self._entries):
                    work(self.files.read_rows([entry.path for entry in self._entries]))
                return
            except _ERRORS as error:
                good = self._readable(error)
                if len(good) == len(self._entries):
                    raise MedallionError(f"{what}: {one_line(str(error))}") from error
                self._entries = good

    def first_lines(self) -> list[str]:
        """Return a few lines of JSON Lines files; none of other formats."""
        source = self.files.source
        if source.format != "json" or source.multi_line:
            return []
        return first_lines([self.files.path(entry) for entry in self._entries])

    def _without_invalid(self, entries: list[Entry]) -> list[Entry]:
        """Reject files that are corrupt, or that Spark would read wrong; return the others."""
        source = self.files.source
        if source.format in TYPED_FORMATS:
            return self.files.reject_invalid(
                entries, lambda path: typed.unreadable_typed_reason(path, source.format)
            )
        is_csv = source.format == "csv" and not source.multi_line

        def invalid_reason(path: Path) -> str | None:
            # In this order: CSV is checked row by row, and each row has to fit into memory.
            why = content.not_text_reason(path) or content.too_long_reason(path, source)
            return why or (csv_dialect.unreadable_csv_reason(path, source) if is_csv else None)

        return self.files.reject_invalid(entries, invalid_reason)

    def _without_crashing(self, entries: list[Entry]) -> list[Entry]:
        """Reject the files that crash the engine; a child process reads the suspected ones first.

        Raises:
            MedallionError: a signal requests shutdown; the files stay suspected.
        """
        files = self.files
        suspects = files.attempts.suspects(entries)
        if not suspects:
            return entries
        what = counted(len(suspects), "file")
        files.report(
            f"  {files.name}: a process died while it read {what}: a child reads them first"
        )
        found = trial.find_crashing_files(files.trial_process(), [entry.path for entry in suspects])
        if signals.is_shutdown_requested():
            raise MedallionError(f"interrupted while a child process read {what}")
        root: Path = files.config.layout.root
        return files.reject_invalid(
            entries, dict.fromkeys((root / p for p in found), trial.CRASH_REASON).get
        )

    def _readable(self, error: Exception) -> list[Entry]:
        """Return the files that are unchanged and readable; reject the others.

        Raises:
            Exception: `error`, if Spark itself fails.
        """
        files, entries = self.files, self._entries
        _raise_if_engine_fails(files, error)
        good = [entry for entry in entries if files.check_unchanged(entry)]
        if len(good) == len(entries) and files.source.format not in TYPED_FORMATS:
            good = files.reject_invalid(entries, content.unreadable_reason)
        if len(good) == len(entries):
            found = self._unreadable(entries)
            root: Path = files.config.layout.root
            good = files.reject_invalid(
                entries, {root / path: why for path, why in found.items()}.get
            )
        return good

    def _unreadable(self, entries: list[Entry]) -> dict[str, str]:
        """Return Spark's errors for the files that it cannot read, by path; found by bisection.

        Raises:
            Exception: Spark itself fails.
        """
        error = self._parse_error(entries)
        if error is None:
            return {}
        if len(entries) > 1:
            half = len(entries) // 2
            return {**self._unreadable(entries[:half]), **self._unreadable(entries[half:])}
        # A cancelled job fails once, whatever it reads.
        error = self._parse_error(entries)
        if error is None:
            return {}
        _raise_if_engine_fails(self.files, error)
        failure = classify(error)
        told = failure.message
        if failure.code is FailureCode.FILE_CHECKSUM_WRONG:
            name = Path(entries[0].path).name
            told = f".{name}.crc beside it is of another file: remove that, and put this one back"
        has_no_type = failure.code is FailureCode.COLUMN_TYPE_UNREADABLE
        if has_no_type and (columns := typed.unsupported_columns(self.files.path(entries[0]))):
            told = f"Spark has no type for its {columns}: write that as text ({told})"
        return {entries[0].path: f"cannot be read: {told}"}

    def _parse_error(self, entries: list[Entry]) -> Exception | None:
        try:
            self.files.parse_only(entries)
        except _ERRORS as error:
            return error
        return None

    def record_in_ledger(self, version: int | None) -> None:
        """Record the files that bronze has rows of, and those that were read and have none."""
        files = self.files
        found = count_rows_by_file(files.config.layout.table(files.name), version)
        with files.ledger_lock:
            ingested = ingested_entries(
                files.ledger, files.config.layout, self._queued, self._entries, self._number, found
            )
            replaced = [
                old.with_state(REPLACED, _replaced_by(entry))
                for entry in ingested
                if (old := files.ledger.previous_ingested(entry)) and old.state != REPLACED
            ]
            files.ledger.write([*replaced, *ingested])


def _replaced_by(entry: Entry) -> Reason:
    return Reason(ReasonCode.REPLACED, f"version {entry.version} has come since")


def _raise_if_engine_fails(files: BatchContext, error: Exception) -> None:
    """Raise the error again if parsing fails without any file: no file is the cause then."""
    try:
        files.parse_without_files()
    except Exception:
        raise error from None


def first_lines(paths: Sequence[Path]) -> list[str]:
    """Return a few lines of a few files; none of a file that is unreadable or has long lines."""
    found: list[str] = []
    for path in paths[:: max(1, len(paths) // _FILES)][:_FILES]:
        with suppress(*content.READ_ERRORS), content.open_unpacked(path) as file:
            head = file.read(_BYTES)
            lines = head.splitlines()[: -1 if len(head) == _BYTES else None]
            found += [line.decode("utf-8-sig", "replace") for line in lines[:_LINES]]
    return found


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Counts(NamedTuple):
    """The rows that bronze has of one file, and its modification time when Spark read it."""

    rows: int
    corrupt: int
    rescued: int
    modified_at: int


def queued_entries(source: str, rows: Iterable[Row]) -> list[Entry]:
    """Files as they were when they were handed over, as rows of the ledger: what that has of them
    by now may be something else, or nothing."""
    times = ((row, _micros(row.modified_at)) for row in rows)
    return [Entry(source, row.path, row.version, row.size, at, at) for row, at in times]


def read_queued_batch(
    spark: SparkSession, source: str, intake: Path, checkpoint: Path, batch: int
) -> list[Entry]:
    """What one batch was handed, by its query's checkpoint; nothing where maintenance has removed
    it."""
    start = checkpoints.delta_offset(checkpoint, batch - 1)
    end = checkpoints.delta_offset(checkpoint, batch)
    if not delta_log.are_readable(intake, range(start.version, end.version)):
        return []
    added = delta_reads.added_rows(spark, intake, start.version, end.version - 1)
    return queued_entries(source, added.collect())


def count_rows_by_file(bronze: Path, version: int | None) -> dict[str, Counts]:
    """How many rows one version of bronze added, by the paths of their files.

    They are read back without Spark, which takes ten times as long for that.
    """
    read_at = f"max(arrow_cast({SOURCE_MODIFIED_AT}, 'Int64'))"
    what = f"{SOURCE_FILE}, {ROW_COUNTS}, {read_at}"
    found = delta_tables.select_added_rows(bronze, version, what, f"group by {SOURCE_FILE}")
    return {path: Counts(*counts) for path, *counts in found}


def entry_to_ingest(ledger: Ledger, queued: Entry, batch: int) -> Entry | None:
    """The ledger's row of a file that was handed over, if the batch is to take it in.

    A run that was cut off may have handed it over twice, and may not have entered it at all.
    """
    entry = ledger.version(queued.path, queued.version) or queued
    return entry if _may_ingest(entry, batch) and entry.file == queued.file else None


def ingested_entries(
    ledger: Ledger,
    layout: Layout,
    queued: Iterable[Entry],
    entries: Iterable[Entry],
    batch: int,
    found: Mapping[str, Counts],
) -> list[Entry]:
    """The ledger's new rows of what a batch took in.

    Args:
        queued: what it was handed, or all that it may have been.
        entries: the ledger's rows of the files that it read, with rows or without.
        found: the rows that bronze has of it, by the files' paths.
    """
    listed = _queued_by_path(queued, found)
    done = []
    for path, counts in found.items():
        if entry := _entry_of_rows(ledger, layout, path, listed.get(path), counts, batch):
            done.append(entry.as_ingested(batch, *counts[:3]))
    return done + [e.as_ingested(batch, 0, 0, 0) for e in entries if e.path not in found]


def _queued_by_path(queued: Iterable[Entry], found: Mapping[str, Counts]) -> dict[str, Entry]:
    """What was handed over under each path.

    A batch is handed a path once. But where nobody knows which batch was handed what, these are all
    that ever were: of several with one path the one with the time of the rows counts, else the
    newest.
    """

    def likely(each: Entry) -> tuple[bool, int]:
        counts = found.get(each.path)
        return counts is not None and counts.modified_at == each.modified_at, each.version

    return {each.path: each for each in sorted(queued, key=likely)}


def _entry_of_rows(
    ledger: Ledger, layout: Layout, path: str, queued: Entry | None, counts: Counts, batch: int
) -> Entry | None:
    """The ledger's row of the file that bronze has rows of; None where another batch has taken that
    in.

    The file need not be the one that was handed over: another one may have taken its place just
    before Spark opened it. And a poll may have entered something else under its path.
    """
    newest = ledger.newest(path)
    if queued is None:  # a corrupt commit of what was queued was moved away
        is_it = newest and newest.state == PENDING and newest.modified_at == counts.modified_at
        return newest if is_it else None
    read_at, size = counts.modified_at, queued.size
    if (
        read_at != queued.modified_at
        and (now := current_file(layout, path))
        and now.modified_at == read_at
    ):
        size = now.size
    if newest and newest.file == File(path, size, read_at) and _may_ingest(newest, batch):
        return newest  # a later version, where the file was gone for a while
    known = ledger.version(path, queued.version)
    if known and known.state in INGESTED_STATES:
        return known if _may_ingest(known, batch) else None
    seen = known.first_seen_at if known else read_at
    return replace(queued, size=size, modified_at=read_at, first_seen_at=seen)


def _may_ingest(entry: Entry, batch: int) -> bool:
    """Whether a batch may take a file in, or has done so before, and is repeated now."""
    return entry.state == PENDING or (entry.state == INGESTED and entry.batch == batch)


def _micros(time: datetime) -> int:
    # Not by way of a float, which is a millisecond off for some years' times.
    return (time.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1) * 1000

"""The files of one micro-batch: reading them, rejecting bad ones, and the ledger's new entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession

from medallion.config.model import TYPED_FORMATS
from medallion.errors import MedallionError
from medallion.ingest.files import content, csv_dialect, trial, typed
from medallion.ingest.files.listing import current_file
from medallion.spark import checkpoints, delta_reads, signals
from medallion.spark.errors import SPARK_ERRORS, one_line
from medallion.state.ledger import (
    INGESTED,
    INGESTED_STATES,
    PENDING,
    REPLACED,
    Entry,
    File,
    Ledger,
    Reason,
    ReasonCode,
)
from medallion.storage import delta_log, delta_tables
from medallion.storage.paths import Layout
from medallion.storage.table_specs import ROW_COUNTS, SOURCE_FILE, SOURCE_MODIFIED_AT
from medallion.storage.text import counted

if TYPE_CHECKING:
    from medallion.ingest.files.source import FileSource


# Errors that a file may be to blame for: of Spark, which reads it, and of Python, which looks at it
# first and reads the headers of CSV.
_ERRORS = (*SPARK_ERRORS, *content.READ_ERRORS)
# How many files, lines of each, and bytes of each are looked at to see how lines are written.
_FILES, _LINES, _BYTES = 8, 20, 1 << 16
# Errors of Spark about a column of Parquet whose type it does not read: they do not name it.
_NO_TYPE = ("PARQUET_TYPE_", "UNSUPPORTED_TIME_TYPE")


class FileBatch:
    """What one batch was handed; see `ingest.source.SourceBatch`.

    Args:
        handed: all of it, as it was when it was handed over.
        entries: the ledger's rows of the files that are to be read.
    """

    def __init__(
        self,
        files: FileSource,
        number: int,
        handed: Sequence[Entry],
        entries: list[Entry],
    ) -> None:
        self.files, self._number, self._handed = files, number, handed
        self._entries = entries
        self._is_looked_at = False

    @property
    def summary(self) -> str:
        """How many files are read."""
        return counted(len(self._entries), "file")

    def read(self, work: Callable[[DataFrame], None], what: str) -> None:
        """Do some work with the files' rows, without the files that cannot be read."""
        if not self._is_looked_at:
            # What has rows in the ledger is in bronze, by a batch of a checkpoint that is gone.
            new = [e for e in self._entries if not e.rows and self.files.check_unchanged(e)]
            self._entries = self._without_killers(self._fit_to_read(new))
            self._is_looked_at = True
        while self._entries:
            try:
                with self.files.attempts.of(self._entries):
                    work(self.files.rows([entry.path for entry in self._entries]))
                return
            except _ERRORS as error:
                good = self._readable(error)
                if len(good) == len(self._entries):
                    raise MedallionError(f"{what}: {one_line(str(error))}") from error
                self._entries = good

    def first_lines(self) -> list[str]:
        """A few lines of files of lines of JSON; none of others."""
        source, root = self.files.settings, self.files.config.layout.root
        if source.format != "json" or source.multi_line:
            return []
        return first_lines([root / entry.path for entry in self._entries])

    def _fit_to_read(self, entries: list[Entry]) -> list[Entry]:
        """Those that are whole, or text that Spark reads as it is; the others are put aside."""
        source = self.files.settings
        if source.format in TYPED_FORMATS:
            return self.files.put_aside(
                entries, lambda path: typed.unreadable_typed_reason(path, source.format)
            )
        is_csv = source.format == "csv" and not source.multi_line

        def why_unfit(path: Path) -> str | None:
            # In this order: CSV is looked at row by row, and none is longer than may be held.
            why = content.not_text_reason(path) or content.too_long_reason(path, source)
            return why or (csv_dialect.unreadable_csv_reason(path, source) if is_csv else None)

        return self.files.put_aside(entries, why_unfit)

    def _without_killers(self, entries: list[Entry]) -> list[Entry]:
        """Reject the files that kill the engine; a child process reads the suspected ones first.

        Raises:
            MedallionError: a signal asks for an end; the files stay suspected.
        """
        files = self.files
        suspects = files.attempts.suspects(entries)
        if not suspects:
            return entries
        what = counted(len(suspects), "file")
        files.say(f"  {files.name}: a process died while it read {what}: a child reads them first")
        found = trial.find_crashing_files(files.child(), [entry.path for entry in suspects])
        if signals.is_shutdown_requested():
            raise MedallionError(f"interrupted while a child process read {what}")
        root: Path = files.config.layout.root
        return files.put_aside(
            entries, dict.fromkeys((root / p for p in found), trial.CRASH_REASON).get
        )

    def _readable(self, error: Exception) -> list[Entry]:
        """The files that are still there and can be read; the others are put aside.

        Raises:
            Exception: the error again, where Spark does not work any more.
        """
        files, entries = self.files, self._entries
        _refuse_broken(files, error)
        good = [entry for entry in entries if files.check_unchanged(entry)]
        if len(good) == len(entries) and files.settings.format not in TYPED_FORMATS:
            good = files.put_aside(entries, content.unreadable_reason)
        if len(good) == len(entries):
            found = self._unreadable(entries)
            root: Path = files.config.layout.root
            good = files.put_aside(entries, {root / path: why for path, why in found.items()}.get)
        return good

    def _unreadable(self, entries: list[Entry]) -> dict[str, str]:
        """What Spark says of those files that it cannot read, by their paths.

        They are found by halves, for each try is a job.

        Raises:
            Exception: that of a try which failed because Spark does not work any more.
        """
        error = self._problem(entries)
        if error is None:
            return {}
        if len(entries) > 1:
            half = len(entries) // 2
            return {**self._unreadable(entries[:half]), **self._unreadable(entries[half:])}
        # A job that is cancelled fails once, whatever it reads; where Spark is stopped, all do.
        error = self._problem(entries)
        if error is None:
            return {}
        _refuse_broken(self.files, error)
        told = one_line(str(error))
        if "ChecksumException" in str(error):
            name = Path(entries[0].path).name
            told = f".{name}.crc beside it is of another file: remove that, and put this one back"
        if any(name in told for name in _NO_TYPE):
            place = self.files.config.layout.root / entries[0].path
            if columns := typed.unsupported_columns(place):
                told = f"Spark has no type for its {columns}: write that as text ({told})"
        return {entries[0].path: f"cannot be read: {told}"}

    def _problem(self, entries: list[Entry]) -> Exception | None:
        try:
            self.files.try_out(entries)
        except _ERRORS as error:
            return error
        return None

    def record_in_ledger(self, version: int | None) -> None:
        """Enter the files that bronze has rows of, and those that were read and have none."""
        files = self.files
        found = count_rows_by_file(files.config.layout.table(files.name), version)
        with files.ledger_lock:
            ingested = ingested_entries(
                files.ledger, files.config.layout, self._handed, self._entries, self._number, found
            )
            replaced = [
                old.with_state(REPLACED, _replaced_by(entry))
                for entry in ingested
                if (old := files.ledger.previous_ingested(entry)) and old.state != REPLACED
            ]
            files.ledger.write([*replaced, *ingested])


def _replaced_by(entry: Entry) -> Reason:
    return Reason(ReasonCode.REPLACED, f"version {entry.version} has come since")


def _refuse_broken(files: FileSource, error: Exception) -> None:
    """Raise the error again where no file is to blame: what is done with their lines fails with one
    that is in none of them, because Spark has stopped, say, or of a setting or a defect of ours."""
    try:
        files.try_out_without()
    except Exception:
        raise error from None


def first_lines(paths: Sequence[Path]) -> list[str]:
    """A few whole lines of a few of the files; none where one is long, or cannot be read."""
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

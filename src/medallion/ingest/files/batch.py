"""The files of one micro-batch: read without those that cannot be, and entered in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from medallion.config.model import TYPED_FORMATS
from medallion.errors import MedallionError
from medallion.ingest.files import (
    codecs,
    csv_dialect,
    ledger_entries,
    lengths,
    reject,
    trial,
    typed,
)
from medallion.spark import signals
from medallion.spark.errors import SPARK_ERRORS, one_line
from medallion.state.ledger import REPLACED, Entry, Reason, ReasonCode
from medallion.storage.text import counted

if TYPE_CHECKING:
    from medallion.ingest.files.source import FileSource

# Errors that a file may be to blame for: of Spark, which reads it, and of Python, which looks at it
# first and reads the headers of CSV.
_ERRORS = (*SPARK_ERRORS, *codecs.READ_ERRORS)
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
                entries, lambda path: typed.why_unreadable(path, source.format)
            )
        is_csv = source.format == "csv" and not source.multi_line

        def why_unfit(path: Path) -> str | None:
            # In this order: CSV is looked at row by row, and none is longer than may be held.
            why = reject.why_not_text(path) or lengths.why_unfit(path, source)
            return why or (csv_dialect.why_unfit(path, source) if is_csv else None)

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
        found = trial.killers(files.child(), [entry.path for entry in suspects])
        if signals.is_shutdown_requested():
            raise MedallionError(f"interrupted while a child process read {what}")
        root: Path = files.config.layout.root
        return files.put_aside(entries, dict.fromkeys((root / p for p in found), trial.REASON).get)

    def _readable(self, error: Exception) -> list[Entry]:
        """The files that are still there and can be read; the others are put aside.

        Raises:
            Exception: the error again, where Spark does not work any more.
        """
        files, entries = self.files, self._entries
        _refuse_broken(files, error)
        good = [entry for entry in entries if files.check_unchanged(entry)]
        if len(good) == len(entries) and files.settings.format not in TYPED_FORMATS:
            good = files.put_aside(entries, reject.why_unreadable)
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
            if columns := typed.columns_without_type(place):
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
        found = ledger_entries.by_file(files.config.layout.table(files.name), version)
        with files.ledger_lock:
            ingested = ledger_entries.ingested(
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
        with suppress(*codecs.READ_ERRORS), codecs.opened(path) as file:
            head = file.read(_BYTES)
            lines = head.splitlines()[: -1 if len(head) == _BYTES else None]
            found += [line.decode("utf-8-sig", "replace") for line in lines[:_LINES]]
    return found

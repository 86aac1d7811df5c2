"""The files of one micro-batch: reading them, rejecting bad ones, and the ledger's new entries."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from medallion.config.model import TYPED_FORMATS
from medallion.errors import MedallionError
from medallion.ingest.files import content, decode, typed_files
from medallion.ingest.files.listing import current_info
from medallion.ingest.files.verify import ROWS_BY_FILE, Counts, sum_by_file
from medallion.ingest.parsing.parse import parse_lines
from medallion.spark import delta, jvm, signals
from medallion.spark.errors import SPARK_ERRORS, FailureCode, classify, one_line
from medallion.state.ledger import Entry, Reason, ReasonCode, State
from medallion.storage import delta_tables
from medallion.storage.files import FileInfo
from medallion.storage.paths import StoragePath
from medallion.storage.text import counted, error_reason, printable

if TYPE_CHECKING:
    from medallion.ingest.files.source import FileSource

_GONE = "gone after it was listed and before it was read"
_VANISHED = Reason(ReasonCode.GONE, _GONE)
_SAMPLE_LINE = "SELECT '{}' AS value"
# Errors that a file may cause: in Spark, or in Python, which checks it first.
_ERRORS = (*SPARK_ERRORS, *content.READ_ERRORS)
# Limits of `first_lines`: files, and lines and bytes of each.
_FILES, _LINES, _BYTES = 8, 20, 1 << 16


class FileBatch:
    """The files of one micro-batch; `ingest.source.SourceBatch` documents the methods.

    Args:
        files: the source.
        number: Spark's number of the micro-batch.
        entries: the ledger's entries of the files to read.
        queued: files of an interrupted batch, and maybe of others, as they were queued.
    """

    def __init__(
        self, files: FileSource, number: int, entries: list[Entry], queued: Iterable[Entry] = ()
    ) -> None:
        self.files, self._number, self._entries = files, number, entries
        self._listed = [*queued, *entries]
        self._is_checked = False

    @property
    def summary(self) -> str:
        return counted(len(self._entries), "file")

    @property
    def paths(self) -> list[str]:
        return [entry.path for entry in self._entries]

    def read(self, work: Callable[[DataFrame], None], description: str) -> None:
        if not self._is_checked:
            # Skip files that have rows in the ledger: before the checkpoint was lost, another batch
            # of this number ingested them.
            new = [e for e in self._entries if not e.rows and self._check_unchanged(e)]
            self._entries = self._without_invalid(new)
            self._is_checked = True
        while self._entries:
            try:
                work(self.files.read_rows(self.paths))
                return
            except _ERRORS as error:
                if not (signals.is_shutdown_requested() or jvm.is_alive(self.files.spark)):
                    self._report_end_of_java()
                    raise
                good = self._readable(error)
                if len(good) == len(self._entries):
                    raise MedallionError(f"{description}: {one_line(str(error))}") from error
                self._entries = good

    def first_lines(self) -> list[str]:
        source = self.files.source
        if source.format != "json" or source.multi_line:
            return []
        return first_lines([self.files.path(entry) for entry in self._entries])

    def _without_invalid(self, entries: list[Entry]) -> list[Entry]:
        """Reject files that are corrupt, or that Spark would misread; return the others."""
        source = self.files.source
        if source.format in TYPED_FORMATS:
            return self._reject_unreadable(
                entries, lambda path: typed_files.unreadable_typed_reason(path, source.format)
            )

        def invalid_reason(path: Path) -> str | None:
            reason = content.not_text_reason(path, source.options.encoding)
            # Files that Python decodes are checked while Spark reads their rows.
            is_checked_later = decode.is_decoded(path, source)
            return reason or (None if is_checked_later else decode.too_long_reason(path, source))

        return self._reject_unreadable(entries, invalid_reason)

    def _report_end_of_java(self) -> None:
        """Name the files that were being read: one of them may need more memory than there is."""
        paths = sorted(self.paths)
        more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
        self.files.report(
            f"  {self.files.name}: Java ended while it read {printable(paths[0])}{more}: if it "
            "ran out of memory, raise spark.driver.memory, or split the largest file"
        )

    def _readable(self, error: Exception) -> list[Entry]:
        """Return the files that are unchanged and readable; reject the others.

        Raises:
            Exception: `error`, if Spark itself fails.
        """
        source, entries = self.files.source, self._entries
        self._raise_if_engine_fails(error)
        good = [entry for entry in entries if self._check_unchanged(entry)]
        if len(good) == len(entries) and source.format not in TYPED_FORMATS:
            good = self._reject_unreadable(
                entries, lambda path: decode.unreadable_reason(path, source)
            )
        if len(good) == len(entries):
            good = self._reject_invalid(entries, self._spark_errors(entries).get)
        return good

    def _spark_errors(self, entries: list[Entry]) -> dict[Entry, str]:
        """Return Spark's errors for the files that it cannot read; found by bisection.

        Raises:
            Exception: Spark itself fails.
        """
        if self._parse_error(entries) is None:
            return {}
        if len(entries) > 1:
            half = len(entries) // 2
            return {**self._spark_errors(entries[:half]), **self._spark_errors(entries[half:])}
        # Read it a second time: the first failure may have been a cancelled job.
        error = self._parse_error(entries)
        if error is None:
            return {}
        self._raise_if_engine_fails(error)
        path, failure = self.files.path(entries[0]), classify(error)
        text = failure.message
        if failure.code is FailureCode.FILE_CHECKSUM_WRONG:
            text = f".{path.name}.crc is of another file: remove it, and put this file back"
        has_no_type = failure.code is FailureCode.COLUMN_TYPE_UNREADABLE
        if has_no_type:
            with path.as_local() as file:
                columns = typed_files.unsupported_columns(file)
            if columns:
                text = f"Spark has no type for its {columns}: write that as text ({text})"
        return {entries[0]: f"cannot be read: {text}"}

    def _parse_error(self, entries: Iterable[Entry]) -> Exception | None:
        """Read and parse files without writing; return the error, if that fails."""
        try:
            self._parse_all(self.files.read_rows([entry.path for entry in entries]))
        except _ERRORS as error:
            return error
        return None

    def _raise_if_engine_fails(self, error: Exception) -> None:
        """Raise `error` if Spark cannot parse a good line either: then no file is the cause."""
        metadata = self.files.config.layout.checkpoint(self.files.name) / "metadata"
        try:
            if metadata.is_stored():
                self._parse_all(self.files.spark.read.text(delta.escape_path(metadata)))
            else:
                self._parse_all(self.files.spark.sql(_SAMPLE_LINE))
        except Exception:
            raise error from None

    def _parse_all(self, rows: DataFrame) -> None:
        # A count would not do: it reads no values of Parquet.
        parse_lines(rows, self.files.schema.columns).write.format("noop").mode("overwrite").save()

    def _check_unchanged(self, entry: Entry) -> bool:
        """Return whether a file is as it was listed; record one that is gone as vanished.

        The next scan enqueues a file again that has changed, or cannot be inspected.
        """
        try:
            info = self.files.path(entry).info()
        except OSError as error:
            reason = f"cannot be inspected: {error_reason(error)}; the next run tries again"
            self._report(entry, reason)
            return False
        if info is None:
            self.files.write_entries([entry.with_state(State.VANISHED, _VANISHED)])
            self._report(entry, f"{State.VANISHED}: {_GONE}")
        return entry.info.is_same(info)

    def _reject_unreadable(self, entries: list[Entry], problem: content.Problem) -> list[Entry]:
        """Record the files whose content has a problem, and return the others."""

        def reason_of(entry: Entry) -> str | None:
            with suppress(FileNotFoundError), self.files.path(entry).as_local() as file:
                return problem(file)
            return _GONE

        return self._reject_invalid(entries, reason_of)

    def _reject_invalid(
        self, entries: list[Entry], reason_of: Callable[[Entry], str | None]
    ) -> list[Entry]:
        """Record the files that are invalid for a reason, and return the others.

        They are not read again, and moved to `rejected/` when the batch is released.
        """
        valid, invalid = [], []
        with ThreadPoolExecutor() as pool:  # Python unpacks files in parallel
            reasons = list(pool.map(reason_of, entries))
        for entry, reason in zip(entries, reasons, strict=True):
            if reason is None:
                valid.append(entry)
            elif self._check_unchanged(entry):  # a missing or changed file is not the cause
                unreadable = Reason(ReasonCode.UNREADABLE, reason)
                invalid.append(entry.with_state(State.UNREADABLE, unreadable))
                self._report(entry, f"{State.REJECTED}: {printable(reason)}")
        if invalid:
            self.files.write_entries(invalid)
        return valid

    def _report(self, entry: Entry, text: str) -> None:
        self.files.report(f"  {self.files.name}: {printable(entry.path)}: {text}")

    def record_in_ledger(self, version: int | None) -> None:
        files = self.files
        counts = rows_of_version(files.config.layout.table(files.name), version)
        replaced = Reason(ReasonCode.REPLACED, "a newer version was ingested")
        with files.ledger_lock:
            ingested = self.ingested_entries(counts)
            older = filter(None, map(files.ledger.previous_ingested, ingested))
            entries = [entry.with_state(State.REPLACED, replaced) for entry in older]
            files.ledger.write([*entries, *ingested])

    def ingested_entries(self, counts: Mapping[str, tuple[int, Counts]]) -> list[Entry]:
        """Return the new ledger entries of the files that the batch ingested; write nothing.

        Args:
            counts: what `rows_of_version` returns for the batch.
        """
        listed = defaultdict[str, list[Entry]](list)
        for entry in self._listed:
            listed[entry.path].append(entry)
        ingested = [
            found.as_ingested(self._number, *rows)
            for path, (read_at, rows) in counts.items()
            if (found := self._entry_for_rows(path, listed[path], read_at))
        ]
        empty = (each for each in self._entries if each.path not in counts)
        return ingested + [each.as_ingested(self._number, *Counts()) for each in empty]

    def _entry_for_rows(self, path: str, listed: list[Entry], read_at: int) -> Entry | None:
        """Return the entry of a file that bronze has rows of; None if another batch ingested it.

        A poll may have seen another file of this name since, or none: the entry with the time of
        the rows is preferred. Without one, the file was replaced before it was read.

        Args:
            path: the path of the file.
            listed: its entries when it was listed.
            read_at: its modification time when it was read.
        """
        versions = {e.version: e for e in sorted(listed, key=lambda e: e.modified_at == read_at)}
        for each in self.files.ledger.versions(path):
            is_exact = each.is_ingested or each.modified_at == read_at
            versions[each.version] = each if is_exact else versions.get(each.version, each)
        # None if a power failure lost the queue's commit and the ledger's.
        versions = versions or {1: Entry(self.files.source.name, path, 1, 0, -1, read_at)}
        same = [entry for entry in versions.values() if entry.modified_at == read_at]

        def preference(entry: Entry) -> tuple[bool, bool, int]:
            is_own = entry.is_ingested_by(self._number)  # the batch is repeated
            return is_own, entry.state == State.PENDING, entry.version

        free = (e for e in same or versions.values() if preference(e)[0] or not e.is_ingested)
        entry = max(free, key=preference, default=None)
        if entry is None or entry.modified_at == read_at:
            return entry
        now = current_info(self.files.config.layout, path)
        # If it was replaced once more since, its size is unknown.
        is_read = now and now.modified_at == read_at
        return entry.with_info(now if now and is_read else FileInfo(entry.size, read_at))


def first_lines(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return a few lines of a few files; none of a file that is unreadable or has long lines."""
    sample: list[str] = []
    for path in paths[:: max(1, len(paths) // _FILES)][:_FILES]:
        with (
            suppress(*content.READ_ERRORS),
            StoragePath(path).as_local() as local,
            content.open_unpacked(local) as file,
        ):
            head = file.read(_BYTES)
            lines = head.splitlines()[: -1 if len(head) == _BYTES else None]
            sample += [line.decode("utf-8-sig", "replace") for line in lines[:_LINES]]
    return sample


def rows_of_version(bronze: StoragePath, version: int | None) -> dict[str, tuple[int, Counts]]:
    """Return the rows that one version of bronze added by the paths of their files.

    Each file has its modification time when Spark read it. Delta-rs reads the rows; Spark takes ten
    times as long.
    """
    rows = delta_tables.select_added_rows(bronze, version, ROWS_BY_FILE, "group by 1, 2")
    return {path: (at, counts) for (path, at), counts in sum_by_file(rows).items()}

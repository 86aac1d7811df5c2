"""Classification of listed files by what the ledger knows of their paths."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from medallion.config.model import SourceConfig
from medallion.ingest.files import csv_dialect
from medallion.ingest.files.listing import Listing
from medallion.state.ledger import (
    ARCHIVED,
    INGESTED,
    INGESTED_STATES,
    PENDING,
    REFUSED_STATES,
    REJECTED,
    VANISHED,
    Entry,
    File,
    Ledger,
    Reason,
    ReasonCode,
)
from medallion.storage import files
from medallion.storage.paths import Layout
from medallion.storage.text import counted, error_reason

_HIDDEN = Reason(
    ReasonCode.HIDDEN,
    "hidden: its name or its folder's begins with . or _, or it ends with ._COPYING_; rename it to "
    "have it taken in, and where it is a backfill's, ask for that again",
)
# A hidden file is mostly one that is being written, and is shown under its name within moments.
_HIDDEN_MICROS = 60_000_000
_NOT_AGAIN = Reason(
    ReasonCode.NAME_TAKEN,
    "a file of this name was taken in before, and this is another one: give it a name of its own, "
    "or set allow_overwrites",
)
_OTHER_TIME = Reason(
    ReasonCode.NAME_TAKEN,
    "a file of this name and size was taken in before, and this one has another time: if it is "
    "that file, copied without its time (by cp -r, say, and not cp -a), it may stay, for its rows "
    "are there; if it has other rows, give it a name of its own (allow_overwrites takes in all "
    "that are told so, the copies once more)",
)
_THE_SAME = Reason(
    ReasonCode.SAME_FILE,
    "the same file as was taken in before: its rows are there, and it is left out",
)
_NOTHING_TO_COMPARE = Reason(
    ReasonCode.SAME_FILE,
    "a file of this name, size and time was taken in before, and is not there to compare this one "
    "with: if it is another one, give it a name of its own",
)
_ARCHIVED_FILE = "the same file as {}, where it landed: its rows are there, and it is left out"
# allow_overwrites ingests the files that were rejected for one of these.
_OVERWRITES = (ReasonCode.NAME_TAKEN, ReasonCode.GREW)


class FileClassifier:
    """Classifies the files of a listing by what the ledger has of each path."""

    def __init__(
        self,
        layout: Layout,
        source: SourceConfig,
        ledger: Ledger,
        now: int,
        requested: Collection[Path],
        unread: Collection[tuple[str, int]] = (),
    ) -> None:
        """Prepare to classify one listing.

        Args:
            now: when the directories were listed, in microseconds since 1970.
            requested: paths of pending backfills. They may be for files that were rejected before.
            unread: paths and versions of pending files that bronze will never read.
        """
        self._layout, self._source, self._ledger = layout, source, ledger
        self._now, self._requested, self._unread = now, requested, unread
        self._names: set[str] | None = None  # that headers of CSV may have

    def classify(self, listing: Listing) -> list[Entry]:
        """Return the new ledger entries of the listed files."""
        new = [row for file in listing.files.values() if (row := self._classify_file(file))]
        hidden = (self._classify_hidden(file) for file in listing.hidden.values())
        invalid = (self._classify_invalid(path, reason) for path, reason in listing.invalid.items())
        return [*self._reject_archived(new), *filter(None, hidden), *invalid]

    def _reject_archived(self, new: list[Entry]) -> list[Entry]:
        """Reject files that were archived from this source, and are listed in the archive."""
        places = {entry.path for entry in new}
        moved = (
            e
            for e in self._ledger.all_versions()
            if e.moved_to in places and e.state in INGESTED_STATES
        )
        landed = {File(str(e.moved_to), e.size, e.modified_at): e.path for e in moved}
        return [
            e.with_state(REJECTED, _archived_file_reason(landed[e.file])) if e.file in landed else e
            for e in new
        ]

    def _classify_hidden(self, file: File) -> Entry | None:
        """Return the entry of a hidden file; None if there is nothing to report, or not yet."""
        known = self._ledger.newest(file.path)
        is_new = known is None or known.file != file or is_deferred(known)
        # A requested one is reported at once: a request is handled only once.
        is_time = self._now - file.modified_at > _HIDDEN_MICROS or self._is_requested(file.path)
        return self._pending_entry(file, _HIDDEN) if is_new and is_time else None

    def _classify_invalid(self, path: str, reason: Reason) -> Entry:
        """Return the entry of something that is deferred to the next scan."""
        known = self._ledger.newest(path)
        if known is not None and known.state == PENDING:
            return known.with_state(PENDING, reason)  # keep what is known of its file
        # That file is still there; if it was moved, this is another one.
        if known and known.moved_to is None and known.state in (INGESTED, *REFUSED_STATES):
            return known
        return self._pending_entry(File(path, 0, self._now), reason)

    def _classify_file(self, file: File) -> Entry | None:
        """Return the new entry of a listed file; None if nothing has changed."""
        known, reason = self._ledger.newest(file.path), None
        if known is not None and known.file == file and not self._is_to_reclassify(known):
            return None
        why_not_yet = (
            self._being_written_reason(file)
            or self._unopenable_reason(file)
            or self._csv_header_reason(file)
        )
        seen = self._pending_entry(file, why_not_yet)
        # Not only the newest version counts: the one before may be rejected.
        if taken := self._ledger.previous_ingested(seen):
            reason = self._same_file_reason(taken, file)
            if reason is None and not self._source.allow_overwrites:
                reason = _overwritten_reason(taken, file)
        return seen.with_state(REJECTED, reason) if reason else seen

    def _is_to_reclassify(self, known: Entry) -> bool:
        """Return whether a file that is as the ledger has it is to be classified again."""
        if known.state in REFUSED_STATES:
            # The user has put it back, or has done what its reason said.
            allowed = known.reason_code in _OVERWRITES and self._source.allow_overwrites
            return known.moved_to is not None or allowed or self._is_requested(known.path)
        if known.state == PENDING:
            return is_deferred(known) or (known.path, known.version) in self._unread
        return known.state in (VANISHED, ARCHIVED)  # it was gone and is back

    def _is_requested(self, path: str) -> bool:
        """Return whether a backfill requests a file, or a directory that it is in."""
        place = self._layout.root / path
        return any(place.is_relative_to(each) for each in self._requested)

    def _same_file_reason(self, taken: Entry, file: File) -> Reason | None:
        """Return why a file is skipped that equals the archived file of its name, or None.

        A daily copy of a whole directory brings archived files back, with or without their times.
        """
        if taken.state != ARCHIVED or taken.size != file.size:
            return None
        unknown = _NOTHING_TO_COMPARE if taken.file == file else None
        if taken.moved_to is None:
            return unknown
        root = self._layout.root
        try:
            is_same = files.have_same_bytes(root / file.path, root / taken.moved_to)
        except OSError:
            return unknown
        return _THE_SAME if is_same else None

    def _pending_entry(self, file: File, reason: Reason | None) -> Entry:
        """Return an entry for a file that is to be ingested, or deferred for a reason."""
        known, now = self._ledger.newest(file.path), self._now
        version, first_seen, is_open = 1, now, False
        if known is not None:
            is_open = known.state == PENDING
            version = known.version if is_open else known.version + 1
            is_as_it_was = known.file == file or file.modified_at <= now
            # A time in the future is from a wrong clock.
            first_seen = min(known.first_seen_at, now) if is_open and is_as_it_was else now
        seen = Entry(self._source.name, file.path, version, file.size, file.modified_at, first_seen)
        if known is not None and is_open:
            seen = replace(
                seen,
                reason_code=known.reason_code,
                reported_at=known.reported_at,
                dismissed_at=known.dismissed_at,
            )
        return seen.with_state(PENDING, reason)

    def _being_written_reason(self, file: File) -> Reason | None:
        quiet, now = self._source.quiet_period, self._now
        if quiet is None:
            return None
        known, since = self._ledger.newest(file.path), file.modified_at
        if since > now:  # by another clock: count from when ours first saw it unchanged
            since = min(known.first_seen_at, now) if known and known.file == file else now
        if now - since >= quiet.micros:
            return None
        told = f"still being written: taken in once it has not changed for {quiet}"
        return Reason(ReasonCode.BEING_WRITTEN, told)

    def _unopenable_reason(self, file: File) -> Reason | None:
        try:
            os.close(os.open(self._layout.root / file.path, os.O_RDONLY | os.O_NONBLOCK))
        except FileNotFoundError:  # the next scan finds out
            return None
        except OSError as error:
            return Reason(ReasonCode.INACCESSIBLE, f"cannot be opened: {error_reason(error)}")
        return None

    def _csv_header_reason(self, file: File) -> Reason | None:
        """Return why a CSV file waits for another header or other options of its source."""
        if self._source.format != "csv":
            return None
        if self._names is None:
            self._names = csv_dialect.known_header_names(self._layout, self._source)
        text = csv_dialect.csv_header_reason(
            self._layout.root / file.path, self._source, self._names
        )
        return Reason(ReasonCode.CSV_HEADER, text) if text else None


def _archived_file_reason(path: str) -> Reason:
    return Reason(ReasonCode.SAME_FILE, _ARCHIVED_FILE.format(path))


def _overwritten_reason(taken: Entry, file: File) -> Reason:
    """Return why a file is rejected that has the path of one whose rows are in bronze."""
    if taken.state != INGESTED or file.size <= taken.size:
        return _OTHER_TIME if taken.size == file.size else _NOT_AGAIN
    rows = counted(taken.rows or 0, "row")
    return Reason(
        ReasonCode.GREW,
        f"grew after it was read, from {taken.size:,} to {file.size:,} bytes: bronze has the "
        f"{rows} read before. Write the new lines to a file with a name of its own, or set "
        "allow_overwrites (quiet_period leaves files alone while they are written)",
    )


def is_deferred(entry: Entry) -> bool:
    """Return whether a file is deferred, for a reason that the next scan checks again."""
    return entry.state == PENDING and entry.reason_code is not None


def is_ready(entry: Entry) -> bool:
    """Return whether a file is to be ingested now."""
    return entry.state == PENDING and entry.reason_code is None

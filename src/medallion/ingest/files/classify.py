"""Classification of listed files by the ledger's entries of their paths."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from medallion.config.model import SourceConfig
from medallion.ingest.files import header
from medallion.ingest.files.listing import Listing
from medallion.state.ledger import Entry, Ledger, Reason, ReasonCode, State
from medallion.storage import files
from medallion.storage.files import FileInfo
from medallion.storage.paths import Layout
from medallion.storage.text import counted, error_reason

_NAME_TAKEN = Reason(
    ReasonCode.NAME_TAKEN,
    "a file of this name was ingested before, and this one has another size or time: rename it if "
    "it has other rows, delete it if it is a copy (allow_overwrites ingests all such files)",
)
_SAME_FILE = Reason(
    ReasonCode.SAME_FILE,
    "the same file was ingested before, and its rows are in bronze: rename it to ingest it again",
)
# allow_overwrites ingests the files that were rejected for one of these.
_OVERWRITES = (ReasonCode.NAME_TAKEN, ReasonCode.GREW)


class FileClassifier:
    """Classifies listed files as new, deferred or rejected, by the entries of their paths."""

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
            layout: the paths of the lakehouse.
            source: the source of the files.
            ledger: its ledger, which is only read.
            now: when the directories were listed, in microseconds since 1970.
            requested: paths of pending backfills. Their rejected files are classified again.
            unread: paths and versions of pending files to enqueue again.
        """
        self._layout, self._source, self._ledger = layout, source, ledger
        self._now, self._requested, self._unread = now, requested, unread
        self._header_names: set[str] | None = None  # read for the first file

    def classify(self, listing: Listing) -> list[Entry]:
        """Return the new ledger entries of the listed files."""
        entries = (self._classify_file(path, info) for path, info in listing.files.items())
        invalid = (self._classify_invalid(path, reason) for path, reason in listing.invalid.items())
        return [*filter(None, entries), *invalid]

    def _classify_invalid(self, path: str, reason: Reason) -> Entry:
        """Return the entry of a path that cannot be read; the next scan tries again."""
        known = self._ledger.newest(path)
        if known is not None and known.state == State.PENDING:
            return known.with_state(State.PENDING, reason)  # keep the size of its file
        # The entry still applies, unless its file was moved away: then this is another one.
        if known and not known.moved_to and (known.is_refused or known.state == State.INGESTED):
            return known
        return self._pending_entry(path, FileInfo(0, self._now), reason)

    def _classify_file(self, path: str, info: FileInfo) -> Entry | None:
        """Return the new entry of a listed file; None if nothing has changed."""
        known = self._ledger.newest(path)
        if known is not None and known.info == info and not self._should_reclassify(known):
            return None
        deferred = (
            self._being_written_reason(info)
            or self._unopenable_reason(path)
            or self._misread_reason(path)
        )
        entry = self._pending_entry(path, info, deferred)
        # The newest version may be rejected, and an earlier one ingested.
        earlier = self._ledger.previous_ingested(entry)
        reason = self._overwrite_reason(earlier, entry) if earlier else None
        return entry.with_state(State.REJECTED, reason) if reason else entry

    def _should_reclassify(self, known: Entry) -> bool:
        """Return whether an unchanged file has to be classified again."""
        if known.is_refused:
            # The user has put it back, or has done what its reason said.
            is_allowed = known.reason_code in _OVERWRITES and self._source.allow_overwrites
            path = (self._layout.root / known.path).local
            is_requested = any(path.is_relative_to(each) for each in self._requested)
            return known.moved_to is not None or is_allowed or is_requested
        if known.state == State.PENDING:
            return is_deferred(known) or (known.path, known.version) in self._unread
        return known.state in (State.VANISHED, State.ARCHIVED)  # it was gone and is back

    def _overwrite_reason(self, earlier: Entry, entry: Entry) -> Reason | None:
        """Return why to reject a file whose path was ingested before; None to ingest it again."""
        if earlier.state == State.ARCHIVED and self._is_same_file(earlier, entry):
            return _SAME_FILE
        if self._source.allow_overwrites:
            return None
        if earlier.state != State.INGESTED or entry.size <= earlier.size:
            return _NAME_TAKEN
        rows = counted(earlier.rows or 0, "row")
        return Reason(
            ReasonCode.GREW,
            f"grew after it was read, from {earlier.size:,} to {entry.size:,} bytes: bronze has "
            f"the {rows} read before. Write the new lines to a file with a name of its own, or set "
            "allow_overwrites (quiet_period leaves files alone while they are written)",
        )

    def _is_same_file(self, archived: Entry, entry: Entry) -> bool:
        """Return whether a file has the content of an archived one.

        A daily copy of a complete directory brings archived files back, with or without their
        times: so bytes are compared, or size and time if the archived file is gone.
        """
        root = self._layout.root
        if archived.size == entry.size and archived.moved_to is not None:
            with suppress(OSError):
                return files.have_same_bytes(root / entry.path, root / archived.moved_to)
        return archived.info == entry.info

    def _pending_entry(self, path: str, info: FileInfo, reason: Reason | None) -> Entry:
        """Return an entry for a file that is to be ingested, or deferred for a reason."""
        known = self._ledger.newest(path)
        if known is not None and known.state == State.PENDING:
            entry = replace(known, size=info.size, modified_at=info.modified_at)
        else:
            version = known.version + 1 if known else 1
            entry = Entry(self._source.name, path, version, info.size, info.modified_at, self._now)
        return entry.with_state(State.PENDING, reason)

    def _being_written_reason(self, info: FileInfo) -> Reason | None:
        quiet = self._source.quiet_period
        if quiet is None or self._now - info.modified_at >= quiet.micros:
            return None
        text = f"still being written: it is ingested once it has not changed for {quiet}"
        return Reason(ReasonCode.BEING_WRITTEN, text)

    def _unopenable_reason(self, path: str) -> Reason | None:
        try:
            files.check_readable(self._layout.root / path)
        except FileNotFoundError:  # the next scan finds out
            return None
        except OSError as error:
            return Reason(ReasonCode.INACCESSIBLE, f"cannot be opened: {error_reason(error)}")
        return None

    def _misread_reason(self, path: str) -> Reason | None:
        """Return why a file is deferred until it is repaired or its source has other options."""
        if self._header_names is None:
            self._header_names = header.known_header_names(self._layout, self._source)
        return header.misread_reason(
            (self._layout.root / path).local, self._source, self._header_names
        )


def is_deferred(entry: Entry) -> bool:
    """Return whether a file is deferred, for a reason that the next scan checks again."""
    return entry.state == State.PENDING and entry.reason_code is not None


def is_ready(entry: Entry) -> bool:
    """Return whether a file is to be ingested now."""
    return entry.state == State.PENDING and entry.reason_code is None

"""New, changed and missing files of a source, and the queue that bronze reads.

A listed file is classified by the ledger's entries of its path: new, deferred or rejected.

The queue is a Delta table of paths, `_intake/<source>`, with one commit for each micro-batch. So a
batch is limited by files and by bytes at once, and the position of the stream is a version of this
table. Spark's own file source is limited by one of the two, keeps every path in memory forever,
stops at an unreadable file, and does not survive moving the directory.

A backfill is requested by an entry of the journal, so that another process can send it to a running
stream. It is removed after its files are enqueued.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import PurePosixPath

from medallion.config.model import Config, SourceConfig
from medallion.ingest.files import header
from medallion.ingest.files.content import bounded_batches, estimate_unpacked_size
from medallion.ingest.files.listing import Listing, is_ignored, list_files, path_below_source
from medallion.spark import checkpoints
from medallion.state import journal, pending_work
from medallion.state.journal import Backfill
from medallion.state.ledger import Entry, Ledger, Reason, ReasonCode, State, in_queue_order
from medallion.storage import clock, delta_tables, records
from medallion.storage.files import FileInfo
from medallion.storage.layout import Layout
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import INTAKE
from medallion.storage.text import Reporter, counted, error_reason, printable

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
_SHOWN = 20  # entries with the same reason that are reported one by one
# Entries with one of these reasons are never ingested under their path.
_NEVER_READ = (
    ReasonCode.LINK,
    ReasonCode.FOLDER_MISSING,
    ReasonCode.NOT_A_FILE,
    ReasonCode.UNSUPPORTED_NAME,
)
_GONE = Reason(ReasonCode.GONE, "gone before it was ingested")
_NOT_INPUT = Reason(
    ReasonCode.NOT_INPUT,
    "not an input file any more: it was renamed, is ignored, or is a folder that can be read now",
)


@dataclass(frozen=True)
class FileClassifier:
    """Classifies listed files as new, deferred or rejected, by the entries of their paths.

    Attributes:
        layout: the paths of the lakehouse.
        source: the source of the files.
        ledger: its ledger, which is only read.
        now: when the directories were listed, in microseconds since 1970.
        requested: paths of pending backfills. Their rejected files are classified again.
        unread: paths and versions of pending files to enqueue again.
    """

    layout: Layout
    source: SourceConfig
    ledger: Ledger
    now: int
    requested: Collection[StoragePath]
    unread: Collection[tuple[str, int]] = ()

    def classify(self, listing: Listing) -> list[Entry]:
        """Return the new ledger entries of the listed files."""
        files = (listing, listing.values())
        if (readers := self.layout.root.readers) == 1:
            return [*filter(None, map(self._classify, *files))]
        with ThreadPoolExecutor(readers) as pool:
            return [*filter(None, pool.map(self._classify, *files))]

    def _classify_invalid(self, path: str, reason: Reason) -> Entry:
        """Return the entry of a path that cannot be read; the next scan tries again."""
        known = self.ledger.newest(path)
        if known is not None and known.state == State.PENDING:
            return known.with_state(State.PENDING, reason)  # keep the size of its file
        # Keep the old entry. If its file was moved to archive/ or rejected/, this is another file.
        if known and not known.moved_to and (known.is_refused or known.state == State.INGESTED):
            return known
        return self._pending_entry(path, FileInfo(0, self.now), reason)

    def _classify(self, path: str, info: FileInfo | Reason) -> Entry | None:
        """Return the new entry of a listed file; None if nothing has changed."""
        if isinstance(info, Reason):
            return self._classify_invalid(path, info)
        known = self.ledger.newest(path)
        if known is not None and known.info.is_same(info) and not self._should_reclassify(known):
            return None
        deferred = (
            self._being_written_reason(info)
            or self._unopenable_reason(path)
            or header.misread_reason(self.layout.root / path, self.source, self._header_names)
        )
        entry = self._pending_entry(path, info, deferred)
        # The newest version may be rejected, and an earlier one ingested.
        earlier = self.ledger.previous_ingested(entry)
        reason = self._overwrite_reason(earlier, entry) if earlier else None
        return entry.with_state(State.REJECTED, reason) if reason else entry

    def _should_reclassify(self, known: Entry) -> bool:
        """Return whether an unchanged file has to be classified again."""
        if known.is_refused:
            # If it was moved away and is back, allow_overwrites is set now, or a backfill names it.
            is_allowed = known.reason_code in _OVERWRITES and self.source.allow_overwrites
            path = self.layout.root / known.path
            is_requested = any(path.below(each) is not None for each in self.requested)
            return known.moved_to is not None or is_allowed or is_requested
        if known.state == State.PENDING:
            return is_deferred(known) or (known.path, known.version) in self.unread
        return known.state in (State.VANISHED, State.ARCHIVED)  # it was gone and is back

    def _overwrite_reason(self, earlier: Entry, entry: Entry) -> Reason | None:
        """Return why to reject a file whose path was ingested before; None to ingest it again."""
        if earlier.state == State.ARCHIVED and self._is_same_file(earlier, entry):
            return _SAME_FILE
        if self.source.allow_overwrites:
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
        root = self.layout.root
        if archived.size == entry.size and archived.moved_to is not None:
            with suppress(OSError):
                return (root / entry.path).has_same_bytes(root / archived.moved_to)
        return archived.info.is_same(entry.info)

    def _pending_entry(self, path: str, info: FileInfo, reason: Reason | None) -> Entry:
        """Return an entry for a file that is to be ingested, or deferred for a reason."""
        known = self.ledger.newest(path)
        if known is not None and known.state == State.PENDING:
            entry = known.with_info(info)
        else:
            version = known.version + 1 if known else 1
            entry = Entry(self.source.name, path, version, 0, 0, self.now).with_info(info)
        return entry.with_state(State.PENDING, reason)

    def _being_written_reason(self, info: FileInfo) -> Reason | None:
        quiet = self.source.quiet_period
        if quiet is None or self.now - info.modified_at >= quiet.micros:
            return None
        text = f"still being written: it is ingested once it has not changed for {quiet}"
        return Reason(ReasonCode.BEING_WRITTEN, text)

    def _unopenable_reason(self, path: str) -> Reason | None:
        try:
            (self.layout.root / path).check_readable()
        except FileNotFoundError:  # the next scan finds out
            return None
        except OSError as error:
            return Reason(ReasonCode.INACCESSIBLE, f"cannot be opened: {error_reason(error)}")
        return None

    @cached_property
    def _header_names(self) -> set[str]:
        is_csv = self.source.format == "csv"
        return header.known_header_names(self.layout, self.source) if is_csv else set()


def is_deferred(entry: Entry) -> bool:
    """Return whether a file is deferred, for a reason that the next scan checks again."""
    return entry.state == State.PENDING and entry.reason_code is not None


def is_ready(entry: Entry) -> bool:
    """Return whether a file is to be ingested now."""
    return entry.state == State.PENDING and entry.reason_code is None


@dataclass(frozen=True)
class ScanResult:
    """The ledger entries that a scan produced; nothing is written yet.

    Attributes:
        new: files to enqueue.
        changed: files that are deferred or rejected, each with its reason; and files that were
            never ingested and no longer exist.
        requests: the backfill requests whose files are included.
    """

    new: list[Entry]
    changed: list[Entry]
    requests: list[journal.Entry[Backfill]]


class Discovery:
    """Scans a source's directories, and enqueues new files."""

    def __init__(self, config: Config, source: SourceConfig) -> None:
        self._config, self._source = config, source
        self.ledger = Ledger(config.layout, source.name)

    def scan(self) -> ScanResult:
        """Compare the source's directories and the backfill requests with the ledger."""
        layout, source = self._config.layout, self._source
        backfills = journal.read_entries(self._config, Backfill)
        requests = [each for each in backfills if each.arguments.source == source.name]
        paths = [layout.root / request.arguments.path for request in requests]
        starts = [*source.folders_in(layout), *paths, *self._pending_backfills()]
        listing = list_files(layout, source, starts)
        classifier = FileClassifier(
            layout, source, self.ledger, clock.now_micros(), paths, self._unread_entries()
        )
        entries = [*classifier.classify(listing), *self._gone_entries(listing)]
        return ScanResult(
            new=[entry for entry in entries if is_ready(entry)],
            changed=[entry for entry in entries if not is_ready(entry)],
            requests=requests,
        )

    def enqueue(self, result: ScanResult, report: Reporter) -> None:
        """Append the new files to the queue, and report and write the other entries.

        If there are new files, the write of their batch includes all entries.
        """
        # The queue comes first. After an interruption the next run enqueues the files again, and
        # bronze skips them; in the other order it would never enqueue them.
        enqueue_files(self._config.layout, self._source, result.new)
        changed = [entry for entry in result.changed if self.ledger.newest(entry.path) != entry]
        self._report(changed, report)
        self.ledger.postpone([*result.new, *changed])
        # A backfill beside a stream waits for the entries.
        if result.requests or not result.new:
            self.ledger.write([])
        for request in result.requests:
            path = self._config.layout.root / request.arguments.path
            if not path.is_taken():
                name = printable(str(path))
                report(f"  {self._source.name}: backfill of {name}: it no longer exists")
            request.file(self._config.layout).delete()

    def entries(self, result: ScanResult | None = None) -> list[Entry]:
        """Return the newest entry of each file as a poll would leave it; write nothing.

        Args:
            result: the result of `scan`; by default the directories are scanned.
        """
        result = result or self.scan()
        newest = self.ledger.newest_entries()
        return list({e.path: e for e in (*newest, *result.new, *result.changed)}.values())

    def _pending_backfills(self) -> list[StoragePath]:
        """Return the files and folders of earlier backfills that are not ingested yet."""
        layout = self._config.layout
        return [
            layout.root / entry.path
            for entry in self.ledger.newest_entries()
            if entry.state == State.PENDING
            and entry.reason_code not in _NEVER_READ
            and path_below_source(layout, self._source, entry.path) is None
        ]

    def _unread_entries(self) -> set[tuple[str, int]]:
        """Return path and version of the pending files that are not in the queue any more.

        This happens if bronze skipped a file that had changed and has changed back since, or if a
        corrupt commit of the queue was removed.
        """
        layout, name = self._config.layout, self._source.name
        ready = {(e.path, e.version) for e in self.ledger.newest_entries() if is_ready(e)}
        if ready and pending_work.has_input(self._config, f"bronze.{name}", layout.queue(name)):
            return set()  # they may be in the unread part of the queue
        return ready

    def _report(self, entries: Iterable[Entry], report: Reporter) -> None:
        """Report entries that have a reason; at most `_SHOWN` with the same one."""
        groups: dict[tuple[str, str | None], list[Entry]] = defaultdict(list)
        for entry in entries:
            groups[entry.state, entry.why].append(entry)
        for (state, why), group in groups.items():
            for entry in group[:_SHOWN] if why else ():
                report(f"  {self._source.name}: {printable(entry.path)}: {state}: {why}")
            if why and len(group) > _SHOWN:
                more = f"and {len(group) - _SHOWN:,} more {state} for the same reason"
                report(f"  {self._source.name}: {more} (medallion files --state {state})")

    def _gone_entries(self, listed: Listing) -> list[Entry]:
        return [
            entry.with_state(State.VANISHED, _NOT_INPUT if self._is_not_input(entry) else _GONE)
            for entry in self.ledger.newest_entries()
            if entry.state == State.PENDING
            and entry.path not in listed
            and not self._may_exist(entry)
        ]

    def _may_exist(self, entry: Entry) -> bool:
        """Return whether a file to ingest exists, or cannot be inspected."""
        if is_deferred(entry) and self._is_ignored(entry.path):
            return False
        try:
            return (self._config.layout.root / entry.path).info() is not None
        except OSError:
            return True

    def _is_not_input(self, entry: Entry) -> bool:
        """Return whether the path of an entry is no input: ignored, a directory or never read."""
        is_directory = (self._config.layout.root / entry.path).is_directory()
        # size > 0: a pending file was here before, and it is lost.
        is_never_read = entry.reason_code in _NEVER_READ and not entry.size
        return is_never_read or is_directory or self._is_ignored(entry.path)

    def _is_ignored(self, path: str) -> bool:
        below = path_below_source(self._config.layout, self._source, path)
        names = below.parts if below else (PurePosixPath(path).name,)
        return any(is_ignored(name, self._source.ignore) for name in names)


def is_lost_file(entry: Entry) -> bool:
    """Return whether a file vanished that should have been ingested."""
    return entry.state == State.VANISHED and entry.reason_code != ReasonCode.NOT_INPUT


def create_queue(table: StoragePath) -> None:
    """Create the table if it does not exist: bronze streams from it before a file arrives."""
    records.append_records(table, INTAKE, [])


def is_queue_behind(layout: Layout, source: str) -> bool:
    """Return whether bronze's checkpoint is ahead of the queue, or belongs to another table.

    If so, a corrupt commit or the table was removed, and bronze would skip new files.

    Raises:
        MedallionError: the checkpoint is corrupt.
    """
    checkpoint, table = layout.checkpoint(f"bronze.{source}"), layout.queue(source)
    planned = checkpoints.last_planned(checkpoint)
    if not delta_tables.table_exists(table):
        return planned >= 0
    return checkpoints.reads_other_table(checkpoint, planned, table) or pending_work.has_read_more(
        checkpoint, table
    )


def enqueue_files(layout: Layout, source: SourceConfig, entries: Iterable[Entry]) -> None:
    """Append files to the queue, the oldest first, one commit for each micro-batch."""
    for batch in bounded_batches(
        in_queue_order(entries),
        lambda entry: estimate_unpacked_size(entry.path, entry.size),
        source.max_bytes_per_trigger,
        source.max_files_per_trigger,
    ):
        records.append_records(layout.queue(source.name), INTAKE, map(asdict, batch))

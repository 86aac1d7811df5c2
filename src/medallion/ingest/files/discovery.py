"""New, changed and missing files of a source, and the queue that bronze reads.

The queue is a Delta table of paths, `_intake/<source>`, with one commit for each micro-batch. So a
batch is limited by files and by bytes at once, and the position of the stream is a version of this
table. Spark's own file source is limited by one of the two, keeps every path in memory forever,
stops at an unreadable file, and does not survive moving the directory.

A backfill request is a small JSON file, so that another process can send it to a running stream.
It is deleted after its files are enqueued.
"""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from medallion.config.model import Config, SourceConfig
from medallion.errors import MedallionError
from medallion.ingest.files.classify import FileClassifier, is_ready
from medallion.ingest.files.content import estimate_unpacked_size
from medallion.ingest.files.listing import (
    NEVER_READ,
    Listing,
    current_file,
    list_files,
    may_exist,
    path_below_source,
)
from medallion.spark import checkpoints
from medallion.state import pending_work
from medallion.state.ledger import PENDING, VANISHED, Entry, File, Ledger, Reason, ReasonCode
from medallion.storage import clock, delta_tables, files, records
from medallion.storage.paths import Layout
from medallion.storage.table_specs import INTAKE
from medallion.storage.text import Reporter, printable

_SHOWN = 20  # entries with the same reason that are reported one by one
_GONE = Reason(ReasonCode.GONE, "gone before it was ingested")
_LISTED = Reason(
    ReasonCode.LISTED_AGAIN,
    "a directory that can be listed again; if it belongs to a backfill, request that again",
)
_RENAMED = Reason(
    ReasonCode.RENAMED, "no longer there under this name, under which it was not ingested"
)


@dataclass(frozen=True)
class ScanResult:
    """The result of a scan: ledger entries, of which nothing is written yet.

    Attributes:
        new: files to enqueue.
        changed: files that are deferred or rejected, each with its reason.
        gone: files that were never ingested and no longer exist.
        requests: the backfill requests whose files are among these.
    """

    new: list[Entry]
    changed: list[Entry]
    gone: list[Entry]
    requests: list[BackfillRequest]


class Discovery:
    """Scans a source's directories, and enqueues what is new in them."""

    def __init__(self, config: Config, source: SourceConfig) -> None:
        self._config, self._source = config, source
        self.ledger = Ledger(config.layout, source.name)

    def poll(self, report: Reporter) -> int:
        """Scan and enqueue; return the number of files enqueued."""
        result = self.scan()
        self.enqueue(result, report)
        return len(result.new)

    def scan(self) -> ScanResult:
        """Compare the source's directories and the backfill requests with the ledger."""
        requests = pending_backfills(self._config.layout, self._source.name)
        listing = self._list_files(requests)
        entries = self._classify(listing, requests, self._unread_entries())
        return ScanResult(
            new=[entry for entry in entries if is_ready(entry)],
            changed=[entry for entry in entries if not is_ready(entry)],
            gone=self._gone_entries(listing.paths),
            requests=requests,
        )

    def enqueue(self, result: ScanResult, report: Reporter) -> None:
        """Append the new files to the queue, and write and report the other entries."""
        # The queue comes first. A run that is interrupted here enqueues the files again, and bronze
        # skips what is ingested; in the other order they would be known and never be ingested.
        enqueue_files(self._config.layout, self._source, result.new)
        entries = (*result.changed, *result.gone)
        changed = [entry for entry in entries if self.ledger.newest(entry.path) != entry]
        self._report(changed, report)
        self.ledger.write([*result.new, *changed])
        for request in result.requests:
            if not os.path.lexists(request.path):
                path = printable(str(request.path))
                report(f"  {self._source.name}: backfill of {path}: it no longer exists")
            request.done()

    def backlog(self) -> list[File]:
        """Return the files that are to be ingested, enqueued or not; write nothing."""
        requests = pending_backfills(self._config.layout, self._source.name)
        found = self._classify(self._list_files(requests), requests)
        entries = {entry.path: entry for entry in (*self.ledger.newest_entries(), *found)}
        files = (
            current_file(self._config.layout, entry.path)
            for entry in entries.values()
            if is_ready(entry)
        )
        return [file for file in files if file]

    def _classify(
        self,
        listing: Listing,
        requests: Iterable[BackfillRequest],
        unread: Collection[tuple[str, int]] = (),
    ) -> list[Entry]:
        paths = [request.path for request in requests]
        classifier = FileClassifier(
            self._config.layout, self._source, self.ledger, clock.now_micros(), paths, unread
        )
        return classifier.classify(listing)

    def _unread_entries(self) -> set[tuple[str, int]]:
        """Return path and version of pending files that bronze will never read.

        Bronze skipped a file that had changed at that moment, and has changed back since; or a
        corrupt commit of the queue was removed.
        """
        layout, name = self._config.layout, self._source.name
        ready = {(e.path, e.version) for e in self.ledger.newest_entries() if is_ready(e)}
        if ready and pending_work.has_input(self._config, f"bronze.{name}", layout.intake(name)):
            return set()  # they may be in the part of the queue that is still to be read
        return ready

    def _report(self, entries: Iterable[Entry], report: Reporter) -> None:
        """Report entries with a reason; of many with the same reason only the first ones."""
        source, counts = self._source.name, Counter[tuple[str, str]]()
        for entry in (entry for entry in entries if entry.why):
            counts[entry.state, str(entry.why)] += 1
            if counts[entry.state, str(entry.why)] <= _SHOWN:
                report(f"  {source}: {printable(entry.path)}: {entry.state}: {entry.why}")
        for (state, _), count in counts.items():
            if count > _SHOWN:
                more = f"and {count - _SHOWN:,} more {state} for the same reason"
                report(f"  {source}: {more} (medallion files --state {state})")

    def _list_files(self, requests: Iterable[BackfillRequest]) -> Listing:
        """List the source's directories, the requested paths, and pending files of old requests."""
        layout, source = self._config.layout, self._source
        starts = [*source.folders_in(layout), *(request.path for request in requests)]
        listing = list_files(layout, source, starts)
        listed = listing.paths
        for entry in self.ledger.newest_entries():
            is_pending = entry.state == PENDING and not _is_excluded_by_name(entry)
            if is_pending and entry.path not in listed:
                is_elsewhere = path_below_source(layout, source, layout.root / entry.path) is None
                if is_elsewhere and (file := current_file(layout, entry.path)):
                    listing.files[entry.path] = file
        return listing

    def _gone_entries(self, listed: set[str]) -> list[Entry]:
        root = self._config.layout.root
        return [
            entry.with_state(VANISHED, self._gone_reason(entry))
            for entry in self.ledger.newest_entries()
            if entry.state == PENDING
            and entry.path not in listed
            and not may_exist(root / entry.path)
        ]

    def _gone_reason(self, entry: Entry) -> Reason:
        if (self._config.layout.root / entry.path).is_dir():
            return _LISTED
        return _RENAMED if _is_excluded_by_name(entry) else _GONE


def is_lost_file(entry: Entry) -> bool:
    """Return whether a file is gone that should have been ingested; a hidden one was renamed."""
    is_known = entry.reason_code in (ReasonCode.LISTED_AGAIN, ReasonCode.RENAMED)
    return entry.state == VANISHED and not is_known


def _is_excluded_by_name(entry: Entry) -> bool:
    """Return whether an entry is not ingested under its name. One that took the place of a file
    keeps that file's size, and is not meant."""
    is_never_read = entry.reason_code in NEVER_READ and not entry.size
    return entry.reason_code == ReasonCode.HIDDEN or is_never_read


def create_queue(table: Path) -> None:
    """Create the table if it does not exist: a stream reads it before the first file."""
    records.append_records(table, INTAKE, [])


def is_queue_behind(layout: Layout, source: str) -> bool:
    """Return whether bronze's checkpoint has read more than the queue has, or another table.

    A corrupt commit or the whole table was removed. Bronze would skip what is enqueued now.

    Raises:
        MedallionError: the checkpoint is corrupt.
    """
    checkpoint, table = layout.checkpoint(f"bronze.{source}"), layout.intake(source)
    planned = checkpoints.last_planned(checkpoint)
    if not delta_tables.table_exists(table):
        return planned >= 0
    return checkpoints.reads_other_table(checkpoint, planned, table) or pending_work.has_read_more(
        checkpoint, table
    )


def enqueue_files(layout: Layout, source: SourceConfig, files: Iterable[Entry]) -> None:
    """Append files to the queue, the oldest first, one commit for each micro-batch."""
    in_order = sorted(files, key=lambda file: (file.modified_at, file.path))
    for batch in _batches(layout, source, in_order):
        records.append_records(layout.intake(source.name), INTAKE, map(asdict, batch))


def _batches(layout: Layout, source: SourceConfig, files: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Split files into batches within the limits of files and bytes, at least one file each."""
    batch: list[Entry] = []
    size = 0
    for file in files:
        more = estimate_unpacked_size(layout.root / file.path, file.size)
        is_full = (
            len(batch) == source.max_files_per_trigger or size + more > source.max_bytes_per_trigger
        )
        if batch and is_full:
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += more
    if batch:
        yield batch


@dataclass(frozen=True)
class BackfillRequest:
    """A request to ingest a file, or all files below a directory."""

    path: Path
    file: Path

    def done(self) -> None:
        """Delete the request."""
        self.file.unlink(missing_ok=True)

    @property
    def is_open(self) -> bool:
        """Return whether its files are not enqueued yet."""
        return self.file.exists()


def request_backfill(layout: Layout, source: str, path: Path) -> BackfillRequest:
    """Write a request to ingest a path as files of a source."""
    folder = layout.requests(source)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{uuid.uuid4().hex}.json"
    files.write_atomic(file, json.dumps({"path": str(path)}))
    return BackfillRequest(path, file)


def pending_backfills(layout: Layout, source: str) -> list[BackfillRequest]:
    """Return the open requests of a source, with paths below this name of the root.

    Raises:
        MedallionError: a file there is not a request.
    """
    found = []
    for file in sorted(layout.requests(source).glob("*.json")):
        with suppress(FileNotFoundError):  # another process has just enqueued its files
            place = layout.root / layout.normalize(_requested_path(file))
            found.append(BackfillRequest(place, file))
    return found


def _requested_path(file: Path) -> str:
    try:
        return str(Path(json.loads(file.read_text(encoding="utf-8"))["path"]))
    except (ValueError, LookupError, TypeError) as error:
        raise MedallionError(
            f"{file} is not a backfill request ({printable(str(error))}): delete it and request "
            "the backfill again."
        ) from None

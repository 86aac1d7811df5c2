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
from collections.abc import Iterable, Iterator, Sequence
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

_SHOWN = 20
_GONE = Reason(ReasonCode.GONE, "gone before it was taken in")
_LISTED = Reason(
    ReasonCode.LISTED_AGAIN,
    "a folder that can be listed again; where it is a backfill's, ask for that again",
)
_RENAMED = Reason(
    ReasonCode.RENAMED,
    "not there any more under this name, by which it was not to be taken in",
)


class Discovery:
    """Lists a source's folders, and hands over to bronze what is new in them."""

    def __init__(
        self, config: Config, source: SourceConfig, say: Reporter = lambda _: None
    ) -> None:
        self._config, self._source, self._say = config, source, say
        self.ledger = Ledger(config.layout, source.name)

    def poll(self) -> int:
        """Hand over the new files, enter what became of the others; how many are new."""
        layout, source = self._config.layout, self._source
        asked, listing, judged = self._classified()
        fresh = [entry for entry in judged if is_ready(entry)]
        told = [entry for entry in judged if not is_ready(entry)]
        told += self._vanished(listing.paths)
        # The handing over comes first. A run that is cut off here hands the files over again, and
        # bronze leaves out what the ledger says is taken in; the other way round they would be
        # known, and never come.
        enqueue_files(layout, source, fresh)
        self.ledger.write([*fresh, *self._changed(told)])
        self._close(asked)
        return len(fresh)

    def has_new_files(self) -> bool:
        """Return whether `poll` would enqueue a file; write nothing."""
        return any(map(is_ready, self._classified()[2]))

    def _classified(self) -> tuple[list[BackfillRequest], Listing, list[Entry]]:
        """Return the open requests, the listing, and a ledger entry for each file of it."""
        layout, source = self._config.layout, self._source
        asked = list(pending_backfills(layout, source.name))
        listing = self._listing(asked)
        versions = FileClassifier(
            layout, source, self.ledger, clock.now_micros(), [r.path for r in asked], self._lost()
        )
        return asked, listing, list(versions.judged(listing))

    def _lost(self) -> set[tuple[str, int]]:
        """Paths and versions that wait in the ledger, and that bronze will never read.

        Either bronze has passed them, because the file had changed just then, and has changed back
        since. Or they are gone from the table of what was handed over, because a torn commit was
        moved away.
        """
        layout, name = self._config.layout, self._source.name
        waiting = {(e.path, e.version) for e in self.ledger.newest_entries() if is_ready(e)}
        if waiting and pending_work.has_input(self._config, f"bronze.{name}", layout.intake(name)):
            return set()  # it may be among what is still to be read
        return waiting

    def _changed(self, entries: Iterable[Entry]) -> list[Entry]:
        """The rows that the ledger does not have like this yet; of each its reason is told, unless
        many have the same, as in a lakehouse that was copied without the files' times."""
        changed = [entry for entry in entries if self.ledger.newest(entry.path) != entry]
        source, alike = self._source.name, Counter[tuple[str, str]]()
        for entry in (entry for entry in changed if entry.why):
            alike[entry.state, str(entry.why)] += 1
            if alike[entry.state, str(entry.why)] <= _SHOWN:
                self._say(f"  {source}: {printable(entry.path)}: {entry.state}: {entry.why}")
        for (state, _), count in alike.items():
            if count > _SHOWN:
                more = f"and {count - _SHOWN:,} more {state} for the same reason"
                self._say(f"  {source}: {more} (medallion files --state {state})")
        return changed

    def _close(self, asked: Iterable[BackfillRequest]) -> None:
        """Forget what was asked for: its files are handed over."""
        for request in asked:
            if not os.path.lexists(request.path):
                self._say(
                    f"  {self._source.name}: backfill of {printable(str(request.path))}: it is "
                    "not there any more"
                )
            request.done()

    def backlog(self) -> list[File]:
        """The files that wait to be taken in, seen before or not; nothing is written."""
        layout, source, now = self._config.layout, self._source, clock.now_micros()
        asked = pending_backfills(layout, source.name)
        judged = FileClassifier(layout, source, self.ledger, now, [r.path for r in asked]).judged(
            self._listing(asked)
        )
        entries = {entry.path: entry for entry in (*self.ledger.newest_entries(), *judged)}
        waiting = [entry.path for entry in entries.values() if is_ready(entry)]
        return [found for path in waiting if (found := current_file(layout, path))]

    def _listing(self, asked: Sequence[BackfillRequest]) -> Listing:
        """What lies in the folders, what is asked for, and what waits elsewhere since it was."""
        layout, source = self._config.layout, self._source
        starts = [*source.folders_in(layout), *(request.path for request in asked)]
        listing = list_files(layout, source, starts)
        listed = listing.paths
        for entry in self.ledger.newest_entries():
            is_waiting = entry.state == PENDING and not _is_excluded_by_name(entry)
            if is_waiting and entry.path not in listed:
                is_elsewhere = path_below_source(layout, source, layout.root / entry.path) is None
                if is_elsewhere and (found := current_file(layout, entry.path)):
                    listing.files[entry.path] = found
        return listing

    def _vanished(self, listed: set[str]) -> list[Entry]:
        """Files that were never taken in, and are not there any more."""
        root = self._config.layout.root
        return [
            entry.with_state(VANISHED, self._why_vanished(entry))
            for entry in self.ledger.newest_entries()
            if entry.state == PENDING
            and entry.path not in listed
            and not may_exist(root / entry.path)
        ]

    def _why_vanished(self, entry: Entry) -> Reason:
        if (self._config.layout.root / entry.path).is_dir():
            return _LISTED
        return _RENAMED if _is_excluded_by_name(entry) else _GONE


def is_lost_file(entry: Entry) -> bool:
    """Whether a file went that was to be taken in: a hidden one has mostly come by its name."""
    is_known = entry.reason_code in (ReasonCode.LISTED_AGAIN, ReasonCode.RENAMED)
    return entry.state == VANISHED and not is_known


def _is_excluded_by_name(entry: Entry) -> bool:
    """Whether it is not taken in by its name; where it came in the place of a file, the size of
    that stands."""
    is_never_read = entry.reason_code in NEVER_READ and not entry.size
    return entry.reason_code == ReasonCode.HIDDEN or is_never_read


def create_queue(table: Path) -> None:
    """Make the table unless it is there, so that a stream can read it before the first file."""
    records.append_records(table, INTAKE, [])


def is_queue_behind(layout: Layout, source: str) -> bool:
    """Return whether bronze's checkpoint has read more than this table has, or another table.

    A corrupt commit was moved away, or the table was. Bronze would pass over what is queued now.

    Raises:
        MedallionError: the checkpoint is corrupt.
    """
    checkpoint, table = layout.checkpoint(f"bronze.{source}"), layout.intake(source)
    begun = checkpoints.last_planned(checkpoint)
    if not delta_tables.table_exists(table):
        return begun >= 0
    return checkpoints.reads_other_table(checkpoint, begun, table) or pending_work.has_read_more(
        checkpoint, table
    )


def enqueue_files(layout: Layout, source: SourceConfig, files: Iterable[Entry]) -> None:
    """Append files, the oldest first, in as many commits as they make micro-batches."""
    in_order = sorted(files, key=lambda file: (file.modified_at, file.path))
    for batch in _batches(layout, source, in_order):
        records.append_records(layout.intake(source.name), INTAKE, map(asdict, batch))


def _batches(layout: Layout, source: SourceConfig, files: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Cut a list where the next file would be one too many, or its bytes; one file always fits."""
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
    """A file, or a folder with all that lies below it."""

    path: Path
    file: Path

    def done(self) -> None:
        """Forget the request."""
        self.file.unlink(missing_ok=True)

    @property
    def is_open(self) -> bool:
        """Whether nobody has handed its files over yet."""
        return self.file.exists()


def request_backfill(layout: Layout, source: str, path: Path) -> BackfillRequest:
    """Ask for a path to be taken in as files of a source."""
    folder = layout.requests(source)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{uuid.uuid4().hex}.json"
    files.write_atomic(file, json.dumps({"path": str(path)}))
    return BackfillRequest(path, file)


def pending_backfills(layout: Layout, source: str) -> list[BackfillRequest]:
    """The requests for a source that nobody has seen to yet; who asked may have come to the root by
    another path.

    Raises:
        MedallionError: somebody has put something else there.
    """
    found = []
    for file in sorted(layout.requests(source).glob("*.json")):
        with suppress(FileNotFoundError):  # another process has just handed its files over
            place = layout.root / layout.normalize(_requested_path(file))
            found.append(BackfillRequest(place, file))
    return found


def _requested_path(file: Path) -> str:
    try:
        return str(Path(json.loads(file.read_text(encoding="utf-8"))["path"]))
    except (ValueError, LookupError, TypeError) as error:
        raise MedallionError(
            f"{file}: no request for a backfill ({printable(str(error))}): delete it, and ask for "
            "the backfill again."
        ) from None

"""Files as a source: a stream of queued paths, whose rows each micro-batch reads."""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from medallion.ingest.files import archive, discovery, reader
from medallion.ingest.files.batch import FileBatch
from medallion.ingest.files.discovery import Discovery, is_ready
from medallion.ingest.files.listing import current_info
from medallion.ingest.source import NO_SCAN, SourceContext, SourceScan
from medallion.spark import checkpoints, delta
from medallion.state.ledger import Entry, in_queue_order, ingested_rows
from medallion.storage import delta_log, delta_tables
from medallion.storage.paths import StoragePath


@dataclass
class FileSource(SourceContext):
    """The files of one source; `ingest.source.Source` documents the methods.

    Attributes:
        ledger_lock: held to write the ledger, as a stream polls while its batches run.
        discovery: finds new files.
        ledger: the ledger of the source.
    """

    ledger_lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        """Read the ledger; create the landing directory and the queue, if they do not exist.

        Raises:
            FileExistsError: the path of the landing directory is a file.
        """
        self.discovery = Discovery(self.config, self.source)
        self.ledger = self.discovery.ledger
        landing = self.config.layout.landing(self.source.name)
        try:
            landing.create_directory()
        except FileExistsError:
            if landing.is_stored():  # a scan reports a broken link
                raise
        self._queue = self.config.layout.queue(self.source.name)
        discovery.create_queue(self._queue)

    def path(self, entry: Entry) -> StoragePath:
        """Return the path of a file."""
        return self.config.layout.root / entry.path

    def write_entries(self, entries: Iterable[Entry]) -> None:
        """Write entries of files to the ledger; a stream polls and archives beside its batches."""
        with self.ledger_lock:
            self.ledger.write(entries)

    def read_rows(self, paths: list[str]) -> DataFrame:
        """Return the rows of some files, read with the current schema; see `reader.read_rows`."""
        return reader.read_rows(self.spark, self.config, self.source, paths, self.schema.fields)

    def poll(self, scan: SourceScan = NO_SCAN) -> None:
        with self.ledger_lock:
            self.discovery.enqueue(scan.result or self.discovery.scan(), self.report)

    def stream(self) -> DataFrame:
        # Commits before that version are removed: batches in the ledger have read them.
        start = delta_log.first_readable_version(self._queue)
        options = {"startingVersion": start, "maxFilesPerTrigger": 1}  # one commit is one batch
        return delta.stream_table(self.spark, self._queue, **options)

    def batch(self, number: int, queued: DataFrame) -> FileBatch:
        """Return the files queued for a batch, without those already ingested.

        The ledger lacks a file if the process that queued it ended before it wrote the ledger, and
        the file has been deleted since: the batch reports it.
        """
        rows = [(row.path, row.version) for row in queued.collect()]
        with self.ledger_lock:  # a poll enqueues first, then writes the ledger
            known = {row: entry for row in rows if (entry := self.ledger.version(*row))}
        own = [e for e in known.values() if is_ready(e) or e.is_ingested_by(number)]
        if len(known) < len(rows):
            unknown = {*rows} - known.keys()
            own += [e for e in self._queued_entries() if (e.path, e.version) in unknown]
        return FileBatch(self, number, own)

    def interrupted_batch(self, number: int) -> FileBatch:
        """Return a batch whose rows are in bronze, to record it.

        The rows show which of the files that were ever queued it has read.
        """
        return FileBatch(self, number, [], self._queued_entries())

    def _queued_entries(self) -> Iterator[Entry]:
        what = "path, version, size, arrow_cast(modified_at, 'Int64')"
        rows = delta_tables.select_rows(self._queue, what)
        return (Entry(self.source.name, p, v, size, at, at) for p, v, size, at in rows)

    @property
    def last_in_ledger(self) -> int:
        entries = self.ledger.all_versions()
        return max((each.batch for each in entries if each.batch is not None), default=-1)

    @property
    def rows_in_ledger(self) -> int:
        return ingested_rows(self.ledger.all_versions())

    def can_resume(self, checkpoint: StoragePath) -> bool:
        return not discovery.is_queue_behind(self.config.layout, self.source.name)

    def recreate_checkpoint(self, checkpoint: StoragePath, last: int) -> None:
        """Restart at the start of the queue: the ledger knows which files are ingested."""
        first = delta_log.first_readable_version(self._queue)
        start_offset = checkpoints.delta_start_offset(delta_tables.table_id(self._queue), first)
        number = max(self.last_in_ledger, last, 0)
        checkpoints.write_start(self.spark, checkpoint, number, start_offset)

    def sample_batch(self) -> FileBatch:
        waiting = in_queue_order(filter(is_ready, self.ledger.newest_entries()))
        return FileBatch(self, -1, waiting[: self.source.max_files_per_trigger])

    def count_rows(self, number: int) -> int:
        """Count the rows in the files of one batch, as the ledger lists them."""
        paths, rows = list[str](), 0
        for entry in (e for e in self.ledger.all_versions() if e.batch == number):
            path = entry.moved_to or entry.path
            info = current_info(self.config.layout, path)
            # The copy of an object has a time and perhaps a tag of its own.
            is_copy = info and info.tag and entry.moved_to and info.size == entry.size
            if is_copy or entry.info.is_same(info):
                paths.append(path)
            else:  # gone or overwritten since: the recorded count is used
                rows += entry.rows or 0
        return rows + (self.read_rows(paths).count() if paths else 0)

    def release(self, number: int) -> None:
        with self.ledger_lock:
            archive.archive_due_files(self.config, self.source, self.ledger, number, self.report)

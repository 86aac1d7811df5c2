"""Files as a source: a stream of queued paths, whose rows each micro-batch reads."""

from contextlib import suppress

from pyspark.sql import DataFrame

from medallion.errors import MedallionError, UsageError
from medallion.ingest.files import archive, discovery
from medallion.ingest.files import batch as batches
from medallion.ingest.files.batch import BatchContext, FileBatch
from medallion.ingest.files.discovery import Discovery, is_ready
from medallion.ingest.files.listing import current_info
from medallion.ingest.source import SourceContext
from medallion.spark import checkpoints, delta_reads
from medallion.state.ledger import Entry, ingested_rows
from medallion.storage import delta_log, delta_tables
from medallion.storage.paths import StoragePath


class FileSource(SourceContext):
    """The files of one source; `ingest.source.Source` documents the methods."""

    def __post_init__(self) -> None:
        """Create the landing directory and the queue, if they do not exist.

        Raises:
            UsageError: the path of the landing directory is a file.
        """
        layout = self.config.layout
        self._discovery = Discovery(self.config, self.source)
        self.ledger = self._discovery.ledger
        self.context = BatchContext(
            self.spark, self.config, self.source, self.schema, self.report, self.ledger
        )
        self._queue = layout.queue(self.source.name)
        self._create_landing(layout.landing(self.source.name))
        discovery.create_queue(self._queue)

    def _create_landing(self, landing: StoragePath) -> None:
        try:
            landing.create_directory()
        except FileExistsError:
            if landing.is_stored():  # a scan reports a broken link
                raise UsageError(
                    f"{self.name} cannot start: {landing} is a file. Move the file away, "
                    "create the directory, and put the file in it."
                ) from None

    def poll(self) -> None:
        with self.context.ledger_lock:
            self._discovery.enqueue(self._discovery.scan(), self.report)

    def stream(self) -> DataFrame:
        # Commits before that version are removed: batches in the ledger have read them.
        start = delta_log.first_readable_version(self._queue)
        options = {"startingVersion": start, "maxFilesPerTrigger": 1}  # one commit is one batch
        return delta_reads.stream_table(self.spark, self._queue, **options)

    def batch(self, number: int, queued: DataFrame) -> FileBatch:
        """Return the files queued for a batch, without those already ingested."""
        files = batches.queued_entries(self.source.name, queued.collect())
        with self.context.ledger_lock:  # a poll enqueues first, then writes the ledger
            ledger_entries = (batches.entry_to_ingest(self.ledger, each, number) for each in files)
            entries = [entry for entry in ledger_entries if entry]
        return FileBatch(self.context, number, files, entries)

    def interrupted_batch(self, number: int) -> FileBatch:
        """Return a batch whose rows are in bronze, to record it.

        Its files are those that the checkpoint planned. Without that plan they are all files ever
        enqueued: the rows in bronze show which were read.
        """
        spark, source = self.spark, self.source.name
        checkpoint = self.config.layout.checkpoint(self.name)
        queued: list[Entry] = []
        with suppress(MedallionError, FileNotFoundError):  # Spark keeps the last hundred plans
            if checkpoints.last_planned(checkpoint) >= number:
                queued = batches.read_queued_batch(spark, source, self._queue, checkpoint, number)
        if not queued:
            rows = delta_reads.read_table(spark, self._queue).collect()
            queued = batches.queued_entries(source, rows)
        return FileBatch(self.context, number, queued, [])

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
        waiting = [entry for entry in self.ledger.newest_entries() if is_ready(entry)]
        return FileBatch(self.context, -1, [], waiting[: self.source.max_files_per_trigger])

    def count_rows(self, number: int) -> int:
        """Count the rows in the files of one batch, as the ledger lists them."""
        paths: list[str] = []
        rows = 0
        for entry in (e for e in self.ledger.all_versions() if e.batch == number):
            path = entry.moved_to or entry.path
            if current_info(self.config.layout, path) == entry.info:
                paths.append(path)
            else:  # gone or overwritten since: the recorded count is used
                rows += entry.rows or 0
        return rows + (self.context.read_rows(paths).count() if paths else 0)

    def release(self, number: int) -> None:
        with self.context.ledger_lock:
            archive.archive_due_files(self.config, self.source, self.ledger, number, self.report)

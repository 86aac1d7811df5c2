"""Files as a source: a stream of queued paths, whose rows each micro-batch reads."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from medallion.config.model import Config, SourceConfig
from medallion.errors import MedallionError, UsageError
from medallion.ingest.files import archive, discovery
from medallion.ingest.files.batch import (
    BatchContext,
    FileBatch,
    entry_to_ingest,
    queued_entries,
    read_queued_batch,
)
from medallion.ingest.files.classify import is_ready
from medallion.ingest.files.discovery import Discovery
from medallion.ingest.files.listing import current_file
from medallion.ingest.schema.evolution import Schema
from medallion.spark import checkpoints
from medallion.state.ledger import (
    Entry,
    ingested_rows,
)
from medallion.storage import delta_log, delta_tables
from medallion.storage.text import Reporter


class FileSource:
    """The files of one source; see `ingest.source.Source`."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        source: SourceConfig,
        schema: Schema,
        say: Reporter,
    ) -> None:
        self.spark, self.config, self.settings, self.say = spark, config, source, say
        self.name = f"bronze.{source.name}"
        self._discovery = Discovery(config, source)
        self.ledger = self._discovery.ledger
        self.context = BatchContext(spark, config, source, schema, self.ledger, say)
        self.ledger_lock = self.context.ledger_lock
        self._create_landing(config.layout.landing(source.name))
        self._intake = config.layout.intake(source.name)
        discovery.create_queue(self._intake)

    def _create_landing(self, landing: Path) -> None:
        """Create the landing directory; a scan reports a link that leads nowhere.

        Raises:
            UsageError: a file is in its place.
        """
        try:
            landing.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            if landing.exists():
                raise UsageError(
                    f"{self.name} cannot start: {landing} is a file. Move the file away, "
                    "create the directory, and put the file in it."
                ) from None

    def poll(self) -> None:
        """Enqueue the new files of the source's directories."""
        with self.ledger_lock:
            self._discovery.poll(self.say)

    def stream(self) -> DataFrame:
        """Return the stream of files in the order in which they were enqueued."""
        return (
            self.spark.readStream.format("delta")
            # Batches in the ledger have read what is removed before that version.
            .option("startingVersion", str(delta_log.first_readable_version(self._intake)))
            .option("maxFilesPerTrigger", "1")  # one commit is one batch
            .load(str(self._intake))
        )

    def batch(self, number: int, queued: DataFrame) -> FileBatch:
        """Return the files queued for a batch, without those that are ingested."""
        files = queued_entries(self.settings.name, queued.collect())
        with self.ledger_lock:  # a poll enqueues first and writes the ledger then
            entries = [e for each in files if (e := entry_to_ingest(self.ledger, each, number))]
        return FileBatch(self.context, number, files, entries)

    def interrupted_batch(self, number: int) -> FileBatch:
        """Return a batch whose rows are in bronze, to record it.

        Its files come from the checkpoint. Without one they are all that were ever enqueued: the
        rows in bronze show which of them were read.
        """
        checkpoint, name = self.config.layout.checkpoint(self.name), self.settings.name
        queued_files: list[Entry] = []
        with suppress(MedallionError, FileNotFoundError):  # Spark keeps the last hundred plans
            if checkpoints.last_planned(checkpoint) >= number:
                queued_files = read_queued_batch(self.spark, name, self._intake, checkpoint, number)
        if not queued_files:
            everything = self.spark.read.format("delta").load(str(self._intake))
            queued_files = queued_entries(name, everything.collect())
        return FileBatch(self.context, number, queued_files, [])

    @property
    def last_in_ledger(self) -> int:
        """Return the last batch in the ledger; -1 if none."""
        return max(
            (-1 if e.batch is None else e.batch for e in self.ledger.all_versions()), default=-1
        )

    @property
    def rows_in_ledger(self) -> int:
        """Return the rows of the files that were ingested."""
        return ingested_rows(self.ledger.all_versions())

    def can_resume(self, checkpoint: Path) -> bool:
        """Return whether the queue has all that the checkpoint has read."""
        return not discovery.is_queue_behind(self.config.layout, self.settings.name)

    def recreate_checkpoint(self, checkpoint: Path, last: int) -> None:
        """Restart at the beginning of the queue: the ledger knows which files are ingested."""
        first = delta_log.first_readable_version(self._intake)
        beginning = checkpoints.delta_start_offset(delta_tables.table_id(self._intake), first)
        checkpoints.write_start(
            self.spark, checkpoint, max(self.last_in_ledger, last, 0), beginning
        )

    def sample_batch(self) -> FileBatch:
        """Return a batch of the first pending files."""
        waiting = [e for e in self.ledger.newest_entries() if is_ready(e)]
        return FileBatch(self.context, -1, [], waiting[: self.settings.max_files_per_trigger])

    def count_rows(self, number: int) -> int:
        """Count the rows in the files of one batch, as the ledger lists them."""
        there: list[str] = []
        lines = 0
        for entry in self.ledger.batch_entries(number):
            place = entry.moved_to or entry.path
            if current_file(self.config.layout, place) == replace(entry.file, path=place):
                there.append(place)
            else:  # gone or overwritten since: the recorded count is used
                lines += entry.rows or 0
        return lines + (self.context.read_rows(there).count() if there else 0)

    def release(self, number: int) -> None:
        """Archive or delete the files of the batches up to this one."""
        with self.ledger_lock:
            archive.archive_due_files(self.config, self.settings, self.ledger, number, self.say)

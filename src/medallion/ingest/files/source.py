"""Files as a source: found in folders, handed over by their paths, and put away once taken in."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from medallion.config.model import Config, SourceConfig
from medallion.errors import MedallionError, UsageError
from medallion.ingest.files import archive, content, discovery, reader
from medallion.ingest.files.batch import (
    FileBatch,
    entry_to_ingest,
    queued_entries,
    read_queued_batch,
)
from medallion.ingest.files.classify import is_ready
from medallion.ingest.files.discovery import Discovery
from medallion.ingest.files.listing import current_file
from medallion.ingest.files.trial import ReadAttempts, TrialProcess
from medallion.ingest.parsing.parse import parse_lines
from medallion.ingest.schema.evolution import Schema
from medallion.spark import checkpoints
from medallion.spark.delta_reads import escaped
from medallion.state.ledger import (
    REJECTED,
    UNREADABLE,
    VANISHED,
    Entry,
    Reason,
    ReasonCode,
    ingested_rows,
)
from medallion.storage import delta_log, delta_tables
from medallion.storage.text import Reporter, printable

_A_LINE = "SELECT '{}' AS value"


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
        self._schema = schema
        self._discovery = Discovery(config, source, say)
        self.ledger = self._discovery.ledger
        self.attempts = ReadAttempts(spark, config.layout.checkpoint(self.name))
        # A stream polls beside its batches: neither may overwrite what the other has just seen.
        self.ledger_lock = threading.RLock()
        self._make(config.layout.landing(source.name))
        self._intake = config.layout.intake(source.name)
        discovery.create_queue(self._intake)

    def _make(self, landing: Path) -> None:
        """Make the folder where files land; a link that leads nowhere is told with each look.

        Raises:
            UsageError: a file is there, such as the first one that somebody has copied.
        """
        try:
            landing.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            if landing.exists():
                raise UsageError(
                    f"{self.name} cannot start, for {landing} is a file, and is to be the folder "
                    "that files land in: move it away, make the folder, and put it in there."
                ) from None

    def poll(self) -> None:
        """Hand over what is new in the source's folders."""
        with self.ledger_lock:
            self._discovery.poll()

    def stream(self) -> DataFrame:
        """The files in the order in which they were handed over."""
        return (
            self.spark.readStream.format("delta")
            # What is not there any more, batches have read that are in the ledger.
            .option("startingVersion", str(delta_log.first_readable_version(self._intake)))
            .option("maxFilesPerTrigger", "1")  # one commit is what one batch may take
            .load(str(self._intake))
        )

    def batch(self, number: int, queued: DataFrame) -> FileBatch:
        """The files that one batch was handed, less those that were taken in before."""
        files = queued_entries(self.settings.name, queued.collect())
        with self.ledger_lock:  # a poll hands over first, and has it in the ledger then
            entries = [e for each in files if (e := entry_to_ingest(self.ledger, each, number))]
        return FileBatch(self, number, files, entries)

    def interrupted_batch(self, number: int) -> FileBatch:
        """What a batch was handed; its files are not to be read any more.

        By its checkpoint, or without one all that ever was: its rows say which of it was read.
        """
        checkpoint, name = self.config.layout.checkpoint(self.name), self.settings.name
        handed: list[Entry] = []
        with suppress(MedallionError, FileNotFoundError):  # Spark keeps the last hundred plans
            if checkpoints.last_planned(checkpoint) >= number:
                handed = read_queued_batch(self.spark, name, self._intake, checkpoint, number)
        if not handed:
            everything = self.spark.read.format("delta").load(str(self._intake))
            handed = queued_entries(name, everything.collect())
        return FileBatch(self, number, handed, [])

    @property
    def last_in_ledger(self) -> int:
        """The last batch in the ledger; -1 if none."""
        return max(
            (-1 if e.batch is None else e.batch for e in self.ledger.all_versions()), default=-1
        )

    @property
    def rows_in_ledger(self) -> int:
        """The rows of the files that were ingested."""
        return ingested_rows(self.ledger.all_versions())

    def can_resume(self, checkpoint: Path) -> bool:
        """Unless what was handed over is less than it has read."""
        return not discovery.is_queue_behind(self.config.layout, self.settings.name)

    def recreate_checkpoint(self, checkpoint: Path, last: int) -> None:
        """All that was handed over is looked at again: the ledger knows what of it is in."""
        first = delta_log.first_readable_version(self._intake)
        beginning = checkpoints.delta_start_offset(delta_tables.table_id(self._intake), first)
        checkpoints.write_start(
            self.spark, checkpoint, max(self.last_in_ledger, last, 0), beginning
        )

    def sample_batch(self) -> FileBatch:
        """The first files that wait."""
        waiting = [e for e in self.ledger.newest_entries() if is_ready(e)]
        return FileBatch(self, -1, [], waiting[: self.settings.max_files_per_trigger])

    def count_rows(self, number: int) -> int:
        """The rows in the files of one batch, as the ledger lists them."""
        there: list[str] = []
        lines = 0
        for entry in self.ledger.batch_entries(number):
            place = entry.moved_to or entry.path
            if current_file(self.config.layout, place) == replace(entry.file, path=place):
                there.append(place)
            else:  # gone or overwritten since: what was counted of it stands
                lines += entry.rows or 0
        return lines + (self.rows(there).count() if there else 0)

    def release(self, number: int) -> None:
        """Archive or delete the files of the batches up to this one."""
        with self.ledger_lock:
            archive.archive_due_files(self.config, self.settings, self.ledger, number, self.say)

    def try_out(self, entries: Iterable[Entry]) -> None:
        """Read and parse some files, for nothing but to see whether that can be done."""
        self._parse_for_nothing(self.rows([entry.path for entry in entries]))

    def child(self) -> TrialProcess:
        """A process of its own that reads files, for nothing but to see how it ends."""
        folder = self.config.layout.checkpoint(self.name) / "trial"
        return TrialProcess(self.spark, self.config, self.settings, self._schema.columns, folder)

    def try_out_without(self) -> None:
        """Do the same without any of them: where that fails as well, no file is to blame."""
        ours = self.config.layout.checkpoint(self.name) / "metadata"
        is_begun = ours.is_file()
        line = self.spark.read.text(escaped(ours)) if is_begun else self.spark.sql(_A_LINE)
        self._parse_for_nothing(line)

    def _parse_for_nothing(self, rows: DataFrame) -> None:
        """To count would not do: of Parquet it reads no values."""
        parsed = parse_lines(rows, self._schema.columns)
        parsed.write.format("noop").mode("overwrite").save()

    def rows(self, paths: list[str]) -> DataFrame:
        """The rows of some files by the columns that are known now."""
        return reader.read_rows(self.spark, self.config, self.settings, paths, self._schema.columns)

    def check_unchanged(self, entry: Entry) -> bool:
        """Whether a file is as it was listed; one that is gone is entered as vanished.

        A changed one is handed over anew, as it is then.
        """
        found = current_file(self.config.layout, entry.path)
        if found is None:
            why = "gone between its listing and its reading"
            self.ledger.write([entry.with_state(VANISHED, Reason(ReasonCode.GONE, why))])
            self.say(f"  {self.name}: {printable(entry.path)}: {VANISHED}: {why}")
        return found == entry.file

    def put_aside(self, entries: list[Entry], problem: content.Problem) -> list[Entry]:
        """Move those that have a problem to rejected/, and give those that have none."""
        layout, good, bad = self.config.layout, [], []
        with ThreadPoolExecutor() as pool:  # packed files are read, which Python does side by side
            found = list(pool.map(problem, [layout.root / entry.path for entry in entries]))
        for entry, why in zip(entries, found, strict=True):
            if why is None:
                good.append(entry)
            elif self.check_unchanged(entry):  # what has gone since is not to blame
                bad.append(entry.with_state(UNREADABLE, Reason(ReasonCode.UNREADABLE, why)))
                self.say(f"  {self.name}: {printable(entry.path)}: {REJECTED}: {printable(why)}")
        with self.ledger_lock:  # a stream settles beside its batches, and moves what is left
            archive.reject_files(layout, self.settings, self.ledger, bad)
        return good

"""The files of a micro-batch become rows of bronze, and lines of the ledger."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from medallion.config.loader import Config, Source
from medallion.errors import MedallionError
from medallion.lakehouse import specs, tables
from medallion.lakehouse.columns import RESCUED
from medallion.ops.ledger import PENDING, REJECTED, REPLACED, VANISHED, Entry
from medallion.parsing.parse import parse
from medallion.schema.evolution import Schema
from medallion.sources.files import archive, reader, record, reject, unreadable
from medallion.sources.files.discovery import Discovery
from medallion.sources.files.listing import stat
from medallion.sources.files.record import Handed, Record
from medallion.spark import checkpoints
from medallion.spark.errors import one_line

Say = Callable[[str], None]


class Batches:
    """Takes in the files of one micro-batch after the other; each may be repeated."""

    def __init__(self, spark: SparkSession, config: Config, source: Source, say: Say) -> None:
        self._spark, self._config, self._source, self._say = spark, config, source, say
        self._schema = Schema(spark, config, source)
        self._discovery = Discovery(config, source, say)
        self._ledger = self._discovery.ledger
        self._record = Record(config.layout, self._ledger, source.name)
        self._name = f"bronze.{source.name}"
        self._table = config.layout.table(self._name)
        # A stream polls beside its batches: neither may overwrite what the other has just seen.
        self._recording = threading.RLock()
        self.lines: dict[int, int] = {}

    def prepare(self) -> None:
        """Look for files, infer the schema from them if nobody declared it, make the table."""
        self._settle_cut_off()
        self.poll()
        if not self._schema.is_known:
            waiting = [e for e in self._ledger.all_newest() if e.state == PENDING and not e.why]
            fit = self._fit_to_read(waiting)[: self._source.max_files_per_trigger]
            # Where no file is to blame, the first batch fails as well, and tells: it is a query's
            # failure then, and the other sources start.
            with suppress(MedallionError, *unreadable.FAULTS):
                self._infer(fit)
        tables.create(self._table, self._schema.table_json(), specs.BRONZE)

    def _settle_cut_off(self) -> None:
        """Put a batch on record whose rows are in bronze, before its files are looked at anew.

        A run that died between the two left its files as pending: one that has gone since would be
        taken for never read, and another one under its name for the first.
        """
        checkpoint = self._config.layout.checkpoint(self._name)
        batch = checkpoints.last_committed(checkpoint) + 1
        if not (checkpoint / "offsets" / str(batch)).is_file():
            return
        query = checkpoints.query_id(checkpoint)
        version = tables.committed_version(self._table, query, batch)
        if version is not None:
            intake = self._config.layout.intake(self._source.name)
            handed = record.handed_to(self._spark, intake, checkpoint, batch)
            self._put_on_record(handed, [], batch, version)

    def poll(self) -> None:
        """Hand over what is new in the source's folders."""
        with self._recording:
            self._discovery.poll()

    def clean(self, batch: int) -> None:
        """Archive or delete the files of the batches up to this one."""
        with self._recording:
            archive.clean(self._config, self._source, self._ledger, batch)

    def take_in(self, handed: DataFrame, batch: int) -> None:
        """Write the rows of the batch's files to bronze, and what became of each to the ledger."""
        self._take_in(record.handed(handed.collect()), batch)

    def _take_in(self, handed: Sequence[Handed], batch: int) -> None:
        query = checkpoints.query_id(self._config.layout.checkpoint(self._name))
        entries = [entry for each in handed if (entry := self._record.to_take_in(each, batch))]
        version = tables.committed_version(self._table, query, batch)
        if version is None:
            # With a new checkpoint batches begin anew: what has rows was taken in before that.
            new = [e for e in entries if not e.rows and self._is_unchanged(e)]
            entries = self._fit_to_read(new)
            entries = self._write(self._infer(entries), batch, query)
            version = tables.committed_version(self._table, query, batch)
            if version is None:
                self.lines[batch] = 0
        self._put_on_record(handed, entries, batch, version)

    def _is_unchanged(self, entry: Entry) -> bool:
        """Whether a file is as it was listed; a changed one is handed over anew, as it is then."""
        found = stat(self._config.layout, entry.path)
        if found is None:
            why = "gone between its listing and its reading"
            self._ledger.write([replace(entry, state=VANISHED, why=why)])
            self._say(f"  {self._name}: {entry.path}: {VANISHED}: {why}")
        return found == entry.file

    def _fit_to_read(self, entries: list[Entry]) -> list[Entry]:
        """Those that are text at all; the others are put aside."""
        if self._source.format == "parquet":
            return entries
        return self._put_aside(entries, reject.why_not_text)

    def _put_aside(self, entries: list[Entry], problem: Callable[..., str | None]) -> list[Entry]:
        """Move those that have a problem to rejected/, and give the others."""
        layout, good, bad = self._config.layout, [], []
        for entry in entries:
            why = problem(layout.root / entry.path)
            if why is None:
                good.append(entry)
            else:
                bad.append(replace(entry, state=REJECTED, why=why))
                self._say(f"  {self._name}: {entry.path}: {REJECTED}: {why}")
        reject.put_aside(layout, self._source, self._ledger, bad)
        return good

    def _write(self, entries: list[Entry], batch: int, query: str) -> list[Entry]:
        """Append the files' rows in one commit, without the files that cannot be read."""

        def append(some: list[Entry]) -> None:
            is_again = len(some) < len(entries)
            if is_again and tables.committed_version(self._table, query, batch) is not None:
                return  # it failed after its commit
            read = Observation(f"landed-{batch}")
            rows = self._rows(some)
            counted = rows.observe(read, F.count(F.lit(1)).alias("rows"))
            self._schema.refuse_new(rows)
            frame = parse(counted, self._schema.columns)
            (
                frame.write.format("delta")
                .mode("append")
                .options(txnAppId=query, txnVersion=str(batch), mergeSchema="true")
                .save(str(self._table))
            )
            self.lines[batch] = int(read.get["rows"])

        return self._with_readable(entries, append, f"{self._name} batch {batch}")

    def _infer(self, entries: list[Entry]) -> list[Entry]:
        """Make a first schema from files; gives them without those that cannot be read."""
        if self._schema.is_known:
            return entries

        def infer(some: list[Entry]) -> None:
            self._schema.infer(self._rows(some), len(some))

        return self._with_readable(entries, infer, f"{self._name}, to infer its schema")

    def _with_readable(
        self, entries: list[Entry], work: Callable[[list[Entry]], None], what: str
    ) -> list[Entry]:
        """Do some work with files; where they cannot all be read, again with those that can.

        Returns:
            The files that it is done with.

        Raises:
            MedallionError: it fails, and no file is to blame.
        """
        while entries:
            try:
                work(entries)
                return entries
            except unreadable.FAULTS as error:
                good = self._readable(entries, error)
                if len(good) == len(entries):
                    raise MedallionError(f"{what}: {one_line(str(error))}") from error
                entries = good
        return entries

    def _readable(self, entries: list[Entry], error: Exception) -> list[Entry]:
        """Those that are still there and can be read; the others are put aside.

        Raises:
            Exception: the error again, where Spark does not work any more.
        """
        unreadable.refuse_broken(self._spark, error)
        good = [entry for entry in entries if self._is_unchanged(entry)]
        if len(good) == len(entries):
            good = self._put_aside(entries, reject.why_unreadable)
        if len(good) == len(entries):
            found = unreadable.unreadable(self._spark, self._rows, entries)
            root = self._config.layout.root
            good = self._put_aside(entries, {root / path: why for path, why in found.items()}.get)
        return good

    def _rows(self, entries: list[Entry]) -> DataFrame:
        paths = [entry.path for entry in entries]
        return reader.rows(self._spark, self._config, self._source, paths, self._schema.columns)

    def _put_on_record(
        self, handed: Sequence[Handed], entries: list[Entry], batch: int, version: int | None
    ) -> None:
        """Put files on record as taken in.

        Args:
            handed: what the batch was handed; those of them that bronze has rows of are recorded.
            entries: those of them that were read; they are recorded without rows too.
            version: bronze's, with the rows of the batch.
        """
        written = record.rows_of_version(self._spark, self._table, version)
        found = record.by_file(written) if written is not None else {}
        with self._recording:
            ingested = self._record.ingested(handed, entries, batch, found)
            replaced = [
                replace(old, state=REPLACED, why=f"version {entry.version} has come since")
                for entry in ingested
                if (old := self._ledger.before(entry)) and old.state != REPLACED
            ]
            self._ledger.write([*replaced, *ingested])
        if written is not None and any(entry.rescued_rows for entry in ingested):
            new = self._schema.learn(written.where(f"{RESCUED} is not null"), batch)
            if new:
                self._say(f"  {self._name}: new columns from now on: {', '.join(new)}")

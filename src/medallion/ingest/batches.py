"""The files of a micro-batch become rows of bronze, and lines of the ledger."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F

from medallion import checkpoints, schemas, tables
from medallion.config import Config, Source
from medallion.errors import MedallionError
from medallion.ingest import cleaning, formats, rejects
from medallion.ingest.discovery import Discovery
from medallion.ingest.evolution import Schema
from medallion.ingest.files import File, stat
from medallion.ingest.ledger import INGESTED, PENDING, REJECTED, REPLACED, VANISHED, Entry
from medallion.streams import one_line
from medallion.transforms.bronze import parsed

Say = Callable[[str], None]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FEED = ("_change_type", "_commit_version", "_commit_timestamp")


class Batches:
    """Takes in the files of one micro-batch after the other; each may be repeated."""

    def __init__(self, spark: SparkSession, config: Config, source: Source, say: Say) -> None:
        self._spark, self._config, self._source, self._say = spark, config, source, say
        self._schema = Schema(spark, config, source)
        self._discovery = Discovery(config, source, say)
        self._ledger = self._discovery.ledger
        self._name = f"bronze.{source.name}"
        self._table = config.layout.table(self._name)
        # A stream polls beside its batches: neither may overwrite what the other has just seen.
        self._recording = threading.RLock()
        self.lines: dict[int, int] = {}
        self.failure: MedallionError | None = None

    def prepare(self) -> None:
        """Look for files, infer the schema from them if nobody declared it, make the table."""
        self._settle_cut_off()
        self.poll()
        if not self._schema.is_known:
            waiting = [e for e in self._ledger.all_newest() if e.state == PENDING and not e.why]
            self._infer(self._fit_to_read(waiting)[: self._source.max_files_per_trigger])
        tables.create(self._table, self._schema.table_json(), skipping=False)

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
        written = _rows_of_version(self._spark, str(self._table), version)
        if written is not None:
            found = _by_file(written)
            pending = [e for e in self._ledger.all_newest() if e.state == PENDING and not e.why]
            self._put_on_record([e for e in pending if e.path in found], batch, version)

    def poll(self) -> None:
        """Hand over what is new in the source's folders."""
        with self._recording:
            self._discovery.poll()

    def clean(self, batch: int) -> None:
        """Archive or delete the files of the batches up to this one."""
        with self._recording:
            cleaning.clean(self._config, self._source, self._ledger, batch)

    def take_in(self, handed: DataFrame, batch: int) -> None:
        """Write the rows of the batch's files to bronze, and what became of each to the ledger."""
        try:
            self._take_in(handed.collect(), batch)
        except MedallionError as error:
            self.failure = error
            raise
        except Exception as error:  # Spark's own account of it is a stack trace of Python's
            told = one_line(str(error)) if str(error).strip() else "no message"
            self.failure = MedallionError(
                f"{self._name} batch {batch}: {type(error).__name__}: {told}"
            )
            raise

    def _take_in(self, handed: Sequence[Row], batch: int) -> None:
        query = checkpoints.query_id(self._config.layout.checkpoint(self._name))
        entries = [entry for row in handed if (entry := self._open(row, batch))]
        version = tables.committed_version(self._table, query, batch)
        if version is None:
            entries = self._fit_to_read([e for e in entries if self._is_unchanged(e)])
            self._infer(entries)
            entries = self._write(entries, batch, query)
            version = tables.committed_version(self._table, query, batch)
        self._put_on_record(entries, batch, version)

    def _open(self, row: Row, batch: int) -> Entry | None:
        """The ledger's row of a path, if the batch is to take it in.

        A run that was cut off may have handed a file over twice, and the ledger has none of it.
        """
        file = File(row.path, row.size, _micros(row.modified_at))
        entry = self._ledger.version(row.path, row.version) or Entry(
            self._source.name, row.path, row.version, row.size, file.modified_at, file.modified_at
        )
        is_here = entry.state == PENDING or (entry.state == INGESTED and entry.batch == batch)
        return entry if is_here and entry.file == file else None

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
        return self._put_aside(entries, rejects.why_not_text)

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
        rejects.put_aside(layout, self._source, self._ledger, bad)
        return good

    def _write(self, entries: list[Entry], batch: int, query: str) -> list[Entry]:
        """Append the files' rows in one commit, without the files that cannot be read."""
        while entries:
            read = Observation(f"landed-{batch}")
            try:
                rows = self._rows(entries)
                counted = rows.observe(read, F.count(F.lit(1)).alias("rows"))
                self._schema.refuse_new(rows)
                frame = parsed(counted, self._schema.columns)
                (
                    frame.write.format("delta")
                    .mode("append")
                    .options(txnAppId=query, txnVersion=str(batch), mergeSchema="true")
                    .save(str(self._table))
                )
                self.lines[batch] = int(read.get["rows"])
                return entries
            except formats.SPARK_ERRORS as error:
                good = self._put_aside(entries, rejects.why_unreadable)
                if len(good) == len(entries):
                    told = self._unreadable(entries)
                    good = self._put_aside(entries, told.get)
                if len(good) == len(entries):
                    raise MedallionError(
                        f"{self._name} batch {batch}: {one_line(str(error))}"
                    ) from error
                entries = good
        self.lines[batch] = 0
        return entries

    def _unreadable(self, entries: list[Entry]) -> dict[Path, str]:
        """What Spark says of those files that it cannot read; by halves, for each try is a job."""
        try:
            # To count would not do: of Parquet it reads no values.
            self._rows(entries).write.format("noop").mode("overwrite").save()
        except formats.SPARK_ERRORS as error:
            if len(entries) > 1:
                half = len(entries) // 2
                return {**self._unreadable(entries[:half]), **self._unreadable(entries[half:])}
            file = self._config.layout.root / entries[0].path
            return {file: f"cannot be read: {one_line(str(error))}"}
        return {}

    def _infer(self, entries: list[Entry]) -> None:
        if entries and not self._schema.is_known:
            self._schema.infer(self._rows(entries), len(entries))

    def _rows(self, entries: list[Entry]) -> DataFrame:
        paths = [entry.path for entry in entries]
        return formats.rows(self._spark, self._config, self._source, paths, self._schema.columns)

    def _put_on_record(self, entries: list[Entry], batch: int, version: int | None) -> None:
        written = _rows_of_version(self._spark, str(self._table), version)
        found = _by_file(written) if written is not None else {}
        now = time.time_ns() // 1000
        taken = [
            replace(
                entry,
                state=INGESTED,
                why=None,
                batch=batch,
                committed_at=now,
                rows=found.get(entry.path, _NONE).rows,
                corrupt_rows=found.get(entry.path, _NONE).corrupt,
                rescued_rows=found.get(entry.path, _NONE).rescued,
            )
            for entry in entries
        ]
        replaced = [
            replace(old, state=REPLACED, why=f"version {entry.version} has come since")
            for entry in entries
            if (old := self._ledger.before(entry)) and old.state != REPLACED
        ]
        with self._recording:
            self._ledger.write([*replaced, *taken])
        if written is not None and any(entry.rescued_rows for entry in taken):
            new = self._schema.learn(written.where(f"{schemas.RESCUED} is not null"), batch)
            if new:
                self._say(f"  {self._name}: new columns from now on: {', '.join(new)}")


class _Counts(NamedTuple):
    rows: int
    corrupt: int
    rescued: int


_NONE = _Counts(0, 0, 0)


def _by_file(rows: DataFrame) -> dict[str, _Counts]:
    counts = (F.count(column) for column in ("*", schemas.CORRUPT, schemas.RESCUED))
    found = rows.groupBy(schemas.SOURCE_FILE).agg(*counts).collect()
    return {row[0]: _Counts(*row[1:]) for row in found}


def _rows_of_version(spark: SparkSession, table: str, version: int | None) -> DataFrame | None:
    if version is None:
        return None
    bounds = {"startingVersion": str(version), "endingVersion": str(version)}
    feed = spark.read.format("delta").option("readChangeFeed", "true").options(**bounds)
    return feed.load(table).drop(*_FEED)


def _micros(time_: datetime) -> int:
    # Not by way of a float, which is a millisecond off for some years' times.
    return (time_.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1) * 1000

"""Bronze: one query a source, from landing files to `bronze.<source>`.

The query streams the paths that `Discovery` hands over, and reads the files batch by batch. So one
file that cannot be read holds up no other, and the schema may be another one from batch to batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F

from medallion import checkpoints, schemas, tables
from medallion.config import Config, Source
from medallion.errors import MedallionError
from medallion.ingest import cleaning, formats, intake, rejects
from medallion.ingest.discovery import Discovery
from medallion.ingest.evolution import Schema
from medallion.ingest.files import File, stat
from medallion.ingest.ledger import INGESTED, PENDING, REJECTED, REPLACED, VANISHED, Entry, Ledger
from medallion.streams import Run, one_line
from medallion.transforms.bronze import parsed

Say = Callable[[str], None]
# On the threads that call back from a stream, PySpark leaves some of the JVM's errors as they are.
_SPARK_ERRORS = (PySparkException, Py4JError)
_FEED = ("_change_type", "_commit_version", "_commit_timestamp")


def start(
    spark: SparkSession, config: Config, source: Source, trigger: dict[str, Any], say: Say
) -> Run:
    """List the source's folders, and start the query that takes the files in.

    Raises:
        ConfigError: the declared schema is none, or not that of the table.
    """
    name = f"bronze.{source.name}"
    config.layout.landing(source.name).mkdir(parents=True, exist_ok=True)
    handed = config.layout.intake(source.name)
    tables.create(handed, tables.schema_json(intake.COLUMNS))
    batches = Batches(spark, config, source, say)
    batches.prepare()
    query = (
        spark.readStream.format("delta")
        .option("startingVersion", "0")
        .option("maxFilesPerTrigger", "1")  # one commit is what one batch may take
        .load(str(handed))
        .writeStream.queryName(name)
        .foreachBatch(batches.take_in)
        .option("checkpointLocation", str(config.layout.checkpoint(name)))
        .trigger(**trigger)
        .start()
    )
    return Run(name, query, intake=batches)


class Batches:
    """Takes in the files of one micro-batch after the other; each may be repeated."""

    def __init__(self, spark: SparkSession, config: Config, source: Source, say: Say) -> None:
        self._spark, self._config, self._source, self._say = spark, config, source, say
        self._schema = Schema(spark, config, source)
        self._discovery = Discovery(config, source, say)
        self._ledger = self._discovery.ledger
        self._name = f"bronze.{source.name}"
        self._table = config.layout.table(self._name)
        self.lines: dict[int, int] = {}
        self.failure: MedallionError | None = None

    def prepare(self) -> None:
        """Look for files, infer the schema from them if nobody declared it, make the table."""
        self.poll()
        if not self._schema.is_known:
            waiting = [e for e in self._ledger.all_newest() if e.state == PENDING and not e.why]
            self._infer(self._fit_to_read(waiting)[: self._source.max_files_per_trigger])
        tables.create(self._table, self._schema.table_json())

    def poll(self) -> None:
        """Hand over what is new in the source's folders."""
        self._discovery.poll()

    def clean(self, batch: int) -> None:
        """Archive or delete the files of the batches up to this one."""
        cleaning.clean(self._config, self._source, self._ledger, batch)

    def take_in(self, handed: DataFrame, batch: int) -> None:
        """Write the rows of the batch's files to bronze, and what became of each to the ledger."""
        try:
            self._take_in(handed.collect(), batch)
        except MedallionError as error:
            self.failure = error
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
                continue
            moved = rejects.move(layout, self._source, entry.path, why)
            bad.append(replace(entry, state=REJECTED, why=why, moved_to=moved))
            self._say(f"  {self._name}: {entry.path}: {REJECTED}: {why}")
        self._ledger.write(bad)
        return good

    def _write(self, entries: list[Entry], batch: int, query: str) -> list[Entry]:
        """Append the files' rows in one commit, without the files that cannot be read."""
        while entries:
            read = Observation(f"landed-{batch}")
            rows = self._rows(entries).observe(read, F.count(F.lit(1)).alias("rows"))
            try:
                frame = parsed(rows, self._schema.columns)
                self._schema.refuse_new(frame)
                (
                    frame.write.format("delta")
                    .mode("append")
                    .options(txnAppId=query, txnVersion=str(batch), mergeSchema="true")
                    .save(str(self._table))
                )
                self.lines[batch] = int(read.get["rows"])
                return entries
            except _SPARK_ERRORS as error:
                good = self._put_aside(entries, self._why_unreadable)
                if len(good) == len(entries):
                    raise MedallionError(
                        f"{self._name} batch {batch}: {one_line(str(error))}"
                    ) from error
                entries = good
        self.lines[batch] = 0
        return entries

    def _why_unreadable(self, path: Any) -> str | None:
        why = rejects.why_unreadable(path)
        if why:
            return why
        try:
            self._rows_of([self._config.layout.relative(path)]).count()
        except _SPARK_ERRORS as error:
            return f"cannot be read: {one_line(str(error))}"
        return None

    def _infer(self, entries: list[Entry]) -> None:
        if entries and not self._schema.is_known:
            self._schema.infer(self._rows(entries), len(entries))

    def _rows(self, entries: list[Entry]) -> DataFrame:
        return self._rows_of([entry.path for entry in entries])

    def _rows_of(self, paths: list[str]) -> DataFrame:
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


def lines_of_batch(spark: SparkSession, config: Config, source: Source, batch: int) -> int:
    """Count again the rows in the files of one batch, as the ledger lists them."""
    files = [
        entry.moved_to or entry.path for entry in Ledger(config.layout, source.name).of_batch(batch)
    ]
    schema = Schema(spark, config, source)
    return formats.rows(spark, config, source, files, schema.columns).count() if files else 0


def recorded(run: Run, batch: int) -> int | None:
    """The lines that the engine counted in a batch; None where its record is lost."""
    return run.intake.lines.get(batch) if run.intake else None


def _micros(time_: datetime) -> int:
    return int(time_.timestamp() * 1000) * 1000

"""The sink of silver: writes good rows to the table, others to quarantine, exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config, SourceConfig
from medallion.errors import MedallionError, UsageError
from medallion.layers.flow import Flow
from medallion.layers.silver import transform
from medallion.layers.silver.keys import key_range
from medallion.layers.silver.lookup import LookupJoin
from medallion.layers.silver.rules import LATE_RULE, bind_rules
from medallion.spark import checkpoints, delta_reads
from medallion.spark.plans import is_comparable
from medallion.storage import delta_log, delta_tables
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import FAILED_RULES, INGESTED_AT

# Recording a batch reads its offsets, and Spark keeps those of the last 100 batches.
MAX_UNRECORDED_BATCHES = 80
_PAUSE = 0.2  # seconds
MERGE_SCHEMA = {"mergeSchema": "true"}  # quarantine gets bronze's new columns
_REPLAYED = "replayed"  # name of a document beside the checkpoint


class Backpressure:
    """Makes the query of a stream wait while too many of its batches are not recorded.

    Late rows are inserted when a batch is recorded, which may take longer than the batch did.
    """

    def __init__(self, recorded: int, stopping: Event) -> None:
        """Start after a batch.

        Args:
            recorded: the last recorded batch.
            stopping: is set when the query is to be stopped.
        """
        self._recorded, self._stopping = recorded, stopping

    def mark_recorded(self, batch: int) -> None:
        """Note that all batches up to this one are recorded."""
        self._recorded = batch

    def wait(self, batch: int) -> None:
        """Wait until a batch may start.

        Raises:
            MedallionError: the query is stopped.
        """
        while batch - self._recorded > MAX_UNRECORDED_BATCHES:
            if self._stopping.wait(_PAUSE):
                raise MedallionError("the query was stopped before this batch")


@dataclass(frozen=True)
class SilverTables:
    """The paths of the tables of one source, and of the checkpoint of silver's query."""

    bronze: StoragePath
    silver: StoragePath
    quarantine: StoragePath
    checkpoint: StoragePath

    @classmethod
    def of_source(cls, config: Config, name: str) -> SilverTables:
        """Return the paths for a source."""
        rows = config.sources[name].rows_table
        bronze, quarantine = (config.layout.table(f"{t}.{name}") for t in ("bronze", "quarantine"))
        return cls(bronze, config.layout.table(rows), quarantine, config.layout.checkpoint(rows))

    def versions_read(self, batch: int) -> tuple[int, int]:
        """Return the first and the last version of bronze that a batch of silver read.

        The last is before the first if it read none: a batch without data only evicts state.

        Raises:
            UsageError: Spark removed its offsets; it keeps those of the last 100 batches.
            MedallionError: the batch does not end with a complete version.
        """
        try:
            start = checkpoints.delta_offset(self.checkpoint, batch - 1)
            end = checkpoints.delta_offset(self.checkpoint, batch)
        except MedallionError as error:
            name = f"silver.{self.silver.name}"
            raise UsageError(
                f"{name}: batch {batch} is not recorded, and its checkpoint no longer has what it "
                f"read. Rebuild the table and its checkpoint with medallion refresh {name}."
            ) from error
        if not (start.is_between_versions and end.is_between_versions):
            raise MedallionError(
                f"{self.checkpoint}: batch {batch} does not end with a complete version of bronze."
            )
        return start.version, end.version - 1

    def batch_rows(self, spark: SparkSession, batch: int) -> DataFrame:
        """Return the rows of bronze that one batch of silver read.

        Raises:
            UsageError: data files that it read are gone. Maintenance removes only those of
                recorded batches, but a restored `ops.runs` may lack some of these batches.
        """
        first, last = self.versions_read(batch)
        if last < first:
            return spark.read.format("delta").load(str(self.bronze)).limit(0)
        if batch == 0:  # it reads a snapshot of the table: older commits may be gone
            files = delta_tables.data_files(self.bronze, last)
        else:
            files = delta_log.added_files(self.bronze, first, last)
        if not all(file.is_stored() for file in files):
            name = f"silver.{self.silver.name}"
            raise UsageError(
                f"{name}: batch {batch} is not recorded, and rows that it read are gone. Rebuild "
                f"the table and its checkpoint with medallion refresh {name}."
            )
        return delta_reads.rows_of(spark, self.bronze, files)


@dataclass(frozen=True)
class RowCounts:
    """Counts of the rows of one batch.

    Attributes:
        late: late rows inserted into silver.
        duplicates: rows with the keys of another row.
        unmatched: rows without a row in the lookup table, except rows that an interrupted process
            inserted.
    """

    late: int = 0
    duplicates: int = 0
    unmatched: int = 0


class SilverWriter:
    """Writes the micro-batches of one source; a batch that runs twice is written once.

    Attributes:
        counts: by batch, the counts of the rows that reached this writer, without the duplicates
            and late rows that Spark's state dropped before.
    """

    def __init__(
        self,
        flow: Flow,
        rules: dict[str, Any],
        lookup: LookupJoin | None,
        backpressure: Backpressure | None,
    ) -> None:
        """Open the tables of a source.

        Args:
            flow: the flow of the source.
            rules: the document of the rules that the query started with.
            lookup: the lookup join, if the source has one.
            backpressure: for a query that runs continuously.
        """
        self._tables = SilverTables.of_source(flow.config, flow.source.name)
        self._source, self._apply_rules = flow.source, bind_rules(flow.source, rules)
        self._lookup, self._backpressure = lookup, backpressure
        self._quarantines_late = rules["late"] == "quarantine"
        self._replayed_until = replayed_until(self._tables.checkpoint)
        self.counts: dict[int, RowCounts] = {}

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write silver, then quarantine; each commit has the query id and the batch number.

        A new checkpoint has a new query id, so its batches are not mistaken for earlier ones. A
        batch that only evicts state commits nothing.
        """
        if self._backpressure:
            self._backpressure.wait(batch_id)
        tables, query = self._tables, checkpoints.query_id(self._tables.checkpoint)
        once_only = checkpoints.once_only(query, batch_id)
        written = delta_log.committed_version(tables.silver, query, batch_id)
        # A row that breaks a rule about lookup columns goes to quarantine, and keeps no key.
        joined = self._lookup.join_batch(batch, batch_id) if self._lookup else batch
        rows = self._mark_dropped(joined, batch_id, written)
        # If the batch lacks bronze's rows, those to quarantine are read from bronze again.
        has_bronze = transform.BRONZE in batch.columns
        if has_bronze:  # on disk, because state and sorting need the memory
            rows.persist(StorageLevel.DISK_ONLY)
        try:
            # None means that bronze's log no longer reaches back to the batch: treat it as input.
            has_input = delta_log.rows_added(tables.bronze, *tables.versions_read(batch_id)) != 0
            if written is not None or not has_input:
                # The batch is computed nevertheless, for its state.
                counts = rows.agg(*self._count_columns()).collect()[0].asDict()
            else:
                counts = self._write_silver(rows, once_only)
            unmatched = counts.get("unmatched", 0)
            self.counts[batch_id] = RowCounts(counts["late"], counts["duplicates"], unmatched)
            if counts["broken"]:
                checked = rows.where(~F.col(transform.DUPLICATE))
                if not has_bronze:
                    checked = self._apply_rules(tables.batch_rows(batch.sparkSession, batch_id))
                quarantined = transform.quarantine_rows(checked)
                append_rows(quarantined, tables.quarantine, once_only | MERGE_SCHEMA)
        finally:
            rows.unpersist()
            joined.unpersist()

    def _mark_dropped(self, batch: DataFrame, batch_id: int, written: int | None) -> DataFrame:
        """Mark duplicates and late rows, if the query's state does not drop them.

        A batch that has written its rows is compared with silver as it was before.
        """
        source, none = self._source, F.lit(False)
        if not self._must_compare(batch_id):
            return batch.withColumns({transform.DUPLICATE: none, transform.LATE: none})
        batch.persist(StorageLevel.DISK_ONLY)
        path = self._tables.silver
        before = delta_tables.table_version(path) if written is None else written - 1
        reader = batch.sparkSession.read.format("delta").option("versionAsOf", before)
        has_keys = key_range(batch.where(transform.is_good()), source.keys)
        silver = reader.load(str(path)).where(has_keys)
        is_late, order = none, list[str | Column](row_order(batch, source))
        # In other sources the query's state has dropped late rows.
        if source.compares_with_silver and (
            watermark := checkpoints.watermark(self._tables.checkpoint, batch_id)
        ):
            is_late = transform.is_late(source.event_time, watermark)
            if self._quarantines_late:  # a row on time, which silver gets, is first
                order.insert(0, is_late)
        rows = transform.mark_duplicates(batch, silver, source.keys, order)
        is_new = transform.is_good() & transform.has_identity(source.keys)
        rows = rows.withColumn(transform.LATE, is_new & is_late & ~F.col(transform.DUPLICATE))
        if self._quarantines_late:
            failed = F.when(F.col(transform.LATE), F.array(F.lit(LATE_RULE)))
            rows = rows.withColumn(FAILED_RULES, failed.otherwise(F.col(FAILED_RULES)))
        return rows

    def _must_compare(self, batch_id: int) -> bool:
        """Return whether silver may have keys on time that the query's state lacks."""
        if self._source.compares_with_silver or not self._replayed_until:
            return self._source.compares_with_silver
        late_until = checkpoints.watermark(self._tables.checkpoint, batch_id - 1) or 0
        return self._replayed_until > late_until

    def _write_silver(self, rows: DataFrame, once_only: Mapping[str, str]) -> dict[str, Any]:
        """Append the good rows, and count all rows in the same job.

        A separate job would run the batch through the state a second time.
        """
        counts = Observation()
        new = rows.observe(counts, *self._count_columns()).where(~F.col(transform.DUPLICATE))
        good = transform.silver_rows(new, self._source.silver_columns)
        append_rows(good, self._tables.silver, once_only)
        return counts.get

    def _count_columns(self) -> list[Column]:
        is_new = ~F.col(transform.DUPLICATE)
        counts = {
            "broken": is_new & ~transform.is_good(),
            "duplicates": ~is_new,
            "late": is_new & transform.is_good() & F.col(transform.LATE),
        }
        if self._lookup:
            counts["unmatched"] = is_new & F.col(transform.UNMATCHED)
        return [F.count_if(condition).alias(name) for name, condition in counts.items()]


def row_order(rows: DataFrame, source: SourceConfig) -> list[str]:
    """Return the columns by which the first of the rows with equal keys is chosen."""
    columns = (INGESTED_AT, *source.silver_origin_columns, *source.silver)
    types = {field.name: field.dataType for field in rows.schema}
    return [name for name in columns if is_comparable(types[name])]


def note_replayed(checkpoint: StoragePath, until: int) -> None:
    """Record that silver got rows up to an event time whose keys the query's state lacks.

    Until the watermark has passed that time, batches are compared with silver.

    Args:
        checkpoint: the checkpoint of silver's query.
        until: the time in milliseconds since 1970.
    """
    last = max(until, replayed_until(checkpoint))
    checkpoints.write_document(checkpoint, _REPLAYED, {"until": last})


def replayed_until(checkpoint: StoragePath) -> int:
    """Return the last event time of replayed rows, in milliseconds since 1970; 0 if none."""
    return int((checkpoints.read_document(checkpoint, _REPLAYED) or {"until": 0})["until"])


def append_rows(rows: DataFrame, table: StoragePath, options: Mapping[str, str]) -> None:
    """Append rows to a Delta table in one commit, with options of Delta's writer."""
    rows.write.format("delta").mode("append").options(**options).save(str(table))

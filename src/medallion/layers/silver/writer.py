"""The sink of silver: writes good rows to the table, others to quarantine, exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config, SourceConfig
from medallion.errors import MedallionError, UsageError
from medallion.layers.flow import Flow
from medallion.layers.silver import transform
from medallion.layers.silver.keys import key_range
from medallion.layers.silver.lookup import LookupJoin
from medallion.layers.silver.rules import LATE_RULE, BoundRules
from medallion.spark import checkpoints, delta, jvm
from medallion.spark.plans import is_comparable
from medallion.storage import delta_log, delta_tables
from medallion.storage.delta_log import Transaction
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import FAILED_RULES, INGESTED_AT

MERGE_SCHEMA = {"mergeSchema": "true"}  # quarantine gets bronze's new columns
LATE_ROWS, UNMATCHED_ROWS = "late_rows", "unmatched_rows"
"""More counts of a batch, in the `userMetadata` of its commit of silver."""
_REPLAYED = "replayed"  # name of a document beside the checkpoint


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
            reason = "its checkpoint no longer has what it read"
            raise _unrecorded_error(self, batch, reason) from error
        if not (start.is_between_versions and end.is_between_versions):
            raise MedallionError(
                f"{self.checkpoint}: batch {batch} does not end with a complete version of bronze."
            )
        return start.version, end.version - 1

    def rows_read(self, spark: SparkSession, batch: int) -> int:
        """Return the number of rows of bronze that a batch of silver read."""
        first, last = self.versions_read(batch)
        if batch == 0 <= last:  # a snapshot: bronze may have been rewritten before
            return delta_tables.row_count(self.bronze, last)
        rows = delta_log.rows_added(self.bronze, first, last)
        # None: the log does not reach back that far.
        return self.batch_rows(spark, batch).count() if rows is None else rows

    def batch_rows(self, spark: SparkSession, batch: int) -> DataFrame:
        """Return the rows of bronze that one batch of silver read.

        Raises:
            UsageError: data files that it read are gone. Maintenance removes only those of
                recorded batches, but a restored `ops.runs` may lack some of these batches.
        """
        first, last = self.versions_read(batch)
        files = list[StoragePath]()
        if batch == 0 <= last:  # it reads a snapshot of the table: older commits may be gone
            files = delta_tables.data_files(self.bronze, last)
        elif first <= last:
            files = delta_log.added_files(self.bronze, first, last)
        if not all(file.is_stored() for file in files):
            raise _unrecorded_error(self, batch, "rows that it read are gone")
        return delta.rows_of(spark, self.bronze, files)


def _unrecorded_error(tables: SilverTables, batch: int, reason: str) -> UsageError:
    name = f"silver.{tables.silver.name}"
    return UsageError(
        f"{name}: batch {batch} is not recorded, and {reason}. Rebuild the table and its "
        f"checkpoint with medallion refresh {name}."
    )


class BatchCounts(NamedTuple):
    """Counts of the rows of one batch.

    Attributes:
        read: rows of bronze that it read.
        duplicates: rows that it wrote to neither table.
        late: late rows inserted into silver.
        unmatched: rows without a row in the lookup table.
    """

    read: int = 0
    duplicates: int = 0
    late: int = 0
    unmatched: int = 0


class SilverWriter:
    """Writes the micro-batches of one source; a batch that runs twice is written once."""

    def __init__(
        self, flow: Flow, apply_rules: BoundRules, late: str, lookup: LookupJoin | None
    ) -> None:
        """Open the tables of a source.

        Args:
            flow: the flow of the source.
            apply_rules: the rules that the query started with.
            late: its setting for late rows.
            lookup: the lookup join, if the source has one.
        """
        self.spark, self.source = flow.spark, flow.source
        self.tables = SilverTables.of_source(flow.config, flow.source.name)
        self._apply_rules, self._lookup = apply_rules, lookup
        self.quarantines_late = late == "quarantine"
        self._replayed_until = replayed_until(self.tables.checkpoint)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write the rows of a batch, then the late rows that the query's state dropped from it."""
        # A row that breaks a rule about lookup columns goes to quarantine, and keeps no key.
        joined = self._lookup.join_batch(batch, batch_id) if self._lookup else batch
        rows = self._mark_dropped(joined, batch_id)
        if transform.BRONZE in batch.columns:  # on disk: state and sorting need the memory
            rows.persist(StorageLevel.DISK_ONLY)
        try:
            read = self.tables.rows_read(self.spark, batch_id)
            if read:
                self._write(rows, self._query, batch_id, read)
            else:  # a batch that only evicts state
                rows.write.format("noop").mode("overwrite").save()
        finally:
            rows.unpersist()
            joined.unpersist()
        if read and self.drops_late_rows and self._may_have_late_rows(batch_id, read):
            self.write_late_rows(batch_id)

    @cached_property
    def _query(self) -> str:
        """The id of the query, which has started."""
        return checkpoints.query_id(self.tables.checkpoint)

    @cached_property
    def _late_id(self) -> str:
        """The id of the commits of late rows that the query's state dropped."""
        return checkpoints.late_id(self.tables.checkpoint)

    def _write(self, rows: DataFrame, application: str, batch_id: int, rows_read: int = 0) -> None:
        """Append the rows that are no duplicates, to silver first; each commit is made once.

        Of snapshots, quarantine is first: the merge beside a stream looks there for keys that the
        log lacks. A new checkpoint has a new query id, so its batches are not mistaken for earlier
        ones.

        Args:
            rows: the rows, with `_is_duplicate`.
            application: the id of both commits.
            batch_id: the number of both commits.
            rows_read: the rows that a batch read; 0 for late rows.
        """
        tables, once_only = self.tables, checkpoints.once_only(application, batch_id)
        is_good = transform.is_good()
        conditions = {"good": is_good, "broken": ~is_good}
        marks = {LATE_ROWS: transform.LATE, UNMATCHED_ROWS: transform.UNMATCHED}
        conditions |= {name: F.col(mark) for name, mark in marks.items() if mark in rows.columns}
        counts = (F.count_if(condition).alias(name) for name, condition in conditions.items())
        metrics = [*counts, *transform.lost_metrics(rows)]
        columns = self.source.silver_columns
        new = rows.where(~F.col(transform.DUPLICATE))
        quarantine = partial(self._quarantine, new, batch_id, once_only)
        if self.source.cdc and self.source.cdc.snapshot and not new.where(~is_good).isEmpty():
            quarantine()
        if rows_read:
            read = {delta.ROWS_READ: rows_read}
            numbers = write_counted(new, columns, tables.silver, once_only, metrics, more=read)
        else:
            numbers = new.agg(*metrics).collect()[0].asDict()
            if numbers["good"]:
                good = transform.silver_rows(new, columns)
                delta.write_once(good, tables.silver, once_only, counts=lambda: numbers)
        if numbers["broken"]:
            quarantine()

    def _quarantine(self, rows: DataFrame, batch_id: int, once_only: dict[str, str]) -> None:
        """Append the rows that break a rule to quarantine, in one commit."""
        if transform.BRONZE not in rows.columns:  # they are read from bronze again
            rows = self._apply_rules(self.tables.batch_rows(rows.sparkSession, batch_id))
        broken = transform.quarantine_rows(rows)
        delta.write_once(broken, self.tables.quarantine, once_only | MERGE_SCHEMA)

    def _mark_dropped(self, batch: DataFrame, batch_id: int) -> DataFrame:
        """Mark duplicates, and late rows, unless the query's state drops them."""
        source = self.source
        if not self._must_compare(batch_id):
            return batch.withColumn(transform.DUPLICATE, F.lit(False))
        batch.persist(StorageLevel.DISK_ONLY)
        silver = self._before(batch.sparkSession, self.tables.silver, self._query, batch_id)
        watermark = checkpoints.watermark(self.tables.checkpoint, batch_id)
        if self.drops_late_rows or not watermark:
            return mark_duplicates(batch, silver, source)
        is_late = transform.is_late(source.event_time, watermark)
        # With `late: quarantine`, a row on time, which silver gets, is first.
        rows = mark_duplicates(batch, silver, source, *[is_late] * self.quarantines_late)
        is_new = transform.is_good() & transform.has_identity(source.keys)
        is_late_row = is_new & is_late & ~F.col(transform.DUPLICATE)
        if not self.quarantines_late:
            return rows.withColumn(transform.LATE, is_late_row)
        failed = F.when(is_late_row, F.array(F.lit(LATE_RULE)))
        return rows.withColumn(FAILED_RULES, failed.otherwise(F.col(FAILED_RULES)))

    def _must_compare(self, batch_id: int) -> bool:
        """Return whether silver may have keys on time that the query's state lacks."""
        if self.source.compares_with_silver or not self._replayed_until:
            return self.source.compares_with_silver
        late_until = checkpoints.watermark(self.tables.checkpoint, batch_id - 1) or 0
        return self._replayed_until > late_until

    def _before(
        self, spark: SparkSession, table: StoragePath, application: str, batch_id: int
    ) -> DataFrame:
        """Return a table without a batch's commit, and without later ones if it has that."""
        written = delta_log.committed_version(table, application, batch_id, self._query)
        before = delta_tables.table_version(table) if written is None else written - 1
        return delta.read_table(spark, table, before)

    def _may_have_late_rows(self, batch_id: int, rows_read: int) -> bool:
        """Return False if all rows of a batch, which has run, are after its watermark.

        Args:
            batch_id: the batch.
            rows_read: the number of rows that it read.
        """
        checkpoint = self.tables.checkpoint
        query = self.spark.streams.get(self._query)
        assert query, "the query of a batch is active"
        identified, others = (jvm.observed_metrics(query, part) for part in transform.PARTS)
        if identified.get("rows", 0) + others.get("rows", 0) < rows_read:
            return True  # Spark has not observed all rows
        first = identified.get("earliest")
        return first is not None and first <= (checkpoints.watermark(checkpoint, batch_id) or 0)

    @property
    def drops_late_rows(self) -> bool:
        """Whether the query's state drops late rows, so that they are read from bronze again."""
        return not (self.source.cdc or self.source.compares_with_silver)

    @property
    def lookup_rules(self) -> Sequence[str]:
        """The names of rules about lookup columns: a row that breaks one still owns its key."""
        return self._lookup.rule_names if self._lookup else ()

    def write_late_rows(self, batch_id: int) -> None:
        """Append the late rows of a batch whose keys are new, in commits of their own.

        With `late: quarantine`, late rows go to quarantine under the rule `late`.
        """
        tables, late_id = self.tables, self._late_id
        silver, keys = self._before(self.spark, tables.silver, late_id, batch_id), self.source.keys
        rows = self._apply_rules(tables.batch_rows(self.spark, batch_id))
        # State drops by the watermark of the batch before, which is not later than the batch's.
        watermark = checkpoints.watermark(tables.checkpoint, batch_id) or 0
        is_late = transform.is_late(self.source.event_time, watermark)
        late = transform.split_by_identity(rows, keys)[0].where(is_late)
        if self.lookup_rules:
            quarantine = self._before(self.spark, tables.quarantine, late_id, batch_id)
            quarantined = self._validated(quarantine, self.lookup_rules).select(*keys)
            silver = silver.select(*keys).unionByName(quarantined)
        elif not self.quarantines_late:  # all columns of bronze would be read
            late = late.drop(transform.BRONZE)
        late.persist(StorageLevel.DISK_ONLY)
        try:
            rows = mark_duplicates(late, silver, self.source)
            # Before the first watermark, state drops only rows from before 1970: they are not late.
            if self.quarantines_late and checkpoints.watermark(tables.checkpoint, batch_id - 1):
                rows = rows.withColumn(FAILED_RULES, F.array(F.lit(LATE_RULE)))
            rows = self._lookup.join_batch(rows, batch_id) if self._lookup else rows
            self._write(rows, late_id, batch_id)
        finally:
            late.unpersist()

    def _validated(self, quarantine: DataFrame, names: Sequence[str]) -> DataFrame:
        """Return the rows of quarantine that break one of these rules, with silver's columns."""
        bronze = delta.read_table(self.spark, self.tables.bronze)
        breaks = F.arrays_overlap(FAILED_RULES, F.array(*map(F.lit, names)))
        rows = quarantine.where(breaks).drop(FAILED_RULES)
        return self._apply_rules(transform.with_bronze_columns(rows, bronze))

    def batch_counts(self, batches: range) -> dict[int, BatchCounts]:
        """Return the counts of some batches.

        Spark counts rows as it computes them, and on a cluster rows that are computed twice count
        twice; a log has each commit once.

        Raises:
            UsageError: an older version of medallion wrote a batch, without counts.
        """
        read, written, late, unmatched = (Counter[int]() for _ in range(4))
        for each in self.commits(batches):
            written[each.number] += each.rows
            unmatched[each.number] += each.user_metadata.get(UNMATCHED_ROWS, 0)
            if each.application == self._late_id:
                late[each.number] += each.rows
            elif delta.ROWS_READ not in each.user_metadata:
                raise _unrecorded_error(self.tables, each.number, "an older version wrote it")
            else:
                read[each.number] = each.user_metadata[delta.ROWS_READ]
                late[each.number] += each.user_metadata.get(LATE_ROWS, 0)
        for each in self.commits(batches, self.tables.quarantine):
            written[each.number] += each.rows
        return {
            n: BatchCounts(read[n], read[n] - written[n], late[n], unmatched[n]) for n in batches
        }

    def commits(self, batches: range, table: StoragePath | None = None) -> list[Transaction]:
        """Return the commits of some batches to silver, or to another table of the query."""
        ids = self._query, self._late_id
        return delta_log.batch_commits(table or self.tables.silver, batches, *ids)


def write_counted(
    rows: DataFrame,
    columns: Sequence[str],
    table: StoragePath,
    once_only: Mapping[str, str],
    metrics: Sequence[Column],
    more: Mapping[str, int],
) -> dict[str, Any]:
    """Append the good rows that are no duplicates, with counts in their commit; return the counts.

    The rows are counted in the same job: a separate one would compute them, and a query's state, a
    second time. Rows that are written already are counted nevertheless, for the state.

    Args:
        rows: the rows, with `_is_duplicate`.
        columns: those of the table.
        table: the table.
        once_only: the options of the commit.
        metrics: aggregates over all of the rows.
        more: further counts for the commit.
    """
    observation = Observation()
    new = rows.observe(observation, *metrics).where(~F.col(transform.DUPLICATE))
    good = transform.silver_rows(new, columns)
    if delta.write_once(good, table, once_only, counts=lambda: {**observation.get, **more}):
        return observation.get
    return rows.agg(*metrics).collect()[0].asDict()


def mark_duplicates(
    rows: DataFrame, silver: DataFrame, source: SourceConfig, *first: Column
) -> DataFrame:
    """Mark good rows whose key silver or an earlier row has.

    Args:
        rows: the rows, with the columns of `transform.apply_rules`.
        silver: rows of silver, or their keys.
        first: what orders rows with equal keys before the time of ingestion.
    """
    taken = silver.where(key_range(rows.where(transform.is_good()), source.keys))
    types = {field.name: field.dataType for field in rows.schema}
    columns = (INGESTED_AT, *source.silver_origin_columns, *source.silver)
    order = [*first, *(F.col(name) for name in columns if is_comparable(types[name]))]
    return transform.mark_duplicates(rows, taken, source.keys, order)


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

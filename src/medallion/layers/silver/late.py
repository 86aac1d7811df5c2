"""Late rows: the rows that silver's watermark dropped are read again from bronze and inserted once.

Spark only counts the rows that it drops as late. But batch N drops exactly those whose event time
is not after the watermark of batch N-1 (Spark's IncrementalExecution), and the checkpoint says
which versions of bronze a batch read. The result is compared with Spark's count.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from medallion.config.model import SourceConfig
from medallion.errors import MedallionError
from medallion.layers.flow import Flow
from medallion.layers.silver import transform
from medallion.layers.silver.keys import key_range
from medallion.layers.silver.lookup import LookupJoin
from medallion.layers.silver.rules import LATE_RULE, bind_rules
from medallion.layers.silver.writer import MERGE_SCHEMA, RowCounts, SilverTables, append_rows
from medallion.spark import checkpoints
from medallion.spark.query import BatchProgress
from medallion.storage import delta_log, delta_tables
from medallion.storage.table_specs import FAILED_RULES, INGESTED_AT


class BatchRows:
    """Counts of the rows that batches of `silver.<source>` read and wrote, from the tables' logs.

    Spark counts rows as it computes them, and on a cluster rows that are computed twice count
    twice; a log has each commit once.
    """

    def __init__(self, flow: Flow, batches: range) -> None:
        self._spark = flow.spark
        self._tables = SilverTables.of_source(flow.config, flow.source.name)
        self._read: dict[int, int] = {}
        self._written = Counter[int]()
        if batches:
            query = checkpoints.query_id(self._tables.checkpoint)
            for table in (self._tables.silver, self._tables.quarantine):
                self._written.update(delta_log.rows_by_transaction(table, query, batches.start))

    def rows_read(self, batch: int) -> int:
        """Return the number of rows that a batch read from bronze."""
        rows: int | None
        if batch not in self._read:
            first, last = self._tables.versions_read(batch)
            if batch == 0 <= last:  # a snapshot: bronze may have been rewritten before
                rows = delta_tables.row_count(self._tables.bronze, last)
            else:
                rows = delta_log.rows_added(self._tables.bronze, first, last)
            if rows is None:  # the log does not reach back that far
                rows = self._tables.batch_rows(self._spark, batch).count()
            self._read[batch] = rows
        return self._read[batch]

    def rows_dropped(self, batch: int) -> int:
        """Return the number of duplicates and late rows, which a batch read but did not write."""
        return self.rows_read(batch) - self._written[batch]

    def confirmed(self, batch: BatchProgress | None, duplicates: int) -> BatchProgress | None:
        """Return Spark's metrics of a batch if they agree with the logs, else None.

        Args:
            batch: the metrics.
            duplicates: further duplicates, which the writer found.
        """
        if not batch or rows_observed(batch) != self.rows_read(batch.id):
            return None
        batch = replace(batch, duplicates=batch.duplicates + duplicates)
        return batch if batch.duplicates + batch.late == self.rows_dropped(batch.id) else None


def rows_observed(batch: BatchProgress) -> int:
    """Return the number of rows that a batch read, the sum over both branches of the query."""
    return sum(metric["rows"] for metric in batch.observed.values())


class RereadBatch:
    """The rows that one batch of `silver.<source>` read, read again from bronze."""

    def __init__(
        self,
        flow: Flow,
        source: SourceConfig,
        number: int,
        rules: dict[str, Any],
        lookup: LookupJoin | None,
    ) -> None:
        """Define the rows; no row is read yet.

        Args:
            flow: the flow of the table.
            source: the source, as the query started with it.
            number: the batch.
            rules: the document of the rules that the query started with.
            lookup: the lookup join, if the source has one.
        """
        self._spark, self._source, self._number = flow.spark, source, number
        self._apply_rules, self._lookup = bind_rules(source, rules), lookup
        # Rules applied after deduplication; a row that they quarantine still owns its key.
        self._rules_after_dedup = lookup.rule_names if lookup else ()
        if source.compares_with_silver and source.late == "quarantine":  # silver has no late row
            self._rules_after_dedup += (LATE_RULE,)
        self._tables = SilverTables.of_source(flow.config, source.name)
        rows = self._apply_rules(self._tables.batch_rows(flow.spark, number))
        # No late row will be quarantined, so bronze's columns are not needed.
        if not self._rules_after_dedup and source.late != "quarantine":
            rows = rows.drop(transform.BRONZE)
        self._rows = transform.split_by_identity(rows, source.keys)[0]
        # Spark's deduplication in batch N drops rows by the watermark of batch N-1; the writer
        # compares with that of batch N.
        late_since = number if source.compares_with_silver else number - 1
        self._watermark = checkpoints.watermark(self._tables.checkpoint, late_since) or 0

    def insert_late_rows(self, metrics: BatchProgress | None) -> RowCounts:
        """Insert the late rows, and count the duplicates; safe to repeat.

        With `late: quarantine`, late rows go to quarantine under the rule `late`.

        Args:
            metrics: Spark's metrics of the batch; None if they are lost or differ from the logs. If
                None, or if Spark dropped another number of late rows, the duplicates among the
                other rows are counted again.

        Raises:
            MedallionError: keys of bronze are in neither table: rows are lost.
        """
        late = self._rows.where(self._is_late()).persist()
        try:
            count = late.count()
            dropped = self._insert(late, count) if count else RowCounts(0, 0)
        finally:
            late.unpersist()
        if metrics is not None and metrics.late == count:
            duplicates_on_time = metrics.duplicates
        else:
            duplicates_on_time = self._count_duplicates(self._rows.where(~self._is_late()))
        return replace(dropped, duplicates=dropped.duplicates + duplicates_on_time)

    def _insert(self, late: DataFrame, count: int) -> RowCounts:
        """Insert the late rows whose keys are new; the others are duplicates."""
        keys = list(self._source.keys)
        has_keys = key_range(late, keys)
        new = late.dropDuplicates(keys).join(self._existing(has_keys), keys, "left_anti")
        # Without a watermark yet, Spark drops only rows from before 1970; they are not late.
        if self._source.late == "quarantine" and self._watermark:
            return RowCounts(0, count - self._quarantine_late(new))
        unmatched = self._insert_new(new)
        inserted = self._count_rows_in(late, self._silver_within(has_keys))
        if self._rules_after_dedup:
            count -= self._count_rows_in(late, self._quarantined())
        return RowCounts(inserted, count - inserted, unmatched)

    def count_rows(self) -> RowCounts:
        """Count the rows, for sources whose writer inserts late rows: `compares_with_silver`."""
        if self._source.late == "quarantine":  # silver has none
            return RowCounts(0, self._count_duplicates(self._rows))
        late = self._rows.where(self._is_late()) if self._watermark else self._rows.limit(0)
        silver = self._silver_within(key_range(late, self._source.keys))
        return RowCounts(self._count_rows_in(late, silver), self._count_duplicates(self._rows))

    def _count_duplicates(self, rows: DataFrame) -> int:
        """Count the duplicates among rows of the batch."""
        keys = list(self._source.keys)
        existing = self._existing(key_range(rows, keys))
        lost = rows.select(keys).distinct().join(existing, keys, "left_anti").count()
        if lost:
            name = f"silver.{self._source.name}"
            raise MedallionError(
                f"{name} lacks {lost:,} keys that batch {self._number} read from bronze: rebuild "
                f"it with medallion refresh {name}."
            )
        return rows.count() - self._count_rows_in(rows, existing)

    def _is_late(self) -> Column:
        return transform.is_late(self._source.event_time, self._watermark)

    def _silver_within(self, has_keys: Column) -> DataFrame:
        return self._spark.read.format("delta").load(str(self._tables.silver)).where(has_keys)

    def _existing(self, has_keys: Column) -> DataFrame:
        """Return the `_row_key` of silver's rows in a range of keys and of `_quarantined` rows."""
        silver = self._silver_within(has_keys).select(self._row_key)
        return silver.unionByName(self._quarantined()) if self._rules_after_dedup else silver

    def _quarantined(self) -> DataFrame:
        """Return the `_row_key` of rows that were quarantined after they passed deduplication.

        Other rows with their keys are duplicates.
        """
        quarantine, bronze = (
            self._spark.read.format("delta").load(str(table))
            for table in (self._tables.quarantine, self._tables.bronze)
        )
        names = F.array(*map(F.lit, self._rules_after_dedup))
        rows = quarantine.where(F.arrays_overlap(FAILED_RULES, names)).drop(FAILED_RULES)
        return self._apply_rules(transform.with_bronze_columns(rows, bronze)).select(self._row_key)

    @property
    def _row_key(self) -> list[str]:
        """The columns that identify a row of bronze in silver."""
        return [*self._source.keys, *self._source.silver_origin_columns, INGESTED_AT]

    def _insert_new(self, new: DataFrame) -> int:
        """Append rows to silver, or to quarantine if they break a rule about lookup columns.

        No batch writes a row with these keys meanwhile, because it would be late there, too.

        Returns:
            The number of unmatched rows.
        """
        rows = self._lookup.join_current(new) if self._lookup else new
        # Not persisted: Spark drops what is cached when a table that it was read from is written.
        rows = rows.localCheckpoint()
        # Quarantine first: after a crash in between, its rows are not new any more, even if they
        # break no rule with the next run's lookup table.
        if self._rules_after_dedup and not (broken := transform.quarantine_rows(rows)).isEmpty():
            append_rows(broken, self._tables.quarantine, MERGE_SCHEMA)
        good = transform.silver_rows(rows, self._source.silver_columns)
        if not good.isEmpty():
            append_rows(good, self._tables.silver, {})
        return rows.where(transform.UNMATCHED).count() if self._lookup else 0

    def _quarantine_late(self, new: DataFrame) -> int:
        """Append late rows to quarantine, once; return their number."""
        rows = new.withColumn(FAILED_RULES, F.array(F.lit(LATE_RULE)))
        query = f"{checkpoints.query_id(self._tables.checkpoint)}-late"
        once_only = checkpoints.once_only(query, self._number)
        count = rows.count()
        if count:
            quarantined = transform.quarantine_rows(rows)
            append_rows(quarantined, self._tables.quarantine, once_only | MERGE_SCHEMA)
        return count

    def _count_rows_in(self, rows: DataFrame, table: DataFrame) -> int:
        """Count the rows that are in a table, by `_row_key`; equal ones count once."""
        on = self._row_key
        return rows.select(on).distinct().join(table.select(on), on, "semi").count()

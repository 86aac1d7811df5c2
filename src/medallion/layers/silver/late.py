"""Late rows: what silver's watermark dropped is found again in bronze, and admitted once.

Spark only counts the rows that it drops as late. But it is known which they are: batch N drops
those whose event time is not after the watermark of batch N-1. (Source: Spark's
IncrementalExecution; what is found is held against Spark's count.) The checkpoint says which
versions of bronze a batch read, so that its rows can be read again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config, SourceConfig
from medallion.errors import MedallionError
from medallion.layers.silver import transform
from medallion.layers.silver.lookup import LookupJoin
from medallion.layers.silver.rules import LATE_RULE, BoundRules
from medallion.layers.silver.writer import MERGE_SCHEMA, append_rows, read_batch_rows
from medallion.spark import checkpoints
from medallion.spark.query import BatchProgress
from medallion.storage.table_specs import FAILED_RULES, INGESTED_AT


@dataclass(frozen=True)
class DroppedRows:
    """What became of the rows of one batch that silver's query did not write.

    Attributes:
        late: came into silver.
        duplicates: have the keys of another row.
        unmatched: of the late ones, those that the reference has no row for. Rows that a process
            admitted before it was cut off are not looked up, and counted, a second time.
    """

    late: int
    duplicates: int
    unmatched: int = 0


class RereadBatch:
    """The rows that one batch of `silver.<source>` read, found again in bronze."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        source: SourceConfig,
        number: int,
        check: BoundRules,
        enrichment: LookupJoin | None,
    ) -> None:
        """Find them.

        Args:
            check: the rules that the query began with; the suites may have been edited since.
            enrichment: the same of the source's reference, if it has one.
        """
        self._check, self._enrichment = check, enrichment
        self._rules = enrichment.rules if enrichment else ()
        self._spark, self._source, self._number = spark, source, number
        self._silver = config.layout.table(f"silver.{source.name}")
        self._quarantine = config.layout.table(f"quarantine.{source.name}")
        self._checkpoint = config.layout.checkpoint(f"silver.{source.name}")
        self._bronze = config.layout.table(f"bronze.{source.name}")
        rows = check(read_batch_rows(spark, self._bronze, self._checkpoint, number))
        if not self._rules and source.late != "quarantine":  # then none of them is set aside
            rows = rows.drop(transform.BRONZE)
        self._rows = transform.split_by_identity(rows, source.keys)[0]
        self._watermark = checkpoints.watermark(self._checkpoint, number - 1) or 0

    def settle(self, known: BatchProgress | None) -> DroppedRows:
        """Admit the late rows, and count the duplicates; safe to repeat.

        Where the configuration says `late: quarantine`, late rows are set aside under the rule
        `late`. If Spark dropped another number than is found to be late, the duplicates among the
        other rows are counted again as well.

        Args:
            known: Spark's record of the batch; None where it is lost, or the logs say otherwise.

        Raises:
            MedallionError: keys of bronze are in neither table: rows are lost.
        """
        late = self._rows.where(self._is_late()).persist()
        try:
            found = late.count()
            settled = self._settle_late(late, found) if found else DroppedRows(0, 0)
        finally:
            late.unpersist()
        is_right = known is not None and known.late == found
        duplicates = known.duplicates if known and is_right else self._duplicates_on_time()
        return replace(settled, duplicates=settled.duplicates + duplicates)

    def _settle_late(self, late: DataFrame, found: int) -> DroppedRows:
        """Take in the late rows whose keys are not taken; the others are duplicates."""
        bounds, keys = self._bounds(late), list(self._source.keys)
        new = late.dropDuplicates(keys).join(self._taken(bounds), keys, "left_anti")
        # Before there is a watermark Spark drops what is of before 1970, late for nobody.
        if self._source.late == "quarantine" and self._watermark:
            return DroppedRows(0, found - self._set_aside(new))
        unmatched = self._admit(new)
        admitted = self._came_into(self._silver_within(bounds), late)
        aside = self._came_into(self._aside(), late) if self._rules else 0
        return DroppedRows(admitted, found - admitted - aside, unmatched)

    def _duplicates_on_time(self) -> int:
        """Count again the duplicates among the rows that were not late."""
        on_time = self._rows.where(~self._is_late())
        keys = list(self._source.keys)
        taken = self._taken(self._bounds(on_time))
        lost = on_time.select(keys).distinct().join(taken, keys, "left_anti")
        if missing := lost.count():
            name = f"silver.{self._source.name}"
            raise MedallionError(
                f"{name} batch {self._number}: {missing:,} keys of bronze never came into silver: "
                f"medallion refresh {name} rebuilds it."
            )
        return on_time.count() - self._came_into(taken, on_time)

    def _is_late(self) -> Column:
        return F.col(self._source.event_time) <= F.timestamp_millis(F.lit(self._watermark))

    def _bounds(self, rows: DataFrame) -> str:
        """SQL that holds for the event times of some rows: `between` the first and the last one.

        The event time is among the keys, so a row with the same keys is within these bounds, too;
        and by them Delta skips the files of other times.
        """
        time = self._source.event_time
        first, last = rows.agg(F.min(time).cast("string"), F.max(time).cast("string")).collect()[0]
        first, last = (f"timestamp'{at}'" if at else "null" for at in (first, last))
        return f"between {first} and {last}"

    def _silver_within(self, bounds: str) -> DataFrame:
        """Silver's rows of the event times that `_bounds` gives."""
        silver = self._spark.read.format("delta").load(str(self._silver))
        return silver.where(f"`{self._source.event_time}` {bounds}")

    def _taken(self, bounds: str) -> DataFrame:
        """The rows whose keys are taken, in silver or by `_aside`, as `_row_key` columns.

        Args:
            bounds: of the event times that matter.
        """
        silver = self._silver_within(bounds).select(self._row_key)
        return silver.unionByName(self._aside()) if self._rules else silver

    def _aside(self) -> DataFrame:
        """The rows of quarantine that broke a rule about the reference's columns, under the name
        that it has or one that it had, as `_row_key` columns.

        They went through the deduplication as silver's rows did, so their keys are taken.
        """
        quarantine, bronze = (
            self._spark.read.format("delta").load(str(table))
            for table in (self._quarantine, self._bronze)
        )
        is_aside = F.arrays_overlap(FAILED_RULES, F.array(*map(F.lit, self._rules)))
        rows = quarantine.where(is_aside).drop(FAILED_RULES)
        return self._check(transform.with_bronze_columns(rows, bronze)).select(self._row_key)

    @property
    def _row_key(self) -> list[str]:
        """The columns that tell a row of bronze again in silver."""
        return [*self._source.keys, *self._source.silver_origin, INGESTED_AT]

    def _admit(self, new: DataFrame) -> int:
        """Append rows to silver, or to quarantine where the reference's columns break a rule.

        No batch of the query writes a row of these keys meanwhile, for it would be late there, too.
        And to Delta an append of rows that are at hand is no conflict with a batch that ends.

        Returns:
            How many of them the reference has none for.
        """
        rows = self._enrichment.of_now(new) if self._enrichment else new
        # Not persisted: Spark computes that anew after a write to a table that it has read.
        rows = rows.localCheckpoint()
        # Cut off in between, what is there is not new any more: so it does not matter which rule
        # the others break by the reference of the next run.
        if self._rules and not (broken := transform.quarantine_rows(rows)).isEmpty():
            append_rows(broken, self._quarantine, MERGE_SCHEMA)
        good = transform.silver_rows(rows, self._source.in_silver)
        if not good.isEmpty():
            append_rows(good, self._silver, {})
        return rows.where(transform.UNMATCHED).count() if self._enrichment else 0

    def _set_aside(self, new: DataFrame) -> int:
        """Append rows to quarantine, once; how many they are."""
        rows = new.withColumn(FAILED_RULES, F.array(F.lit(LATE_RULE)))
        once = {
            "txnAppId": f"{checkpoints.query_id(self._checkpoint)}-late",
            "txnVersion": str(self._number),
        }
        count = rows.count()
        if count:
            append_rows(transform.quarantine_rows(rows), self._quarantine, once | MERGE_SCHEMA)
        return count

    def _came_into(self, table: DataFrame, rows: DataFrame) -> int:
        """How many of these rows a table took; of several with the same keys it took one."""
        on = self._row_key
        return rows.select(on).distinct().join(table.select(on), on, "semi").count()

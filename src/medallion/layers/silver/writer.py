"""The sink of silver: a batch's good rows to the table, its broken ones to quarantine, once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config, SourceConfig
from medallion.errors import MedallionError, UsageError
from medallion.layers.blame import NULL_THERE, Part, blamed
from medallion.layers.silver import transform
from medallion.layers.silver.backpressure import Backpressure
from medallion.layers.silver.batch_rows import rows_of_batch, versions
from medallion.layers.silver.enrichment import Enrichment
from medallion.layers.silver.rules import Check
from medallion.spark import checkpoints
from medallion.spark.errors import SPARK_ERRORS
from medallion.storage import delta_log


class Writer:
    """Writes `checked` rows; a batch that runs twice is written once.

    `unmatched` are the rows of each batch that a reference has none for, if there is a reference.
    """

    def __init__(
        self,
        config: Config,
        source: SourceConfig,
        check: Check,
        stopping: Event,
        enrichment: Enrichment | None = None,
        backpressure: Backpressure | None = None,
    ) -> None:
        """Make one.

        Args:
            config: of the lakehouse.
            source: whose rows they are.
            check: the rules that the query began with.
            stopping: is set when the query is to be stopped: what it does then fails of that.
            enrichment: what they get from a reference, if there is one.
            backpressure: of a query that stays on.
        """
        layout, name = config.layout, source.name
        self._bronze, self._silver, self._quarantine = (
            layout.table(f"{layer}.{name}") for layer in ("bronze", "silver", "quarantine")
        )
        self._checkpoint = layout.checkpoint(f"silver.{name}")
        self._source, self._check, self._stopping = source, check, stopping
        self._enrichment, self._backpressure = enrichment, backpressure
        self.unmatched: dict[int, int] = {}

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one batch; nothing of one that only drops state: a commit is news to gold.

        Raises:
            MedallionError: the SQL of a column, or of a rule, fails at a row.
        """
        if self._backpressure:
            self._backpressure.wait(batch_id)
        try:
            self._write_once(batch, batch_id)
        except SPARK_ERRORS:
            if not self._stopping.is_set():
                self._blame_an_expression(batch.sparkSession, batch_id)
            raise

    def _blame_an_expression(self, spark: SparkSession, batch_id: int) -> None:
        """Raise MedallionError for the column, or the rule, that fails at a row, if one does."""
        try:
            rows = rows_of_batch(spark, self._bronze, self._checkpoint, batch_id)
        except (UsageError, *SPARK_ERRORS):
            return
        whole = self._check(rows)
        if self._enrichment:
            whole = self._enrichment.of_now(whole)
        whole = whole.drop(transform.BRONZE)
        if told := blamed([rows], whole, self._parts(rows), "all rows wait in bronze"):
            raise MedallionError(told)

    def _parts(self, bronze: DataFrame) -> Iterator[Part]:
        """Each column and each rule by itself."""
        name, rules = self._source.name, self._check.keywords
        silver = self._check(bronze, bronze_rules=(), silver_rules=())
        for column in self._source.silver:
            mend = f"have sources.{name}.silver.{column} {NULL_THERE}"
            yield Part(f"its column {column}", mend, silver.select(column))
        judged = [
            ("bronze", bronze, rules["bronze_rules"]),
            ("silver", silver, rules["silver_rules"]),
        ]
        if self._enrichment:
            judged.append(("silver", self._enrichment.of_now(silver), self._enrichment.judges))
        for layer, rows, some in judged:
            for rule in some:
                mend = f"put its expectation right, in the suite of {layer}.{name}"
                yield Part(f"the rule {rule.name}", mend, rows.select(F.expr(rule.broken)))

    def _write_once(self, batch: DataFrame, batch_id: int) -> None:
        # The query's id changes with a new checkpoint: its batches are not taken for old ones.
        query = checkpoints.query_id(self._checkpoint)
        once = {"txnAppId": query, "txnVersion": str(batch_id)}
        if self._enrichment:
            batch = self._enrichment.of_batch(batch, batch_id)
        has_bronze = transform.BRONZE in batch.columns  # or its broken rows are read again
        if has_bronze:  # not in memory, which the state and the sorting need
            batch.persist(StorageLevel.DISK_ONLY)
        try:
            is_there = delta_log.committed_version(self._silver, query, batch_id) is not None
            if is_there or not self._was_given_rows(batch_id):
                found = batch.agg(*self._counts()).collect()[0].asDict()  # for the state
            else:
                found = self._write(batch, once)
            if self._enrichment:
                self.unmatched[batch_id] = found["unmatched"]
            if found["broken"]:
                rows = batch if has_bronze else self._read_again(batch, batch_id)
                append(transform.broken(rows), self._quarantine, once | WIDER)
        finally:
            batch.unpersist()

    def _was_given_rows(self, batch_id: int) -> bool:
        """Whether bronze's log says so; also where it does not say."""
        return delta_log.rows_added(self._bronze, *versions(self._checkpoint, batch_id)) != 0

    def _write(self, batch: DataFrame, once: Mapping[str, str]) -> dict[str, Any]:
        """Append the good rows, and count all rows as they pass: to ask for the batch twice would
        run it through the state twice."""
        seen = Observation()
        rows = batch.observe(seen, *self._counts())
        append(transform.good(rows, self._source.in_silver), self._silver, once)
        return seen.get

    def _read_again(self, batch: DataFrame, batch_id: int) -> DataFrame:
        """The rows that a batch was given, with bronze's columns where they are broken."""
        rows = rows_of_batch(batch.sparkSession, self._bronze, self._checkpoint, batch_id)
        return self._check(rows)

    def _counts(self) -> list[Column]:
        counts = [F.count_if(~transform.is_good()).alias("broken")]
        if self._enrichment:
            counts.append(F.count_if(transform.UNMATCHED).alias("unmatched"))
        return counts


WIDER = {"mergeSchema": "true"}  # bronze may have new columns, and so has quarantine then


def append(rows: DataFrame, table: Path, options: Mapping[str, str]) -> None:
    """Append rows to a Delta table in one commit."""
    rows.write.format("delta").mode("append").options(**options).save(str(table))

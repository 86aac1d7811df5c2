"""Silver: one query a source, from `bronze.<source>` to `silver.<source>` and quarantine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from medallion.config.model import Config
from medallion.config.queries import Query
from medallion.errors import ConfigError
from medallion.layers import recovery
from medallion.layers.definition import (
    refuse_changed_row_count,
    refuse_nondeterministic,
    refuse_unstreamable,
)
from medallion.layers.flow import Flow, ValidationInput
from medallion.layers.silver import keys, late, rules, transform
from medallion.layers.silver.lookup import LookupJoin
from medallion.layers.silver.rules import BoundRules, definition_of, refuse_changed_definition
from medallion.layers.silver.writer import Backpressure, BatchRows, SilverWriter, rows_observed
from medallion.spark import checkpoints, query
from medallion.spark.plans import contains_type
from medallion.spark.query import BatchProgress, Run, Sink
from medallion.storage import delta_tables
from medallion.storage.table_specs import TIME_DIGITS
from medallion.storage.text import Reporter, counted


class Silver(Flow):
    """The query of one source; its observed metrics are `identified.rows` and `others.rows`."""

    def __init__(self, spark: SparkSession, config: Config, query: Query, say: Reporter) -> None:
        super().__init__(spark, config, query, say)
        # The rules that the query has started with, and the source with where they send late rows.
        self._check: BoundRules | None = None
        self._begun = self.source
        self._is_ending = False  # it only ends what was cut off, by rules that hold no more
        self._enrichment: LookupJoin | None = None
        self._backpressure: Backpressure | None = None  # of a query that stays on
        self._unmatched: dict[int, int] = {}  # rows that the reference has none for, by batch

    def start(self, trigger: Mapping[str, Any] | None, recorded: int) -> Run | None:
        """Start the query.

        Raises:
            ConfigError: the table has other keys or columns, its suite does not guard the
                watermark, or a rule cannot be judged row by row.
            UsageError: its checkpoint is gone or torn.
        """
        source, checkpoint = self.source, self.checkpoint
        recovery.refuse_lost_checkpoint(self.name, checkpoint, self.target_paths, recorded)
        recovery.refuse_unrecorded(self.name, checkpoint, recorded, *self.upstream_paths)
        bronze = self._bronze()
        self.source, digits_rule = keys.with_time_digits(self.config, source, bronze)
        source = self.source
        if digits_rule:
            self.say(
                f"  {self.name}: rows whose times differ only beyond the microsecond go to "
                f"quarantine ({keys.TIME_DIGITS_RULE}); medallion refresh {self.name} ingests them"
            )
        begun, check = self._take_up_rules(recorded, bronze, digits_rule)
        self._refuse_columns(bronze)
        rows = check(bronze)
        whole = self._enrichment.blank(rows) if self._enrichment else rows
        rules.refuse_invalid_rules(self.config, source, begun, bronze, rows, whole)
        kept = transform.silver_rows(whole, source.in_silver)
        self._refuse_inexact(kept)
        if TIME_DIGITS in source.silver and checkpoints.last_planned(checkpoint) < 0:
            delta_tables.drop_empty_table(self.target_paths[0], kept.schema.json())
        self._make_tables(kept, transform.quarantine_rows(rows))
        self._refuse_changed(kept)
        self.log_pinned_settings()
        self._note_rules(begun)
        if not (self._enrichment and self._enrichment.rules):  # by which any row may yet be broken
            rows = rows.drop(transform.BRONZE)
        unique = transform.deduplicate(rows, source.keys, source.event_time, source.watermark.text)
        if trigger is None:
            refuse_unstreamable(unique, "append")
            return None
        stopping = Event()
        # A night is settled afterwards: it reads all there is in one batch.
        self._backpressure = None if "availableNow" in trigger else Backpressure(recorded, stopping)
        if self._is_ending:  # by rules that are not to be gone on by
            trigger = query.trigger_options(query.AVAILABLE_NOW)
        write = SilverWriter(
            self.config, source, check, stopping, self._enrichment, self._backpressure
        )
        self._unmatched = write.unmatched
        writer = unique.writeStream.outputMode("append")
        self.run = query.start_query(writer, self.name, checkpoint, trigger, Sink(write, stopping))
        return self.run

    def _take_up_rules(
        self, recorded: int, bronze: DataFrame, more: Mapping[str, str]
    ) -> tuple[dict[str, Any], BoundRules]:
        """The rules to go by, as a document and as a check; a batch that was cut off ends by those
        that it began with.

        Args:
            recorded: the last batch that is recorded.
            bronze: the columns that it reads.
            more: rules of bronze's columns beside those of its suite.
        """
        source = self.source
        of_suites = rules.load_rule_document(self.config, source)
        of_suites["bronze"] |= more
        now = rules.with_rescue_rules(self.spark, self.config, source, of_suites, bronze.schema)
        begun = rules.effective_rules(self.config, source, now, recorded, self.say)
        self._is_ending = begun != now
        self._begun = replace(source, late=begun["late"])
        self._check = rules.bind_rules(source, begun)
        if source.enrich:
            alone, with_it = rules.split_lookup_rules(begun["silver"], source.enrich.columns)
            others = (*begun["bronze"], *(rule.name for rule in alone))
            self._enrichment = LookupJoin(self.spark, self.config, source, with_it, others)
        return begun, self._check

    def _bronze(self) -> DataFrame:
        return (
            self.spark.readStream.format("delta")
            # A batch takes whole versions: so its rows can be read again by their versions when the
            # watermark has dropped some. The first batch reads the table as it is by then.
            .option("maxFilesPerTrigger", 2**31 - 1)
            .load(str(*self.upstream_paths))
        )

    def _refuse_columns(self, bronze: DataFrame) -> None:
        """Refuse columns by which a row of bronze would not give just one row of silver, and the
        same one whenever it is read."""
        made = bronze.select(*map(F.expr, self.source.silver.values()))
        where = f"{self.config.conf_dir / 'pipeline.yaml'}: sources.{self.source.name}.silver"
        refuse_nondeterministic(where, made, self.source.silver)
        refuse_changed_row_count(where, made)

    def _make_tables(self, good: DataFrame, broken: DataFrame) -> None:
        for name, table, rows in zip(self.targets, self.target_paths, (good, broken), strict=True):
            delta_tables.create_table(table, rows.schema.json(), self.config.properties(name))

    def _note_rules(self, begun: dict[str, Any]) -> None:
        """Keep the rules: a batch that is cut off ends by them, whatever the suites say by then."""
        checkpoints.note(self.checkpoint, "rules", begun)
        if self._enrichment:
            self._enrichment.keep_rules()

    def _refuse_changed(self, good: DataFrame) -> None:
        """Refuse other keys and columns than the table was made with.

        Spark's state knows keys by their order, and Delta columns by their types; and of a column
        with two expressions in one table, nobody could tell which row was made by which.
        """
        now = definition_of(self.source)
        has_written = recovery.has_started_writing(self.checkpoint, self.target_paths)
        then = checkpoints.first_definition(self.checkpoint, now, has_written)
        there = self.spark.read.format("delta").load(str(self.target_paths[0]))
        columns = dict(there.dtypes), dict(good.dtypes)
        refuse_changed_definition(self.config, self.source, then, columns)

    def _refuse_inexact(self, good: DataFrame) -> None:
        """Refuse fractions as keys: 0.0 and -0.0 are the same to SQL, and two keys to Spark's
        state, which compares bytes."""
        types = {field.name: field.dataType for field in good.schema}
        if inexact := [
            k for k in self.source.keys if contains_type(types[k], FloatType, DoubleType)
        ]:
            raise ConfigError(
                f"{self.config.conf_dir / 'pipeline.yaml'}: sources.{self.source.name}.keys has "
                f"{', '.join(inexact)}, a floating-point number, which is no identity (0.0 and "
                "-0.0 are one and the same): cast it to a decimal or a string."
            )

    def finish_batches(self, since: int) -> dict[str, Any]:
        """Admit the late rows of the batches after `since`, and give the batches' figures.

        Raises:
            MedallionError: rows of bronze are lost.
        """
        batches = self.started_run.unrecorded_batches(since)
        logged = BatchRows(self.spark, self.config, self.source, batches)
        rows = duplicates = admitted = unmatched = 0
        for number in batches:
            settled = self._settle(logged, number)
            rows += logged.rows_read(number)
            admitted += settled.late
            duplicates += settled.duplicates
            unmatched += settled.unmatched
            if settled.unmatched:
                self.say(
                    f"  {self.name} batch {number}: late {self._without_partner(settled.unmatched)}"
                )
        return {
            "rows_in": rows,
            "duplicate_rows": duplicates,
            "late_rows": admitted,
            "unmatched_rows": self._unmatched_in(batches, unmatched),
            "first_batch": since + 1,
            "last_batch": batches.stop - 1,
        }

    def release(self, batch: int) -> None:
        """The batches up to this one are on record: the query may go on."""
        if self._backpressure:
            self._backpressure.settled(batch)

    def _unmatched_in(self, batches: range, late: int) -> int | None:
        """The rows without a partner in the reference; None where they were counted by a process
        that was cut off."""
        for number in list(self._unmatched):  # a batch may be adding to it
            if number < batches.start:
                del self._unmatched[number]  # it is on record
        if not self._enrichment or not all(number in self._unmatched for number in batches):
            return None
        return late + sum(self._unmatched[number] for number in batches)

    def _without_partner(self, unmatched: int) -> str:
        assert self._enrichment, f"{self.name} has no reference"
        return f"{counted(unmatched, 'row')} without a partner in {self._enrichment.name}"

    def _settle(self, logged: BatchRows, number: int) -> late.DroppedRows:
        """The late rows and the duplicates of one batch, which is read again only if it has any
        late ones, or Spark's figures of it are lost or not those of the logs."""
        assert self._check is not None, f"{self.name} was not started"
        if not logged.rows_dropped(number):
            return late.DroppedRows(0, 0)
        known = logged.confirmed(self.started_run.batches.get(number))
        if known and not known.late:
            return late.DroppedRows(0, known.duplicates)
        batch = late.RereadBatch(
            self.spark, self.config, self._begun, number, self._check, self._enrichment
        )
        return batch.settle(known)

    def validation_input(self, files: Sequence[Path] | None) -> ValidationInput:
        """The new rows, and with them the older ones that have the key of a new one, if there are
        any: so a gate that asks for unique keys holds for the whole table.

        A suite names the configured keys; rows that differ in `_time_digits` are unique, too.
        """
        new = super().validation_input(files).rows
        key = keys.with_recorded_time_digits(self.config, self.source).keys
        if keys.has_unique_keys(self.target_paths[0], files, key, self.source.event_time):
            return ValidationInput(new, [column for column in key if column != TIME_DIGITS])
        return ValidationInput(
            new if files is None else keys.with_rows_of_same_key(new, self.rows(), key)
        )

    def describe_batch(self, batch: BatchProgress) -> str | None:
        """How many rows it read. Spark says twice as many, for the query has two branches, so it
        counts them itself."""
        rows = rows_observed(batch) or batch.rows
        told = counted(rows, "row") if rows else None
        if told and (unmatched := self._unmatched.get(batch.id)):
            told += f", {self._without_partner(unmatched)}"
        return told

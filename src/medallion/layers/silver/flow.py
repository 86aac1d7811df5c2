"""Silver: one query per source, from `bronze.<source>` to `silver.<source>` and quarantine."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config
from medallion.config.queries import Query
from medallion.errors import MedallionError
from medallion.ingest.schema.registry import newest_version
from medallion.layers import definition, recovery
from medallion.layers.flow import Flow, ValidationInput
from medallion.layers.silver import conversions, keys, rules, transform
from medallion.layers.silver.envelope import unwrapped
from medallion.layers.silver.lookup import LookupJoin
from medallion.layers.silver.writer import SilverTables, SilverWriter
from medallion.spark import checkpoints, delta
from medallion.spark.query import BatchProgress, RunningQuery, Sink
from medallion.storage.paths import StoragePath
from medallion.storage.text import Reporter, counted


class Silver(Flow):
    """The query of one source; its observed metrics are `identified.rows` and `others.rows`."""

    def __init__(self, spark: SparkSession, config: Config, query: Query, say: Reporter) -> None:
        super().__init__(spark, config, query, say)
        # As the query started: suites and configuration may have changed since.
        self._rules: dict[str, Any] = {}
        self._lookup: LookupJoin | None = None
        self._last_batch: int | None = None  # with the rules of an interrupted run
        self._writer: SilverWriter | None = None

    def start(self, trigger: Mapping[str, Any] | None, recorded: int) -> RunningQuery | None:
        """Start the query.

        Raises:
            ConfigError: the table has other keys or columns, its event time is no time, or a rule
                cannot decide each row by itself.
            UsageError: its checkpoint is missing or corrupt.
        """
        recovery.refuse_lost_checkpoint(self.name, self.checkpoint, self.target_paths, recorded)
        # A batch reads complete versions, so that its rows can be read again by version. The first
        # batch reads the complete table.
        path, options = self.upstream_paths[0], delta.AT_ONCE
        bronze = self.stream(path, **options)
        self.source = unwrapped(self.source, bronze)
        document = self._prepare_rules(bronze, recorded)
        source = self.source
        apply_rules = self._bind_rules(document, bronze)
        self._refuse_invalid_columns(bronze)
        rules.refuse_unusable_event_time(self.config, source, bronze)
        checked = apply_rules(bronze)
        joined = self._lookup.join_empty(checked) if self._lookup else checked
        where = f"{self.config.expectations}: a rule of {self.upstream[0]} or {self.name}"
        definition.refuse_nondeterministic(where, joined, document["bronze"] | document["silver"])
        definition.refuse_changed_row_count(where, checked)
        good = transform.silver_rows(joined, source.silver_columns)
        keys.refuse_inexact_keys(self.config, f"sources.{source.name}", source.keys, good)
        self.create_tables(good, transform.quarantine_rows(checked))
        # The envelope of change records may grow: their expressions are compared as configured.
        configured = self.config.sources[source.name] if source.is_debezium else source
        self.refuse_changed_definition(rules.silver_definition(configured), good)
        # An interrupted batch is completed with the rules that it started with.
        checkpoints.write_document(self.checkpoint, "rules", document)
        if self._lookup:
            self._lookup.record_rules()
        may_quarantine = bool(self._lookup and self._lookup.rule_names) or (
            document["late"] == "quarantine" and source.compares_with_silver
        )
        if not may_quarantine:  # else the writer may quarantine any row
            checked = checked.drop(transform.BRONZE)
        rows, delay = checked, source.watermark.text
        if not source.cdc:  # each change record is kept
            rows = transform.deduplicate(checked, source.keys, source.event_time, delay)
        self._rules = document
        if trigger is None:
            definition.refuse_unstreamable(rows, "append")
            return None
        self._writer = SilverWriter(self, apply_rules, document["late"], self._lookup)
        sink = Sink(self._writer, last=self._last_batch)
        return self.start_query(rows.writeStream.outputMode("append"), trigger, sink)

    def _bind_rules(self, document: Mapping[str, Any], bronze: DataFrame) -> rules.BoundRules:
        """Return the rules of the query, which count lost values, too, if they are reported."""
        lost, source = {}, self.source
        if source.on_conversion == "warn":
            lost = conversions.lost_values(self.spark, source, source.silver, source.event_time)
        sql = conversions.lost_struct(source, lost, bronze.columns)
        return partial(rules.bind_rules(source, document), lost=sql)

    def sql_parts(self, upstream: Sequence[DataFrame]) -> Iterator[definition.DefinitionPart]:
        """Return its columns and rules, each by itself."""
        document = self._rules or rules.load_rule_document(self.config, self.source)
        (bronze,), join = upstream, None
        if self._lookup:
            join = self._lookup.join_current if self.run else self._lookup.join_empty
        return rules.sql_parts(self.config, self.source, bronze, document, join)

    def interrupted_rows(self) -> Sequence[DataFrame]:
        """Return the rows that the interrupted batch read."""
        tables = SilverTables.of_source(self.config, self.source.name)
        return [tables.batch_rows(self.spark, checkpoints.last_planned(self.checkpoint))]

    def validate(self, rows: DataFrame) -> DataFrame:
        """Return rows of bronze with the result of the rules, after a `start` without a trigger."""
        checked = rules.bind_rules(self.source, self._rules)(rows)
        return self._lookup.join_current(checked) if self._lookup else checked

    def _prepare_rules(self, bronze: DataFrame, recorded: int) -> dict[str, Any]:
        """Return the document of the rules that the query starts with."""
        source = self.source
        document = rules.load_rule_document(self.config, source)
        names = newest_version(self.config.layout.schemas(source.name)).names
        now = rules.with_rescue_rules(self.spark, source, document, bronze.schema, names)
        started, self._last_batch = rules.effective_rules(self, now, recorded)
        if source.lookup:
            own, about_lookup = rules.split_lookup_rules(started["silver"], source.lookup.columns)
            others = (*started["bronze"], *(rule.name for rule in own))
            self._lookup = LookupJoin(self, about_lookup, others)
        return started

    def _refuse_invalid_columns(self, bronze: DataFrame) -> None:
        """Raise ConfigError unless each row of bronze always returns the same row of silver."""
        rows = bronze.select(*map(F.expr, self.source.silver.values()))
        where = f"{self.config.pipeline_file}: sources.{self.source.name}.silver"
        definition.refuse_nondeterministic(where, rows, self.source.silver)
        definition.refuse_changed_row_count(where, rows)

    def batch_metrics(self, batches: range) -> dict[str, Any]:
        """Return the batches' metrics, from the logs of the tables.

        Raises:
            MedallionError: changes of bronze are lost.
        """
        writer, lookup = self._started_writer, self._lookup
        rows = writer.batch_counts(batches)
        dropped = {number: rows[number].duplicates for number in batches}
        for number in filter(dropped.get, batches if self.source.cdc else ()):
            raise MedallionError(
                f"{self.name} lacks {counted(dropped[number], 'change')} that batch {number} read: "
                f"rebuild it with medallion refresh {self.name}."
            )
        counts = (commit.user_metadata for commit in writer.commits(batches))
        lost = conversions.lost_summary(counts, self.source.name, self.say)
        return {
            **lost.record(),
            "rows_in": sum(rows[number].read for number in batches),
            "duplicate_rows": sum(dropped.values()),
            "late_rows": sum(rows[number].late for number in batches),
            "unmatched_rows": sum(each.unmatched for each in rows.values()) if lookup else None,
        }

    @property
    def _started_writer(self) -> SilverWriter:
        assert self._writer, f"{self.name} was not started"
        return self._writer

    def validation_input(self, files: Sequence[StoragePath] | None) -> ValidationInput:
        """Return the new rows, with the older rows that have the key of a new row, if any.

        So an expectation of unique keys covers the complete table.
        """
        new = super().validation_input(files).rows
        if self.source.cdc:
            return ValidationInput(new)
        if keys.has_unique_keys(self.target_paths[0], self.source.keys):
            return ValidationInput(new, self.source.keys)
        if files is None:
            return ValidationInput(new)
        return ValidationInput(keys.with_rows_of_same_key(new, self.rows(), self.source.keys))

    def describe_batch(self, batch: BatchProgress) -> str | None:
        """Return how many rows it read; Spark counts them once in each of the query's branches."""
        rows = sum(metric["rows"] for metric in batch.observed.values()) or batch.rows
        if not rows:
            return None
        message = counted(rows, "row")
        if self._lookup:
            counts = self._started_writer.batch_counts(range(batch.id, batch.id + 1))[batch.id]
            if counts.unmatched:
                message += f", {counted(counts.unmatched, 'row')} unmatched in {self._lookup.name}"
        return message

"""Child tables: one query per entry of `silver`, from another silver table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from delta.tables import DeltaTable
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from medallion.config.model import Config
from medallion.config.queries import Query
from medallion.config.tables import ChildTable
from medallion.layers import definition, recovery
from medallion.layers.flow import Flow, ValidationInput
from medallion.layers.silver import conversions, keys, rules, transform
from medallion.layers.silver.writer import MERGE_SCHEMA, write_counted
from medallion.quality.rules import Rule, load_rules
from medallion.spark import checkpoints, delta
from medallion.spark.query import RunningQuery, Sink
from medallion.storage import delta_tables
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import FAILED_RULES, INGESTED_AT
from medallion.storage.text import Reporter

DUPLICATE_RULE = "duplicate_key"
ELEMENTS, DUPLICATES = "elements", "duplicates"
"""Counts of a batch, in the `userMetadata` of its commit."""


class Child(Flow):
    """The query of a child table: an element of its parent is a row, quarantined or a duplicate."""

    def __init__(self, spark: SparkSession, config: Config, query: Query, say: Reporter) -> None:
        super().__init__(spark, config, query, say)
        self.table = config.silver[query.table]
        self._rules: dict[str, dict[str, str]] = {}
        self._lost = ""  # SQL of values that conversions lost
        self._counts = dict[int, dict[str, Any]]()  # by batch, if rows are replaced

    def start(self, trigger: Mapping[str, Any] | None, recorded: int) -> RunningQuery | None:
        """Start the query.

        Raises:
            ConfigError: the definition has changed, is invalid, or does not decide each row by
                itself.
            UsageError: its checkpoint is missing or corrupt.
        """
        recovery.refuse_lost_checkpoint(self.name, self.checkpoint, self.target_paths, recorded)
        parent = self.stream(self.upstream_paths[0])
        source = self.source
        now = {"silver": rule_conditions(self.config, self.table)}
        lost = conversions.lost_values(self.spark, source, self.table.columns)
        if source.on_conversion == "quarantine":
            now["parent"] = conversions.conversion_rules(lost)
        elif source.on_conversion == "warn":
            self._lost = conversions.lost_struct(source, lost, parent.columns)
        document, last = rules.effective_rules(self, now, recorded)
        self._rules = document
        rows = self._child_rows(parent)
        entry = f"silver.{self.table.name}"
        where, own = f"{self.config.pipeline_file}: {entry}", child_definition(self.table)
        definition.refuse_nondeterministic(where, rows, {**own, "rules": self._rules})
        empty = self.spark.createDataFrame([], elements(parent, self.table).schema)
        definition.refuse_changed_row_count(where, self._of_elements(empty))
        good = transform.silver_rows(rows, self._columns)
        keys.refuse_inexact_keys(self.config, entry, self.table.keys, good)
        self.create_tables(good, transform.quarantine_rows(rows))
        self.refuse_changed_definition(own, good)
        checkpoints.write_document(self.checkpoint, "rules", document)
        if trigger is None:
            definition.refuse_unstreamable(parent, "append")
            return None
        if self.table.change_keys:  # the first batch reads the complete table
            options = {**delta.AT_ONCE, "readChangeFeed": "true"}
            parent = self.stream(self.upstream_paths[0], **options)
        writer = parent.writeStream.outputMode("append")
        write = self._replace_batch if self.table.change_keys else self._append_batch
        return self.start_query(writer, trigger, Sink(write, last=last))

    @property
    def _columns(self) -> tuple[str, ...]:
        return (*self.table.columns, *self.source.silver_origin_columns)

    def _child_rows(self, parent: DataFrame) -> DataFrame:
        return self._of_elements(elements(parent, self.table))

    def _of_elements(self, rows: DataFrame) -> DataFrame:
        origin = self.source.silver_origin_columns
        return child_rows(rows, self.table, self._rules, origin, self._lost)

    def _marked(self, rows: DataFrame, table: DataFrame) -> DataFrame:
        """Mark duplicates: of rows with equal keys, the one that was ingested first is kept."""
        order = (INGESTED_AT, F.to_json(F.struct(*self.table.columns)))
        return transform.mark_duplicates(rows, table, self.table.keys, order)

    def _append_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Append the rows, then quarantine; each commit has the query id and the batch number."""
        once_only = checkpoints.once_only(checkpoints.query_id(self.checkpoint), batch_id)
        silver, quarantine = self.target_paths
        before = delta.rows_at(batch.sparkSession, silver)
        rows = self._marked(self._child_rows(batch), before).persist(StorageLevel.DISK_ONLY)
        try:
            metrics = (
                F.count(F.lit(1)).alias(ELEMENTS),
                F.count_if(transform.DUPLICATE).alias(DUPLICATES),
                F.count_if(~transform.is_good()).alias("broken"),
                *transform.lost_metrics(rows),
            )
            counts = write_counted(rows, self._columns, silver, once_only, metrics, {})
            if counts["broken"]:
                broken = transform.quarantine_rows(rows)
                delta.write_once(broken, quarantine, once_only | MERGE_SCHEMA)
        finally:
            rows.unpersist()

    def _replace_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Replace the rows of changed parents by those that the parents give now.

        The batch may run twice: parents that have changed again since give the same rows again in
        their own batch.
        """
        parent_keys, own_keys = zip(*self.table.change_keys.items(), strict=True)
        changed = batch.select(*parent_keys).distinct().persist()
        if changed.isEmpty():
            changed.unpersist()
            return
        parent = delta.read_table(batch.sparkSession, self.upstream_paths[0])
        parent = parent.join(changed, list(parent_keys), "left_semi")
        marked = self._marked(self._child_rows(parent), self.rows().limit(0))
        rows = quarantine_duplicates(marked).persist(StorageLevel.DISK_ONLY)
        silver, quarantine = self.target_paths
        try:
            if metrics := transform.lost_metrics(rows):
                self._counts[batch_id] = rows.agg(*metrics).collect()[0].asDict()
            good = transform.silver_rows(rows, self._columns)
            replace_rows(silver, good, changed.toDF(*own_keys))
            broken = transform.quarantine_rows(rows)
            if delta_tables.row_count(quarantine) or not broken.isEmpty():
                replace_rows(quarantine, broken, changed)
        finally:
            rows.unpersist()
            changed.unpersist()

    def batch_metrics(self, batches: range) -> dict[str, Any]:
        """Return the batches' metrics, from the commits of the table.

        If rows are replaced, those that an interrupted process counted are lost.
        """
        if self.table.change_keys:
            metrics = super().batch_metrics(batches)
            counts = [self._counts.pop(number, {}) for number in batches]
        else:
            counts = [each.user_metadata for each in self.commits(batches)]
            metrics = {
                "rows_in": sum(each.get(ELEMENTS, 0) for each in counts),
                "duplicate_rows": sum(each.get(DUPLICATES, 0) for each in counts),
            }
        return metrics | conversions.lost_summary(counts, self.table.name, self.say).record()

    def sql_parts(self, upstream: Sequence[DataFrame]) -> Iterator[definition.DefinitionPart]:
        """Yield its SQL, each part by itself."""
        table, (parent,) = self.table, upstream
        entry, file = f"silver.{table.name}", self.config.pipeline_file

        def part(key: str, sql: str, rows: DataFrame) -> definition.DefinitionPart:
            title = f"{entry}.{key}"
            return definition.DefinitionPart(title, file, partial(rows.selectExpr, sql), title)

        if table.explode:
            yield part("explode", f"posexplode({table.explode})", parent)
        rows = elements(parent, replace(table, where=None))
        if table.where:
            yield part("where", table.where, rows)
        for column, sql in table.columns.items():
            yield part(f"columns.{column}", sql, rows)
        typed = rows.select(*(F.expr(sql).alias(name) for name, sql in table.columns.items()))
        conditions = self._rules.get("silver") or rule_conditions(self.config, table)
        yield from rules.rule_parts(self.config, entry, typed, conditions)

    def validation_input(self, files: Sequence[StoragePath] | None) -> ValidationInput:
        """Return the new rows, whose keys are unique in the complete table; or all rows.

        If rows are replaced, new files have older rows, too.
        """
        files = None if self.table.change_keys else files
        return ValidationInput(super().validation_input(files).rows, self.table.keys)


def elements(parent: DataFrame, table: ChildTable) -> DataFrame:
    """Return the parent's rows, once per element, that meet the table's condition.

    Raises:
        AnalysisException: `explode` gives neither an array nor a map.
    """
    rows = parent
    if table.explode:
        type_ = parent.select(F.expr(table.explode)).schema[0].dataType
        names = ["pos", "item"] if isinstance(type_, ArrayType) else ["pos", "key", "item"]
        function = F.posexplode_outer if table.outer else F.posexplode
        rows = parent.select("*", function(F.expr(table.explode)).alias(*names))
    return rows.where(F.expr(table.where)) if table.where else rows


def child_rows(
    rows: DataFrame,
    table: ChildTable,
    conditions: Mapping[str, Mapping[str, str]],
    origin: Sequence[str],
    lost: str = "",
) -> DataFrame:
    """Return a child table's columns, and the rules that each row breaks.

    Args:
        rows: the rows of `elements`.
        table: the child table.
        conditions: its rules by name: `silver` has Spark SQL over its columns, `parent` over
            those of `rows`.
        origin: columns that say where a row came from.
        lost: SQL of the values that its conversions lose.

    Returns:
        The columns of `transform.apply_rules`. The row for quarantine lacks an exploded column,
        which would repeat all elements of the parent in each.
    """
    parent, own = (
        [Rule(name, broken) for name, broken in conditions.get(key, {}).items()]
        for key in ("parent", "silver")
    )
    left_out = table.explode or ""
    return transform.apply_rules(
        rows, table.columns, "", parent, own, origin, left_out=left_out, lost=lost
    )


def quarantine_duplicates(rows: DataFrame) -> DataFrame:
    """Return rows with `_is_duplicate`; those whose key is taken break DUPLICATE_RULE."""
    rule = F.when(F.col(transform.DUPLICATE), F.array(F.lit(DUPLICATE_RULE)))
    return rows.withColumn(FAILED_RULES, F.coalesce(rule, FAILED_RULES))


def replace_rows(table: StoragePath, rows: DataFrame, changed: DataFrame) -> None:
    """Replace the rows of a Delta table that have some keys, in one commit.

    Args:
        table: its path.
        rows: the new rows.
        changed: the keys, each once, named as the columns of the table.
    """
    is_old, key_columns = "_is_old", changed.columns
    old = changed.withColumn(is_old, F.lit(True))
    new = rows.withColumn(is_old, F.lit(False)).unionByName(old, allowMissingColumns=True)
    same = " and ".join(f"old.`{key}` = new.`{key}`" for key in key_columns)
    (
        DeltaTable.forPath(rows.sparkSession, str(table))
        .alias("old")
        .merge(new.alias("new"), f"new.{is_old} and {same}")
        .whenMatchedDelete()
        .whenNotMatchedInsertAll(f"not new.{is_old}")
        .execute()
    )


def rule_conditions(config: Config, table: ChildTable) -> dict[str, str]:
    """Return the conditions that send a row to quarantine: a null key, and those of the suite."""
    own = load_rules(config.conf_dir, f"silver.{table.name}")
    built_in = {keys.NULL_KEY_RULE: transform.has_null_key(table.keys)} if table.keys else {}
    return built_in | {rule.name: rule.broken for rule in own}


def child_definition(table: ChildTable) -> dict[str, Any]:
    """Return all settings that determine the rows; a change of them needs a refresh."""
    return {
        "source": table.parent,
        "explode": table.explode,
        "outer": table.outer,
        "where": table.where,
        "keys": list(table.keys),
        **{f"{column} as": sql for column, sql in table.columns.items()},
    }

"""Gold: one query per table, from silver and gold tables to `gold.<table>`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import UTC, Aggregate, Config, GoldTable, Join, Statement
from medallion.config.queries import Query
from medallion.layers import definition, recovery
from medallion.layers.flow import Flow, ValidationInput
from medallion.layers.gold.transform import gold_rows, is_joinable
from medallion.layers.gold.writer import GroupMerge, refuse_unmergeable
from medallion.spark import checkpoints, delta
from medallion.spark.query import BatchProgress, RunningQuery, Sink
from medallion.storage import delta_tables
from medallion.storage.layout import layer_of, short_name
from medallion.storage.paths import StoragePath
from medallion.storage.text import Reporter, counted

_BEFORE_1970 = "before 1970: "  # and the table: name of an observed metric
LATE_ROWS_ADVICE = "`medallion nightly` rebuilds the table with them"


class Gold(Flow):
    """The query of one table, in the table's output mode."""

    def __init__(self, spark: SparkSession, config: Config, query: Query, say: Reporter) -> None:
        super().__init__(spark, config, query, say)
        self.table = config.gold[query.table]
        # Each batch reads all rows of the tables, and not only the new ones.
        self._is_recomputed = self.table.follows_changes and self.table.output_mode == "complete"

    def start(self, trigger: Mapping[str, Any] | None, recorded: int) -> RunningQuery | None:
        """Start the query.

        Raises:
            ConfigError: the table's definition has changed, its SQL is not deterministic, or its
                groups cannot be computed one by one.
            UsageError: the checkpoint is lost, and without it rows would be written twice.
        """
        table, now = self.table, gold_definition(self.table)
        self._refuse_changed(now)
        # A new checkpoint would append all rows again, or keep groups whose rows are gone.
        is_needed = table.output_mode == "append" or table.follows_changes
        if is_needed and not self._is_recomputed:
            recovery.refuse_lost_checkpoint(self.name, self.checkpoint, self.target_paths, recorded)
        elif reason := recovery.repair_and_compare(self.checkpoint, self.target_paths):
            recovery.drop_checkpoint(self.config.layout, self.name)
            self.say(f"  {self.name}: {reason}: recomputed from all rows")
        if self._is_recomputed:
            inputs = dict(zip(self.upstream, self.upstream_rows(), strict=True))
        else:
            inputs = self._streams()
        rows = gold_rows(self.spark, self.config, table, inputs)
        name = f"{self.config.pipeline_file}: {self.name}"
        # `gold_rows` has checked which tables such a query reads.
        is_query = self._is_recomputed and isinstance(table.definition, Statement)
        definition.refuse_nondeterministic(name, rows, now, can_read_tables=is_query)
        if table.output_mode == "update":
            refuse_unmergeable(name, rows)
        self._create_table(rows)
        mode: str = table.output_mode
        write: GroupMerge | Callable[[DataFrame, int], None] = self._write
        if mode == "update":
            write = GroupMerge(self.spark, self.config, table)
            rows, mode = write.touched(*inputs.values()), "append"
        elif self._is_recomputed:
            changes = (stream.select(F.lit(True)) for stream in self._streams().values())
            rows, mode, write = reduce(DataFrame.unionAll, changes), "append", self._recompute
        if trigger is None:
            definition.refuse_unstreamable(rows, mode)
            return None
        return self.start_query(rows.writeStream.outputMode(mode), trigger, Sink(write))

    def _refuse_changed(self, now: dict[str, Any]) -> None:
        """Raise an error if the table has rows of another definition, or of an unknown one."""
        checkpoint = self.checkpoint
        recorded = checkpoints.read_document(checkpoint, "definition")
        if self.table.output_mode != "update":
            has_written = recovery.has_started_writing(checkpoint, self.target_paths)
        else:  # the commits of merges do not name their batch
            if recorded is None:
                recovery.refuse_lost_checkpoint(self.name, checkpoint, self.target_paths, -1)
            has_written = delta_tables.row_count(self.target_paths[0]) > 0
        has_rows = checkpoints.last_committed(checkpoint) >= 0 or has_written
        if not has_rows and recorded not in (None, now):
            # The first batch failed, and left state of other types.
            recovery.drop_checkpoint(self.config.layout, self.name)
        then = checkpoints.record_first_definition(self.checkpoint, now, has_written)
        changes = gold_changes(self.config, self.table, then)
        definition.refuse_changed(self.config, self.name, changes)

    def _create_table(self, rows: DataFrame) -> None:
        target = self.target_paths[0]
        if checkpoints.last_planned(self.checkpoint) < 0:
            delta_tables.drop_empty_table(target, rows.schema.json())
        self.create_tables(rows)
        # If the table is published from now on, it needs a change feed.
        delta_tables.set_missing_properties(target, self.config.properties(self.name))

    def _streams(self) -> dict[str, DataFrame]:
        """Return streams of the tables that it reads, by name; those that change by their changes.

        The first batch of changes has all rows, and that of a join, so that none of them is late.
        """
        is_join = isinstance(self.table.definition, Join) and not self._is_recomputed
        streams = dict[str, DataFrame]()
        for name, path in zip(self.upstream, self.upstream_paths, strict=True):
            is_changing = name in self.config.changing_tables
            if is_changing and layer_of(name) == "gold":  # no feed if nothing read it before
                delta_tables.set_missing_properties(path, self.config.properties(name))
            options: dict[str, Any] = {"readChangeFeed": "true"} if is_changing else {}
            options |= delta.AT_ONCE if is_changing or is_join else {}
            streams[name] = self.stream(path, **options)
            if is_join and (event_time := self.config.silver_tables[name].event_time):
                dropped = F.count_if(~is_joinable(event_time)).alias("rows")
                streams[name] = streams[name].observe(_BEFORE_1970 + name, dropped)
        return streams

    def _recompute(self, batch: DataFrame, batch_id: int) -> None:
        """Overwrite the table with what the rows of its tables give now, if a batch has changes.

        The commit has the query's id and the batch's number. The rows may include changes of later
        batches, which give the same rows again.
        """
        if not batch.count():  # it also lets Spark report the number of changes
            return
        spark, paths = batch.sparkSession, zip(self.upstream, self.upstream_paths, strict=True)
        rows = {name: delta.read_table(spark, path) for name, path in paths}
        self._write(gold_rows(spark, self.config, self.table, rows), batch_id)

    def _write(self, rows: DataFrame, batch_id: int) -> None:
        """Append rows, or replace all of the table by them, in one commit of the batch."""
        options = checkpoints.once_only(checkpoints.query_id(self.checkpoint), batch_id)
        # The definition may have changed if all is recomputed.
        options["overwriteSchema"] = "true"
        mode = "Overwrite" if self.table.output_mode == "complete" else "Append"
        if not delta.write_once(rows, self.target_paths[0], options, mode):
            # A batch that is written is computed nevertheless, for its state.
            rows.write.format("noop").mode("overwrite").save()

    def batch_metrics(self, batches: range) -> dict[str, Any]:
        """Return the rows that the batches read; interrupted batches have no metrics, and count 0.

        Rows that were late for a join are reported, and recorded until a refresh. An interrupted
        batch of a join counts as one late row, because it may have had some.
        """
        ended = self.started_run.batches
        late = sum(batch.late for batch in ended.values())
        if isinstance(self.table.definition, Join):
            late += sum(number not in ended for number in batches)
            if late:
                self.say(f"  {self.name}: {counted(late, 'late row')}; {LATE_ROWS_ADVICE}")
            if dropped := sum(map(_rows_before_1970, ended.values())):
                self.say(f"  {self.name}: {counted(dropped, 'row')} before 1970 cannot be joined")
        return {**super().batch_metrics(batches), "late_rows": late}

    def sql_parts(self, upstream: Sequence[DataFrame]) -> Iterator[definition.DefinitionPart]:
        """Return the parts of its SQL, each by itself."""
        rows = dict(zip(self.table.tables, upstream, strict=True))
        return gold_parts(self.spark, self.config, self.table, rows)

    def validation_input(self, files: Sequence[StoragePath] | None) -> ValidationInput:
        """Return all rows: complete mode and merges rewrite files of older rows."""
        return ValidationInput(delta.rows_at(self.spark, self.target_paths[0]))


def _rows_before_1970(batch: BatchProgress) -> int:
    return sum(int(v["rows"]) for k, v in batch.observed.items() if k.startswith(_BEFORE_1970))


def gold_parts(
    spark: SparkSession, config: Config, table: GoldTable, rows: Mapping[str, DataFrame]
) -> Iterator[definition.DefinitionPart]:
    """Yield each part of a table's definition by itself, after those that it depends on.

    A column `_rows` replaces the columns of other parts.

    Args:
        config: the configuration of the table's sources.
        rows: the rows of the tables that it reads, by name.
    """
    title, file = f"gold.{table.name}", config.pipeline_file

    def part(name: str, **changes: Any) -> definition.DefinitionPart:
        """Return the part of a key, as the table whose definition has these changes."""
        key, changed = f"{title}.{name}", replace(table.definition, **changes)
        own_rows = partial(gold_rows, spark, config, replace(table, definition=changed), rows)
        return definition.DefinitionPart(key, file, own_rows, key)

    match table.definition:
        case Statement() as statement:
            whole = partial(gold_rows, spark, config, table, rows)
            yield definition.DefinitionPart(title, statement.file, whole)
        case Aggregate() as aggregate:
            yield part("session" if aggregate.session else "window", measure={"_rows": "count(*)"})
            for column, sql in aggregate.measure.items():
                yield part(f"measure.{column}", measure={column: sql})
        case Join() as join:
            yield part("where", columns={"_rows": "1"}, kind="left", condition=None)
            yield part("join", columns={"_rows": "1"})
            for column, sql in join.columns.items():
                yield part(f"columns.{column}", columns={column: sql})


def gold_definition(table: GoldTable) -> dict[str, Any]:
    """Return all settings that determine the rows of a table; a change of them needs a refresh."""
    names = dict(zip(("source", "with"), map(short_name, table.tables), strict=False))
    own, mode = definition.settings_document(table.definition), {"output_mode": table.output_mode}
    match table.definition:
        case Statement() as statement:
            return {"sql": statement.sql, **mode}
        case Aggregate() as aggregate:
            if unit := aggregate.calendar_unit:  # a week and 7 days start differently
                own["window"] = f"calendar {unit}"
            if aggregate.time_zone == UTC:  # definitions of earlier releases lack it
                del own["time_zone"]
    return {**names, **own, **mode}


def gold_changes(
    config: Config, table: GoldTable, then: Mapping[str, Any]
) -> list[definition.Change]:
    """Return what has changed in a table's definition, and in the event time of its silver tables.

    Args:
        config: the current configuration.
        table: the table's current entry.
        then: the `gold_definition` that its rows were written with.
    """
    # Spark's state identifies measures, and the keys of a join, by position.
    ordered = () if table.output_mode == "update" else ("measure", "on")
    changes = definition.changes_between(then, gold_definition(table), ordered)
    if isinstance(table.definition, Statement):  # windows and joins use event time
        return changes
    for silver in table.tables:
        recorded = checkpoints.read_document(config.layout.checkpoint(silver), "definition") or {}
        old, new = recorded.get("event_time"), config.silver_tables[silver].event_time
        if "event_time" in recorded and old != new:
            changes.append(definition.Change(f"event_time of {silver}", old, new))
    return changes

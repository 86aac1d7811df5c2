"""A flow: one streaming query with its inputs, targets, checkpoint and definition."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructField, StructType

from medallion.config.model import Config
from medallion.config.queries import Query
from medallion.ingest.schema import registry
from medallion.ingest.schema.evolution import only_adds_fields
from medallion.ingest.source import NO_SCAN
from medallion.layers import definition, recovery
from medallion.spark import checkpoints, delta
from medallion.spark.plans import inner_types, type_ddl
from medallion.spark.query import BatchProgress, RunningQuery, Sink, start_query
from medallion.storage import delta_log, delta_tables, objects
from medallion.storage.delta_log import Transaction
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import NEW_COLUMNS
from medallion.storage.text import Reporter, counted


class ValidationInput(NamedTuple):
    """Rows for a gate to validate.

    Attributes:
        rows: the rows.
        key: columns that are known to be unique (except in rows with a null in them), which the
            gate need not check; empty if that is unknown.
    """

    rows: DataFrame
    key: Sequence[str] = ()


class Flow(ABC):
    """One query of a layer. An object serves one run.

    Attributes:
        name: name of the query and of the table that it writes.
        sources: configuration of the sources whose rows it processes; `source` is the first.
        upstream: tables that it reads, one per source; empty for bronze. `upstream_paths`: their
            paths.
        targets: tables that it writes: its own, then its quarantine. `target_paths`: their paths.
        run: the started query; None before `start`.
        scan: the scan of its source that the plan of the run has made.
        is_current: whether it is known that its tables are not older than was recorded.
        is_unblocked: whether it is known that no gate blocks it.
    """

    def __init__(self, spark: SparkSession, config: Config, query: Query, say: Reporter) -> None:
        self.spark, self.config, self.say = spark, config, say
        self.query = query
        self.name, self.upstream, self.targets = query.name, query.upstream, query.targets
        self.upstream_paths = tuple(map(config.layout.table, query.upstream))
        self.target_paths = tuple(map(config.layout.table, query.targets))
        self.sources = [config.sources[name] for name in query.sources]
        self.source = self.sources[0]
        self.run: RunningQuery | None = None
        self.scan, self.is_current, self.is_unblocked = NO_SCAN, False, False

    @property
    def checkpoint(self) -> StoragePath:
        """The path of its checkpoint, which `start` may replace."""
        return self.config.layout.checkpoint(self.name)

    @property
    def started_run(self) -> RunningQuery:
        """The run of a flow that was started."""
        assert self.run is not None, f"{self.name} was not started"
        return self.run

    @abstractmethod
    def start(self, trigger: Mapping[str, Any] | None, recorded: int) -> RunningQuery | None:
        """Start the query, and set `run`.

        Args:
            trigger: from `spark.query.trigger_options`; None if the query has nothing to do: check
                its settings and create its tables, but do not start it.
            recorded: the last of its batches in `ops.runs`, -1 if none.

        Raises:
            MedallionError: it cannot start as it is configured.
            AnalysisException: its SQL is not valid.
        """

    def finish_batches(self, since: int) -> dict[str, Any]:
        """Complete the run's batches after `since`, and return their metrics for `ops.runs`.

        Safe to repeat.
        """
        batches = self.started_run.unrecorded_batches(since)
        metrics = self.batch_metrics(batches)
        return {**metrics, "first_batch": batches.start, "last_batch": batches.stop - 1}

    def batch_metrics(self, batches: range) -> dict[str, Any]:
        """Complete these batches, and return their metrics; by default the rows that they read."""
        del batches
        return {"rows_in": sum(batch.rows for batch in self.started_run.batches.values())}

    def start_query(
        self, writer: DataStreamWriter, trigger: Mapping[str, Any], sink: Sink
    ) -> RunningQuery:
        """Start the query, and set `run`; the arguments are those of `spark.query.start_query`."""
        self.run = start_query(writer, self.name, self.checkpoint, trigger, sink)
        return self.run

    def stream(self, table: StoragePath, **options: Any) -> DataFrame:
        """Return a stream of a table's rows, with options of Delta's source.

        A new query reads the commits of a table that has few: a snapshot takes Spark several jobs.
        """
        is_new = checkpoints.last_planned(self.checkpoint) < 0 and "readChangeFeed" not in options
        if is_new and delta_log.only_appends(table):
            options["startingVersion"] = 0
        return delta.stream_table(self.spark, table, **options)

    def create_tables(self, *rows: DataFrame) -> None:
        """Create the targets that do not exist, and add fields that came later to the others.

        Args:
            rows: for each target, rows with its columns. A column of an existing table gets the
                fields that its rows have more, at any depth; and a table of an older version gets
                new technical columns.
        """
        for name, path, each in zip(self.targets, self.target_paths, rows, strict=True):
            delta_tables.create_table(path, each.schema.json(), self.config.properties(name))
            if wider := self._wider_columns(path, each.schema):
                self.add_columns(path, wider)

    def _wider_columns(self, table: StoragePath, schema: StructType) -> StructType | None:
        """Return the columns of a schema that a table lacks, completely or some of their fields."""
        candidates = [f for f in schema if inner_types(f.dataType) or f.name in NEW_COLUMNS]
        if not candidates:
            return None
        rows = delta.read_table(self.spark, table)
        known = {field.name: field.dataType for field in rows.schema}

        def is_wider(field: StructField) -> bool:
            if field.name not in known:
                return field.name in NEW_COLUMNS
            before, after = known[field.name], field.dataType
            return type_ddl(before) != type_ddl(after) and only_adds_fields(before, after)

        wider = [field for field in candidates if is_wider(field)]
        return StructType(wider) if wider else None

    def add_columns(self, table: StoragePath, schema: StructType) -> None:
        """Add columns, or fields within columns, to a Delta table, so that others can read them."""
        rows = self.spark.createDataFrame([], schema)
        options = {"mergeSchema": "true"}
        rows.write.format("delta").mode("append").options(**options).save(str(table))
        objects.forget(str(table))

    def commits(self, batches: range) -> list[Transaction]:
        """Return the commits of batches to its table."""
        query = checkpoints.query_id(self.checkpoint)
        return delta_log.batch_commits(self.target_paths[0], batches, query)

    def upstream_rows(self) -> Sequence[DataFrame]:
        """Return all rows of the tables that it reads."""
        return [delta.read_table(self.spark, path) for path in self.upstream_paths]

    def interrupted_rows(self) -> Sequence[DataFrame]:
        """Return rows of the tables that it reads, with those of the interrupted batch."""
        return self.upstream_rows()

    def sql_parts(self, upstream: Sequence[DataFrame]) -> Iterable[definition.DefinitionPart]:
        """Return the parts of its SQL, each by itself, to find one that is invalid or fails.

        Args:
            upstream: rows of each table that it reads.
        """
        del upstream
        return ()

    def failing_part_reason(self) -> str | None:
        """Return the message for the part that fails at a row of the interrupted batch, if any."""
        try:
            rows = self.interrupted_rows()
            return definition.failing_part_reason(rows, self.sql_parts(rows))
        except Exception:  # the query's own failure is reported in any case
            return None

    def validation_input(self, files: Sequence[StoragePath] | None) -> ValidationInput:
        """Return the rows that a gate validates.

        Args:
            files: data files that were added to the table; None for the whole table.
        """
        if files is None:
            return ValidationInput(self.rows())
        return ValidationInput(delta.rows_of(self.spark, self.target_paths[0], files))

    def rows(self) -> DataFrame:
        """Return all rows of its table."""
        return delta.read_table(self.spark, self.target_paths[0])

    def unknown_schema_reason(self) -> str | None:
        """Return why a source has no schema yet, so that no SQL can name its columns, if any."""
        for source in self.sources:
            if not registry.has_known_columns(self.config, source):
                return registry.unknown_schema_reason(self.config, source)
        return None

    def poll(self) -> bool:
        """Poll for new input that no upstream table shows; return False if it is too early."""
        return True

    def release(self, batch: int) -> None:  # noqa: B027
        """Release the input of the batches up to `batch`, which are recorded."""

    def describe_batch(self, batch: BatchProgress) -> str | None:
        """Return a summary of a batch for users; None if it did nothing."""
        return counted(batch.rows, "row") if batch.rows else None

    def refuse_changed_definition(self, now: dict[str, Any], rows: DataFrame) -> None:
        """Raise ConfigError if the definition, or a column's type, changed since the first run.

        Args:
            now: the current definition; the first run records it.
            rows: rows as the query writes them, to the existing table.
        """
        has_written = recovery.has_started_writing(self.checkpoint, self.target_paths)
        then = checkpoints.record_first_definition(self.checkpoint, now, has_written)
        in_table, in_query = (
            {f"column {name}": type_ for name, type_ in each.dtypes} for each in (self.rows(), rows)
        )
        changes = definition.changes_between({**then, **in_table}, {**now, **in_query})
        definition.refuse_changed(self.config, self.name, changes)

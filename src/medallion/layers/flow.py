"""A flow: one streaming query with its inputs, targets, checkpoint and definition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from medallion.config.model import Config, SourceConfig
from medallion.config.queries import Query
from medallion.ingest.schema import registry
from medallion.spark import checkpoints, delta_reads
from medallion.spark.query import BatchProgress, Run
from medallion.state import ledger, pending_work
from medallion.state.runs import Runs
from medallion.storage import delta_tables
from medallion.storage.table_specs import bronze_columns
from medallion.storage.text import Reporter, counted, printable

# Settings that Spark takes from a query's checkpoint, whatever the session has.
_PINNED = ("spark.sql.shuffle.partitions", "spark.sql.streaming.stateStore.providerClass")


class ValidationInput(NamedTuple):
    """Rows for a gate to validate.

    Attributes:
        rows: the rows.
        key: columns that are known to be unique (rows with a null in them aside), so that the gate
            need not check that; empty if that is not known.
    """

    rows: DataFrame
    key: Sequence[str] = ()


class Flow(ABC):
    """One query of a layer. An object serves one run.

    Attributes:
        name: name of the query and of the table that it writes.
        sources: configuration of the sources whose rows it processes; `source` is the first.
        upstream: tables that it reads, one a source; empty for bronze. `upstream_paths`: their
            paths.
        targets: tables that it writes: its own, then its quarantine. `target_paths`: their paths.
        checkpoint: path of its checkpoint.
        run: the started query; None before `start`.
        is_gated: True if a gate that blocks rows of earlier layers keeps it from starting.
    """

    is_gated: ClassVar[bool] = False

    def __init__(self, spark: SparkSession, config: Config, query: Query, say: Reporter) -> None:
        self.spark, self.config, self.say = spark, config, say
        self.name, self.upstream, self.targets = query.name, query.upstream, query.targets
        self.upstream_paths = tuple(map(config.layout.table, query.upstream))
        self.target_paths = tuple(map(config.layout.table, query.targets))
        self.checkpoint = config.layout.checkpoint(query.name)
        self.sources = [config.sources[name] for name in query.sources]
        self.source = self.sources[0]
        self.run: Run | None = None

    @property
    def source_names(self) -> frozenset[str]:
        """The names of its sources."""
        return frozenset(source.name for source in self.sources)

    @property
    def started_run(self) -> Run:
        """The run of a flow that was started."""
        assert self.run is not None, f"{self.name} was not started"
        return self.run

    @abstractmethod
    def start(self, trigger: Mapping[str, Any] | None, recorded: int) -> Run | None:
        """Start the query, and keep it as `run`.

        Args:
            trigger: as `spark.query.trigger` returns it; None if the query has nothing to do: then
                its settings are checked and its tables created, and it is not started.
            recorded: the last of its batches in `ops.runs`, -1 if none.

        Raises:
            MedallionError: it cannot start as it is configured.
            AnalysisException: its SQL is not valid.
        """

    @abstractmethod
    def finish_batches(self, since: int) -> dict[str, Any]:
        """Complete the run's batches after `since`, and return their metrics for `ops.runs`.

        Safe to repeat.
        """

    def has_work(self, runs: Runs) -> bool:
        """Return whether there is input, or a batch to complete or to record.

        This needs no Spark query, whose start takes seconds.
        """
        return pending_work.is_unfinished(self.config, runs, self.name) or any(
            pending_work.has_input(self.config, self.name, table) for table in self.upstream_paths
        )

    def should_check_settings(self, settings: str) -> bool:
        """Return whether `start` has to be called even if there is no work.

        Then wrong SQL is reported before there are rows, and readers find an empty table.

        Args:
            settings: a digest of the configuration, as `pending_work.settings_of` makes it.
        """
        if pending_work.has_changed_settings(self.config, self.name, settings):
            return True
        has_table = all(map(delta_tables.table_exists, self.target_paths[:1]))
        return not has_table and not self.has_unknown_schema()

    def validation_input(self, files: Sequence[Path] | None) -> ValidationInput:
        """Return the rows that a gate validates.

        Args:
            files: data files that were added to the table; None for the whole table.
        """
        if files is None:
            return ValidationInput(self.rows())
        return ValidationInput(delta_reads.rows_of(self.spark, self.target_paths[0], files))

    def rows(self) -> DataFrame:
        """Return all rows of its table."""
        return self.spark.read.format("delta").load(str(self.target_paths[0]))

    def has_unknown_schema(self) -> bool:
        """Return whether a source has no schema yet, so that no SQL can name its columns."""
        return self._source_without_schema() is not None

    def unknown_schema_reason(self) -> str:
        """Return why a source has no schema yet."""
        source = self._source_without_schema()
        assert source is not None, f"{self.name} has its columns"
        return unknown_schema_reason(self.config, source)

    def _source_without_schema(self) -> SourceConfig | None:
        for source in self.sources:
            if source.schema is None and not has_known_columns(self.config, source):
                return source
        return None

    def poll(self) -> bool:
        """Poll for new input that no upstream table shows; return False if it is too early."""
        return True

    def do_bookkeeping(self, runs: Runs) -> None:  # noqa: B027
        """Do the bookkeeping of a run that has no work, such as archiving files."""

    def release(self, batch: int) -> None:  # noqa: B027
        """Release what the batches up to `batch` read: they are recorded."""

    def describe_batch(self, batch: BatchProgress) -> str | None:
        """Return what a batch did, for users; None if it did nothing."""
        return counted(batch.rows, "row") if batch.rows else None

    def log_pinned_settings(self) -> None:
        """Report the settings that the query keeps from its first run if the session's differ."""
        pinned, session = checkpoints.pinned_settings(self.checkpoint), self.spark.conf
        kept = [
            f"{key} {pinned[key]}"
            for key in _PINNED
            if key in pinned and session.get(key) != pinned[key]
        ]
        if kept:
            self.say(
                f"  {self.name} keeps {', '.join(kept)} from its first run; medallion refresh "
                f"{self.name} applies the current settings"
            )


def unknown_schema_reason(config: Config, source: SourceConfig) -> str:
    """Return why a source has no schema, by the last file that is pending or was rejected, else by
    the last file."""
    entries = ledger.newest_versions(ledger.read_entries(config.layout, source.name)).values()
    last = max(entries, key=lambda e: (e.why is not None, e.first_seen_at), default=None)
    if last is None:
        return "its schema is unknown until a file or message lands"
    reason = last.why or (
        "no row has a field" if last.state in ledger.INGESTED_STATES else "not read yet"
    )
    more = f" ({counted(len(entries), 'file')} landed: medallion files)" if len(entries) > 1 else ""
    return f"no file gave its schema; {printable(last.path)} is {last.state}: {reason}{more}"


def has_known_columns(config: Config, source: SourceConfig) -> bool:
    """Return whether the bronze table of a source has the columns of its first inferred schema."""
    versions = registry.read_versions(config.layout.schemas(source.name))
    table = config.layout.table(f"bronze.{source.name}")
    if versions and delta_tables.table_exists(table):
        return versions[0].columns.keys() <= delta_tables.column_names(table)
    # If the schema versions are lost, bronze's next run restores them from the table.
    hinted = bronze_columns(source.hints, source.origin_columns).keys()
    return bool(versions) or bool(delta_tables.column_names(table) - hinted)

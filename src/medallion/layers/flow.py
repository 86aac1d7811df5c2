"""A flow: one streaming query, from the tables that it reads to those that it writes."""

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

# Settings that Spark takes from a query's state, whatever the session says.
_KEPT = ("spark.sql.shuffle.partitions", "spark.sql.streaming.stateStore.providerClass")


class ValidationInput(NamedTuple):
    """Rows for a gate. Where `key` has columns, it is known already that no two rows have the same
    values in them (rows with a null among them aside), so the gate need not count that again."""

    rows: DataFrame
    key: Sequence[str] = ()


class Flow(ABC):
    """One query of a layer. An object is for one run, and keeps what that has to be settled with.

    Attributes:
        name: of the query, and of the table that it writes.
        sources: the settings of the sources whose rows it works on; `source` is the first.
        upstream: the tables that it reads, by source; bronze reads what its source hands over.
            `upstream_paths` is where they lie.
        targets: the tables that it writes, the query's own first, then its quarantine. `tables` is
            where they lie.
        checkpoint: where the query's lies.
        run: the query while it runs and afterwards; None before it is started.
        is_gated: a gate that holds back the rows of earlier layers keeps it from starting.
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
            trigger: as `spark.query.trigger` gives it; None where the query has nothing to do, and
                is not started: its settings are checked, and its tables made.
            recorded: the last of its batches that is on record, -1 if none.

        Raises:
            MedallionError: it cannot be started as it is configured, and why.
            AnalysisException: its SQL is not valid.
        """

    def log_pinned_settings(self) -> None:
        """Say which settings of its first run the query keeps, where the session has others."""
        then, now = checkpoints.pinned_settings(self.checkpoint), self.spark.conf
        kept = [f"{key} {then[key]}" for key in _KEPT if key in then and now.get(key) != then[key]]
        if kept:
            self.say(
                f"  {self.name} goes on with {', '.join(kept)}, as it was first run with: "
                f"medallion refresh {self.name} takes up what the session says now"
            )

    @abstractmethod
    def finish_batches(self, since: int) -> dict[str, Any]:
        """The figures of `ops.runs` for the run's batches after `since`; safe to repeat."""

    def has_work(self, runs: Runs) -> bool:
        """Whether there is something to read, or a batch to end or to put on record, which is known
        without starting the query: that costs seconds."""
        return pending_work.is_unfinished(self.config, runs, self.name) or any(
            pending_work.has_input(self.config, self.name, table) for table in self.upstream_paths
        )

    def should_check_settings(self, settings: str) -> bool:
        """Whether it has to be started even without work, so that its settings are checked and its
        tables made: wrong SQL is told before there are rows, and readers find an empty table.

        Args:
            settings: a digest of the configuration, as `pending_work.settings_of` makes it.
        """
        is_there = all(map(delta_tables.table_exists, self.target_paths[:1]))
        return pending_work.has_changed_settings(self.config, self.name, settings) or not (
            self.has_unknown_schema() or is_there
        )

    def validation_input(self, files: Sequence[Path] | None) -> ValidationInput:
        """What a gate has to judge, of what these files added to its table; None: of all of it."""
        if files is None:
            return ValidationInput(self.rows())
        return ValidationInput(delta_reads.rows_of(self.spark, self.target_paths[0], files))

    def rows(self) -> DataFrame:
        """All rows of its table."""
        return self.spark.read.format("delta").load(str(self.target_paths[0]))

    def has_unknown_schema(self) -> bool:
        """Whether a source's columns are not known yet: no SQL could name them."""
        return any(
            source.schema is None and not has_known_columns(self.config, source)
            for source in self.sources
        )

    def unknown_schema_reason(self) -> str:
        """Return why a source's columns are not known yet; see `has_unknown_schema`."""
        source = next(
            s for s in self.sources if s.schema is None and not has_known_columns(self.config, s)
        )
        return unknown_schema_reason(self.config, source)

    def poll(self) -> bool:
        """Look for new input that no table tells of; False where that was not the time to."""
        return True

    def release(self, batch: int) -> None:  # noqa: B027
        """Put away what the batches up to this one read: their figures are on record."""

    def describe_batch(self, batch: BatchProgress) -> str | None:
        """What a batch did, for people; None where it did nothing."""
        return counted(batch.rows, "row") if batch.rows else None


def unknown_schema_reason(config: Config, source: SourceConfig) -> str:
    """Return what has landed for a source whose columns are not known: its last file that waits or
    was rejected, else its last file, from which nothing could be inferred."""
    entries = ledger.newest_versions(ledger.read_entries(config.layout, source.name)).values()
    last = max(entries, key=lambda e: (e.why is not None, e.first_seen_at), default=None)
    if last is None:
        return "nothing has landed that tells its schema"
    told = last.why or (
        "no row in it has a field" if last.state in ledger.INGESTED_STATES else "not read"
    )
    more = f" ({counted(len(entries), 'file')} landed: medallion files)" if len(entries) > 1 else ""
    return f"no file told its schema; {printable(last.path)} is {last.state}: {told}{more}"


def has_known_columns(config: Config, source: SourceConfig) -> bool:
    """Whether bronze's table of a source has the columns that were inferred for it first."""
    versions = registry.read(config.layout.schemas(source.name))
    table = config.layout.table(f"bronze.{source.name}")
    if versions and delta_tables.table_exists(table):
        return versions[0].columns.keys() <= delta_tables.column_names(table)
    # Somebody has lost the versions, which bronze's next run makes anew by its table.
    hinted = bronze_columns(source.hints, source.origin).keys()
    return bool(versions) or bool(delta_tables.column_names(table) - hinted)

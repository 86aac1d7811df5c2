"""The configuration of one process as frozen dataclasses; `loader.load` returns it.

The `Attributes` document the keys of pipeline.yaml, in Markdown: `tools/reference.py` writes
docs/configuration-reference.md from them, with the values and defaults that the parsers know.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from medallion.config import values
from medallion.config.operations import Login, Maintenance, OnFailure
from medallion.config.tables import CdcConfig, ChildTable, Kafka, LookupConfig, OutputConfig
from medallion.config.values import Duration, choice_key, key
from medallion.errors import UsageError
from medallion.storage import table_specs
from medallion.storage.layout import Layout, layer_of, short_name
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import INGESTED_AT, WINDOW, Columns, TableSpec

STREAMS: Mapping[str, type[Kafka]] = {"kafka": Kafka}
"""Formats that are no files, each with the keys that only it has."""


TYPED_FORMATS = ("parquet", "orc", "avro")  # whose files bring the types of their columns
FILE_FORMATS = ("json", "csv", *TYPED_FORMATS, "text")
FORMATS = (*FILE_FORMATS, *STREAMS)
WIDENING = "addNewColumnsWithTypeWidening"
EVOLUTION = ("addNewColumns", WIDENING, "rescue", "failOnNewColumns", "none")
OUTPUT_MODES = ("complete", "update")
OutputMode = Literal["complete", "update", "append"]
JOINS = ("inner", "left")
IGNORED_NAMES = (
    *("*.tmp", "*.part", "*.filepart", "*.partial", "*.crdownload"),  # uploads until their rename
    *("*.crc", "Thumbs.db", "desktop.ini", "~lock*", "~$*"),
)
UTC = "UTC"
SILVER_COLUMNS = "snake_case columns with their Spark SQL expressions"
_NAMES = "a glob of file names such as '*.json', without / or {, that does not start with . or _"
CHANGES = "_changes"  # ends the name of the silver table with the change records of a source


@dataclass(frozen=True)
class ReaderOptions:
    """Reader options of text files, by Spark's names; they apply to files not ingested yet.

    Files of the formats `json` and `text` have only `encoding`.

    Attributes:
        delimiter: The character between two fields, or `tab`; `sep` is another name of this key.
        header: By default each file has a header, and a file whose header looks like data stays
            pending. `true`: the first row is the header without a check. `false`: there is no
            header, and the columns are those of `schema` in order.
        quote: The character around fields; empty if fields are never quoted.
        escape: The character before a quote within a field; by default quotes are doubled.
        encoding: The encoding of the files, such as `latin-1`, `windows-1252` or `utf-16`.
        comment: Lines that start with this character are left out.
        null_value: The string that is read as null, such as `NULL`; an empty field is always null.
        skip_rows: The number of lines before the header that are left out, in each file.
    """

    delimiter: str = key(values.delimiter, values.DELIMITER, ",")
    header: bool | None = key(values.boolean, values.BOOLEAN, None)
    quote: str = key(values.quote, f"{values.SIGN}, or empty if there are no quotes", '"')
    escape: str | None = key(values.csv_character, values.SIGN, None)
    encoding: str = key(values.encoding, "an encoding that Python knows", "utf-8")
    comment: str | None = key(values.csv_character, values.SIGN, None)
    null_value: str | None = key(values.string, "a string", None, "nullValue")
    skip_rows: int = key(values.one_of(range(10**6)), "a whole number", 0, "skipRows")


@dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """One source: its input, its bronze table and its silver table.

    Attributes:
        name: The name of the entry, of `landing/<name>/` and of the tables.
        schema: The columns with their types (`string`, `timestamp`, `long`, `double`, `boolean`,
            `date`, `decimal(p,s)`, `struct<...>`, `array<...>`, `map<string,...>`; Parquet, ORC
            and Avro have more), or `infer`: the types of Parquet, ORC and Avro files, else from the
            first 10,000 rows or 8 MiB.
        hints: Types of some columns of an inferred schema, or of fields within structs and arrays
            (`items.price: decimal(10,2)`); in `schema` and `hints` also time
            formats, which give a `timestamp`: `timestamp_seconds`, `timestamp_millis`,
            `timestamp_micros` and `timestamp_nanos` for numbers since 1970, and
            `timestamp 'dd.MM.yyyy HH:mm'` for strings of a pattern of Spark (UTC if it has no
            zone). Rows that were ingested before stay unchanged.
        schema_evolution: The handling of new fields: `addNewColumns` adds columns, `rescue` and
            `none` keep them in `_rescued_data`, `failOnNewColumns` stops the source.
            `addNewColumnsWithTypeWidening` adds columns, and widens types that do not fit.
        silver: The columns of silver, each with a Spark SQL expression over bronze's columns.
        lookup: Columns joined from a lookup table; `enrich` is an older name of this key.
        cdc: The rows are change records; `watermark`, `late` and the limits of times do not apply.
        event_time: The silver column of the time at which the event happened. The watermark and
            the windows of gold use it. Optional with `cdc`.
        keys: The silver columns that identify a row. With `event_time` among them, silver remembers
            the keys of recent rows; without it, each batch is compared with the keys of all rows.
            A column computed from `_ingested_at` or `_source_modified_at` cannot be a key.
        watermark: How long silver remembers keys, in event time. Older rows are late.
        max_future: How far an event time may be after the time of ingestion. The built-in rules
            `future_event_time` and `missing_event_time` quarantine rows with a later or missing
            event time: one wrong time would make all later rows late.
        max_past: How far an event time may be before the time of ingestion, such as `20 years`
            (rule `past_event_time`). Without it, runs report event times before 1990.
        late: `admit` inserts late rows into silver, `quarantine` quarantines them.
        on_rescued: The handling of a row whose value did not fit a field that silver reads:
            it is quarantined, ingested with a warning, or ingested (`ignore`).
        on_conversion: The handling of a row in which a column of silver, or of a child table, is
            null although the field that it converts (`try_cast`, `try_to_date`, ...) has a value:
            ingested with a warning, quarantined as `conversion_<column>`, or ingested (`ignore`).
        format: The format of the files, or the system that is read instead of files. It cannot
            change once files are ingested. `debezium`: JSON lines, or a Kafka topic if there are
            `servers`, with change records of Debezium. Silver's expressions name the columns of
            the changed row, and `_op`, `_ts_ms` and `_lsn`; `cdc` has defaults.
        multi_line: `true`: JSON documents, one or several in a file, instead of lines. It cannot
            change once files are ingested.
        pattern: The names of the files to ingest.
        folders: More folders beside `landing/<name>/`: paths, absolute or relative to the root, or
            `s3://bucket/prefix`.
        allow_overwrites: `true` ingests a file that replaces one of the same name, and marks the
            older one as `replaced`; `false` rejects it.
        quiet_period: Ingest a file only if it has not changed for this long: for writers that do
            not rename files when they are complete.
        clean_source: Ingested files are moved to `archive/`, deleted, or left in place (`off`).
        clean_after: How long ingested files stay in landing before they are archived or deleted.
        max_line_bytes: Reject a file with a longer line; at most `512 MiB`.
        max_files_per_trigger: The most files in one batch.
        max_bytes_per_trigger: The most bytes in one batch. Those of compressed files count eight
            times.
        stream: The settings of the format `kafka`; keys of files do not apply then.
        options: Reader options of text files.
        record_path: The dotted path of an array in JSON documents: its elements are the rows. A
            document without that array is one corrupt row.
        record_fields: Fields of the document (dotted paths) that repeat on each row.
        ignore: Names of files and directories that are not ingested, as globs: by default those of
            unfinished uploads (`*.tmp`, `*.part`, ...) and of by-products (`*.crc`, `Thumbs.db`,
            ...). Names that begin with `.` or `_` are always ignored.
        partition_columns: Columns of bronze whose values are in the names of directories below
            the landing folder: `[date, hour]` for `date=2026-05-01/hour=10/a.json`. Their types
            are those of `hints`, or inferred: `long`, `date` or `string`.
        renamed_from: The older name of the source: the next run moves its tables, records and files
            to the new name. Files that land in `landing/<older name>/` are still ingested.
        expect_every: How often new rows should arrive; a source without new rows for longer is
            stale, and `nightly` and `status` exit 1. A file arrives when it was last modified.
    """

    name: str
    schema: Mapping[str, str] | None = key(
        values.inferred_or_schema, f"infer, or {values.COLUMNS}", "infer"
    )
    hints: Mapping[str, str]
    schema_evolution: str = choice_key(EVOLUTION)
    silver: Mapping[str, str] = key(values.named_columns, SILVER_COLUMNS)
    lookup: LookupConfig | None
    event_time: str
    keys: tuple[str, ...] = key(values.string_list, "a list of silver columns")
    watermark: Duration = key(values.duration, values.DURATION, "1 hour")
    max_future: Duration = key(values.duration, values.DURATION, "1 day")
    max_past: Duration | None = key(values.duration, values.DURATION, None)
    late: str = choice_key(("admit", "quarantine"))
    on_rescued: str = choice_key(("quarantine", "warn", "ignore"))
    on_conversion: str = choice_key(("warn", "quarantine", "ignore"))
    format: str
    multi_line: bool = key(values.boolean, values.BOOLEAN, False)
    pattern: str = key(values.file_glob, _NAMES, "*")
    folders: tuple[str, ...] = key(values.string_list, "a list of folders", [])
    allow_overwrites: bool = key(values.boolean, values.BOOLEAN, False)
    quiet_period: Duration | None = key(values.duration, values.DURATION, None)
    clean_source: str = choice_key(("archive", "delete", "off"))
    clean_after: Duration | None = key(values.duration, values.DURATION, None)
    max_line_bytes: int = key(values.size, "a size such as '16 MiB'", "16 MiB")
    max_files_per_trigger: int = key(values.count, values.COUNT, 1000)
    max_bytes_per_trigger: int = key(values.size, "a size such as '1 GiB'", "1 GiB")
    stream: Kafka | None
    options: ReaderOptions
    record_path: str | None = key(values.field_path, values.FIELD_PATH, None)
    record_fields: tuple[str, ...]
    ignore: tuple[str, ...] = key(
        values.string_list, "a list of globs of names", list(IGNORED_NAMES)
    )
    partition_columns: tuple[str, ...]
    expect_every: Duration | None = key(values.duration, values.DURATION, None)
    renamed_from: str | None = key(values.table_name, values.OLDER_NAME, None)
    cdc: CdcConfig | None
    is_debezium: bool

    @property
    def rows_table(self) -> str:
        """The silver table of its valid rows: for change records, their log."""
        return f"silver.{self.name}" + (CHANGES if self.cdc else "")

    @property
    def compares_with_silver(self) -> bool:
        """Whether each batch is compared with silver's keys: they lack the event time."""
        return not self.cdc and self.event_time not in self.keys

    @property
    def origin_columns(self) -> Columns:
        """Columns of bronze with the origin of a row."""
        return (
            table_specs.MESSAGE_ORIGIN_COLUMNS if self.stream else table_specs.FILE_ORIGIN_COLUMNS
        )

    @property
    def has_lines(self) -> bool:
        """Whether `_source_position` is the number of a line."""
        return self.format == "csv"

    @property
    def position_sql(self) -> str:
        """Spark SQL of where a row is: `landing/orders/a.csv, line 17`, or null."""
        if not self.has_lines:
            return "cast(null as string)"
        position = table_specs.SOURCE_POSITION
        return f"concat({table_specs.SOURCE_FILE}, ', line ', format_number({position}, 0))"

    @property
    def headerless_columns(self) -> tuple[str, ...]:
        """The columns of a CSV file without a header, in order."""
        return tuple(c for c in self.schema or () if c not in self.partition_columns)

    @property
    def silver_origin_columns(self) -> tuple[str, ...]:
        """Columns of silver with the origin of a row."""
        return tuple(n for n in table_specs.SILVER_ORIGIN_COLUMNS if n in self.origin_columns)

    @property
    def silver_columns(self) -> tuple[str, ...]:
        """The columns of `rows_table`, without the time of ingestion."""
        return (*self.columns, *self.silver_origin_columns, *self.change_columns)

    @property
    def change_columns(self) -> tuple[str, ...]:
        """The technical columns of its log of changes; none if it has no change records."""
        if not self.cdc:
            return ()
        columns = {
            table_specs.SOURCE_POSITION: table_specs.SOURCE_POSITION in self.origin_columns,
            table_specs.SEQUENCE: True,
            table_specs.IS_DELETE: True,
            table_specs.IS_TRUNCATE: self.cdc.apply_as_truncates,
            table_specs.OLD_KEY: self.is_debezium,
            table_specs.UNAVAILABLE: self.cdc.unavailable_value,
        }
        return tuple(name for name, is_used in columns.items() if is_used)

    @property
    def columns(self) -> tuple[str, ...]:
        """Silver's columns, without technical ones; those of the lookup table are last."""
        return (*self.silver, *(self.lookup.columns if self.lookup else ()))

    @property
    def landing_names(self) -> tuple[str, ...]:
        """The names of its folders in landing: its own, and its older one."""
        return (self.name, self.renamed_from) if self.renamed_from else (self.name,)

    def folders_in(self, layout: Layout) -> tuple[StoragePath, ...]:
        """Return the source's folders in landing, then the others that its configuration names."""
        names = (*(f"landing/{name}" for name in self.landing_names), *self.folders)
        return tuple((layout.root / name).normalized() for name in names)


SilverTable = SourceConfig | ChildTable
"""The configuration of a table of silver."""


def change_keys(table: SilverTable) -> tuple[str, ...]:
    """Return the columns that say which rows of a silver table change; none if it only grows."""
    if isinstance(table, ChildTable):
        return tuple(table.change_keys.values())
    return table.keys if table.cdc else ()


@dataclass(frozen=True)
class Aggregate:
    """A gold table that aggregates one silver table.

    Attributes:
        group_by: The silver columns to group by; without it a window has one row.
        measure: The columns to compute, each with a Spark SQL aggregate.
        where: A condition in Spark SQL for rows of silver, such as `is_current`.
        window: The length of the time windows; without it groups span all time. A week starts on
            Monday; `7 days` are counted from 1970-01-01, a Thursday.
        slide: The time between the starts of two windows, if windows overlap.
        start: A shift of the windows: with `6 hours` a day starts at 06:00, with `6 days` a week on
            Sunday.
        time_zone: The time zone in which a window of `1 day`, `1 week`, `1 month`, `1 quarter` or
            `1 year` starts at midnight; `window_start` and `window_end` are UTC.
        session: Group rows that follow each other within this time, in place of `window`; in
            output mode `complete` only.
    """

    group_by: tuple[str, ...]
    measure: Mapping[str, str] = key(
        values.named_columns, "snake_case columns with their Spark SQL aggregates"
    )
    window: Duration | None = key(values.window, values.WINDOW, None)
    slide: Duration | None = key(values.duration, values.DURATION, None)
    session: Duration | None = key(values.duration, values.DURATION, None)
    start: Duration | None = key(values.duration, values.DURATION, None)
    time_zone: str = key(values.time_zone, "a time zone such as 'Europe/Berlin'", UTC)
    where: str | None = key(values.non_blank_string, values.CONDITION, None)

    @property
    def expressions(self) -> dict[str, str]:
        """Its SQL over the columns of the table, by key."""
        measures = {f"measure.{name}": sql for name, sql in self.measure.items()}
        return {**measures, "where": self.where or ""}

    @property
    def calendar_unit(self) -> str | None:
        """The unit of windows that follow the calendar, whose lengths differ; None for others."""
        unit = self.window.text.removeprefix("1 ") if self.window else ""
        is_utc_day = unit == "day" and self.time_zone == UTC  # always 24 hours
        return unit if unit in values.CALENDAR_DAYS and not is_utc_day else None

    @property
    def groups(self) -> tuple[str, ...]:
        """The columns that identify a row of the table; those of the window are first."""
        return (*(WINDOW if self.window or self.session else ()), *self.group_by)


@dataclass(frozen=True)
class Statement:
    """A gold table computed by a query.

    Attributes:
        file: The file of the query.
        sql: The query, with views such as `silver_orders` in place of its tables.
    """

    file: Path
    sql: str


@dataclass(frozen=True)
class Join:
    """A gold table that joins two silver tables by keys and event times.

    Attributes:
        kind: `left` also keeps rows of the first table without a match.
        on: Columns of the first table, each with a column of the second of the same type.
        within: The longest time between the two event times of a match.
        where: A condition in Spark SQL for rows of the first table.
        condition: A further condition for matches, in Spark SQL.
        columns: The columns of the table, each with a Spark SQL expression over both silver
            tables, which are named as their sources.
    """

    kind: str
    on: Mapping[str, str]
    within: Duration
    where: str | None
    condition: str | None
    columns: Mapping[str, str]

    @property
    def expressions(self) -> dict[str, str]:
        """Its SQL over the columns of both tables, by key."""
        columns = {f"columns.{name}": sql for name, sql in self.columns.items()}
        return {**columns, "where": self.where or "", "join.condition": self.condition or ""}


@dataclass(frozen=True)
class GoldTable:
    """One table of gold.

    Attributes:
        name: The name of the entry and of the table.
        tables: The tables that it reads, as `silver.orders`.
        definition: How the table is computed.
        output_mode: How a batch changes the table: `complete` rewrites it, `update` merges the
            groups that the batch changed, `append` adds rows.
        outputs: Where its changes are published, by `files` and `kafka`.
        follows_changes: whether it is computed again in a batch, complete or the touched groups,
            and not from Spark's state: rows of its tables change, or a query reads several.
        renamed_from: The older name of the table, whose rows the next run moves to the new name.
        expect_every: How often a run should process new rows for the table; after longer it is
            stale, and `nightly` and `status` exit 1.
    """

    name: str
    tables: tuple[str, ...]
    definition: Aggregate | Statement | Join
    output_mode: OutputMode
    outputs: Mapping[str, OutputConfig] = field(default_factory=dict)
    follows_changes: bool = False
    expect_every: Duration | None = key(values.duration, values.DURATION, None)
    renamed_from: str | None = key(values.table_name, values.OLDER_NAME, None)


ON_CHANGE = ("wait", "apply")


@dataclass(frozen=True)
class Config:
    """The configuration of one process.

    Attributes:
        pipeline_file: The path of pipeline.yaml.
        conf_dir: The folder of suites and of Spark's settings, which may be missing.
        master: The Spark master, or None for the default.
        layout: The paths below the root.
        sources: The sources by name.
        gold: The gold tables by name, each after those that it reads.
        silver: The child tables by name, each after its parent.
        maintain: The maintenance policy.
        login: The login for Kafka's brokers.
        max_concurrent_queries: The most queries of `run` and `nightly` that run at once; by
            default 4 for each core. The queries of a stream always run.
        views: Names for SQL over the tables and earlier views, known to `medallion sql` and
            `thrift`, the report and `medallion.spark_session()`, so it must be SQL of DataFusion
            and of Spark.
        on_change: `wait`: tables whose definition was edited wait for `medallion apply`, and a
            nightly run names them. `apply`: the nightly run rebuilds them.
        on_failure: The alerts of runs that fail.
        metrics_file: The file of metrics for Prometheus; its name ends with `.prom` for the node
            exporter.
    """

    pipeline_file: Path
    conf_dir: Path
    master: str | None
    layout: Layout
    sources: Mapping[str, SourceConfig]
    gold: Mapping[str, GoldTable]
    maintain: Maintenance
    login: Login = field(default_factory=Login)
    max_concurrent_queries: int | None = None
    views: Mapping[str, str] = field(default_factory=dict)
    silver: Mapping[str, ChildTable] = field(default_factory=dict)
    on_change: str = "wait"
    on_failure: OnFailure = field(default_factory=OnFailure)
    metrics_file: Path | None = None

    def source(self, name: str) -> SourceConfig:
        """Return the settings of one source.

        Raises:
            UsageError: there is no source of that name.
        """
        if name not in self.sources:
            known = ", ".join(self.sources)
            raise UsageError(f"there is no source {name}; the sources are {known}.")
        return self.sources[name]

    @property
    def silver_tables(self) -> Mapping[str, SilverTable]:
        """The tables of silver, as `silver.orders`: those of sources, then child tables."""
        tables: dict[str, SilverTable] = {**self.sources, **self.silver}
        return {f"silver.{name}": table for name, table in tables.items()}

    @property
    def changing_tables(self) -> frozenset[str]:
        """The tables whose change feed is read: silver that changes, gold that others read."""
        silver = (name for name, table in self.silver_tables.items() if change_keys(table))
        published = (f"gold.{name}" for name, table in self.gold.items() if table.outputs)
        read = (name for t in self.gold.values() for name in t.tables if layer_of(name) == "gold")
        return frozenset((*silver, *published, *read))

    def root(self, table: str) -> str:
        """Return the source from which the rows of a silver table come.

        Args:
            table: the table's name without its layer.
        """
        while table in self.silver:
            table = self.silver[table].parent
        return table

    def silver_source(self, table: str) -> SourceConfig | None:
        """Return the source of a silver table or of its log of changes; None if there is none."""
        name = short_name(table)
        source = self.sources.get(name) or self.sources.get(name.removesuffix(CHANGES))
        return source if source and table in (f"silver.{source.name}", source.rows_table) else None

    def spec(self, table: str) -> TableSpec:
        """Return the storage settings of a table."""
        if layer_of(table) == "silver" and (source := self.silver_source(table)):
            # Rows are queried by time, and those of change records are merged by key.
            columns = (*(source.keys if source.cdc else ()), source.event_time, INGESTED_AT)
            spec = table_specs.CHANGING if table != source.rows_table else table_specs.SILVER
            return replace(spec, statistics=tuple(dict.fromkeys(filter(None, columns))))
        is_changing = table in self.changing_tables
        return table_specs.CHANGING if is_changing else table_specs.table_spec(table)

    def properties(self, table: str) -> dict[str, str]:
        """Return the Delta properties of a table."""
        retention = self.maintain.retention
        # Two days more, for the time between two nightly runs.
        tombstone_days = 2 + math.ceil(retention.seconds / 86400)
        return self.spec(table).properties(retention.text, tombstone_days)

    @property
    def expectations(self) -> Path:
        """The Great Expectations project, with one suite for each table."""
        return self.conf_dir / "great_expectations"

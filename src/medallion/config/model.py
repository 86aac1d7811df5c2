"""The settings of one process, as frozen dataclasses; `loader` makes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

from medallion.config.values import Duration
from medallion.errors import UsageError
from medallion.storage import table_specs
from medallion.storage.paths import Layout, without_dotdot
from medallion.storage.table_specs import (
    FILE_ORIGIN_COLUMNS,
    INGESTED_AT,
    MESSAGE_ORIGIN_COLUMNS,
    OFFSET,
    PARTITION,
    SOURCE_FILE,
    TOPIC,
    WINDOW,
    Columns,
    TableSpec,
)


@dataclass(frozen=True)
class Kafka:
    """Topics of a message broker, and how their messages are read.

    `servers` are hosts with their ports. `value` says what a message is: a JSON object, or text,
    which becomes the column `value`. A first run begins at `starting_offsets`.
    """

    servers: tuple[str, ...]
    topics: tuple[str, ...]
    value: str
    starting_offsets: str
    max_messages_per_trigger: int


@dataclass(frozen=True)
class Rate:
    """Rows that Spark makes up, numbered in `value`, each with a `timestamp`."""

    rows_per_second: int


@dataclass(frozen=True)
class Socket:
    """Lines of JSON from whoever listens at a port. What came in while nobody read is lost."""

    host: str
    port: int


STREAM_KEYS: Mapping[str, tuple[str, ...]] = {
    kind: tuple(each.name for each in fields(read))
    for kind, read in (("kafka", Kafka), ("rate", Rate), ("socket", Socket))
}
"""The keys of a source that are its format's alone."""


TYPED_FORMATS = ("parquet", "orc", "avro")  # whose files bring the types of their columns
FILE_FORMATS = ("json", "csv", *TYPED_FORMATS, "text")
FORMATS = (*FILE_FORMATS, *STREAM_KEYS)
WIDENING = "addNewColumnsWithTypeWidening"
EVOLUTION = ("addNewColumns", WIDENING, "rescue", "failOnNewColumns", "none")
CLEANING = ("archive", "delete", "off")
LATE = ("admit", "quarantine")
ON_RESCUED = ("quarantine", "warn", "ignore")
OUTPUT_MODES = ("complete", "update")
OutputMode = Literal["complete", "update", "append"]
JOINS = ("inner", "left")


@dataclass(frozen=True)
class LookupConfig:
    """A reference whose columns silver takes over: those of its row with the same value in `on`.

    `file` is a CSV file with a header, or the folder of a Delta table.
    """

    file: str
    on: str
    columns: Mapping[str, str]


@dataclass(frozen=True)
class CsvOptions:
    """Reader options of CSV files, by Spark's names.

    `header` is None if files have a header, and one that looks like data makes its file wait. True
    takes each file's first row as its header, whatever it looks like. False: files have no header,
    and their columns are those of `schema`, in order.
    """

    delimiter: str = ","
    header: bool | None = None


@dataclass(frozen=True)
class SourceConfig:
    """Where rows come from, and what bronze and silver make of them.

    `schema` is None where it is to be inferred, and `hints` give types that then win. Sizes are
    in bytes; those of packed files count as they are unpacked. `on_rescued` says what becomes of
    rows in which a field that silver reads did not fit its column. `stream` is what is read in
    place of files, by the formats kafka, rate and socket: then nothing of files applies.
    """

    name: str
    schema: Mapping[str, str] | None
    hints: Mapping[str, str]
    schema_evolution: str
    silver: Mapping[str, str]
    lookup: LookupConfig | None
    event_time: str
    keys: tuple[str, ...]
    watermark: Duration
    late: str
    on_rescued: str
    format: str
    multi_line: bool
    pattern: str
    folders: tuple[str, ...]
    allow_overwrites: bool
    quiet_period: Duration | None
    clean_source: str
    clean_after: Duration | None
    max_line_bytes: int
    max_files_per_trigger: int
    max_bytes_per_trigger: int
    stream: Kafka | Rate | Socket | None = None
    options: CsvOptions = CsvOptions()

    @property
    def origin_columns(self) -> Columns:
        """The columns of bronze that say where a row came from."""
        if isinstance(self.stream, Kafka):
            return MESSAGE_ORIGIN_COLUMNS
        return {} if self.stream else FILE_ORIGIN_COLUMNS

    @property
    def silver_origin_columns(self) -> tuple[str, ...]:
        """Those of them that silver has as well."""
        return tuple(c for c in (SOURCE_FILE, TOPIC, PARTITION, OFFSET) if c in self.origin_columns)

    @property
    def silver_columns(self) -> tuple[str, ...]:
        """Silver's columns, but for the time at which a row came in."""
        return (*self.columns, *self.silver_origin_columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """Silver's columns, without the technical ones: its own, then those of the reference."""
        return (*self.silver, *(self.lookup.columns if self.lookup else ()))

    def folders_in(self, layout: Layout) -> tuple[Path, ...]:
        """The source's folder of landing, and the others that its configuration names."""
        return (layout.landing(self.name), *(without_dotdot(layout.root / f) for f in self.folders))


@dataclass(frozen=True)
class Aggregate:
    """Groups of one silver table's rows, and what is measured of each.

    Of `window` (with `slide`, where windows overlap) and `session` one may be there: a session
    lasts as long as rows follow each other within that time.
    """

    group_by: tuple[str, ...]
    measure: Mapping[str, str]
    window: Duration | None = None
    slide: Duration | None = None
    session: Duration | None = None

    @property
    def groups(self) -> tuple[str, ...]:
        """The columns that a row of the table is known by, the window's first."""
        return (*(WINDOW if self.window or self.session else ()), *self.group_by)


@dataclass(frozen=True)
class Statement:
    """What a file of SQL says of silver tables."""

    file: Path
    sql: str


@dataclass(frozen=True)
class Join:
    """Rows of two silver tables that have the same key, and times near each other.

    `on` are columns of the first table with those of the second. `where` chooses among the rows
    of the first, and `condition` among the pairs; `columns` are SQL over both, by the names of
    their sources.
    """

    kind: str
    on: Mapping[str, str]
    within: Duration
    where: str | None
    condition: str | None
    columns: Mapping[str, str]


@dataclass(frozen=True)
class ToFiles:
    """The changes of a table as files below `publish`."""

    format: str


@dataclass(frozen=True)
class ToKafka:
    """The changes of a table as messages of a topic, each a JSON object."""

    servers: tuple[str, ...]
    topic: str


OutputConfig = ToFiles | ToKafka


@dataclass(frozen=True)
class GoldTable:
    """One table of gold, and the sources whose silver tables it is made of.

    `outputs` are where its changes are published, by `files` and `kafka`.
    """

    name: str
    sources: tuple[str, ...]
    definition: Aggregate | Statement | Join
    output_mode: OutputMode
    outputs: Mapping[str, OutputConfig] = field(default_factory=dict)


@dataclass(frozen=True)
class Maintenance:
    """What maintenance does to the tables.

    `retention` is how long versions of a table stay readable at least: what a query, a held gate
    or a refresh still needs stays longer. `every` is how often a stream that is on sees to it (a
    nightly batch does so at its end). A table is compacted once it has `compact_from` files that
    are smaller than `target_file_size` (bytes).
    """

    retention: Duration
    every: Duration
    compact_from: int
    target_file_size: int

    def properties(self, spec: TableSpec) -> dict[str, str]:
        """The properties of a Delta table that is kept by this policy."""
        # A night and the next are between.
        known_days = 2 + math.ceil(self.retention.seconds / 86400)
        return spec.properties(self.retention.text, known_days)


@dataclass(frozen=True)
class Login:
    """How Kafka's brokers are spoken to, by the names that Kafka has for it; from the environment.

    `ca` is a file with the certificates of the authorities to trust, in PEM.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str = "PLAIN"
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    ca: str = ""


@dataclass(frozen=True)
class Config:
    """The whole configuration of one process."""

    conf_dir: Path
    master: str | None
    layout: Layout
    sources: Mapping[str, SourceConfig]
    gold: Mapping[str, GoldTable]
    maintain: Maintenance
    login: Login = field(default_factory=Login)

    def source(self, name: str) -> SourceConfig:
        """The settings of one source.

        Raises:
            UsageError: there is none of that name.
        """
        if name not in self.sources:
            raise UsageError(f"there is no source {name}; there are {', '.join(self.sources)}.")
        return self.sources[name]

    def spec(self, table: str) -> TableSpec:
        """How a table is kept."""
        layer, _, name = table.partition(".")
        if layer == "silver" and name in self.sources:  # whose rows are asked for by their times
            times = (self.sources[name].event_time, INGESTED_AT)
            return replace(table_specs.SILVER, statistics=times)
        is_published = layer == "gold" and name in self.gold and self.gold[name].outputs
        return table_specs.PUBLISHED if is_published else table_specs.table_spec(table)

    def properties(self, table: str) -> dict[str, str]:
        """The properties of its Delta table."""
        return self.maintain.properties(self.spec(table))

    @property
    def expectations(self) -> Path:
        """The Great Expectations project with one suite a table."""
        return self.conf_dir / "great_expectations"

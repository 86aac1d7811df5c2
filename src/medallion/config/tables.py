"""Change records, lookup tables, child tables and outputs as frozen dataclasses; see `model`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from medallion.config import values
from medallion.config.values import Duration, choice_key, key
from medallion.storage.table_specs import SOURCE_MODIFIED_AT


@dataclass(frozen=True, kw_only=True)
class ChildTable:
    """A silver table whose rows come from another silver table, its parent.

    Attributes:
        name: The name of the entry and of the table.
        parent: The silver table to read, of a source or another entry.
        explode: An array or map in Spark SQL over the parent's columns. Each element is a row, with
            its value in `item` and its position, from 0, in `pos`; of a map also `key`.
        outer: `true` keeps a parent without elements as one row, with null in `item` and `pos`.
        columns: The columns of the table, each with a Spark SQL expression over the parent's
            columns and those of `explode`. Without `explode`, the default is the parent's columns.
        where: A condition in Spark SQL over the same columns; other rows are left out.
        keys: Columns that identify a row. Rows with a null in them are quarantined by the rule
            `null_key`, and of rows with equal keys the first stays. By default all rows stay.
        event_time: the column that is the parent's event time; None if there is none.
        change_keys: if the rows of the parent change, its columns that say which rows do, each with
            the column of this table that has its value; else empty.
        watermark: that of the source.
        renamed_from: The older name of the table, whose rows the next run moves to the new name.
    """

    name: str
    parent: str
    explode: str | None = key(values.non_blank_string, values.ARRAY, None)
    outer: bool = key(values.boolean, values.BOOLEAN, False)
    columns: Mapping[str, str]
    where: str | None = key(values.non_blank_string, values.CONDITION, None)
    keys: tuple[str, ...] = key(values.string_list, "a list of its columns", [])
    event_time: str | None
    watermark: Duration
    change_keys: Mapping[str, str] = field(default_factory=dict)
    renamed_from: str | None = key(values.table_name, values.OLDER_NAME, None)

    @property
    def expressions(self) -> dict[str, str]:
        """Its SQL over the columns of its parent and those of `explode`, by key."""
        columns = {f"columns.{name}": sql for name, sql in self.columns.items()}
        return {**columns, "explode": self.explode or "", "where": self.where or ""}


@dataclass(frozen=True)
class LookupConfig:
    """A lookup table whose columns are joined to silver.

    Attributes:
        file: A CSV file with a header or the folder of a Delta table, absolute or below the root.
        on: The silver column to join by; the lookup table has one of the same name.
        columns: The lookup table's columns to add, with their types.
    """

    file: str = key(values.non_blank_string, "a CSV file or the folder of a Delta table")
    on: str = key(values.non_blank_string, "the name of a silver column")
    columns: Mapping[str, str] = key(values.typed_columns, f"snake_case {values.COLUMNS}")


@dataclass(frozen=True)
class CdcConfig:
    """Change records: the rows of a source say how rows of another system changed.

    `silver.<source>_changes` has each valid change, and `silver.<source>` the latest state or the
    history of each key.

    Attributes:
        sequence_by: The order of the changes of a key, in Spark SQL over silver's or bronze's
            columns, such as `updated_at` or `struct(ts, lsn)`. Equal ones are ordered by ingestion
            time, then file and line (or offset), then values. Silver's column is meant if both have
            one of a name. A change without one is quarantined by the rule `null_sequence`, and one
            with a null in its key by `null_key`.
        apply_as_deletes: The condition of a change that deletes its key, in Spark SQL over silver's
            or bronze's columns, such as `op = 'd'`; without it no change deletes.
        apply_as_truncates: The condition of a change that deletes all rows before it, such as
            `op = 't'`; it has a sequence, and its other columns are ignored.
        unavailable_value: A string in place of a value that did not change and that the writer left
            out: the row keeps its value. For Debezium it is `__debezium_unavailable_value`.
        stored_as_scd_type: `1` keeps the latest row of each key, `2` a row for each change with
            `valid_from`, `valid_to` (null for the current row) and `is_current`.
        ignore_null_updates: `true`: a null keeps the value that the row had before.
        tombstone_retention: How long a delete of SCD type 1 is remembered: an older change that is
            ingested later than this after the delete adds the row again.
        snapshot: `true`: the rows of one sequence are the complete table, so a row that the next
            sequence lacks was deleted. Without `sequence_by` each file is one.
        max_deletes: How much smaller a snapshot may be than the one before it. A smaller one is not
            applied, but reported, until one that is large enough comes.
        track: Silver columns: a history has a row for each change of one of them; other columns
            change in place. By default for each change, or of a snapshot for each changed row.
        derived: SQL of the technical columns of the log over silver's columns and `_bronze`, from
            `layers.silver.envelope.unwrapped`; empty in a configuration.
    """

    sequence_by: str = key(values.non_blank_string, values.SQL)
    apply_as_deletes: str | None = key(values.non_blank_string, values.SQL, None)
    apply_as_truncates: str | None = key(values.non_blank_string, values.SQL, None)
    unavailable_value: str | None = key(values.non_blank_string, "a string", None)
    stored_as_scd_type: int = key(values.one_of((1, 2)), "one of 1, 2", 1)
    ignore_null_updates: bool = key(values.boolean, values.BOOLEAN, False)
    tombstone_retention: Duration = key(values.duration, values.DURATION, "30 days")
    snapshot: bool = key(values.boolean, values.BOOLEAN, False)
    max_deletes: float = key(values.percentage, "a percentage such as '50 %'", "50 %")
    track: tuple[str, ...] | None = key(values.string_list, "a list of silver columns", None)
    derived: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_file_snapshots(self) -> bool:
        """Whether each file is a snapshot: of several files of one time, the last is the table."""
        return self.snapshot and self.sequence_by == SOURCE_MODIFIED_AT


DEBEZIUM_CDC = {
    "sequence_by": "coalesce(_lsn, _ts_ms)",
    "apply_as_deletes": "_op = 'd'",
    "apply_as_truncates": "_op = 't'",
    "unavailable_value": "__debezium_unavailable_value",
}
"""The defaults of `cdc` for Debezium."""


@dataclass(frozen=True)
class ToFiles:
    """An output of a gold table's changes as files below `publish/<table>/`.

    Attributes:
        format: The format of the files.
    """

    format: str = key(values.one_of(("json", "csv", "parquet")), "one of json, csv, parquet")


@dataclass(frozen=True)
class Kafka:
    """A source of `format: kafka`.

    Attributes:
        servers: The brokers, as `host:port`.
        topics: The topics to read. A topic added later is read from its first message.
        value: The content of a message: a JSON object, or text for the column `value`.
        starting_offsets: Where the first run starts.
        max_messages_per_trigger: The most messages in one batch.
    """

    servers: tuple[str, ...] = key(values.distinct(values.server), values.SERVERS)
    topics: tuple[str, ...] = key(values.distinct(values.topic), "a list of different topics")
    value: str = choice_key(("json", "text"))
    starting_offsets: str = choice_key(("earliest", "latest"))
    max_messages_per_trigger: int = key(values.count, values.COUNT, 1_000_000)


@dataclass(frozen=True)
class ToKafka:
    """An output of a gold table's changes as JSON messages of a Kafka topic.

    Attributes:
        servers: The brokers, as `host:port`.
        topic: A topic that no source reads and no other output writes.
    """

    servers: tuple[str, ...] = key(values.distinct(values.server), values.SERVERS)
    topic: str = key(values.topic, "the name of a topic")


OutputConfig = ToFiles | ToKafka

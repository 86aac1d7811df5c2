"""Properties and technical columns of all tables."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from medallion.storage.layout import layer_of

Columns = Mapping[str, str]
"""Spark SQL types by column."""

_REPLACED = re.compile(r"[\s,;{}()=`'\"\\.<>:?*]")
SQL_REPLACED = r"[\s,;{}()=`\x27\x22\\.<>:?*]"
"""The characters that `column_name` replaces, as a pattern in a SQL string."""

RETENTION = "1 day"
"""Default time for which commits stay: a stream writes 21,600 versions of a table a day."""


@dataclass(frozen=True)
class TableSpec:
    """The storage settings of a table, the same for all writers.

    Attributes:
        columns: the columns of a table that is written without Spark; None for others.
        is_streamed: a stream reads its commits one by one. So only `maintain`, which knows what the
            streams still need, removes old commits.
        has_feed: commits have a change data feed.
        statistics: the columns with minimum and maximum per file, for data skipping; None for all.
            They take half of the time of a write. Row counts are always written.
    """

    columns: Columns | None = None
    is_streamed: bool = False
    has_feed: bool = False
    statistics: tuple[str, ...] | None = None

    def properties(self, retention: str = RETENTION, tombstone_days: int = 3) -> dict[str, str]:
        """Return the properties of the Delta table.

        Args:
            retention: how long commits stay.
            tombstone_days: how long the log lists a removed file; it must exceed the age at which
                vacuum deletes it, because vacuum finds files only through these entries.
        """
        properties = {
            "delta.checkpointInterval": "10",  # Spark's default, but not that of delta-rs
            "delta.enableChangeDataFeed": str(self.has_feed).lower(),
            "delta.enableExpiredLogCleanup": str(not self.is_streamed).lower(),
            "delta.logRetentionDuration": f"interval {retention}",
            "delta.deletedFileRetentionDuration": f"interval {tombstone_days} days",
        }
        if self.statistics == ():
            properties["delta.dataSkippingNumIndexedCols"] = "0"
        elif self.statistics:
            columns = ",".join(map(quote_identifier, self.statistics))
            properties["delta.dataSkippingStatsColumns"] = columns
        return properties


BRONZE = TableSpec(is_streamed=True, statistics=())
SILVER = TableSpec(is_streamed=True)
CHANGING = TableSpec(is_streamed=True, has_feed=True)
"""A table whose change feed is read."""

INTAKE = TableSpec(
    {"path": "string", "version": "long", "size": "long", "modified_at": "timestamp"},
    is_streamed=True,
)
RECORD_TABLES = ("ops.files", "ops.topics", "ops.runs", "ops.erasures")


def table_spec(table: str) -> TableSpec:
    """Return the spec of `layer.name`, or of the queue `_intake.source`."""
    specs = {"bronze": BRONZE, "silver": SILVER, "_intake": INTAKE}
    return specs.get(layer_of(table), TableSpec())


# Values that do not fit the schema; a line that cannot be parsed; the time of ingestion.
RESCUED, CORRUPT, INGESTED_AT = "_rescued_data", "_corrupt_record", "_ingested_at"
ROW_COUNTS = f"count(*), count({CORRUPT}), count({RESCUED})"
"""SQL that counts bronze's rows, corrupt rows, and rows with rescued fields."""

# The origin of a row: its file and its place in it, or its message. The position is the number of
# the first line if Python decodes the file (CSV); else it only increases with the lines.
SOURCE_FILE, SOURCE_MODIFIED_AT = "_source_file", "_source_modified_at"
SOURCE_POSITION = "_source_position"
TOPIC, PARTITION, OFFSET = "_topic", "_partition", "_offset"
FAILED_RULES = "_failed_rules"
# Of change records: their order, and whether they delete their key; true for one that deletes all
# keys, else null; the key before an update of it; the columns whose values the writer left out.
SEQUENCE, IS_DELETE, IS_TRUNCATE = "_sequence", "_is_delete", "_is_truncate"
OLD_KEY, UNAVAILABLE = "_old_key", "_unavailable"
MESSAGE_RULES = ("tombstone", "schema_change", "transaction", "heartbeat", "logical_message")
"""Rules for messages of Debezium without a changed row: that they break them is no fault."""
DELETE_RULE = "delete_not_applied"
"""A further rule of a delete that breaks one: the row of its key stays."""
NEW_COLUMNS = (SOURCE_POSITION, IS_TRUNCATE, OLD_KEY, UNAVAILABLE)
"""Technical columns that tables of older versions lack."""
VALID_FROM, VALID_TO, IS_CURRENT = SPAN = ("valid_from", "valid_to", "is_current")
"""Columns of a history; `valid_to` is exclusive, and null in the current row of a key."""
WINDOW = ("window_start", "window_end")
"""Window columns of gold; the end is exclusive."""

FILE_ORIGIN_COLUMNS: Columns = {
    SOURCE_FILE: "string", SOURCE_MODIFIED_AT: "timestamp", SOURCE_POSITION: "long",
}  # fmt: skip
MESSAGE_ORIGIN_COLUMNS: Columns = {
    TOPIC: "string", PARTITION: "int", OFFSET: "long", "_timestamp": "timestamp", "_key": "string",
    "_headers": "array<struct<key: string, value: string>>",
}  # fmt: skip
SILVER_ORIGIN_COLUMNS = (SOURCE_FILE, TOPIC, PARTITION, OFFSET)
ARRIVAL = (INGESTED_AT, SOURCE_FILE, SOURCE_POSITION, TOPIC, PARTITION, OFFSET)
"""Columns that order the changes with one key and sequence."""
TECHNICAL_COLUMNS = (RESCUED, CORRUPT, INGESTED_AT)
"""Bronze's technical columns beside the origin."""


def bronze_columns(schema: Columns, origin: Columns) -> Columns:
    """Return bronze's columns: the source's own, then the technical ones and the row's origin."""
    return {**schema, RESCUED: "string", CORRUPT: "string", **origin, INGESTED_AT: "timestamp"}


def column_name(name: str) -> str:
    """Return the name of the column for a field: `_` replaces what Delta or SQL refuses."""
    return _REPLACED.sub("_", name)


def quote_identifier(name: str) -> str:
    """Return a column name quoted for SQL."""
    return "`" + name.replace("`", "``") + "`"


def string_literal(text: str) -> str:
    """Return a string as a literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    # Spark's parser substitutes ${name}: escape its dollar sign.
    return "'" + escaped.replace("${", "\\u0024{") + "'"


def struct_sql(columns: Mapping[str, str]) -> str:
    """Return SQL of a struct from the SQL of its fields."""
    fields = (f"'{name}', {value}" for name, value in columns.items())
    return f"named_struct({', '.join(fields)})"


def record_column_sql(columns: Columns, name: str) -> str:
    """Return SQL of a record's column, with times as microseconds since 1970."""
    return f"arrow_cast({name}, 'Int64')" if columns[name] == "timestamp" else name


_ARROW = {"string": "Utf8", "long": "Int64", "double": "Float64"}


def typed_null_sql(columns: Columns, name: str) -> str:
    """Return SQL of a null in place of a column of a record that an older table lacks."""
    return f"arrow_cast(null, '{_ARROW.get(columns[name], 'Timestamp(Microsecond, None)')}')"

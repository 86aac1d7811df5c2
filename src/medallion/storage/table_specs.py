"""How each table is kept: the one place that lists them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from medallion.storage.paths import layer_of

# How long what is replaced stays, unless the configuration says otherwise. A table that is written
# whole every four seconds has 21,600 versions of itself by then.
RETENTION = "1 day"


@dataclass(frozen=True)
class TableSpec:
    """What a table's log and files carry, whoever writes them.

    Attributes:
        columns: of a table that is written without Spark; None of the others.
        is_streamed: a stream reads its commits one after the other. One that was switched off for
            longer than the log is kept could not go on where it stopped, so only `maintain`, which
            knows what the streams still need, takes old commits away.
        has_feed: each commit says which rows it has changed, for a stream of them.
        statistics: the columns of which each file's least and greatest value are kept, so that a
            query can skip files; None for all of them. They cost as much as half of the writing,
            and of a text of megabytes Delta's writer makes a copy for each row that comes after it.
            The count of rows is always kept.
    """

    columns: Columns | None = None
    is_streamed: bool = False
    has_feed: bool = False
    statistics: tuple[str, ...] | None = None

    def properties(self, retention: str = RETENTION, known_days: int = 3) -> dict[str, str]:
        """The properties of its Delta table.

        Args:
            retention: how long commits stay.
            known_days: how long the log knows of a file that was replaced. It must know of it for
                longer than the file stays, for maintenance removes those that it knows of.

        A checkpoint every ten commits is Spark's own default, and not that of the other writer
        here: opening a table reads all the commits since the last one.
        """
        found = {
            "delta.checkpointInterval": "10",
            "delta.enableChangeDataFeed": str(self.has_feed).lower(),
            "delta.enableExpiredLogCleanup": str(not self.is_streamed).lower(),
            "delta.logRetentionDuration": f"interval {retention}",
            "delta.deletedFileRetentionDuration": f"interval {known_days} days",
        }
        if self.statistics is None:
            return found
        if not self.statistics:
            return {**found, "delta.dataSkippingNumIndexedCols": "0"}
        return {
            **found,
            "delta.dataSkippingStatsColumns": ",".join(map(quote_identifier, self.statistics)),
        }


BRONZE = TableSpec(is_streamed=True, statistics=())
SILVER = TableSpec(is_streamed=True)
PUBLISHED = TableSpec(is_streamed=True, has_feed=True)  # a table of gold whose changes are read
INTAKE = TableSpec(
    {"path": "string", "version": "long", "size": "long", "modified_at": "timestamp"},
    is_streamed=True,
)
RECORD_TABLES = ("ops.files", "ops.topics", "ops.runs")


def table_spec(table: str) -> TableSpec:
    """The spec of `layer.name`; where nothing is said of a layer here, it is the plain one."""
    return {"bronze": BRONZE, "silver": SILVER}.get(layer_of(table), TableSpec())


Columns = Mapping[str, str]

# What does not fit the schema, the line that is not JSON, and when a row came in.
RESCUED, CORRUPT, INGESTED_AT = "_rescued_data", "_corrupt_record", "_ingested_at"
# Of a source whose times have digits beyond the microsecond: in bronze those times in full, as a
# JSON object by column; in silver the digits of those that its keys are made of.
FULL_TIMES, TIME_DIGITS = "_full_times", "_time_digits"
# SQL: the rows of bronze, those that are corrupt, and those that hold rescued fields.
ROW_COUNTS = f"count(*), count({CORRUPT}), count({RESCUED})"
# Where a row of a file came from,
SOURCE_FILE, SOURCE_MODIFIED_AT = "_source_file", "_source_modified_at"
# and where one of a message broker.
TOPIC, PARTITION, OFFSET = "_topic", "_partition", "_offset"
FAILED_RULES = "_failed_rules"
# Where a window of gold starts, and where it ends, which is not part of it.
WINDOW = ("window_start", "window_end")

# The columns of bronze that say where a row came from. Text in them that is not UTF-8 is kept as
# Latin-1, as in `_corrupt_record`.
FILE_ORIGIN_COLUMNS: Columns = {SOURCE_FILE: "string", SOURCE_MODIFIED_AT: "timestamp"}
MESSAGE_ORIGIN_COLUMNS: Columns = {
    TOPIC: "string",
    PARTITION: "int",
    OFFSET: "long",
    "_timestamp": "timestamp",
    "_key": "string",
    "_headers": "array<struct<key: string, value: string>>",
}
TECHNICAL_COLUMNS = (RESCUED, CORRUPT, INGESTED_AT)  # beside those


def bronze_columns(schema: Columns, origin: Columns) -> Columns:
    """Bronze: the source's own columns, then the technical ones.

    Args:
        origin: the columns that say where a row came from.
    """
    text = {RESCUED: "string", CORRUPT: "string"}
    return {**schema, **text, **origin, INGESTED_AT: "timestamp"}


def quote_identifier(name: str) -> str:
    """A column in SQL, whatever it is called."""
    return "`" + name.replace("`", "``") + "`"


def struct_sql(columns: Mapping[str, str]) -> str:
    """SQL: a struct, from the SQL of its fields."""
    fields = (f"'{name}', {value}" for name, value in columns.items())
    return f"named_struct({', '.join(fields)})"


def record_column_sql(columns: Columns, name: str) -> str:
    """A column of a record in SQL, a time as microseconds since 1970."""
    return f"arrow_cast({name}, 'Int64')" if columns[name] == "timestamp" else name


_ARROW = {"string": "Utf8", "long": "Int64", "double": "Float64"}


def typed_null_sql(columns: Columns, name: str) -> str:
    """Return SQL of a null in place of a column of a record that an older table lacks."""
    return f"arrow_cast(null, '{_ARROW.get(columns[name], 'Timestamp(Microsecond, None)')}')"

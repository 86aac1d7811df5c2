"""The technical columns, and how a column is said in SQL."""

from __future__ import annotations

from collections.abc import Mapping

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
OF_FILES: Columns = {SOURCE_FILE: "string", SOURCE_MODIFIED_AT: "timestamp"}
OF_MESSAGES: Columns = {
    TOPIC: "string",
    PARTITION: "int",
    OFFSET: "long",
    "_timestamp": "timestamp",
    "_key": "string",
    "_headers": "array<struct<key: string, value: string>>",
}
TECHNICAL = (RESCUED, CORRUPT, INGESTED_AT)  # beside those


def bronze_columns(schema: Columns, origin: Columns) -> Columns:
    """Bronze: the source's own columns, then the technical ones.

    Args:
        origin: the columns that say where a row came from.
    """
    text = {RESCUED: "string", CORRUPT: "string"}
    return {**schema, **text, **origin, INGESTED_AT: "timestamp"}


def quoted(name: str) -> str:
    """A column in SQL, whatever it is called."""
    return "`" + name.replace("`", "``") + "`"


def struct(columns: Mapping[str, str]) -> str:
    """SQL: a struct, from the SQL of its fields."""
    fields = (f"'{name}', {value}" for name, value in columns.items())
    return f"named_struct({', '.join(fields)})"


def as_number(columns: Columns, name: str) -> str:
    """A column of a record in SQL, a time as microseconds since 1970."""
    return f"arrow_cast({name}, 'Int64')" if columns[name] == "timestamp" else name


_ARROW = {"string": "Utf8", "long": "Int64", "double": "Float64"}


def as_null(columns: Columns, name: str) -> str:
    """Return SQL of a null in place of a column of a record that an older table lacks."""
    return f"arrow_cast(null, '{_ARROW.get(columns[name], 'Timestamp(Microsecond, None)')}')"

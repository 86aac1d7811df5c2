"""The technical columns, those of the tables of ops, and how a column is said in SQL."""

from __future__ import annotations

from collections.abc import Mapping

Columns = Mapping[str, str]

# What does not fit the schema, the line that is not JSON, and when a row came in.
RESCUED, CORRUPT, INGESTED_AT = "_rescued_data", "_corrupt_record", "_ingested_at"
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

# One row a query and run, and one row a quality gate and run (kind `query` or `gate`). `number` is
# their order, which no clock has a say in. Times are UTC; expectations are names with commas
# between; a gate's version is the last one that it saw. Unmatched rows are those that a reference
# has none for: null without one, or where the process that had counted them was cut off.
RUNS: Columns = {
    "run_id": "string",
    "command": "string",
    "kind": "string",
    "query": "string",
    "started_at": "timestamp",
    "seconds": "double",
    "state": "string",
    "error": "string",
    "first_batch": "long",
    "last_batch": "long",
    "batches": "long",
    "rows_in": "long",
    "rows_out": "long",
    "quarantined_rows": "long",
    "duplicate_rows": "long",
    "late_rows": "long",
    "unmatched_rows": "long",
    "watermark": "timestamp",
    "table_version": "long",
    "quarantine_version": "long",
    "failed_expectations": "string",
    "accepted_expectations": "string",
    "number": "long",
}

# The ledger: one row a version of a file; sizes in bytes, times in UTC.
FILES: Columns = {
    "source": "string",
    "path": "string",
    "version": "long",
    "size": "long",
    "modified_at": "timestamp",
    "first_seen_at": "timestamp",
    "state": "string",
    "why": "string",
    "batch": "long",
    "committed_at": "timestamp",
    "rows": "long",
    "corrupt_rows": "long",
    "rescued_rows": "long",
    "moved_to": "string",
}


# The ledger of topics: one row a partition, which is taken in from `first_offset` up to, and
# without, `next_offset` (-1: there is no such partition any more). `rows` and those that are
# corrupt or hold rescued fields are sums of all batches up to `batch`. `lost` counts the offsets
# that were gone before they were taken in, and `made_anew` how often another topic of the same name
# took its place, or its offsets began to come a second time, where somebody said to go on.
TOPICS: Columns = {
    "source": "string",
    "topic": "string",
    "topic_id": "string",
    "partition": "long",
    "first_offset": "long",
    "next_offset": "long",
    "batch": "long",
    "committed_at": "timestamp",
    "rows": "long",
    "corrupt_rows": "long",
    "rescued_rows": "long",
    "lost": "long",
    "made_anew": "long",
}


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


def as_number(columns: Columns, name: str) -> str:
    """A column of a record in SQL, a time as microseconds since 1970."""
    return f"arrow_cast({name}, 'Int64')" if columns[name] == "timestamp" else name

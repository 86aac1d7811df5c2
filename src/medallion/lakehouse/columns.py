"""The columns of every table, as the contract gives them."""

from __future__ import annotations

from collections.abc import Mapping

Columns = Mapping[str, str]

# What does not fit the schema, the line that is not JSON, and where and when a row came in.
RESCUED, CORRUPT = "_rescued_data", "_corrupt_record"
SOURCE_FILE, SOURCE_MODIFIED_AT, INGESTED_AT = "_source_file", "_source_modified_at", "_ingested_at"
FAILED_RULES = "_failed_rules"
# The first and the first later moment of a window of gold.
WINDOW = ("window_start", "window_end")

TECHNICAL: Columns = {
    RESCUED: "string",
    CORRUPT: "string",
    SOURCE_FILE: "string",
    SOURCE_MODIFIED_AT: "timestamp",
    INGESTED_AT: "timestamp",
}

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


def bronze_columns(schema: Columns) -> Columns:
    """Bronze: the source's own columns, then the technical ones."""
    return {**schema, **TECHNICAL}

"""Delta tables as files: made, asked for their versions, and appended to, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from medallion.schemas import Columns

# Change data feed: a quality gate reads just the rows of the versions that it has not seen. The
# log is kept for ten years: a stream that was switched off for longer than the log is kept could
# not go on where it stopped.
_CONFIGURATION: dict[str, str | None] = {
    "delta.enableChangeDataFeed": "true",
    "delta.logRetentionDuration": "interval 3650 days",
}


def create(table: Path, schema_json: str) -> None:
    """Make an empty table unless it is there, so that it can be asked before its first row."""
    from deltalake import DeltaTable, Schema

    if (table / "_delta_log").is_dir():
        return
    fields = json.loads(schema_json)
    for field in fields["fields"]:
        field["nullable"] = True  # a count is never null to Spark, a table's column may be
    DeltaTable.create(
        table, Schema.from_json(json.dumps(fields)), "ignore", configuration=_CONFIGURATION
    )


def schema_json(columns: Columns) -> str:
    """The schema of plain columns in the JSON that Delta and Spark share."""
    fields = [
        {"name": name, "type": _type(kind), "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


def _type(kind: str) -> Any:
    if kind == "array<string>":
        return {"type": "array", "elementType": "string", "containsNull": True}
    return kind


def version(table: Path) -> int:
    """The newest version of a table; -1 where there is no table."""
    from deltalake import DeltaTable

    return int(DeltaTable(table).version()) if (table / "_delta_log").is_dir() else -1


def row_count(table: Path) -> int:
    """Rows of a table, 0 where there is none, from its files' footers' counts in the log."""
    from deltalake import DeltaTable

    return int(DeltaTable(table).count()) if (table / "_delta_log").is_dir() else 0


def rows_written(table: Path, after: int, until: int | None = None) -> int:
    """Rows added by the commits after one version, as the writers counted them."""
    from deltalake import DeltaTable

    if not (table / "_delta_log").is_dir():
        return 0
    delta = DeltaTable(table)
    total = 0
    for commit in delta.history(max(delta.version() - after, 0)):
        if after < commit["version"] <= (delta.version() if until is None else until):
            metrics: Mapping[str, Any] = commit.get("operationMetrics") or {}
            # A merge names its rows otherwise; its numOutputRows also has those that it copied.
            inserted = metrics.get("numTargetRowsInserted", metrics.get("numOutputRows", 0))
            total += int(inserted)
    return total


def append(table: Path, columns: Columns, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append a few rows in one commit; times are given as microseconds since 1970."""
    import arro3.core as arrow
    from deltalake import write_deltalake

    create(table, schema_json(columns))
    listed = list(rows)
    if not listed:
        return
    types = {
        "string": arrow.DataType.string(),
        "long": arrow.DataType.int64(),
        "double": arrow.DataType.float64(),
    }
    data = {}
    for name, kind in columns.items():
        values = [row.get(name) for row in listed]
        if kind == "timestamp":
            utc = arrow.DataType.timestamp("us", tz="UTC")
            data[name] = arrow.Array(values, arrow.DataType.int64()).cast(utc)
        else:
            data[name] = arrow.Array(values, types[kind])
    write_deltalake(
        table, arrow.Table.from_arrays(list(data.values()), names=list(data)), mode="append"
    )

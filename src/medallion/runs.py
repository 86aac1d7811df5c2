"""The record of runs, `ops.runs`: what the engine counted, kept beyond the process that saw it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from medallion import analyst, schemas, tables
from medallion.layout import Layout

TABLE = "ops.runs"


def write(layout: Layout, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows of `schemas.RUNS`, all in one commit."""
    tables.append(layout.table(TABLE), schemas.RUNS, rows)


def last_batches(layout: Layout) -> dict[str, int]:
    """The last batch of each query that is on record; batches after it still have to be settled."""
    rows = _select(
        layout, "query, max(last_batch)", "where kind = 'query' and last_batch >= 0 group by query"
    )
    return {query: int(batch) for query, batch in rows}


def last_versions(layout: Layout) -> dict[str, tuple[int, int]]:
    """The versions of each query's table and of its quarantine, as the last run left them."""
    rows = _select(
        layout,
        "query, coalesce(max(table_version), 0), coalesce(max(quarantine_version), 0)",
        "where kind = 'query' group by query",
    )
    return {query: (int(table), int(quarantine)) for query, table, quarantine in rows}


def totals(layout: Layout) -> dict[str, dict[str, int]]:
    """Sums over all runs of `rows_in`, `duplicate_rows` and `late_rows`, by query."""
    columns = ("rows_in", "duplicate_rows", "late_rows")
    sums = ", ".join(f"coalesce(sum({column}), 0)" for column in columns)
    rows = _select(layout, f"query, {sums}", "where kind = 'query' group by query")
    return {row[0]: dict(zip(columns, map(int, row[1:]), strict=True)) for row in rows}


def gates(layout: Layout) -> dict[str, tuple[str, int, str]]:
    """The last gate of each table: state (`passed`, `held`), version, names that failed."""
    rows = _select(
        layout,
        "query, state, table_version, coalesce(failed_expectations, '')",
        "where kind = 'gate' order by started_at",
    )
    return {query: (state, int(version), failed) for query, state, version, failed in rows}


def passed_versions(layout: Layout) -> dict[str, int]:
    """The version of each table up to which its rows have passed their gate."""
    rows = _select(
        layout,
        "query, max(table_version)",
        "where kind = 'gate' and state = 'passed' group by query",
    )
    return {query: int(version) for query, version in rows}


def _select(layout: Layout, what: str, rest: str) -> list[tuple[Any, ...]]:
    if tables.version(layout.table(TABLE)) < 0:
        return []
    return analyst.query(str(layout.root), f"select {what} from {TABLE} {rest}").rows


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000

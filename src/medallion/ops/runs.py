"""The record of runs, `ops.runs`: what the engine counted, kept beyond the process that saw it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from medallion.lakehouse import tables
from medallion.lakehouse.columns import RUNS
from medallion.lakehouse.layout import Layout
from medallion.sql import engine

TABLE = "ops.runs"


def write(layout: Layout, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows of `RUNS`, all in one commit."""
    tables.append(layout.table(TABLE), RUNS, rows)
    tables.compact(layout.table(TABLE))


# A refresh begins a query's record anew: what was counted before was of the table that it replaced.
_SINCE_REFRESH = (
    "(select runs.* from ops.runs runs left join (select query as again, max(started_at) as since"
    " from ops.runs where state = 'refreshed' group by query) on query = again"
    " where since is null or started_at >= since) runs"
)


def refreshed(layout: Layout, query: str) -> set[str]:
    """The runs that have refreshed a query's table."""
    rows = _select(layout, "run_id", f"where query = '{query}' and state = 'refreshed'")
    return {row[0] for row in rows}


def refreshed_versions(layout: Layout) -> dict[str, int]:
    """The version that the last refresh of each query's table made of it."""
    what = "query, max(table_version)"
    rows = _select(layout, what, "where state = 'refreshed' group by query")
    return {query: int(version) for query, version in rows}


def last_batches(layout: Layout) -> dict[str, int]:
    """The last batch of each query that is on record; batches after it still have to be settled."""
    rows = _select_since_refresh(
        layout, "query, max(last_batch)", "where kind = 'query' and last_batch >= 0 group by query"
    )
    return {query: int(batch) for query, batch in rows}


def last_versions(layout: Layout) -> dict[str, tuple[int, int]]:
    """The versions of each query's table and of its quarantine, as the last run left them."""
    rows = _select_since_refresh(
        layout,
        "query, coalesce(max(table_version), 0), coalesce(max(quarantine_version), 0)",
        "where kind = 'query' group by query",
    )
    return {query: (int(table), int(quarantine)) for query, table, quarantine in rows}


def totals(layout: Layout) -> dict[str, dict[str, int]]:
    """Sums over all runs of `rows_in`, `duplicate_rows` and `late_rows`, by query."""
    columns = ("rows_in", "duplicate_rows", "late_rows")
    sums = ", ".join(f"coalesce(sum({column}), 0)" for column in columns)
    rows = _select_since_refresh(layout, f"query, {sums}", "where kind = 'query' group by query")
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


@dataclass(frozen=True)
class LastRun:
    """What a query's last run left on record; times in microseconds since 1970."""

    state: str
    error: str | None
    started_at: int
    seconds: float
    rows_in: int | None
    rows_out: int | None
    first_batch: int | None
    last_batch: int | None


_LAST_RUN = (
    "query, state, error, arrow_cast(started_at, 'Int64'), seconds, rows_in, rows_out, first_batch,"
    " last_batch"
)


def last_runs(layout: Layout) -> dict[str, LastRun]:
    """The last run of each query."""
    rows = _select(layout, _LAST_RUN, "where kind = 'query' order by started_at")
    return {row[0]: LastRun(*row[1:]) for row in rows}


def last_busy(layout: Layout, query: str) -> LastRun | None:
    """The last run of a query that had rows."""
    where = f"where query = '{query}' and kind = 'query' and rows_in > 0"
    rows = _select(layout, _LAST_RUN, f"{where} order by started_at desc limit 1")
    return LastRun(*rows[0][1:]) if rows else None


def _select_since_refresh(layout: Layout, what: str, rest: str) -> list[tuple[Any, ...]]:
    return _select(layout, what, rest, _SINCE_REFRESH)


def _select(layout: Layout, what: str, rest: str, source: str = TABLE) -> list[tuple[Any, ...]]:
    if tables.version(layout.table(TABLE)) < 0:
        return []
    return engine.query(str(layout.root), f"select {what} from {source} {rest}").rows


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000

"""The record of runs, `ops.runs`: what the engine counted, kept beyond the process that saw it.

Its rows are in the order of their `number`, and not of their times: a clock may be put back.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from medallion.lakehouse import tables
from medallion.lakehouse.columns import RUNS
from medallion.lakehouse.layout import Layout
from medallion.lakehouse.specs import RECORD

TABLE = "ops.runs"
PASSED, HELD, REFRESHED = "passed", "held", "refreshed"


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


@dataclass(frozen=True)
class Sums:
    """A query's record since its last refresh, of which what came before was another table's.

    Rows are summed over all runs; batch and versions are the last ones, -1 and 0 where none are.
    """

    rows_in: int
    duplicate_rows: int
    late_rows: int
    last_batch: int
    table_version: int
    quarantine_version: int


@dataclass(frozen=True)
class Gate:
    """A table's last gate: `passed` or `held`, the version that it saw, the names that failed."""

    state: str
    version: int
    failed: str


@dataclass(frozen=True)
class Standing:
    """Where all queries and gates stand, by the names of their tables.

    `passed` is the last version that passed a gate, `refreshed` the one that a refresh made.
    """

    sums: Mapping[str, Sums]
    last: Mapping[str, LastRun]
    last_busy: Mapping[str, LastRun]
    gates: Mapping[str, Gate]
    passed: Mapping[str, int]
    refreshed: Mapping[str, int]
    refreshing_runs: frozenset[tuple[str, str]]
    last_number: int


class Runs:
    """The record as one step of a run needs it: read when first asked, and again after a write.

    A layer's rows are written by the process that holds its lock, so nobody else changes them.
    """

    def __init__(self, layout: Layout) -> None:
        self._table = layout.table(TABLE)
        self._read: Standing | None = None

    @property
    def standing(self) -> Standing:
        """Where all queries and gates stand."""
        if self._read is None:
            self._read = _standing(self._table)
        return self._read

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows of `RUNS`, all in one commit, after those that are there."""
        last = self.standing.last_number
        numbered = [{**row, "number": last + at} for at, row in enumerate(rows, 1)]
        tables.append(self._table, RECORD, numbered, few_files=True)
        self._read = None

    def late_rows(self, query: str) -> int:
        """The rows on record that came too late for a query's state, since its last refresh."""
        sums = self.standing.sums.get(query)
        return sums.late_rows if sums else 0

    def last_batch(self, query: str) -> int:
        """The last batch of a query on record, -1 if none: those after it have to be settled."""
        sums = self.standing.sums.get(query)
        return sums.last_batch if sums else -1


# A refresh begins a query's record anew. Rows of before there were numbers come first, by time.
_ORDERED = (
    "(select *, row_number() over (order by coalesce({number}, 0), started_at) as place from rows)"
)
_BEGUN = (
    "(select query as again, max(place) as since from {ordered} where state = 'refreshed'"
    " group by query)"
)
_SINCE_REFRESH = (
    "(select ordered.* from {ordered} ordered left join {begun} begun on query = again"
    " where kind = 'query' and (since is null or place >= since)) since_refresh"
)
_LAST = "place in (select max(place) from {ordered} where {of} group by query)"


def _standing(table: Path) -> Standing:
    opened = tables.Opened(table)
    number = "number" if "number" in opened.columns else "0"
    ordered = _ORDERED.format(number=number)
    since_refresh = _SINCE_REFRESH.format(ordered=ordered, begun=_BEGUN.format(ordered=ordered))

    def last(columns: str, of: str) -> dict[str, tuple[Any, ...]]:
        which = _LAST.format(ordered=ordered, of=of)
        rows = opened.select(f"query, {columns}", f"where {which}", ordered)
        return {row[0]: row[1:] for row in rows}

    def greatest(state: str) -> dict[str, int]:
        rest = f"where state = '{state}' group by query"
        return {query: int(at or 0) for query, at in opened.select(f"query, {_VERSION}", rest)}

    sums = opened.select(f"query, {_SUMS}", "group by query", since_refresh)
    runs = opened.select("query, run_id", f"where state = '{REFRESHED}'")
    gates = last("state, table_version, coalesce(failed_expectations, '')", "kind = 'gate'")
    is_run = "kind = 'query'"
    return Standing(
        sums={row[0]: Sums(*map(int, row[1:])) for row in sums},
        last={query: LastRun(*row) for query, row in last(_RUN, is_run).items()},
        last_busy={
            query: LastRun(*row) for query, row in last(_RUN, f"{is_run} and rows_in > 0").items()
        },
        gates={query: Gate(row[0], int(row[1] or 0), row[2]) for query, row in gates.items()},
        passed=greatest(PASSED),
        refreshed=greatest(REFRESHED),
        refreshing_runs=frozenset((query, run_id) for query, run_id in runs),
        last_number=sum(row[0] or 0 for row in opened.select(f"max({number})")),
    )


_VERSION = "max(table_version)"
_RUN = ", ".join(
    f"arrow_cast({f.name}, 'Int64')" if RUNS[f.name] == "timestamp" else f.name
    for f in fields(LastRun)
)
_SUMS = (
    "coalesce(sum(rows_in), 0), coalesce(sum(duplicate_rows), 0), coalesce(sum(late_rows), 0),"
    " coalesce(max(last_batch), -1), coalesce(max(table_version), 0),"
    " coalesce(max(quarantine_version), 0)"
)


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000

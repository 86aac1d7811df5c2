"""The run record, `ops.runs`: the metrics of queries and the results of gates.

Rows are ordered by `number`, and not by time: the clock may be set back.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from medallion.quality.suites import Failure
from medallion.storage import delta_tables, objects, records, table_specs
from medallion.storage.layout import Layout
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import Columns, TableSpec
from medallion.storage.text import counted, printable

MOST_FIELDS, _NAME_LENGTH, _EXAMPLE_LENGTH = 20, 100, 40


@dataclass(frozen=True)
class RescuedField:
    """The rows in which a field did not fit its type.

    Attributes:
        rows: their number.
        example: the value of one of them, truncated.
        position: its file and line, if the file has lines.
    """

    rows: int
    example: str
    position: str | None = None


@dataclass(frozen=True)
class RescuedSummary:
    """The number of rows with a value that did not fit, and the fields by dotted name.

    For a query of silver, the fields are columns, whose conversions turned a value into null.
    """

    rows: int = 0
    fields: Mapping[str, RescuedField] = field(default_factory=dict)

    @classmethod
    def from_record(cls, rows: int | None, fields: str | None) -> RescuedSummary:
        """Return the summary in two columns of `ops.runs`."""
        record = json.loads(fields or "{}")
        return cls(rows or 0, {name: RescuedField(**each) for name, each in record.items()})

    def record(self) -> dict[str, Any]:
        """Return the columns of `ops.runs`: at most 20 fields, long values truncated."""
        shown = {
            printable(name)[:_NAME_LENGTH]: {
                "rows": each.rows,
                "example": printable(each.example)[:_EXAMPLE_LENGTH],
                **({"position": each.position} if each.position else {}),
            }
            for name, each in list(self.fields.items())[:MOST_FIELDS]
        }
        fields = json.dumps(shown, ensure_ascii=False) if shown else None
        return {"rescued_rows": self.rows, "rescued_fields": fields}

    @property
    def lost_sentences(self) -> dict[str, str]:
        """The sentence of each column of silver, by itself without the example.

        Such as `amount is null in 3 rows that have a value`.
        """
        sentences = {}
        for name, each in self.fields.items():
            have = "has" if each.rows == 1 else "have"
            lost = printable(f"{name} is null in {counted(each.rows, 'row')} that {have} a value")
            position = f" ({each.position})" if each.position else ""
            sentences[lost] = printable(f'{lost}, such as "{each.example}"{position}')
        return sentences

    @property
    def headline(self) -> str:
        """Such as `3 rows have values that do not fit`."""
        have = "has" if self.rows == 1 else "have"
        return f"{counted(self.rows, 'row')} {have} values that do not fit"

    def __str__(self) -> str:
        """Return a sentence: `3 rows have values that do not fit: amount (3, such as 12.5)`."""
        names = ", ".join(
            f"{name} ({each.rows:,}, such as {each.example}"
            f"{f' in {each.position}' if each.position else ''})"
            for name, each in self.fields.items()
        )
        return printable(f"{self.headline}: {names}")


TABLE = "ops.runs"
# BLOCKED is stored as `held`, because existing records have that word.
FAILED, PASSED, BLOCKED = "failed", "passed", "held"
REFRESHED, REPLAYED = "refreshed", "replayed"
DONE, IDLE = "done", "idle"
NIGHTLY = "nightly"
"""The `query` of the row of a complete nightly run."""
# One row per query and run, one per quality gate and run, one per nightly run, and one per replay
# of silver's quarantine (kind `query`, `gate`, `run` or `replay`). A nightly run without work is
# `idle`. Times are UTC; expectations are names separated by commas; the version of a gate is the
# last one it saw. Unmatched rows have no match in a lookup table: null without a lookup, or if the
# process that counted them was interrupted. `rescued_fields` is the JSON of `RescuedSummary`,
# `failures` that of a list of `Failure`.
_DDL = (
    "run_id string, command string, kind string, query string, started_at timestamp, "
    "seconds double, state string, error string, first_batch long, last_batch long, batches long, "
    "rows_in long, rows_out long, quarantined_rows long, duplicate_rows long, late_rows long, "
    "unmatched_rows long, watermark timestamp, table_version long, quarantine_version long, "
    "failed_expectations string, accepted_expectations string, warned_expectations string, "
    "number long, rescued_rows long, rescued_fields string, failures string"
)
RUNS: Columns = dict(column.split() for column in _DDL.split(", "))


def run_row(
    kind: str, query: str, state: str, started_at: int, seconds: float | None = None
) -> dict[str, Any]:
    """Return the first columns of a row of `RUNS`; the caller adds the others."""
    row = {"kind": kind, "query": query, "state": state, "started_at": started_at}
    return row if seconds is None else {**row, "seconds": round(seconds, 3)}


@dataclass(frozen=True)
class LastRun:
    """The last recorded run of a query; times in microseconds since 1970."""

    state: str
    error: str | None
    started_at: int
    seconds: float
    rows_in: int | None
    rows_out: int | None
    quarantined_rows: int | None
    first_batch: int | None
    last_batch: int | None
    rescued_rows: int | None
    rescued_fields: str | None


@dataclass(frozen=True)
class QueryTotals:
    """The totals of a query since its last refresh, which replaced the table of earlier runs.

    Rows are summed over all runs; the batch is the greatest, the versions are the last. The
    defaults are those of a query without records.
    """

    rows_in: int = 0
    duplicate_rows: int = 0
    late_rows: int = 0
    last_batch: int = -1
    table_version: int = 0
    quarantine_version: int = 0

    @property
    def versions(self) -> tuple[int, int]:
        """Return the versions of the query's targets, in their order."""
        return self.table_version, self.quarantine_version


@dataclass(frozen=True)
class GateRecord:
    """The last gate of a table: `passed` or `held`, the version it saw, the failed expectations.

    `failed` are those that block it, `warned` those that only warn; names separated by commas.
    `failures` is the JSON of all of them.
    """

    state: str
    version: int
    failed: str
    warned: str = ""
    failures: str = ""

    def describe(self, names: str) -> str:
        """Return what is recorded of the failures with these names."""
        recorded = {each.expectation: str(each) for each in parse_failures(self.failures)}
        return "; ".join(recorded.get(name, f"{name} failed") for name in names.split(", "))


def parse_failures(record: str | None) -> list[Failure]:
    """Return the failures in the column `failures` of `ops.runs`."""
    return [Failure(**each) for each in json.loads(record or "[]")]


@dataclass(frozen=True)
class RunState:
    """The recorded state of all queries and gates, by the names of their tables.

    `passed` is the last version that passed a gate, `refreshed` the one that a refresh wrote.
    `nightly` is the last complete nightly run.
    """

    sums: Mapping[str, QueryTotals] = field(default_factory=dict)
    last: Mapping[str, LastRun] = field(default_factory=dict)
    last_busy: Mapping[str, LastRun] = field(default_factory=dict)
    gates: Mapping[str, GateRecord] = field(default_factory=dict)
    passed: Mapping[str, int] = field(default_factory=dict)
    refreshed: Mapping[str, int] = field(default_factory=dict)
    nightly: LastRun | None = None

    def totals_of(self, query: str) -> QueryTotals:
        """Return the totals of a query, which may have no records yet."""
        return self.sums.get(query, QueryTotals())


class RunRecords:
    """The run record, read when it is first needed and again after a write.

    A layer's rows are written by the process that holds its lock, so no other one changes them.
    """

    def __init__(self, layout: Layout, **by: str) -> None:
        """Open the record of a lakehouse.

        Args:
            by: columns of each row that is written: `run_id` and `command`.
        """
        self._table, self._by = layout.table(TABLE), by
        self._read: RunState | None = None

    @property
    @objects.remembering()
    def run_state(self) -> RunState:
        """Return the recorded state of all queries and gates."""
        if self._read is None:
            self._read = _read_run_state(self._table, (self._table / "_delta_log").state())
        return self._read

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows of `RUNS` in one commit."""
        self._read = None  # a failed write may have been committed
        if listed := [{**self._by, **row} for row in rows]:
            records.append_records(self._table, TableSpec(RUNS), listed, numbered="number")

    def write_once(self, row: Mapping[str, Any], *tables: StoragePath) -> None:
        """Append the row of a refresh or replay, with the versions of its tables; safe to repeat.

        Args:
            row: the row; the next row of its query counts the rows of later versions.
            tables: the table that it has written, then quarantine if it has written that, too.
        """
        started = table_specs.record_column_sql(RUNS, "started_at")
        where = f"where query = '{row['query']}' and {started} = {row['started_at']}"
        if not delta_tables.select_rows(
            self._table, "run_id", f"{where} and kind = '{row['kind']}'"
        ):
            versions = map(delta_tables.table_version, tables)
            names = ("table_version", "quarantine_version")
            self.write([{**row, **dict(zip(names, versions, strict=False))}])

    def rescued(self) -> dict[str, RescuedSummary]:
        """Return the summaries of this run's rescued and lost values, by query."""
        if "rescued_rows" not in delta_tables.column_names(self._table):
            return {}
        where = f"where run_id = '{self.run_id}' and rescued_rows > 0 order by number"
        rows = delta_tables.select_rows(self._table, "query, rescued_rows, rescued_fields", where)
        return {query: RescuedSummary.from_record(*summary) for query, *summary in rows}

    @property
    def run_id(self) -> str:
        """The id of the rows that this command writes."""
        return self._by["run_id"]

    def forget_values(self, queries: Iterable[str]) -> None:
        """Remove what may quote rows of these queries: errors, and examples of values."""
        columns = {"error", "rescued_fields", "failures"} & delta_tables.column_names(self._table)
        names = ", ".join(f"'{query}'" for query in queries)
        if columns:
            self._read = None
            nulls = dict.fromkeys(columns, "cast(null as string)")
            records.update_rows(self._table, nulls, f"query in ({names})")

    def late_rows(self, query: str) -> int:
        """Return the number of late rows recorded since the query's last refresh."""
        return self.run_state.totals_of(query).late_rows

    def last_batch(self, query: str) -> int:
        """Return the last recorded batch of a query, or -1."""
        return self.run_state.totals_of(query).last_batch

    def has_failed(self, query: str) -> bool:
        """Return whether the last run of a query failed."""
        last = self.run_state.last.get(query)
        return last is not None and last.state == FAILED


@lru_cache(maxsize=1)
def _read_run_state(table: StoragePath, _: Hashable) -> RunState:
    """Read the run state in one SQL query: each further one would open all files again.

    It is cached until the table's log changes.
    """
    missing = RUNS.keys() - delta_tables.column_names(table)  # of a table of an earlier release
    added = "".join(f", {table_specs.typed_null_sql(RUNS, name)} as {name}" for name in missing)
    what = ", ".join(_SELECTED.values())
    rows = delta_tables.select_rows(table, what, "group by query", _ROWS.format(added))
    states = [dict(zip(_SELECTED, row, strict=True)) for row in rows]

    def by_query(column: str) -> dict[str, Any]:
        """Return the values of a column by query, without nulls."""
        return {row["query"]: row[column] for row in states if row[column] is not None}

    return RunState(
        sums={query: QueryTotals(**values) for query, values in by_query("sums").items()},
        last={query: LastRun(**values) for query, values in by_query("last").items()},
        last_busy={query: LastRun(**values) for query, values in by_query("last_busy").items()},
        gates={query: GateRecord(**values) for query, values in by_query("gates").items()},
        passed=by_query("passed"),
        refreshed=by_query("refreshed"),
        nightly=next((LastRun(**values) for values in by_query("nightly").values()), None),
    )


# The rows, each with the number of its query's last refresh, with which the totals start again.
_ROWS = """(
    select *, max(case when state = 'refreshed' then number end) over (partition by query) as since
    {} from rows
)"""
_IS_SINCE = "kind in ('query', 'replay') and (since is null or number >= since)"


def _last(columns: Mapping[str, str], where: str) -> str:
    return f"last_value({table_specs.struct_sql(columns)} order by number) filter (where {where})"


def _newest(column: str, where: str) -> str:
    """Return the SQL of the last value, not the greatest: a recreated table starts at 0."""
    return f"last_value({column} order by number) filter (where {column} is not null and {where})"


_RUN = {field.name: table_specs.record_column_sql(RUNS, field.name) for field in fields(LastRun)}
_GATE = {
    "state": "state",
    "version": "coalesce(table_version, 0)",
    "failed": "coalesce(failed_expectations, '')",
    "warned": "coalesce(warned_expectations, '')",
    "failures": "coalesce(failures, '')",
}
_SINCE = f"filter (where {_IS_SINCE})"
_SUMS = {
    "rows_in": f"sum(coalesce(rows_in, 0)) {_SINCE}",
    "duplicate_rows": f"sum(coalesce(duplicate_rows, 0)) {_SINCE}",
    "late_rows": f"sum(coalesce(late_rows, 0)) {_SINCE}",
    "last_batch": f"max(coalesce(last_batch, -1)) {_SINCE}",
    "table_version": f"coalesce({_newest('table_version', _IS_SINCE)}, 0)",
    "quarantine_version": f"coalesce({_newest('quarantine_version', _IS_SINCE)}, 0)",
}
_PASSED = f"state = '{PASSED}' and (since is null or number >= since)"
_SELECTED = {
    "query": "query",
    "sums": f"case when count(*) {_SINCE} > 0 then {table_specs.struct_sql(_SUMS)} end",
    "last": _last(_RUN, "kind = 'query'"),
    "last_busy": _last(_RUN, "kind = 'query' and rows_in > 0"),
    "nightly": _last(_RUN, "kind = 'run'"),
    "gates": _last(_GATE, "kind = 'gate'"),
    "passed": _newest("table_version", _PASSED),
    "refreshed": _newest("table_version", f"state = '{REFRESHED}'"),
}

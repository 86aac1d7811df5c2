"""Schema versions, first rows of gold, and the overview for `medallion report`; no JVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from medallion.config.model import Aggregate, Config
from medallion.errors import ITEM_ERRORS, error_message
from medallion.ingest.schema import registry
from medallion.ingest.schema.registry import SchemaVersion
from medallion.inspect.audit import Audit, run_audit
from medallion.sql import engine
from medallion.state import runs
from medallion.state.runs import GateRecord, Runs
from medallion.storage import clock, delta_tables, records

ROWS_SHOWN = 10
_REPORT_ROWS, _REPORT_RUNS = 50, 50
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class FirstRows:
    """The row count of a table and its first rows, or why it cannot be read."""

    table: str
    rows: int
    first: engine.Result
    unreadable: str | None = None


@dataclass(frozen=True)
class QueryRun:
    """One row of `ops.runs`; `started_at` in microseconds since 1970."""

    query: str
    state: str
    started_at: int
    seconds: float | None
    rows_in: int | None
    rows_out: int | None
    quarantined_rows: int | None
    duplicate_rows: int | None
    late_rows: int | None
    error: str | None


@dataclass(frozen=True)
class Overview:
    """The lakehouse at one moment, as `medallion report` shows it.

    Attributes:
        root: path of the lakehouse.
        created_at: microseconds since 1970.
        audit: the balance of every source.
        gold: the first rows of each table.
        broken: number of quarantined rows by source and rule; a row that breaks two counts twice.
        gates: each table's last gate.
        runs: the newest runs, newest first.
        unreadable: messages about parts that cannot be read.
    """

    root: str
    created_at: int
    audit: Audit
    gold: tuple[FirstRows, ...]
    broken: Mapping[str, Mapping[str, int]]
    gates: Mapping[str, GateRecord]
    runs: tuple[QueryRun, ...]
    unreadable: tuple[str, ...] = ()


def schema_versions(config: Config, source: str) -> list[SchemaVersion]:
    """Return the versions of a source's schema, oldest first; empty before its first run."""
    config.source(source)
    return registry.read_versions(config.layout.schemas(source))


def first_rows(config: Config, limit: int = ROWS_SHOWN) -> list[FirstRows]:
    """Return the first rows of each gold table, sorted by its group columns."""
    return [_first_rows(config, f"gold.{name}", limit) for name in config.gold]


def _first_rows(config: Config, table: str, limit: int) -> FirstRows:
    empty = engine.Result((), [])
    try:
        rows = delta_tables.row_count(config.layout.table(table))
        if not rows:
            return FirstRows(table, 0, empty)
        definition = config.gold[table.removeprefix("gold.")].definition
        groups = len(definition.groups) if isinstance(definition, Aggregate) else 0
        columns = ", ".join(str(n + 1) for n in range(groups or 1))
        sql = f"select * from {table} order by {columns} limit {limit}"
        return FirstRows(table, rows, engine.query(str(config.layout.root), sql))
    except ITEM_ERRORS as error:
        reason = f"{table}: {error_message(error).removeprefix(f'{table}: ')}"
        return FirstRows(table, 0, empty, reason)


def take_overview(config: Config) -> Overview:
    """Read everything for the report; a table that cannot be read does not affect the others.

    Beside a running stream, wait up to half a minute until its batches are recorded.
    """
    created_at, audit = clock.now_micros(), run_audit(config)
    gold = tuple(first_rows(config, _REPORT_ROWS))
    unreadable = [*audit.unreadable, *(each.unreadable for each in gold if each.unreadable)]

    def read_or(default: _Value, read: Callable[[], _Value]) -> _Value:
        try:
            return read()
        except ITEM_ERRORS as error:
            unreadable.append(error_message(error))
            return default

    return Overview(
        root=str(config.layout.root),
        created_at=created_at,
        audit=audit,
        gold=gold,
        broken={
            name: read_or({}, partial(_quarantined_by_rule, config, name))
            for name in config.sources
        },
        gates=read_or({}, lambda: Runs(config.layout).run_state.gates),
        runs=read_or((), partial(_newest_runs, config)),
        unreadable=tuple(dict.fromkeys(unreadable)),
    )


def _quarantined_by_rule(config: Config, source: str) -> dict[str, int]:
    table = config.layout.table(f"quarantine.{source}")
    rules = "(select unnest(_failed_rules) as rule from rows)"
    return dict(
        delta_tables.select_rows(table, "rule, count(*)", "group by rule order by 2 desc, 1", rules)
    )


def _newest_runs(config: Config) -> tuple[QueryRun, ...]:
    newest = f"where kind = 'query' order by number desc limit {_REPORT_RUNS}"
    return tuple(records.read_records(config.layout.table(runs.TABLE), runs.RUNS, QueryRun, newest))

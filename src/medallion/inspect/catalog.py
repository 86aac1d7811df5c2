"""What lies in the lakehouse: files of the ledger, versions of a schema, first rows; no JVM."""

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


@dataclass(frozen=True)
class FirstRows:
    """How many rows a table has, and the first of them, or why it cannot be read."""

    table: str
    rows: int
    first: engine.Result
    unreadable: str | None = None


def schema_versions(config: Config, source: str) -> list[SchemaVersion]:
    """The versions of a source's schema, the oldest first; none before its first run."""
    config.source(source)
    return registry.read_versions(config.layout.schemas(source))


def first_rows(config: Config, most: int = ROWS_SHOWN) -> list[FirstRows]:
    """The first rows of each table of gold, in the order of its groups."""
    return [_first_rows(config, f"gold.{name}", most) for name in config.gold]


def _first_rows(config: Config, table: str, most: int) -> FirstRows:
    nothing = engine.Result((), [])
    try:
        rows = delta_tables.row_count(config.layout.table(table))
        if not rows:
            return FirstRows(table, 0, nothing)
        made = config.gold[table.removeprefix("gold.")].definition
        groups = len(made.groups) if isinstance(made, Aggregate) else 0
        columns = ", ".join(str(n + 1) for n in range(groups or 1))
        sql = f"select * from {table} order by {columns} limit {most}"
        return FirstRows(table, rows, engine.query(str(config.layout.root), sql))
    except ITEM_ERRORS as fault:
        why = f"{table}: {error_message(fault).removeprefix(f'{table}: ')}"
        return FirstRows(table, 0, nothing, why)


ROWS_OF_GOLD, NEWEST_RUNS = 50, 50
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class QueryRun:
    """One row of `ops.runs`; its start in microseconds since 1970."""

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
    """The lakehouse at one moment.

    Attributes:
        made_at: microseconds since 1970.
        audit: the balance of every source.
        gold: the first rows of each table.
        broken: the rows of quarantine by source and rule; one that breaks two counts for both.
        gates: each table's last gate.
        runs: the newest ones, the newest first.
        unreadable: why some of it is not shown.
    """

    root: str
    made_at: int
    audit: Audit
    gold: tuple[FirstRows, ...]
    broken: Mapping[str, Mapping[str, int]]
    gates: Mapping[str, GateRecord]
    runs: tuple[QueryRun, ...]
    unreadable: tuple[str, ...] = ()


def take_overview(config: Config) -> Overview:
    """Look at everything once; beside a stream, when all is on record, or half a minute later.

    Each table is looked at by itself: one that cannot be read hides nothing of the others.
    """
    made_at, found = clock.now_micros(), run_audit(config)
    gold = tuple(first_rows(config, ROWS_OF_GOLD))
    unreadable = [*found.unreadable, *(each.unreadable for each in gold if each.unreadable)]

    def asked(ask: Callable[[], _Found], otherwise: _Found) -> _Found:
        try:
            return ask()
        except ITEM_ERRORS as fault:
            unreadable.append(error_message(fault))
            return otherwise

    return Overview(
        root=str(config.layout.root),
        made_at=made_at,
        audit=found,
        gold=gold,
        broken={name: asked(partial(_broken, config, name), {}) for name in config.sources},
        gates=asked(lambda: Runs(config.layout).run_state.gates, {}),
        runs=asked(partial(_runs, config), ()),
        unreadable=tuple(dict.fromkeys(unreadable)),
    )


def _broken(config: Config, source: str) -> dict[str, int]:
    table = config.layout.table(f"quarantine.{source}")
    rules = "(select unnest(_failed_rules) as rule from rows)"
    return dict(
        delta_tables.select_rows(table, "rule, count(*)", "group by rule order by 2 desc, 1", rules)
    )


def _runs(config: Config) -> tuple[QueryRun, ...]:
    newest = f"where kind = 'query' order by number desc limit {NEWEST_RUNS}"
    return tuple(records.read_records(config.layout.table(runs.TABLE), runs.RUNS, QueryRun, newest))

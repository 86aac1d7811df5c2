"""All that `medallion report` shows: gold, where the rows went, quality, and runs; no JVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from medallion.config.model import Config
from medallion.errors import FAULTS, sentence
from medallion.inspect import catalog
from medallion.inspect.audit import Audit, audit
from medallion.inspect.catalog import FirstRows
from medallion.state import runs
from medallion.state.runs import GateRecord, Runs
from medallion.storage import clock, delta_tables, records

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


def overview(config: Config) -> Overview:
    """Look at everything once; beside a stream, when all is on record, or half a minute later.

    Each table is looked at by itself: one that cannot be read hides nothing of the others.
    """
    made_at, found = clock.now(), audit(config)
    gold = tuple(catalog.first_rows(config, ROWS_OF_GOLD))
    unreadable = [*found.unreadable, *(each.unreadable for each in gold if each.unreadable)]

    def asked(ask: Callable[[], _Found], otherwise: _Found) -> _Found:
        try:
            return ask()
        except FAULTS as fault:
            unreadable.append(sentence(fault))
            return otherwise

    return Overview(
        root=str(config.layout.root),
        made_at=made_at,
        audit=found,
        gold=gold,
        broken={name: asked(partial(_broken, config, name), {}) for name in config.sources},
        gates=asked(lambda: Runs(config.layout).standing.gates, {}),
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
    return tuple(records.read(config.layout.table(runs.TABLE), runs.RUNS, QueryRun, newest))

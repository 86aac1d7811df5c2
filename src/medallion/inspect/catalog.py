"""What lies in the lakehouse: files of the ledger, versions of a schema, first rows; no JVM."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from medallion.config.model import Aggregate, Config
from medallion.errors import FAULTS, UsageError, sentence
from medallion.ingest.schema import registry
from medallion.ingest.schema.registry import Version
from medallion.sql import engine
from medallion.state import ledger
from medallion.state.ledger import Entry
from medallion.storage import delta_tables

ROWS_SHOWN = 10


@dataclass(frozen=True)
class FirstRows:
    """How many rows a table has, and the first of them, or why it cannot be read."""

    table: str
    rows: int
    first: engine.Result
    unreadable: str | None = None


def files(config: Config, pattern: str, source: str | None, state: str | None) -> list[Entry]:
    """Rows of the ledger by a pattern of paths, or of their ends: where files landed or lie now.

    Raises:
        UsageError: there is no such source or state.
    """
    if source is not None:
        config.source(source)
    if state is not None and state not in ledger.STATES:
        raise UsageError(f"--state {state}: a state is one of {', '.join(ledger.STATES)}.")
    return matching(config, ledger.read(config.layout, source, state), pattern)


def matching(config: Config, entries: Iterable[Entry], pattern: str) -> list[Entry]:
    """Return the entries whose files landed, or are stored now, at a path like the pattern."""
    pattern = config.layout.from_root(pattern)
    return [
        e
        for e in entries
        if _is_like(e.path, pattern) or (e.moved_to and _is_like(e.moved_to, pattern))
    ]


def _is_like(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"*/{pattern}")


def schema(config: Config, source: str) -> list[Version]:
    """The versions of a source's schema, the oldest first; none before its first run."""
    config.source(source)
    return registry.read(config.layout.schemas(source))


def first_rows(config: Config, most: int = ROWS_SHOWN) -> list[FirstRows]:
    """The first rows of each table of gold, in the order of its groups."""
    return [_first_rows(config, f"gold.{name}", most) for name in config.gold]


def _first_rows(config: Config, table: str, most: int) -> FirstRows:
    nothing = engine.Result((), [])
    try:
        rows = delta_tables.row_count(config.layout.table(table))
        if not rows:
            return FirstRows(table, 0, nothing)
        made = config.gold[table.removeprefix("gold.")].made
        groups = len(made.groups) if isinstance(made, Aggregate) else 0
        columns = ", ".join(str(n + 1) for n in range(groups or 1))
        sql = f"select * from {table} order by {columns} limit {most}"
        return FirstRows(table, rows, engine.query(str(config.layout.root), sql))
    except FAULTS as fault:
        why = f"{table}: {sentence(fault).removeprefix(f'{table}: ')}"
        return FirstRows(table, 0, nothing, why)

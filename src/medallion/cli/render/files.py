"""The ledger: files, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from medallion.cli.render.values import moment, table
from medallion.state.ledger import Entry
from medallion.storage import clock
from medallion.storage.text import counted

_TIMES = ("modified_at", "first_seen_at", "committed_at", "reported_at", "dismissed_at")
_SHOWN = (
    "path", "version", "state", "size", "rows", "corrupt_rows", "rescued_rows", "batch",
    "committed_at", "moved_to", "dismissed_at", "why",
)  # fmt: skip


def as_json(entries: Sequence[Entry]) -> dict[str, Any]:
    """A list of the ledger's rows, with times in UTC."""
    rows = [asdict(entry) for entry in entries]
    return {"files": [{**row, **{name: moment(row[name]) for name in _TIMES}} for row in rows]}


def as_text(entries: Sequence[Entry]) -> str:
    """An aligned table, and how many files it has."""
    rows = [tuple(_cell(name, getattr(entry, name)) for name in _SHOWN) for entry in entries]
    return "\n".join([*table(_SHOWN, rows), f"({counted(len(rows), 'file')})"])


def _cell(name: str, value: Any) -> Any:
    return clock.format_time(value) if name in _TIMES and value is not None else value

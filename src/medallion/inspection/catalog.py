"""What `medallion files` and `medallion schema` show; no JVM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from fnmatch import fnmatchcase

from medallion.config.loader import Config
from medallion.errors import UsageError
from medallion.lakehouse.text import counted
from medallion.ops import ledger
from medallion.ops.ledger import Entry
from medallion.schema import registry
from medallion.schema.registry import Version
from medallion.sql import engine

_TIMES = ("modified_at", "first_seen_at", "committed_at")
_SHOWN = (
    "path", "version", "state", "size", "rows", "corrupt_rows", "rescued_rows", "batch",
    "committed_at", "moved_to", "why",
)  # fmt: skip


def files(config: Config, pattern: str, source: str | None, state: str | None) -> list[Entry]:
    """Rows of the ledger by a pattern of paths, or of their ends: where files landed or lie now.

    Raises:
        UsageError: there is no such source or state.
    """
    if source is not None:
        _known(config, source)
    if state is not None and state not in ledger.STATES:
        raise UsageError(f"--state {state}: a state is one of {', '.join(ledger.STATES)}.")
    found = ledger.read(config.layout, source, state)
    pattern = config.layout.relative(pattern)
    return [
        e
        for e in found
        if _is_like(e.path, pattern) or (e.moved_to and _is_like(e.moved_to, pattern))
    ]


def _is_like(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"*/{pattern}")


def files_as_json(entries: Sequence[Entry]) -> str:
    """A list of the ledger's rows, with times in UTC."""
    rows = []
    for entry in entries:
        row = asdict(entry)
        rows.append({**row, **{name: _moment(row[name]) for name in _TIMES}})
    return json.dumps({"files": rows})


def files_as_text(entries: Sequence[Entry]) -> str:
    """An aligned table, and how many files it has."""
    rows = [
        tuple(
            _moment(getattr(entry, name)) if name in _TIMES else getattr(entry, name)
            for name in _SHOWN
        )
        for entry in entries
    ]
    return f"{engine.as_table(engine.Result(_SHOWN, rows))}\n({counted(len(rows), 'file')})"


def schema(config: Config, source: str) -> list[Version]:
    """The versions of a source's schema, the oldest first; none before its first run."""
    _known(config, source)
    return registry.read(config.layout.schemas(source))


def schema_as_json(found: Sequence[Version]) -> str:
    """A list of versions, each with its columns and their types."""
    return json.dumps({"versions": [asdict(version) for version in found]})


def schema_as_text(found: Sequence[Version]) -> str:
    """Each version with what it has that the one before has not."""
    if not found:
        return "no version yet: the schema is made when the source is first run"
    lines = []
    for before, version in zip((None, *found), found, strict=False):
        lines.append(f"version {version.version}  {version.created_at}  {version.why}")
        lines += [f"  {line}" for line in registry.differences(before, version)]
    return "\n".join(lines)


def _known(config: Config, source: str) -> None:
    if source not in config.sources:
        raise UsageError(f"there is no source {source}; there are {', '.join(config.sources)}.")


def _moment(micros: int | None) -> str | None:
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC).isoformat()

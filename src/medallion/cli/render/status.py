"""How each query stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from medallion.cli.render import attention
from medallion.cli.render.values import table
from medallion.inspect.ledger_files import Attention
from medallion.inspect.status import QueryStatus
from medallion.storage.text import printable

_QUERY = (
    "query", "state", "last_batch", "last_run_at", "rows_in", "rows_out", "waiting_rows",
    "watermark",
)  # fmt: skip
_BACKLOG = (
    "waiting for", "files", "messages", "bytes", "oldest_age (s)", "bytes_per_second",
    "caught_up_in (s)", "rejected_files",
)  # fmt: skip
_NOTHING = Attention()


def as_json(found: Sequence[QueryStatus], files: Attention = _NOTHING) -> dict[str, Any]:
    """A list of queries, bronze's with their backlog, and the files to see to."""
    return {"queries": [asdict(query) for query in found], **attention.as_json(files)}


def as_text(found: Sequence[QueryStatus], files: Attention = _NOTHING) -> str:
    """Two aligned tables, and under them values that did not fit, errors and files."""
    queries = [tuple(getattr(query, column) for column in _QUERY) for query in found]
    backlogs = [(q.query, *asdict(q.backlog).values()) for q in found if q.backlog]
    errors = [printable(f"{query.query}: {query.error}") for query in found if query.error]
    rescued = [
        f"{query.query}: in its last run {query.rescued}"
        for query in found
        if query.rescued and query.rescued.rows
    ]
    lines = [*rescued, *errors, *map(printable, attention.every(files))]
    return "\n".join([*table(_QUERY, queries), "", *table(_BACKLOG, backlogs), *lines])

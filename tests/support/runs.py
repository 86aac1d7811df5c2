"""Records of query runs."""

from __future__ import annotations

from typing import Any

from medallion.config.model import Config
from medallion.state.runs import RunRecords


def record(config: Config, query: str, **more: Any) -> None:
    """Record a successful run of one second."""
    row = {"kind": "query", "query": query, "started_at": 0, "seconds": 1.0, "state": "done"}
    RunRecords(config.layout).write([{**row, **more}])

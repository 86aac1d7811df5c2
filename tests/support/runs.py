"""Records of query runs."""

from __future__ import annotations

from typing import Any

from medallion.config.model import Config
from medallion.runtime.outcome import Outcome
from medallion.runtime.planner import end_if_idle, plan_under_lock
from medallion.state.runs import RunRecords
from medallion.storage.text import Reporter


def record(config: Config, query: str, **more: Any) -> None:
    """Record a successful run of one second."""
    row = {"kind": "query", "query": query, "started_at": 0, "seconds": 1.0, "state": "done"}
    RunRecords(config.layout).write([{**row, **more}])


def ends_idle(config: Config, report: Reporter) -> Outcome | None:
    """Return the outcome of a nightly run if there is nothing to do."""
    with plan_under_lock(config, "nightly", report) as plan:
        return end_if_idle(config, plan, report)

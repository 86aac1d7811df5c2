"""Queries of gold tables, without Spark."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from medallion.config.loader import load
from medallion.config.model import Join
from medallion.config.queries import queries
from medallion.config.values import Duration
from medallion.layers.gold.flow import LATE_ROWS_ADVICE, Gold
from medallion.spark.query import BatchProgress
from tests.support import PROJECT

JOIN = Join("left", {"device": "device"}, Duration.parse("1 hour"), None, None, {"n": "1"})


@pytest.mark.parametrize(("changes", "late"), [({}, 0), ({"definition": JOIN}, 2)])
def test_interrupted_batches_of_a_join_may_be_late(changes: dict[str, Any], late: int) -> None:
    """Batches 0 and 2 have no metrics. A table that is not a join has no late rows."""
    config, messages = load({}, PROJECT), list[str]()
    query = next(each for each in queries(config) if each.name == "gold.device_counts")
    no_session: Any = None
    flow = Gold(no_session, config, query, messages.append)
    flow.table = replace(flow.table, **changes)
    run: Any = SimpleNamespace(batches={1: BatchProgress(1, 5, {}, 0, None, 1.0)})
    flow.run = run
    assert flow.batch_metrics(range(3)) == {"rows_in": 5, "late_rows": late}
    line = f"  gold.device_counts: {late} late rows; {LATE_ROWS_ADVICE}"
    assert messages == [line] * bool(late)

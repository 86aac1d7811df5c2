"""Definitions of gold tables: errors name the failing part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.config.model import Aggregate, GoldTable, Join
from medallion.config.values import Duration
from medallion.layers.definition import failing_part_reason
from medallion.layers.gold.flow import gold_parts
from tests.support import PROJECT

MINUTES = Duration.parse("10 minutes")
JOIN = Join("left", {"device": "device"}, MINUTES, "action = 'x'", "x > 0", {"n": "1"})
NUMBER = "int(action) = 1"
COUNTS = Aggregate(("device",), {"n": "count(*)"}, MINUTES)
NOW = 1_500_000_000_000_000
# The window would start before Spark's first timestamp, and the session end after its last one.
OLDEST, NEWEST = 1 - 2**63, 2**63 - 1


@pytest.mark.parametrize(
    ("definition", "micros", "part"),
    [
        (JOIN, NOW, None),
        (replace(JOIN, where=NUMBER), NOW, "where"),
        (replace(JOIN, condition=NUMBER), NOW, "join"),
        (replace(JOIN, columns={"n": "1", "m": NUMBER}), NOW, "columns.m"),
        (COUNTS, NOW, None),
        (replace(COUNTS, measure={"n": "count(*)", "m": f"count_if({NUMBER})"}), NOW, "measure.m"),
        (replace(COUNTS, measure={"n": "sum(1 / 0)"}, window=None), NOW, "measure.n"),
        (COUNTS, OLDEST, "window"),
        (replace(COUNTS, session=MINUTES, window=None), NEWEST, "session"),
    ],
)
def test_failing_part_reason_names_the_part(
    spark: SparkSession, definition: Any, micros: int, part: str | None
) -> None:
    at = f"timestamp_micros({micros}) as"
    rows = {
        "silver.event": spark.range(1).selectExpr(
            f"{at} event_at", "'a' as device", "'x' as action"
        ),
        "silver.activity": spark.range(1).selectExpr(
            f"{at} recorded_at", "'a' as device", "1 as x"
        ),
    }
    tables = tuple(rows) if isinstance(definition, Join) else ("silver.event",)
    table = GoldTable("t", tables, definition, "append")
    inputs = {name: rows[name] for name in tables}
    parts = gold_parts(spark, load({}, PROJECT), table, inputs)
    reason = failing_part_reason(list(inputs.values()), parts) or "gold.t.nothing"
    assert reason.split()[0] == f"gold.t.{part or 'nothing'}"

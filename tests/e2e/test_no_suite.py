"""A source without suites, in a project without Great Expectations."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.lakehouse import Lakehouse

LINES = (
    '{"time": "2026-05-01T10:00:00Z", "id": "a", "amount": 1}',
    '{"time": "2026-05-01T10:00:01Z", "id": "a", "amount": 2}',
    '{"time": "soon", "id": "b", "amount": 3}',  # makes `time` a string in bronze
    '{"time": "2999-01-01T00:00:00Z", "id": "c", "amount": 4}',
    "{",
)


def test_nightly_run_needs_no_suite(spark: SparkSession, tmp_path: Path) -> None:
    lakehouse = Lakehouse(spark, tmp_path / "lakehouse")
    orders = {
        "silver": {"at": "time", "id": "id", "amount": "amount"},
        "event_time": "at",
        "keys": ["id", "at"],
    }
    revenue = {
        "source": "silver.orders",
        "group_by": ["id"],
        "measure": {"total": "sum(amount)"},
    }
    lakehouse.configure(tmp_path, {"sources": {"orders": orders}, "gold": {"revenue": revenue}})
    shutil.rmtree(lakehouse.config.expectations)
    lakehouse.land("orders", "1.json", *LINES)
    report = lakehouse.nightly()
    assert report.is_good, report
    assert lakehouse.rows("silver.orders", "at", "id", "amount") == [
        ("2026-05-01 10:00:00", "a", 1),
        ("2026-05-01 10:00:01", "a", 2),
    ]
    assert lakehouse.rows("quarantine.orders", "_failed_rules", "id") == [
        (["future_event_time"], "c"),
        (["malformed_line", "missing_event_time"], None),
        (["missing_event_time"], "b"),
    ]
    assert lakehouse.rows("gold.revenue") == [("a", 3)]

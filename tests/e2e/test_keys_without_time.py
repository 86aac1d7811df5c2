"""Keys without the event time: silver never has a key twice, whenever the duplicate arrives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.errors import MedallionError
from medallion.inspect.audit import run_audit
from medallion.inspect.balance import Balance
from medallion.runtime.refresh import refresh_table
from medallion.spark import delta
from medallion.spark.watch import await_all
from medallion.storage.paths import StoragePath
from tests.support.lakehouse import Lakehouse, start_flows

SOURCE: dict[str, Any] = {
    "schema": {"order_id": "string", "ts": "timestamp", "status": "string"},
    "silver": {"order_id": "order_id", "ordered_at": "ts", "status": "status"},
    "event_time": "ordered_at",
    "keys": ["order_id"],
    "clean_source": "off",
}


def order(order_id: str | None, time: str, status: str = "new") -> str:
    fields = {"order_id": order_id, "ts": f"2026-05-01T{time}:00Z", "status": status}
    return json.dumps(fields)


FIRST = (
    order("o1", "10:00"),
    order("o1", "10:05"),  # a duplicate within the batch
    order("o2", "12:00"),  # moves the watermark to 11:00
    order(None, "10:00"),
    order(None, "10:00"),  # rows without a key are never duplicates
    "{broken",
)
SECOND = (
    order("o1", "10:00"),  # late, and already in silver
    order("o3", "09:00"),  # late
    order("o2", "12:00"),  # on time, and already in silver
    order("o4", "15:00"),
    order("o1", "15:30"),  # on time, hours after the watermark has passed the first one
    "{broken",
)
THIRD = (
    order("o3", "09:00"),  # already in silver as a late row
    order("o4", "16:00"),  # already in silver
    order("o5", "14:00"),  # late: the watermark is 14:30
    order("o5", "14:10"),  # late, and a duplicate within the batch
    order("o6", "16:00"),
    order(None, "09:00"),
)
AFTER_TWO = Balance(
    landed_lines=12,
    bronze_rows=12,
    silver_rows=4 + 2,
    quarantined_rows=2,
    duplicate_rows=1 + 3,
    late_rows=1,
    waiting_rows=0,
)
BY_HAND = Balance(
    landed_lines=18,
    bronze_rows=18,
    silver_rows=4 + 2 + 3,
    quarantined_rows=2,
    duplicate_rows=1 + 3 + 3,
    late_rows=2,
    waiting_rows=0,
)
# A row has the time of the first row that arrived with its key.
ROWS = [
    ("o1", "2026-05-01 10:00:00"),
    ("o2", "2026-05-01 12:00:00"),
    ("o3", "2026-05-01 09:00:00"),
    ("o4", "2026-05-01 15:00:00"),
    ("o5", "2026-05-01 14:00:00"),
    ("o6", "2026-05-01 16:00:00"),
    (None, "2026-05-01 09:00:00"),
    (None, "2026-05-01 10:00:00"),
    (None, "2026-05-01 10:00:00"),
]


def configure(lakehouse: Lakehouse, folder: Path, **changes: Any) -> None:
    lakehouse.configure(folder, {"sources": {"orders": {**SOURCE, **changes}}, "gold": {}})


@pytest.fixture(scope="module")
def after_first(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    folder = tmp_path_factory.mktemp("keys")
    lakehouse = Lakehouse(spark, folder / "lakehouse")
    configure(lakehouse, folder)
    lakehouse.land("orders", "1.json", *FIRST)
    lakehouse.fill("bronze", "silver")
    return lakehouse


@pytest.fixture(scope="module")
def after_third(after_first: Lakehouse, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    lakehouse = after_first.copy(tmp_path_factory.mktemp("third") / "lakehouse")
    for number, lines in enumerate((SECOND, THIRD), 2):
        lakehouse.land("orders", f"{number}.json", *lines)
        lakehouse.fill("bronze", "silver")
    return lakehouse


def test_no_key_is_twice_in_silver(after_third: Lakehouse) -> None:
    audit = run_audit(after_third.config, everything=True)
    assert (audit.findings, audit.balances["orders"]) == ((), BY_HAND)
    assert after_third.rows("silver.orders", "order_id", "ordered_at") == ROWS


@pytest.mark.slow  # the deep audit above computes silver again, as a refresh does
def test_refresh_keeps_the_first_row_of_each_key(after_third: Lakehouse, tmp_path: Path) -> None:
    lakehouse = after_third.copy(tmp_path / "lakehouse")
    refresh_table(lakehouse.pipeline(), "silver.orders")
    audit = run_audit(lakehouse.config, everything=True)
    assert audit.findings == ()
    assert audit.balances["orders"].silver_rows == BY_HAND.silver_rows
    assert lakehouse.rows("silver.orders", "order_id", "ordered_at") == ROWS


def test_interrupted_batches_are_exact(
    after_first: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is interrupted between its two tables, and its repetition before its record."""
    lakehouse = after_first.copy(tmp_path / "lakehouse")
    lakehouse.land("orders", "2.json", *SECOND)
    lakehouse.fill("bronze")
    append = delta.write_once

    def append_silver_only(rows: Any, table: StoragePath, options: Any, **more: Any) -> None:
        if table.parent.name == "quarantine":
            raise MedallionError("interrupted")
        append(rows, table, options, **more)

    with monkeypatch.context() as patch:
        patch.setattr(delta, "write_once", append_silver_only)
        with pytest.raises(MedallionError, match="interrupted"):
            lakehouse.fill("silver")
    assert len(lakehouse.rows("silver.orders")) == 6
    await_all(flow.started_run for flow in start_flows(lakehouse.pipeline(), "silver"))
    lakehouse.fill("silver")
    audit = run_audit(lakehouse.config)
    assert (audit.findings, audit.balances["orders"]) == ((), AFTER_TWO)


def test_late_rows_go_to_quarantine_if_configured(after_first: Lakehouse, tmp_path: Path) -> None:
    lakehouse = after_first.copy(tmp_path / "lakehouse")
    configure(lakehouse, tmp_path, late="quarantine")
    late_and_on_time = (order("o7", "08:00"), order("o7", "13:00"), order("o7", "08:30"))
    lakehouse.land("orders", "2.json", *SECOND, *late_and_on_time)
    lakehouse.fill("bronze")
    await_all(flow.started_run for flow in start_flows(lakehouse.pipeline(), "silver"))
    lakehouse.fill("silver")  # counts the rows of the unrecorded batch again
    balance = run_audit(lakehouse.config).balances["orders"]
    assert (balance.silver_rows, balance.quarantined_rows) == (5 + 1, 3)
    assert (balance.duplicate_rows, balance.late_rows) == (4 + 2, 0)
    o7 = ("o7", "2026-05-01 13:00:00")  # the row on time, although late ones sort before it
    assert o7 in lakehouse.rows("silver.orders", "order_id", "ordered_at")
    assert ("o3", ["late"]) in lakehouse.rows("quarantine.orders", "order_id", "_failed_rules")
    assert run_audit(lakehouse.config, everything=True).findings == ()


def test_row_that_breaks_a_lookup_rule_keeps_no_key(spark: SparkSession, tmp_path: Path) -> None:
    lakehouse = Lakehouse(spark, tmp_path / "lakehouse")
    lookup = {"file": "states.csv", "on": "status", "columns": {"known": "string"}}
    configure(lakehouse, tmp_path, lookup=lookup)
    name = "expect_column_values_to_not_be_null"
    lakehouse.expect("silver.orders", "known", name, "quarantine", column="known")
    lakehouse.root.mkdir()
    (lakehouse.root / "states.csv").write_text("status,known\nnew,yes\n")
    lines = (order("o8", "13:00", "???"), order("o8", "13:30"), order("o8", "13:30"))
    lakehouse.land("orders", "1.json", *lines)
    lakehouse.fill("bronze", "silver")
    balance = run_audit(lakehouse.config).balances["orders"]
    assert balance.is_balanced
    assert (balance.quarantined_rows, balance.duplicate_rows) == (1, 1)
    o8 = ("o8", "2026-05-01 13:30:00")
    assert lakehouse.rows("silver.orders", "order_id", "ordered_at") == [o8]

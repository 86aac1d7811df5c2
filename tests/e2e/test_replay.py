"""Quarantined rows that pass the current rules move to silver, exactly once."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.errors import UsageError
from medallion.inspect.audit import run_audit
from medallion.inspect.balance import Balance
from medallion.layers.silver.writer import replayed_until
from medallion.runtime import resume
from medallion.runtime.planner import plan_run
from medallion.runtime.refresh import refresh_table
from medallion.runtime.replay import ReplayCounts, replay_rescued, replay_rows
from medallion.state import journal
from medallion.state.journal import Entry, Replay
from medallion.state.runs import RunRecords
from medallion.storage.layout import LAYERS
from tests.support.lakehouse import Lakehouse
from tests.support.steps import repeated_steps

SOURCE: dict[str, Any] = {
    "schema": {"order_id": "string", "ts": "timestamp", "amount": "long"},
    "silver": {"order_id": "order_id", "ordered_at": "ts", "amount": "amount"},
    "event_time": "ordered_at",
    "keys": ["order_id", "ordered_at"],
    "clean_source": "off",
}
BY_DAY = {"source": "silver.orders", "measure": {"n": "count(*)", "total": "sum(amount)"}}
BY_DAY |= {"window": "1 day"}


def order(order_id: str | None, time: str, amount: Any) -> str:
    fields = {"order_id": order_id, "ts": f"2026-05-01T{time}:00Z", "amount": amount}
    return json.dumps(fields)


FIRST = (
    order("o1", "10:00", 10),
    order("o2", "10:01", 150),  # above 100
    order("o2", "10:01", 150),  # the same row again
    order("o3", "10:02", 250),
    order("o3", "10:02", 30),  # the same key with an amount that passes
    order(None, "10:03", 160),
    order("o4", "10:04", 9000),
    order("o5", "10:05", 12.5),  # no long: rescued
    "{broken",
)
BALANCE = Balance(
    landed_lines=9,
    bronze_rows=9,
    silver_rows=2,
    quarantined_rows=7,
    duplicate_rows=0,
    late_rows=0,
    waiting_rows=0,
)
# With a limit of 1,000, o2 and the row without a key move; o4, o5 and the broken line stay.
AFTER = replace(BALANCE, silver_rows=4, quarantined_rows=3, duplicate_rows=2)


def allow(lakehouse: Lakehouse, maximum: int) -> None:
    """Add the only rule: a maximum amount."""
    type_ = "expect_column_values_to_be_between"
    amounts = {"column": "amount", "max_value": maximum}
    lakehouse.expect("silver.orders", "in_range", type_, "quarantine", **amounts)


@pytest.fixture(scope="module")
def first(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    folder = tmp_path_factory.mktemp("replay")
    lakehouse = Lakehouse(spark, folder / "lakehouse")
    document = {"sources": {"orders": SOURCE}, "gold": {"by_day": BY_DAY}}
    lakehouse.configure(folder, document)
    allow(lakehouse, 100)
    lakehouse.land("orders", "1.json", *FIRST)
    lakehouse.fill("bronze", "silver")
    assert run_audit(lakehouse.config).balances["orders"] == BALANCE
    return lakehouse


def with_a_higher_limit(first: Lakehouse, folder: Path) -> Lakehouse:
    """Return a copy whose suite may be changed."""
    lakehouse = first.copy(folder / "lakehouse")
    lakehouse.configure(folder, {"sources": {"orders": SOURCE}, "gold": {"by_day": BY_DAY}})
    allow(lakehouse, 1000)
    return lakehouse


@pytest.fixture
def orders(first: Lakehouse, tmp_path: Path) -> Lakehouse:
    return with_a_higher_limit(first, tmp_path)


def amounts(lakehouse: Lakehouse) -> list[Any]:
    return lakehouse.rows("silver.orders", "order_id", "amount")


def check(lakehouse: Lakehouse, expected: Balance, everything: bool = False) -> None:
    audit = run_audit(lakehouse.config, everything)
    assert (audit.findings, audit.balances["orders"]) == ((), expected)


@pytest.fixture(scope="module")
def after_replay(first: Lakehouse, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """Return a lakehouse after a replay, each step of which has run twice."""
    folder = tmp_path_factory.mktemp("replayed")
    orders = with_a_higher_limit(first, folder)
    with repeated_steps():
        counts = replay_rows(orders.pipeline(), "orders", None)
    assert counts == ReplayCounts(validated=7, replayed=2, duplicate=2, quarantined=3)
    return orders


def test_rows_that_pass_move_to_silver(after_replay: Lakehouse) -> None:
    orders = after_replay
    assert amounts(orders) == [("o1", 10), ("o2", 150), ("o3", 30), (None, 160)]
    assert orders.rows("quarantine.orders", "order_id", "_failed_rules") == [
        ("o4", ["in_range"]),
        ("o5", ["rescued_amount"]),
        (None, ["malformed_line", "missing_event_time"]),
    ]
    check(orders, AFTER)
    # A watermark of 10:03:00.000 is not after all rows of that millisecond: the next one is.
    ten = datetime(2026, 5, 1, 10, 3, tzinfo=UTC).timestamp()
    checkpoint = orders.config.layout.checkpoint("silver.orders")
    assert replayed_until(checkpoint) == 1000 * ten + 1


def test_second_replay_moves_no_row(after_replay: Lakehouse, tmp_path: Path) -> None:
    orders = after_replay.copy(tmp_path / "lakehouse")
    second = replay_rows(orders.pipeline(), "orders", None)
    assert second == ReplayCounts(validated=3, replayed=0, duplicate=0, quarantined=3)
    check(orders, AFTER)


@pytest.mark.usefixtures("production_streams")
def test_run_after_a_replay_knows_its_keys(after_replay: Lakehouse, tmp_path: Path) -> None:
    """The query has not seen the inserted keys, but must know them: both rows are on time."""
    orders = after_replay.copy(tmp_path / "lakehouse")
    orders.land("orders", "2.json", FIRST[1], order("o6", "10:06", 1), order("o4", "10:04", 40))
    assert orders.run_without_gates().is_good
    after = replace(AFTER, landed_lines=12, bronze_rows=12, silver_rows=6, duplicate_rows=3)
    check(orders, after, everything=True)
    assert orders.rows("gold.by_day", "n", "total") == [(6, 10 + 150 + 30 + 160 + 1 + 40)]


@pytest.mark.slow  # the deep audit above computes silver again, as a refresh does
def test_refresh_after_a_replay(after_replay: Lakehouse, tmp_path: Path) -> None:
    orders = after_replay.copy(tmp_path / "lakehouse")
    orders.config = replace(orders.config, gold={})
    refresh_table(orders.pipeline(), "silver.orders")
    check(orders, AFTER)


def test_where_selects_rows(orders: Lakehouse) -> None:
    counts = replay_rows(orders.pipeline(), "orders", "order_id = 'o2'")
    assert counts == ReplayCounts(validated=2, replayed=1, duplicate=1, quarantined=5)
    assert amounts(orders) == [("o1", 10), ("o2", 150), ("o3", 30)]
    check(orders, replace(BALANCE, silver_rows=3, quarantined_rows=5, duplicate_rows=1))


@pytest.mark.parametrize("invalid", ["no_column = 1", "order_id =", "order_id"])
def test_where_that_is_invalid(after_replay: Lakehouse, invalid: str) -> None:
    with pytest.raises(UsageError, match="--where"):
        replay_rows(after_replay.pipeline(), "orders", invalid)


def test_changes_are_replayed(spark: SparkSession, tmp_path: Path) -> None:
    """Each change is kept, even if its key has a row."""
    lakehouse = Lakehouse(spark, tmp_path / "lakehouse")
    source = {**SOURCE, "keys": ["order_id"], "cdc": {"sequence_by": "ordered_at"}}
    for limit in (100, 1000):
        lakehouse.configure(tmp_path / str(limit), {"sources": {"orders": source}, "gold": {}})
        allow(lakehouse, limit)
        if limit == 100:
            above = order("o1", "10:05", 150)
            lines = (order("o1", "10:00", 10), above, order("o1", "10:02", 30), above)
            lakehouse.land("orders", "1.json", *lines, order("o2", "10:01", 9000))
            lakehouse.fill("bronze", "silver")
    assert amounts(lakehouse) == [("o1", 30)]
    counts = replay_rows(lakehouse.pipeline(), "orders", None)
    assert counts == ReplayCounts(validated=3, replayed=2, duplicate=0, quarantined=1)
    lakehouse.fill("silver")
    assert amounts(lakehouse) == [("o1", 150)]
    audit = run_audit(lakehouse.config)
    balance = audit.balances["orders"]
    assert (balance.quarantined_rows, balance.superseded_rows, balance.duplicate_rows) == (1, 2, 1)
    assert audit.findings == ()


@pytest.mark.slow  # `after_replay` runs each step twice, and test_journal kills at each write
def test_interrupted_replay_is_completed(
    orders: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is repeated, because the process dies before it marks the step as done."""
    interrupted, write = list[Any](), journal.write_entry

    def interrupt_once(layout: Any, entry: Entry[Any]) -> None:
        if entry.done and entry.done not in interrupted:
            interrupted.append(entry.done)
            raise KeyboardInterrupt
        write(layout, entry)

    monkeypatch.setattr(journal, "write_entry", interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        replay_rows(orders.pipeline(), "orders", None)
    while entries := journal.read_entries(orders.config, Replay):
        findings = run_audit(orders.config).findings
        assert entries[0].title in findings
        assert "unfinished replay of quarantine.orders" in str(entries[0])
        assert not plan_run(orders.config, RunRecords(orders.config.layout)).is_idle
        pipeline = orders.pipeline()
        with suppress(KeyboardInterrupt):
            resume.resume_commands(pipeline, LAYERS)
    steps = ("note", "silver", "quarantine", "record", "staged rows")
    assert interrupted == [steps[:count] for count in range(1, 6)]
    check(orders, AFTER, everything=True)


def allow_fractions(orders: Lakehouse, folder: Path) -> None:
    schema = {**SOURCE["schema"], "amount": "double"}
    document = {"sources": {"orders": {**SOURCE, "schema": schema}}, "gold": {"by_day": BY_DAY}}
    orders.configure(folder, document)


def test_rescued_values_are_replayed_with_a_wider_type(orders: Lakehouse, tmp_path: Path) -> None:
    allow_fractions(orders, tmp_path)
    counts = replay_rescued(orders.pipeline(), "orders")
    assert counts == ReplayCounts(validated=7, replayed=3, duplicate=2, quarantined=2)
    replayed = amounts(orders)
    assert [replayed[0], replayed[1], *replayed[3:]] == [
        ("o1", 10),
        ("o2", 150),
        ("o5", 12.5),
        (None, 160),
    ]
    check(orders, replace(AFTER, silver_rows=5, quarantined_rows=2))


@pytest.mark.slow  # test_rewrite and test_second_replay_moves_no_row have its two parts
def test_rescued_values_are_replayed_once(orders: Lakehouse, tmp_path: Path) -> None:
    allow_fractions(orders, tmp_path)
    for expected in (ReplayCounts(7, 3, 2, 2), ReplayCounts(2, 0, 0, 2)):
        assert replay_rescued(orders.pipeline(), "orders") == expected

"""Change records over three runs: the latest state, the history, and the count of every change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from medallion.inspect.audit import run_audit
from medallion.runtime.erase import Request, erase_rows
from medallion.runtime.refresh import refresh_table
from tests.support import FORMS, PROJECT
from tests.support.lakehouse import Lakehouse

SAMPLES = PROJECT / "tests/discover/samples"
SOURCE: dict[str, Any] = {
    "schema": {"id": "long", "status": "string", "at": "timestamp", "op": "string"},
    "silver": {"order_id": "id", "status": "status"},
    "keys": ["order_id"],
    "cdc": {"sequence_by": "at", "apply_as_deletes": "op = 'd'"},
}
HISTORY = SOURCE | {"cdc": {**SOURCE["cdc"], "stored_as_scd_type": 2}}


def line(order: int | None, status: str, hour: str | None, op: str = "u") -> str:
    at = f'"2026-05-01T{hour}:00Z"' if hour else "null"
    return f'{{"id": {order or "null"}, "status": "{status}", "at": {at}, "op": "{op}"}}'


RUNS = (
    [
        *(line(order, "new", "10:00") for order in (1, 2, 3)),
        line(1, "paid", "11:00"),
    ],
    [
        line(1, "packed", "10:30"),  # out of order
        line(2, "new", "12:00", "d"),
        line(3, "new", "10:00"),  # resent
        line(3, "paid", None),
        line(None, "paid", "12:00"),
    ],
    [
        line(2, "paid", "11:30"),  # older than its delete
        line(3, "paid", "12:00"),
        line(4, "new", "12:00"),
    ],
)
EXPECTED_STATES = (
    [(1, "paid"), (2, "new"), (3, "new")],
    [(1, "paid"), (3, "new")],
    [(1, "paid"), (3, "paid"), (4, "new")],
)
EXPECTED_SPANS = [
    (1, "new", "10:00", "10:30"),
    (1, "packed", "10:30", "11:00"),
    (1, "paid", "11:00", None),
    (2, "new", "10:00", "11:30"),
    (2, "paid", "11:30", "12:00"),
    (3, "new", "10:00", "12:00"),
    (3, "paid", "12:00", None),
    (4, "new", "12:00", None),
]


def states(lakehouse: Lakehouse) -> list[tuple[Any, ...]]:
    return lakehouse.rows("silver.orders", "order_id", "status")


def spans(lakehouse: Lakehouse) -> list[tuple[Any, ...]]:
    """Return key, status and the hours of each span; the current span has no end."""
    columns = ("order_id", "status", "valid_from", "valid_to", "is_current")
    rows = lakehouse.rows("silver.history", *columns)
    assert all((end is None) == is_current for *_, end, is_current in rows)
    return [(*row[:2], *(time and time[11:16] for time in row[2:4])) for row in rows]


@pytest.fixture
def shop(lakehouse: Lakehouse, tmp_path: Path) -> Lakehouse:
    sources = {"orders": SOURCE, "history": HISTORY}
    lakehouse.configure(tmp_path, {"sources": sources, "gold": {}})
    return lakehouse


@pytest.mark.parametrize("form", FORMS)
def test_changes_over_three_runs(shop: Lakehouse, form: str) -> None:
    for number, (lines, state) in enumerate(zip(RUNS, EXPECTED_STATES, strict=True)):
        for source in ("orders", "history"):
            shop.land(source, f"{number}.json", *lines)
        outcome = shop.run_without_gates()
        assert outcome.is_good, outcome.errors
        assert states(shop) == state
    assert spans(shop) == EXPECTED_SPANS
    quarantined = shop.rows("quarantine.orders", "status", "_failed_rules")
    assert quarantined == [("paid", ["null_key"]), ("paid", ["null_sequence"])]

    audit = run_audit(shop.config, everything=True)
    assert audit.is_balanced, audit.findings
    latest_balance, history_balance = audit.balances["orders"], audit.balances["history"]
    for balance, silver, superseded in ((latest_balance, 3, 5), (history_balance, 8, 0)):
        assert balance.bronze_rows == 12
        assert balance.quarantined_rows == 2
        assert (balance.silver_rows, balance.superseded_rows) == (silver, superseded)
        assert (balance.deleted_rows, balance.duplicate_rows) == (1, 1)

    if form == "short":
        return
    before = [shop.rows(f"silver.{name}") for name in ("orders", "history", "orders_changes")]
    for table in ("silver.orders", "silver.history"):
        refresh_table(shop.pipeline(), table)
    after = [shop.rows(f"silver.{name}") for name in ("orders", "history", "orders_changes")]
    assert after == before
    audit = run_audit(shop.config, everything=True)
    assert audit.is_balanced, audit.findings


@pytest.mark.parametrize("form", FORMS)
def test_debezium_customers(lakehouse: Lakehouse, tmp_path: Path, form: str) -> None:
    """Ten customers are created, updated twice and deleted; the last message has no value."""
    source = {"format": "debezium", "silver": {"customer_id": "id", "name": "name"}}
    source |= {"keys": ["customer_id"]}
    history = source | {"cdc": {"stored_as_scd_type": 2}}
    sources = {"customers": source, "history": history}
    lakehouse.configure(tmp_path, {"sources": sources, "gold": {}})
    lines = (SAMPLES / "debezium-customers.json").read_text().splitlines()
    for name in sources:
        lakehouse.land(name, "1.json", *lines, "null")
    outcome = lakehouse.run_without_gates()
    assert outcome.is_good, outcome.errors
    assert lakehouse.rows("silver.customers") == []
    columns = ("customer_id", "name", "valid_from", "valid_to", "is_current")
    expected = [  # the n-th change has the sequence number 1000 + n
        (customer, f"n{number}", 1000 + number, 1001 + number, False)
        for customer in range(10)
        for number in range(4 * customer, 4 * customer + 3)
    ]
    assert sorted(lakehouse.rows("silver.history", *columns)) == sorted(expected)
    ((failed_rules,),) = lakehouse.rows("quarantine.history", "_failed_rules")
    assert failed_rules == ["tombstone", "null_key", "null_sequence"]
    audit = run_audit(lakehouse.config, everything=True)
    assert audit.is_balanced, audit.findings
    latest_balance, history_balance = audit.balances["customers"], audit.balances["history"]
    assert (
        latest_balance.silver_rows,
        latest_balance.superseded_rows,
        latest_balance.deleted_rows,
    ) == (0, 30, 10)
    assert (
        history_balance.silver_rows,
        history_balance.superseded_rows,
        history_balance.deleted_rows,
    ) == (30, 0, 10)

    if form == "short":
        return
    result = erase_rows(
        lakehouse.pipeline(), Request("silver.history", "name = 'n1'", cascade=True)
    )
    assert result.plan.rows["bronze.history"] == 4  # all changes of customer 0
    assert sorted(lakehouse.rows("silver.history", *columns)) == sorted(expected[3:])
    audit = run_audit(lakehouse.config, everything=True)
    assert (audit.findings, audit.balances["history"].erased_rows) == ((), 4)

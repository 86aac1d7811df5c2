"""Change records over two runs: the latest state, the history, and the count of every change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.inspect.audit import run_audit
from medallion.runtime.erase import Request, erase_rows
from medallion.runtime.refresh import refresh_table
from tests.support import PROJECT
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
        *(line(order, "new", "10:00") for order in (1, 2, 3, 5)),
        line(1, "paid", "11:00"),
        line(2, "new", "12:00", "d"),
    ],
    [
        line(1, "packed", "10:30"),  # out of order
        line(2, "paid", "11:30"),  # older than its delete
        line(3, "new", "10:00"),  # resent
        line(3, "paid", None),
        line(None, "paid", "12:00"),
        line(3, "paid", "12:00"),
        line(4, "new", "12:00"),
        line(5, "new", "12:00", "d"),
    ],
)
EXPECTED_STATES = (
    [(1, "paid"), (3, "new"), (5, "new")],
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
    (5, "new", "10:00", "12:00"),
]
COUNT = {"source": "silver.history", "group_by": ["status"], "measure": {"n": "count(*)"}}
GOLD = {"now": COUNT | {"where": "is_current"}, "ever": COUNT | {"output_mode": "update"}}


def states(lakehouse: Lakehouse) -> list[tuple[Any, ...]]:
    return lakehouse.rows("silver.orders", "order_id", "status")


def spans(lakehouse: Lakehouse) -> list[tuple[Any, ...]]:
    """Return key, status and the hours of each span; the current span has no end."""
    columns = ("order_id", "status", "valid_from", "valid_to", "is_current")
    rows = lakehouse.rows("silver.history", *columns)
    assert all((end is None) == is_current for *_, end, is_current in rows)
    return [(*row[:2], *(time and time[11:16] for time in row[2:4])) for row in rows]


@pytest.fixture(scope="module")
def after_runs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Lakehouse]:
    """Return a copy of the lakehouse after the first run, and the one after both."""
    sources = {"orders": SOURCE, "history": HISTORY}
    return run_each(spark, tmp_path_factory.mktemp("changes"), sources, {})


def run_each(
    spark: SparkSession, folder: Path, sources: dict[str, Any], gold: dict[str, Any]
) -> list[Lakehouse]:
    """Run all layers after each file, and return a copy of the lakehouse after each run."""
    shop = Lakehouse(spark, folder / "lakehouse")
    shop.configure(folder, {"sources": sources, "gold": gold})
    copies = []
    for number, lines in enumerate(RUNS):
        for source in sources:
            shop.land(source, f"{number}.json", *lines)
        shop.fill()
        copies.append(shop.copy(folder / str(number)))
    return copies


def test_latest_changes(after_runs: list[Lakehouse]) -> None:
    assert [states(lakehouse) for lakehouse in after_runs] == [*EXPECTED_STATES]
    quarantined = after_runs[-1].rows("quarantine.orders", "status", "_failed_rules")
    assert quarantined == [("paid", ["null_key"]), ("paid", ["null_sequence"])]


def test_history_of_changes(after_runs: list[Lakehouse]) -> None:
    assert spans(after_runs[-1]) == EXPECTED_SPANS


@pytest.mark.slow  # test_changing_tables has gold that follows the latest state
def test_gold_follows_histories(spark: SparkSession, tmp_path: Path) -> None:
    first, last = run_each(spark, tmp_path, {"history": HISTORY}, GOLD)
    assert first.rows("gold.now") == [("new", 2), ("paid", 1)]
    assert first.rows("gold.ever") == [("new", 4), ("paid", 1)]
    assert last.rows("gold.now") == [("new", 1), ("paid", 2)]
    assert last.rows("gold.ever") == [("new", 5), ("packed", 1), ("paid", 3)]
    audit = run_audit(last.config, everything=True)
    assert (audit.findings, audit.notes) == ((), ())


def test_balance_of_changes(after_runs: list[Lakehouse]) -> None:
    audit = run_audit(after_runs[-1].config, everything=True)
    assert (audit.findings, audit.notes) == ((), ())
    latest_balance, history_balance = audit.balances["orders"], audit.balances["history"]
    for balance, silver, superseded in ((latest_balance, 3, 6), (history_balance, 9, 0)):
        assert balance.bronze_rows == 14
        assert balance.quarantined_rows == 2
        assert (balance.silver_rows, balance.superseded_rows) == (silver, superseded)
        assert (balance.deleted_rows, balance.duplicate_rows) == (2, 1)


@pytest.mark.slow
def test_refresh_of_changes(after_runs: list[Lakehouse], tmp_path: Path) -> None:
    shop, tables = after_runs[-1].copy(tmp_path / "lakehouse"), ("orders", "history")
    before = [shop.rows(f"silver.{name}") for name in (*tables, "orders_changes")]
    for table in tables:
        refresh_table(shop.pipeline(), f"silver.{table}")
    assert [shop.rows(f"silver.{name}") for name in (*tables, "orders_changes")] == before
    audit = run_audit(shop.config, everything=True)
    assert audit.is_balanced, audit.findings


DEBEZIUM = {"format": "debezium", "silver": {"customer_id": "id", "name": "name"}}
DEBEZIUM |= {"keys": ["customer_id"]}
COLUMNS = ("customer_id", "name", "valid_from", "valid_to", "is_current")
EXPECTED_HISTORY = [  # the n-th change has the sequence number 1000 + n
    (customer, f"n{number}", 1000 + number, 1001 + number, False)
    for customer in range(10)
    for number in range(4 * customer, 4 * customer + 3)
]


def with_customers(lakehouse: Lakehouse, folder: Path, **cdc: Any) -> Lakehouse:
    """Ten customers are created, updated twice and deleted; the last message has no value."""
    source = DEBEZIUM | ({"cdc": cdc} if cdc else {})
    lakehouse.configure(folder, {"sources": {"customers": source}, "gold": {}})
    lines = (SAMPLES / "debezium-customers.json").read_text().splitlines()
    lakehouse.land("customers", "1.json", *lines, "null")
    lakehouse.fill("bronze", "silver")
    return lakehouse


def check_balance(lakehouse: Lakehouse, *expected: int) -> None:
    audit = run_audit(lakehouse.config, everything=True)
    assert audit.is_balanced, audit.findings
    balance = audit.balances["customers"]
    assert (balance.silver_rows, balance.superseded_rows, balance.deleted_rows) == expected


@pytest.mark.slow  # test_scd merges the history of a database, and `after_runs` another one
def test_debezium_history(lakehouse: Lakehouse, tmp_path: Path) -> None:
    with_customers(lakehouse, tmp_path, stored_as_scd_type=2)
    assert sorted(lakehouse.rows("silver.customers", *COLUMNS)) == sorted(EXPECTED_HISTORY)
    ((failed_rules,),) = lakehouse.rows("quarantine.customers", "_failed_rules")
    assert failed_rules == ["tombstone"]
    check_balance(lakehouse, 30, 0, 10)
    request = Request("silver.customers", "name = 'n1'", cascade=True)
    result = erase_rows(lakehouse.pipeline(), request)
    assert result.erasure.rows["bronze.customers"] == 4  # all changes of customer 0
    assert sorted(lakehouse.rows("silver.customers", *COLUMNS)) == sorted(EXPECTED_HISTORY[3:])
    audit = run_audit(lakehouse.config, everything=True)
    assert (audit.findings, audit.balances["customers"].erased_rows) == ((), 4)


@pytest.mark.slow  # test_debezium_messages has the latest rows of such changes
def test_debezium_latest(lakehouse: Lakehouse, tmp_path: Path) -> None:
    with_customers(lakehouse, tmp_path)
    assert lakehouse.rows("silver.customers") == []
    check_balance(lakehouse, 0, 30, 10)

"""Child tables and gold over silver tables whose rows change: after updates and deletes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.inspect.audit import run_audit
from medallion.runtime.erase import Request, erase_rows
from medallion.runtime.refresh import refresh_table
from tests.support.lakehouse import Lakehouse

SCHEMA = {"id": "long", "city": "string", "tags": "array<string>", "at": "timestamp"}
CUSTOMERS: dict[str, Any] = {
    "schema": {**SCHEMA, "op": "string"},
    "silver": {"customer_id": "id", "city": "city", "tags": "tags", "moved_at": "at"},
    "keys": ["customer_id"],
    "event_time": "moved_at",
    "cdc": {"sequence_by": "moved_at", "apply_as_deletes": "op = 'd'"},
}
COUNT = {"source": "silver.customers", "group_by": ["city"], "measure": {"n": "count(*)"}}
SHOP: dict[str, Any] = {
    "sources": {"customers": CUSTOMERS},
    "silver": {
        "tags": {
            "source": "silver.customers",
            "explode": "tags",
            "columns": {"customer": "customer_id", "tag": "item"},
            "keys": ["customer", "tag"],
        },
        "long_tags": {"source": "silver.tags", "where": "length(tag) > 1"},
    },
    "gold": {
        "cities": COUNT,
        "not_ulm": COUNT | {"output_mode": "update", "where": "city <> 'Ulm'"},
        "days": COUNT | {"window": "1 day", "output_mode": "update"},
        "tag_counts": {"source": "silver.tags", "group_by": ["tag"], "measure": {"n": "count(*)"}},
        "listed": {"sql": "listed.sql"},
    },
}
LISTED = "SELECT customer_id, upper(city) AS city FROM silver.customers WHERE city IS NOT NULL"
HISTORY: dict[str, Any] = {
    "sources": {"customers": CUSTOMERS | {"cdc": CUSTOMERS["cdc"] | {"stored_as_scd_type": 2}}},
    "gold": {
        "now": COUNT | {"where": "is_current"},
        "ever": COUNT | {"output_mode": "update"},
    },
}


def change(customer: int, city: str, hour: int, *tags: str, op: str = "u") -> str:
    values = {"id": customer, "city": city, "at": f"2026-05-01T{hour:02}:00:00Z"}
    return json.dumps(values | {"tags": tags, "op": op})


NIGHTS = (
    (
        change(1, "Bonn", 10, "a", "bb", "a"),
        change(2, "Bonn", 10),
        change(3, "Ulm", 10, "cc"),
    ),
    # 1 moves and loses a tag and its duplicate, 2 gets a tag, 3 goes and takes its group with it.
    (
        change(1, "Jena", 11, "bb"),
        change(2, "Bonn", 12, "d"),
        change(3, "Ulm", 13, op="d"),
    ),
)
AFTER: tuple[dict[str, list[tuple[Any, ...]]], ...] = (
    {
        "silver.tags": [(1, "a"), (1, "bb"), (3, "cc")],
        "quarantine.tags": [(1, "a")],
        "silver.long_tags": [(1, "bb"), (3, "cc")],
        "gold.cities": [("Bonn", 2), ("Ulm", 1)],
        "gold.not_ulm": [("Bonn", 2)],
        "gold.days": [("Bonn", 2), ("Ulm", 1)],
        "gold.tag_counts": [("a", 1), ("bb", 1), ("cc", 1)],
        "gold.listed": [(1, "BONN"), (2, "BONN"), (3, "ULM")],
    },
    {
        "silver.tags": [(1, "bb"), (2, "d")],
        "quarantine.tags": [],
        "silver.long_tags": [(1, "bb")],
        "gold.cities": [("Bonn", 1), ("Jena", 1)],
        "gold.not_ulm": [("Bonn", 1), ("Jena", 1)],
        "gold.days": [("Bonn", 1), ("Jena", 1)],
        "gold.tag_counts": [("bb", 1), ("d", 1)],
        "gold.listed": [(1, "JENA"), (2, "BONN")],
    },
)
ERASED: dict[str, list[tuple[Any, ...]]] = {
    "silver.tags": [(2, "d")],
    "gold.cities": [("Bonn", 1)],
    "gold.not_ulm": [("Bonn", 1)],
    "gold.tag_counts": [("d", 1)],
    "gold.listed": [(2, "BONN")],
}
COLUMNS = {"silver": ("customer", "tag"), "quarantine": ("customer_id", "item")}


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Lakehouse:
    shop = Lakehouse(spark, tmp_path / "lakehouse")
    (shop.copy_of_conf(tmp_path) / "listed.sql").write_text(LISTED)
    return shop


def has(shop: Lakehouse, expected: dict[str, list[tuple[Any, ...]]]) -> None:
    for table, rows in expected.items():
        layer = table.partition(".")[0]
        columns = COLUMNS.get(layer, ("city", "n") if table == "gold.days" else ())
        assert shop.rows(table, *columns) == rows, table
    audit = run_audit(shop.config, everything=True)
    assert (audit.findings, audit.notes) == ((), ())


def test_tables_follow_updates_and_deletes(shop: Lakehouse, tmp_path: Path) -> None:
    shop.configure(tmp_path, SHOP)
    for number, lines in enumerate(NIGHTS):
        shop.land("customers", f"{number}.json", *lines)
        assert shop.night().errors == []
        has(shop, AFTER[number])
    refresh_table(shop.pipeline(), "silver.customers")
    has(shop, AFTER[-1])
    # 1 lives in Jena: its older change in Bonn goes, too, and does not become its row.
    for rows in (2, 0):
        request = Request("silver.customers", "city = 'Jena'", cascade=True)
        plan = erase_rows(shop.pipeline(), request).plan
        assert (plan.rows["bronze.customers"], plan.rows["silver.customers"]) == (rows, rows // 2)
        has(shop, ERASED)


def test_gold_follows_histories(shop: Lakehouse, tmp_path: Path) -> None:
    shop.configure(tmp_path, HISTORY)
    for number, lines in enumerate(NIGHTS):
        shop.land("customers", f"{number}.json", *lines)
        assert shop.night().errors == []
    ever = [("Bonn", 3), ("Jena", 1), ("Ulm", 1)]
    has(shop, {"gold.now": [("Bonn", 1), ("Jena", 1)], "gold.ever": ever})

"""Orders with items over two runs: child tables, their children, and gold over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from medallion.inspect.audit import run_audit
from medallion.inspect.balance import ChildBalance
from medallion.inspect.problems import ProblemCode
from medallion.runtime import refresh
from tests.support import FORMS
from tests.support.lakehouse import Lakehouse
from tests.support.verdict import take_verdict

ITEM = "struct<sku: string, qty: long, tags: array<struct<tag: string, value: string>>>"
SHOP: dict[str, Any] = {
    "sources": {
        "orders": {
            "schema": {"id": "long", "at": "timestamp", "items": f"array<{ITEM}>"},
            "silver": {"order_id": "id", "ordered_at": "at", "items": "items"},
            "event_time": "ordered_at",
            "keys": ["order_id", "ordered_at"],
        }
    },
    "silver": {
        "order_items": {
            "source": "silver.orders",
            "explode": "items",
            "columns": {
                "order_id": "order_id",
                "position": "pos",
                "sku": "item.sku",
                "qty": "item.qty",
                "ordered_at": "ordered_at",
                "tags": "map_from_entries(item.tags)",
            },
            "keys": ["order_id", "sku"],
        },
        "item_tags": {
            "source": "silver.order_items",
            "explode": "tags",
            "columns": {"order_id": "order_id", "tag": "key", "value": "item"},
        },
        "large_items": {"source": "silver.order_items", "where": "qty >= 5"},
    },
    "gold": {
        "sold": {
            "source": "silver.order_items",
            "window": "1 day",
            "group_by": ["sku"],
            "measure": {"qty": "sum(qty)"},
        },
        "tags": {"source": "silver.item_tags", "group_by": ["tag"], "measure": {"n": "count(*)"}},
    },
}


def order(number: int, minute: int, *items: tuple[str | None, int, dict[str, str] | None]) -> str:
    """Return a line of an order at 10:MM with these items."""
    values = []
    for sku, qty, tags in items:
        entries = None if tags is None else [{"tag": t, "value": v} for t, v in tags.items()]
        values.append({"sku": sku, "qty": qty, "tags": entries})
    return json.dumps({"id": number, "at": f"2026-05-01T10:{minute:02}:00Z", "items": values})


# Items: 3, 1 and 0; then 2 and 2, of which order 1 (at another time) repeats a sku.
RUNS = (
    (
        order(1, 0, ("nut", 5, {"color": "red"}), ("bolt", 2, None), ("nut", 9, None)),
        order(2, 1, (None, 1, None)),
        order(3, 2),
    ),
    (
        order(1, 3, ("bolt", 7, {"size": "m"}), ("gear", 1, {"color": "blue", "size": "s"})),
        order(4, 4, ("nut", 6, {}), ("cog", -1, None)),
    ),
)
ITEMS = [(1, "bolt", 2), (1, "gear", 1), (1, "nut", 5), (4, "nut", 6)]


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Lakehouse:
    shop = Lakehouse(spark, tmp_path / "lakehouse")
    shop.configure(tmp_path, SHOP)
    kwargs = {"column": "qty", "min_value": 1}
    type_ = "expect_column_values_to_be_between"
    shop.expect("silver.order_items", "positive_qty", type_, "quarantine", **kwargs)
    return shop


@pytest.mark.parametrize("form", FORMS)
def test_child_tables_over_two_runs(shop: Lakehouse, form: str) -> None:
    for number, lines in enumerate(RUNS):
        shop.land("orders", f"{number}.json", *lines)
        shop.fill("bronze", "silver")
    shop.fill("gold")
    check_tables(shop)
    if form == "long":
        refresh.refresh_table(shop.pipeline(), "silver.orders")
        check_tables(shop)
    DeltaTable(str(shop.config.layout.table("silver.item_tags"))).delete("tag = 'size'")
    verdict = take_verdict(shop.config)
    unbalanced = [p.subject for p in verdict.problems if p.code == ProblemCode.UNBALANCED]
    assert unbalanced == ["silver.item_tags"]


def check_tables(shop: Lakehouse) -> None:
    assert shop.rows("silver.order_items", "order_id", "sku", "qty") == ITEMS
    quarantined = shop.rows("quarantine.order_items", "order_id", "pos", "_failed_rules")
    assert quarantined == [(2, 0, ["null_key"]), (4, 1, ["positive_qty"])]
    tags = [(1, "color", "blue"), (1, "color", "red"), (1, "size", "s")]
    assert shop.rows("silver.item_tags", "order_id", "tag", "value") == tags
    large = shop.rows("silver.large_items", "order_id", "sku", "position")
    assert large == [(1, "nut", 0), (4, "nut", 0)]
    assert shop.rows("gold.sold", "sku", "qty") == [("bolt", 2), ("gear", 1), ("nut", 11)]
    assert shop.rows("gold.tags") == [("color", 2), ("size", 1)]
    audit = run_audit(shop.config, everything=True)
    assert (audit.findings, audit.notes) == ((), ())
    assert audit.child_tables == {
        "order_items": ChildBalance(8, 4, 2, 2),
        "item_tags": ChildBalance(3, 3, 0, 0),
        "large_items": ChildBalance(2, 2, 0, 0),
    }

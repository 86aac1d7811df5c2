"""Fields that come in the second run: null until then, at every depth, without any command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.inspect.audit import run_audit
from tests.support.lakehouse import Lakehouse

SHOP: dict[str, Any] = {
    "sources": {
        "orders": {  # a history, whose structs are columns of silver
            "silver": {"id": "id", "customer": "who", "items": "order.items"},
            "keys": ["id"],
            "cdc": {
                "sequence_by": "struct(at, version)",
                "apply_as_deletes": "gone",
                "stored_as_scd_type": 2,
            },
        },
    },
    "silver": {
        "items": {
            "source": "silver.orders",
            "explode": "items",
            "where": "not coalesce(item.is_gift, false)",
            "columns": {"id": "id", "pos": "pos", "sku": "item.sku", "off": "item.discount"},
            "keys": ["id", "pos"],
        },
    },
    "gold": {
        "gold_customers": {
            "source": "silver.orders",
            "where": "customer.plan.name = 'gold'",
            "measure": {"n": "count(*)"},
        },
    },
}

PEOPLE: dict[str, Any] = {
    "format": "debezium",
    "silver": {"person_id": "id", "vip": "vip", "home": "home"},
    "keys": ["person_id"],
}


def order(number: int, at: int, customer: Any, *items: Any, **more: Any) -> str:
    document = {"id": number, "at": at, "who": customer, "order": {"items": items}}
    return json.dumps(document | more)


def person(op: str, lsn: int, before: Any, after: Any) -> str:
    return json.dumps({"before": before, "after": after, "op": op, "source": {"lsn": lsn}})


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    root: Path = tmp_path_factory.mktemp("later")
    shop = Lakehouse(spark, root / "lakehouse")
    shop.configure(root, SHOP)
    shop.land("orders", "1.json", order(1, 1, {"name": "Ada"}, {"sku": "a"}))
    shop.fill()
    assert shop.rows("gold.gold_customers", "n") == [(0,)]
    assert shop.rows("silver.items", "id", "pos", "sku", "off") == [(1, 0, "a", None)]
    plan = {"name": "gold", "since": 2026}
    items = ({"sku": "b", "discount": 0.5}, {"sku": "c", "is_gift": True})
    shop.land(
        "orders",
        "2.json",
        order(2, 2, {"name": "Bo", "plan": plan}, *items, version=1),
        order(1, 3, None, gone=True),
    )
    shop.fill()
    return shop


def test_history_has_the_new_fields(shop: Lakehouse) -> None:
    rows = shop.rows("silver.orders", "id", "customer", "is_current")
    plans = [(number, who["plan"] and who["plan"]["since"], last) for number, who, last in rows]
    assert plans == [(1, None, False), (2, 2026, True)]


def test_child_table_has_the_new_field(shop: Lakehouse) -> None:
    rows = shop.rows("silver.items", "id", "pos", "sku", "off")
    assert rows == [(1, 0, "a", None), (2, 0, "b", "0.5")]


def test_gold_has_the_new_field(shop: Lakehouse) -> None:
    assert shop.rows("gold.gold_customers", "n") == [(1,)]


def test_every_row_is_accounted_for(shop: Lakehouse) -> None:
    assert run_audit(shop.config).is_balanced


@pytest.mark.slow
def test_row_of_debezium_has_the_new_fields(spark: SparkSession, tmp_path: Path) -> None:
    shop = Lakehouse(spark, tmp_path / "lakehouse")
    shop.configure(tmp_path, {"sources": {"people": PEOPLE}, "gold": {}})
    before, after = {"city": "Bonn"}, {"city": "Bonn", "zip": "53111"}
    shop.land("people", "1.json", person("c", 1, None, {"id": 7, "home": before}))
    shop.fill("bronze", "silver")
    assert shop.rows("silver.people", "person_id", "vip") == [(7, None)]
    new = {"id": 7, "vip": True, "home": after}
    shop.land("people", "2.json", person("u", 2, {"id": 7, "home": before}, new))
    shop.fill("bronze", "silver")
    assert shop.rows("silver.people", "person_id", "vip", "home") == [(7, "true", after)]
    assert run_audit(shop.config).is_balanced

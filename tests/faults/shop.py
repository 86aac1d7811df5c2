"""A world of change records: orders with their items, and the history of customers."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.faults.world import Rows, World

KEYS = 12  # of each source; few, so that most lines change an existing row
CITIES = ("Bonn", "Jena", "Ulm")
SKUS = ("nut", "bolt", "nail")
LIMITS = (50, 60, 75, 100)
_CUSTOMER = "struct<id: string, city: string>"
_SPAN = ("valid_from", "valid_to", "is_current")


@dataclass(frozen=True)
class Change:
    """The change of a line; a malformed line has no key."""

    key: str | None
    sequence: int | None = None
    is_delete: bool = False
    value: str | None = None  # the status of an order, or the city of a customer
    amount: int = 0
    items: tuple[tuple[str, int], ...] = ()


@dataclass
class Shop(World):
    """Each line is a change, possibly out of order, a duplicate, or malformed."""

    changes: dict[str, list[Change]] = field(default_factory=lambda: defaultdict(list))
    max_amount: int = LIMITS[0]  # the largest amount that passes the rule

    sources: tuple[str, ...] = ("orders", "customers")
    queries: tuple[str, ...] = (
        "bronze.orders",
        "bronze.customers",
        "silver.orders_changes",
        "silver.orders",
        "silver.customers_changes",
        "silver.customers",
        "silver.order_items",
        "gold.by_city",
        "gold.sold",
        "publish.sold.files",
    )
    edits: tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...] = (
        (("sources", "orders", "max_files_per_trigger"), (1, 2, 1000)),
        (("sources", "orders", "silver", "shown"), ("status", "trim(status)")),
        (("sources", "orders", "cdc", "tombstone_retention"), ("30 days", "40 days")),
        (("sources", "customers", "silver", "shown"), ("city", "trim(city)")),
        (("silver", "order_items", "columns", "shown"), ("item.sku", "trim(item.sku)")),
        (("gold", "by_city", "output_mode"), ("update", "complete")),
    )
    published: str = "sold"

    def document(self) -> dict[str, Any]:
        """Return two sources of change records, a child table, and gold over both."""
        items = "array<struct<sku: string, qty: bigint>>"
        orders = {
            "schema": dict.fromkeys(("id", "status", "op"), "string")
            | {"amount": "long", "seq": "long", "items": items},
            "silver": {"order_id": "id", "status": "status", "amount": "amount", "items": "items"}
            | {"shown": "status"},
            "keys": ["order_id"],
            "cdc": {"sequence_by": "seq", "apply_as_deletes": "op = 'd'"},
        }
        customers = {
            "format": "debezium",
            "schema": {"before": _CUSTOMER, "after": _CUSTOMER, "op": "string", "ts_ms": "long"}
            | {"source": "struct<lsn: bigint>"},
            "silver": {"customer_id": "id", "city": "city", "shown": "city"},
            "keys": ["customer_id"],
            "cdc": {"stored_as_scd_type": 2},
        }
        columns = {"order_id": "order_id", "pos": "pos", "sku": "item.sku", "qty": "item.qty"}
        return {
            "sources": {"orders": orders, "customers": customers},
            "silver": {
                "order_items": {
                    "source": "silver.orders",
                    "explode": "items",
                    "columns": columns | {"shown": "item.sku"},
                    "keys": ["order_id", "pos"],
                }
            },
            "gold": {
                "by_city": {
                    "source": "silver.customers",
                    "where": "is_current",
                    "group_by": ["city"],
                    "measure": {"total": "count(*)"},
                },
                "sold": {
                    "source": "silver.order_items",
                    "output_mode": "update",
                    "group_by": ["sku"],
                    "measure": {"qty": "sum(qty)"},
                    "publish": {"files": {"format": "json"}},
                },
            },
        }

    def suites(self) -> Mapping[str, Any]:
        """Return the rule for amounts."""
        rule = {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": "amount", "max_value": self.max_amount},
            "meta": {"name": "amount_in_range", "on_failure": "quarantine"},
        }
        return {"silver/orders": [rule]}

    def relax(self) -> str | None:
        """Raise the limit for amounts."""
        larger = [limit for limit in LIMITS if limit > self.max_amount]
        if not larger:
            return None
        self.max_amount = larger[0]
        return f"amounts up to {self.max_amount}"

    def key_condition(self, source: str, key: str) -> str:
        """Return SQL for the rows of an order or a customer."""
        return f"{'order_id' if source == 'orders' else 'customer_id'} = '{key}'"

    def keys(self, source: str) -> list[str]:
        """Return the keys, including those of deleted rows."""
        return sorted({change.key for change in self.changes[source] if change.key})

    def _forget(self, source: str, key: str) -> None:
        self.changes[source] = [change for change in self.changes[source] if change.key != key]

    def _line(self, source: str, is_readable: bool) -> tuple[str, str | None]:
        draw = self.random.random()
        if draw < 0.05:
            return "", None
        change = self._change(source, draw)
        if is_readable:
            self.changes[source].append(change)
        if change == Change(None):
            return "{not json", None
        return (_order if source == "orders" else _envelope)(change), change.key

    def _change(self, source: str, draw: float) -> Change:
        known = [change for change in self.changes[source] if change.key]
        if draw < 0.1:
            return Change(None)
        if draw < 0.25 and known:
            return self.random.choice(known)
        key = f"{source[0]}{self.random.randrange(KEYS)}"
        if draw < 0.3:
            return Change(key, None, value="lost")
        used = {change.sequence for change in known if change.key == key}
        sequence = self.random.choice([n for n in range(10_000) if n not in used])
        value = self.random.choice(CITIES)
        if draw < 0.45:
            return Change(key, sequence, is_delete=True)
        if source == "customers":
            return Change(key, sequence, value=value)
        items = [
            (self.random.choice(SKUS), self.random.randint(1, 9))
            for _ in range(self.random.randrange(4))
        ]
        return Change(key, sequence, False, value, self.random.randint(1, 110), tuple(items))

    def expected(self) -> dict[str, Rows]:
        """Return the rows of each table."""
        orders = [max(change, key=_sequence) for change in self._by_key("orders").values()]
        current = [change for change in orders if not change.is_delete]
        items = [
            (change.key, pos, *item) for change in current for pos, item in enumerate(change.items)
        ]
        sold: Counter[str] = Counter()
        for _, _, sku, quantity in items:
            sold[sku] += quantity
        spans = list(self._spans())
        cities = Counter(city for _, city, _, end, _ in spans if end is None)
        tables: dict[str, Rows] = {
            "silver/orders": (
                ("order_id", "status", "amount"),
                Counter((change.key, change.value, change.amount) for change in current),
            ),
            "silver/order_items": (("order_id", "pos", "sku", "qty"), Counter(items)),
            "silver/customers": (("customer_id", "city", *_SPAN), Counter(spans)),
            "gold/by_city": (("city", "total"), Counter(cities.items())),
            "gold/sold": (("sku", "qty"), Counter(sold.items())),
        }
        for source in self.sources:
            lines = self.changes[source]
            quarantined = [change for change in lines if not self._passes(change)]
            tables[f"bronze/{source}"] = (), Counter({(): len(lines)})
            tables[f"quarantine/{source}"] = (), Counter({(): len(quarantined)})
        return tables

    def _passes(self, change: Change) -> bool:
        return None not in (change.key, change.sequence) and change.amount <= self.max_amount

    def _by_key(self, source: str) -> dict[str | None, set[Change]]:
        changes: dict[str | None, set[Change]] = defaultdict(set)
        for change in filter(self._passes, self.changes[source]):
            changes[change.key].add(change)
        return changes

    def _spans(self) -> Iterator[tuple[Any, ...]]:
        for key, changes in self._by_key("customers").items():
            ordered = sorted(changes, key=_sequence)
            ends = [*(change.sequence for change in ordered[1:]), None]
            for change, end in zip(ordered, ends, strict=True):
                if not change.is_delete:
                    yield key, change.value, change.sequence, end, end is None


def _sequence(change: Change) -> int:
    return change.sequence or 0


def _order(change: Change) -> str:
    items = [{"sku": sku, "qty": quantity} for sku, quantity in change.items]
    values = {"id": change.key, "status": change.value, "amount": change.amount, "items": items}
    return json.dumps(values | {"seq": change.sequence, "op": "d" if change.is_delete else "u"})


def _envelope(change: Change) -> str:
    row, no_row = {"id": change.key, "city": change.value}, None
    before, after = (row, no_row) if change.is_delete else (no_row, row)
    envelope = {"before": before, "after": after, "op": "d" if change.is_delete else "u"}
    return json.dumps(envelope | {"source": {"lsn": change.sequence}})

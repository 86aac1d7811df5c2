"""Changes of random databases, through all tables, against the databases themselves."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.inspect.audit import run_audit
from tests.support import FORMS
from tests.support.lakehouse import Lakehouse

Row = dict[str, Any]
PLACEHOLDER = "__debezium_unavailable_value"
SILVER = {"id": "id", "city": "city", "body": "body", "items": "items"}
SHOP: Row = {"format": "debezium", "silver": SILVER, "keys": ["id"]}
CARTS: Row = {
    "silver": {"id": "id", "state": "state", "at": "at"},
    "keys": ["id"],
    "cdc": {
        "sequence_by": "at",
        "apply_as_deletes": "op = 'D'",
        "apply_as_truncates": "op = 'T'",
    },
}
DOCUMENT: Row = {
    "sources": {
        "latest": SHOP,
        "history": SHOP | {"cdc": {"stored_as_scd_type": 2}},
        "carts": CARTS,
    },
    "silver": {
        "items": {
            "source": "silver.latest",
            "explode": "items",
            "columns": {"id": "id", "pos": "pos", "sku": "item.sku", "qty": "item.qty"},
            "keys": ["id", "pos"],
        }
    },
    "gold": {
        "cities": {
            "source": "silver.history",
            "where": "is_current",
            "group_by": ["city"],
            "measure": {"n": "count(*)"},
        },
        "sold": {
            "source": "silver.items",
            "output_mode": "update",
            "group_by": ["sku"],
            "measure": {"qty": "sum(qty)"},
        },
    },
}
SHORT: Row = {
    "sources": {"history": DOCUMENT["sources"]["history"], "latest": SHOP},
    "silver": DOCUMENT["silver"],
    "gold": DOCUMENT["gold"],
}


@dataclass
class Database:
    """A table, the history of its rows, and the messages that Debezium writes of it.

    Its large values are outside the rows: a message has them only if they are new.

    Attributes:
        rows: the rows, by key.
        spans: key, city, body and first change of each row that ended, with the change that did.
    """

    rng: random.Random
    rows: dict[int, Row] = field(default_factory=dict)
    spans: list[tuple[Any, ...]] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    lsn: int = 1000

    def write(self, op: str, before: Row | None, after: Row | None) -> None:
        times = {"ts_ms": 1_777_629_600_000 + self.lsn // 50}
        message = {"op": op, "before": before, "after": after, **times}
        self.messages.append(message | {"source": {"lsn": self.lsn, **times}})

    def start(self, row: Row) -> None:
        self.rows[row["id"]] = row | {"since": self.lsn}

    def end(self, key: int) -> None:
        row = self.rows.pop(key)
        self.spans.append((key, row["city"], row["body"], row["since"], self.lsn))

    def new_row(self, key: int) -> Row:
        rng = self.rng
        items = [
            {"sku": rng.choice("abc"), "qty": rng.randrange(9)}
            for _ in range(rng.choice([0, 1, 3]))
        ]
        body = rng.choice([None, f"body {self.lsn}"])
        return {"id": key, "city": rng.choice([None, "Bonn", "Jena"]), "body": body, "items": items}

    def change(self, keys: range) -> None:
        """Insert, update, move or delete a row with one of some keys."""
        self.lsn += self.rng.randrange(1, 4)
        key, other = self.rng.sample(keys, 2)
        if key not in self.rows:
            row = self.new_row(key)
            self.start(row)
            self.write("c", None, row)
            return
        old, what = self.rows[key], self.rng.random()
        before = {"id": key, "city": None, "body": None, "items": None}
        if what < 0.2:
            self.end(key)
            self.write("d", before, None)
            self.messages.append(None)
            return
        row = self.new_row(key)
        if old["body"] is not None and self.rng.random() < 0.6:
            row["body"] = old["body"]
        sent = dict(row)
        if row["body"] is not None and row["body"] == old["body"]:
            sent["body"] = PLACEHOLDER
        self.end(key)
        if what < 0.45 and other not in self.rows:
            # Of a key that is no primary key, Debezium writes one message.
            if self.rng.random() < 0.5:
                self.write("u", before, sent | {"id": other})
            else:
                self.write("d", before, None)
                self.messages.append(None)
                self.write("c", None, sent | {"id": other})
            row["id"] = other
        else:
            self.write("u", None, sent)
        self.start(row)

    def truncate(self) -> None:
        self.lsn += 1
        for key in [*self.rows]:
            self.end(key)
        self.write("t", None, None)

    def history(self) -> list[tuple[Any, ...]]:
        """Return key, city, body, and the changes that start and end each span."""
        current = ((k, r["city"], r["body"], r["since"], None) for k, r in self.rows.items())
        return [*self.spans, *current]


def random_database(rng: random.Random, histories: int) -> Database:
    """Return a database in which the rows of each history have three keys of their own."""
    database = Database(rng)
    events = [number for number in range(histories) for _ in range(rng.randrange(1, 16))]
    rng.shuffle(events)
    truncated = {*rng.sample(range(len(events)), 2)}
    for at, number in enumerate(events):
        if at in truncated:
            database.truncate()
        database.change(range(10 * number, 10 * number + 3))
        if rng.random() < 0.02:
            database.messages.append({"ts_ms": 1_777_629_600_000})  # a heartbeat
    return database


def files_of(rng: random.Random, messages: list[Any], count: int) -> list[list[str]]:
    """Return lines of files: most messages are nearly in order, some late, some twice."""
    files: list[list[Any]] = [[] for _ in range(count)]
    for at, message in enumerate(messages):
        for _ in range(1 + (rng.random() < 0.1)):
            near = at * count // len(messages) + rng.choice([0, 0, 0, 1, -1])
            file = near if rng.random() < 0.9 else rng.randrange(count)
            files[max(0, min(count - 1, file))].append(message)
    for lines in files:
        if rng.random() < 0.5:
            rng.shuffle(lines)
    return [[json.dumps(message) for message in lines] for lines in files]


def random_carts(rng: random.Random, count: int) -> tuple[dict[int, str], list[list[str]]]:
    """Return rows, and files whose times have whole seconds: their order is that of the lines.

    The changes of one second are in one file; a file may come twice. A truncate has its own second.
    """
    rows, files = dict[int, str](), list[list[str]]()
    for second in range(count):
        lines = []
        at = f"2026-05-01T10:{second // 60:02}:{second % 60:02}Z"
        if second == count // 2:
            rows.clear()
            files.append([json.dumps({"id": None, "at": at, "op": "T"})])
            continue
        for _ in range(rng.randrange(1, 30)):
            key, state = rng.randrange(20), f"s{rng.randrange(5)}"
            op = "D" if key in rows and rng.random() < 0.3 else "U"
            lines.append(json.dumps({"id": key, "state": state, "at": at, "op": op}))
            rows[key] = state
            if op == "D":
                del rows[key]
        files.append(lines)
    return rows, [*files, *rng.sample(files, count // 4)]


def landings(
    shop: Lakehouse, rng: random.Random, files: dict[str, list[list[str]]], runs: int
) -> Iterator[None]:
    """Land the files of each source in any order, some before each run."""
    waiting = [(source, lines) for source, each in files.items() for lines in each]
    rng.shuffle(waiting)
    for run in range(runs):
        for number, (source, lines) in enumerate(waiting[run::runs]):
            if source in shop.config.sources:
                shop.land(source, f"{run}-{number}.json", *lines)
        yield


# test_changes has such tables by hand, and tests/layers/silver/test_changes.py random histories
# without queries.
@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_tables_of_random_databases(spark: SparkSession, tmp_path: Path, form: str) -> None:
    is_long = form == "long"
    rng = random.Random(f"{form} 1")
    database = random_database(rng, 300 if is_long else 20)
    carts, cart_files = random_carts(rng, 60)
    shop = Lakehouse(spark, tmp_path / "lakehouse")
    shop.configure(tmp_path, DOCUMENT if is_long else SHORT)
    messages = files_of(rng, database.messages, 24 if is_long else 5)
    files = {"latest": messages, "history": messages, "carts": cart_files}
    for _ in landings(shop, rng, files, runs=3 if is_long else 2):
        assert not shop.run_without_gates().errors
    columns = ("id", "city", "body", "valid_from", "valid_to")
    assert sorted(shop.rows("silver.history", *columns), key=repr) == sorted(
        database.history(), key=repr
    )
    latest = [(key, row["city"], row["body"]) for key, row in database.rows.items()]
    rows = shop.rows("silver.latest", "id", "city", "body")
    assert sorted(rows, key=repr) == sorted(latest, key=repr)
    items = [
        (key, pos, item["sku"], item["qty"])
        for key, row in database.rows.items()
        for pos, item in enumerate(row["items"])
    ]
    assert sorted(shop.rows("silver.items", "id", "pos", "sku", "qty")) == sorted(items)
    cities = Counter(city for _, city, _ in latest)
    assert sorted(shop.rows("gold.cities"), key=repr) == sorted(cities.items(), key=repr)
    sold = Counter[str]()
    for *_, sku, qty in items:
        sold[sku] += qty
    assert sorted(shop.rows("gold.sold")) == sorted(sold.items())
    if is_long:
        assert sorted(shop.rows("silver.carts", "id", "state")) == sorted(carts.items())
    audit = run_audit(shop.config, everything=is_long)
    assert (audit.is_balanced, audit.findings) == (True, ())

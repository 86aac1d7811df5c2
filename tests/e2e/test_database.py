"""A database whose changes arrive out of order: the tables are equal to the database at the end."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.inspect.audit import run_audit
from tests.support.lakehouse import Lakehouse

PLACEHOLDER = "__debezium_unavailable_value"
SOURCE: dict[str, Any] = {
    "format": "debezium",
    "silver": {"person_id": "id", "city": "city", "body": "body", "items": "items"},
    "keys": ["person_id"],
}
SHOP: dict[str, Any] = {
    "sources": {
        "people": SOURCE,
        "history": SOURCE | {"cdc": {"stored_as_scd_type": 2}},
    },
    "silver": {
        "items": {
            "source": "silver.people",
            "explode": "items",
            "columns": {"person_id": "person_id", "pos": "pos", "sku": "item.sku"},
            "keys": ["person_id", "pos"],
        }
    },
    "gold": {
        "cities": {
            "source": "silver.people",
            "output_mode": "update",
            "group_by": ["city"],
            "measure": {"n": "count(*)"},
        },
        "sold": {"source": "silver.items", "group_by": ["sku"], "measure": {"n": "count(*)"}},
        "now": {
            "source": "silver.history",
            "where": "is_current",
            "group_by": ["city"],
            "measure": {"n": "count(*)"},
        },
    },
}
CHANGES, RUNS, FILES = 1500, 3, 2


class Database:
    """A table whose changes are written as the connector for PostgreSQL writes them.

    Attributes:
        rows: the rows by key.
        spans: key, first and last position, city and body of each state of a row.
        messages: all changes, in the order of the log.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._lsn = rng, 1000
        self.rows: dict[int, dict[str, Any]] = {}
        self.spans: list[list[Any]] = []
        self.messages: list[str] = []

    def change(self, number: int) -> None:
        """Make a random change: of a new or an old row, its key, or of all rows."""
        rng = self._rng
        key = rng.choice([*self.rows]) if self.rows and rng.random() < 0.7 else rng.randrange(400)
        if number == CHANGES // 3:
            for each in [*self.rows]:
                self._end(each)
            self._write("t", None, None)
        elif key not in self.rows:
            row = {"id": key, "city": self._city(), "body": f"text {number}"}
            row["items"] = [{"sku": rng.choice("abc")} for _ in range(rng.randrange(3))]
            self._set("c", None, row, row)
        elif rng.random() < 0.2:
            self._end(key)
            self._write("d", {"id": key}, None)
        elif rng.random() < 0.2 and (new := rng.randrange(400, 800)) not in self.rows:
            row = self.rows[key] | {"id": new}
            self._end(key)
            self._set("u", {"id": key}, row, row)
        else:
            row = self.rows[key] | {"city": self._city()}
            message = row | {"body": PLACEHOLDER}
            if rng.random() < 0.3:
                row = message = row | {"body": rng.choice([None, f"text {number}"])}
            self._end(key)
            self._set("u", None, row, message)

    def _city(self) -> str:
        return self._rng.choice(["Bonn", "Jena", "Kiel"])

    def _set(self, op: str, before: Any, row: dict[str, Any], message: dict[str, Any]) -> None:
        self.rows[row["id"]] = row
        self.spans.append([row["id"], self._lsn, None, row["city"], row["body"]])
        self._write(op, before, message)

    def _end(self, key: int) -> None:
        (span,) = (each for each in self.spans if each[0] == key and each[2] is None)
        span[2] = self._lsn
        del self.rows[key]

    def _write(self, op: str, before: Any, after: Any) -> None:
        envelope = {"before": before, "after": after, "op": op, "source": {"lsn": self._lsn}}
        self.messages.append(json.dumps(envelope))
        self._lsn += 1


@pytest.mark.slow  # a minute; `test_changes` has 800 histories without queries
@pytest.mark.parametrize("seed", [1, 2])
def test_tables_equal_the_database(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    database = Database(rng)
    for number in range(CHANGES):
        database.change(number)
    assert len({span[0] for span in database.spans}) >= 300
    shop = Lakehouse(spark, tmp_path / "lakehouse")
    shop.configure(tmp_path, SHOP)
    sent = [(rng.randrange(RUNS), rng.randrange(FILES), m) for m in database.messages]
    sent += [(rng.randrange(RUNS), rng.randrange(FILES), m) for *_, m in rng.sample(sent, 60)]
    rng.shuffle(sent)
    for run in range(RUNS):
        for file in range(FILES):
            lines = [m for each, number, m in sent if (each, number) == (run, file)]
            for source in ("people", "history"):
                shop.land(source, f"{run}-{file}.json", *lines)
        shop.fill()

    rows = database.rows.values()
    assert shop.rows("silver.people", "person_id", "city", "body") == sorted(
        ((row["id"], row["city"], row["body"]) for row in rows), key=repr
    )
    columns = ("person_id", "valid_from", "valid_to", "city", "body")
    assert shop.rows("silver.history", *columns) == sorted(map(tuple, database.spans), key=repr)
    items = [(row["id"], n, item["sku"]) for row in rows for n, item in enumerate(row["items"])]
    assert shop.rows("silver.items", "person_id", "pos", "sku") == sorted(items, key=repr)
    cities = sorted(Counter(row["city"] for row in rows).items(), key=repr)
    assert shop.rows("gold.cities") == shop.rows("gold.now") == cities
    sold = sorted(Counter(sku for *_, sku in items).items(), key=repr)
    assert shop.rows("gold.sold") == sold
    audit = run_audit(shop.config, everything=True)
    assert (audit.is_balanced, audit.findings) == (True, ())

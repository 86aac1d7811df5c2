"""A project is edited: the plan of `check`, `apply`, and a deep audit, with values by hand."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.errors import MedallionError
from medallion.inspect.audit import run_audit
from medallion.inspect.edits import EditAction, find_edits, leftover_tables, waiting_tables
from medallion.quality.suites import suite_path
from medallion.runtime import refresh, resume
from medallion.runtime.rename import carry_out_renames, drop_table
from medallion.sql import engine
from medallion.state import journal
from medallion.storage import locks
from medallion.storage.layout import LAYERS, PUBLISH
from tests.faults.writes import install
from tests.support import PROJECT
from tests.support.lakehouse import Lakehouse

SHOP: dict[str, Any] = {
    "sources": {
        "orders": {
            "silver": {
                "id": "id",
                "status": "status",
                "amount": "amount",
                "at": "at",
                "items": "items",
            },
            "event_time": "at",
            "keys": ["id", "at"],
        }
    },
    "silver": {
        "order_items": {
            "source": "silver.orders",
            "explode": "items",
            "columns": {"id": "id", "pos": "pos", "at": "at", "sku": "item.sku"},
            "keys": ["id", "pos", "at"],
        }
    },
    "gold": {
        "daily": {
            "source": "silver.orders",
            "window": "1 day",
            "measure": {"revenue": "sum(amount)"},
        }
    },
}
ORDERS = [
    json.dumps({"id": number, "status": status, "amount": amount, "at": at, "items": items})
    for number, status, amount, at, items in (
        (1, "new", 10, "2026-05-01T10:00:00Z", [{"sku": "a"}]),
        (1, "paid", 11, "2026-05-01T11:00:00Z", [{"sku": "a"}]),
        (2, "new", 5, "2026-05-08T10:00:00Z", [{"sku": "b"}, {"sku": "c"}]),
    )
]


class Shop:
    """One project that is edited."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.lakehouse, self.folder = Lakehouse(spark, folder / "lakehouse"), folder
        self.document = deepcopy(SHOP)

    @property
    def config(self) -> Config:
        return self.lakehouse.config

    def load(self) -> None:
        (self.folder / "pipeline.yaml").write_text(yaml.safe_dump(self.document))
        variables = self.lakehouse.environment | {"MEDALLION_CONF": str(self.folder)}
        self.lakehouse.config = load(variables, PROJECT)

    def run(self) -> None:
        with locks.lock_layers(self.lakehouse.layout, (*LAYERS, PUBLISH), "test"):
            carry_out_renames(self.lakehouse.config, print)
        assert self.lakehouse.run_without_gates().errors == []

    def edit(self, expected: Mapping[str, str], rows: Mapping[str, Any]) -> None:
        """Apply the edits in the document.

        Args:
            expected: the reason by table that is rebuilt.
            rows: the rows of queries afterwards.
        """
        self.load()
        config = self.lakehouse.config
        assert waiting_tables(config) == expected
        edits = [edit for edit in find_edits(config) if edit.action == EditAction.REBUILD]
        assert [edit.table for edit in edits] == list(expected)
        if edits:
            # A run does not touch what waits, and reports no consequence of it.
            outcome = self.lakehouse.run_without_gates()
            assert outcome.errors == []
            assert not set(outcome.snapshot.balances) - {"orders", "shop"}
            refresh.apply_edits(self.lakehouse.pipeline(), [edit.table for edit in edits])
        self.run()
        assert waiting_tables(config) == {}
        for sql, values in rows.items():
            assert sorted(engine.query(str(self.lakehouse.root), sql).rows, key=repr) == values, sql
        audit = run_audit(config, everything=True)
        assert (audit.is_balanced, audit.findings) == (True, ())


DAILY = "select window_start::date::text, revenue from gold.daily"


@pytest.mark.slow  # runtime/test_check.py and test_refresh.py have quick tests
def test_thirteen_edits(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop(spark, tmp_path)
    orders, gold = shop.document["sources"]["orders"], shop.document["gold"]
    items = shop.document["silver"]["order_items"]
    shop.load()
    shop.lakehouse.land("orders", "a.json", *ORDERS)
    shop.run()
    by_day = [("2026-05-01", 21), ("2026-05-08", 5)]
    readers = {"silver.order_items": "reads silver.orders", "gold.daily": "reads silver.orders"}
    # 1, 2: a column and one of a field that no row has had are added and removed.
    orders["silver"] |= {"big": "amount > 10", "coupon": "coupon"}
    big = "select id, big, coupon from silver.orders"
    rows = {big: [(1, False, None), (1, True, None), (2, False, None)], DAILY: by_day}
    shop.edit({"silver.orders": "big as, coupon as changed", **readers}, rows)
    del orders["silver"]["big"], orders["silver"]["coupon"]
    shop.edit({"silver.orders": "big as, coupon as changed", **readers}, {DAILY: by_day})
    # 3: keys.
    orders["keys"] = ["id", "status"]
    shop.edit({"silver.orders": "keys changed", **readers}, {DAILY: by_day})
    # 4, 5, 6: change data on, with a history, off.
    orders["keys"], orders["cdc"] = ["id"], {"sequence_by": "at"}
    items["keys"] = ["id", "pos"]
    changed = {
        "silver.orders_changes": "cdc changed",
        "silver.orders": "cdc changed",
        "silver.order_items": "keys changed",
        "gold.daily": "reads silver.orders",
    }
    statuses = "select id, status from silver.orders"
    latest = {statuses: [(1, "paid"), (2, "new")], DAILY: [("2026-05-01", 11), ("2026-05-08", 5)]}
    shop.edit(changed, latest)
    orders["cdc"]["stored_as_scd_type"] = 2
    items["columns"]["valid_from"], items["keys"] = "valid_from", ["id", "pos", "valid_from"]
    changed = {"silver.orders": "cdc.stored_as_scd_type changed"}
    changed |= {
        "silver.order_items": "keys, valid_from as changed",
        "gold.daily": "reads silver.orders",
    }
    history: dict[str, Any] = {statuses: [(1, "new"), (1, "paid"), (2, "new")], DAILY: by_day}
    shop.edit(changed, history)
    del orders["cdc"], items["columns"]["valid_from"]
    orders["keys"] = ["id", "at"]
    items["keys"] = ["id", "pos", "at"]
    changed = {"silver.orders": "cdc changed", "silver.order_items": "keys, valid_from as changed"}
    shop.edit({**changed, "gold.daily": "reads silver.orders"}, history)
    assert leftover_tables(shop.lakehouse.config) == ["silver.orders_changes"]
    drop_table(shop.lakehouse.config, "silver.orders_changes")
    assert leftover_tables(shop.lakehouse.config) == []
    # 7, 8: a window and a measure of gold.
    gold["daily"]["window"] = "1 month"
    month = {DAILY: [("2026-05-01", 26)]}
    shop.edit({"gold.daily": "window changed"}, month)
    gold["daily"]["measure"] = {"revenue": "max(amount)"}
    shop.edit({"gold.daily": "measure changed"}, {DAILY: [("2026-05-01", 11)]})
    # 9, 10: new names of a gold table and of a source.
    gold["monthly"] = gold.pop("daily") | {"renamed_from": "daily"}
    monthly = {DAILY.replace("daily", "monthly"): [("2026-05-01", 11)]}
    shop.edit({}, monthly)
    shop.document["sources"] = {"shop": orders | {"renamed_from": "orders"}}
    items["source"] = gold["monthly"]["source"] = "silver.shop"
    shop.edit({}, {statuses.replace("orders", "shop"): history[statuses], **monthly})
    # 11: what a child table explodes.
    items["explode"] = "filter(items, item -> item.sku <> 'a')"
    skus = {"select id, sku from silver.order_items": [(2, "b"), (2, "c")]}
    shop.edit({"silver.order_items": "explode changed"}, skus)
    # 12: a watermark, and 13: a rule, for new rows only.
    shop.document["sources"]["shop"]["watermark"] = "2 hours"
    rule = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "id", "max_value": 2},
    }
    rule["meta"] = {"name": "few_ids", "on_failure": "quarantine"}
    suite = suite_path(tmp_path, "silver.shop")
    suite.parent.mkdir(parents=True)
    suite.write_text(json.dumps({"name": "silver.shop", "expectations": [rule]}))
    shop.load()
    plan = [(edit.table, edit.action, len(edit.changes)) for edit in find_edits(shop.config)]
    new_rows = EditAction.NEW_ROWS
    assert plan == [("bronze.shop", new_rows, 1), ("silver.shop", new_rows, 1)]
    shop.lakehouse.land("shop", "b.json", ORDERS[0].replace('"id": 1', '"id": 3'))
    shop.edit({}, {**monthly, "select _failed_rules from quarantine.shop": [(["few_ids"],)]})
    assert find_edits(shop.config) == []


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.slow
def test_apply_killed_at_each_write(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first `apply` ends before its first write, the next one before its second, and so on.

    Readers find the old or the new table, and the last `apply` completes the plan.
    """
    shop = Shop(spark, tmp_path)
    del shop.document["silver"]
    shop.load()
    shop.lakehouse.land("orders", "a.json", *ORDERS)
    shop.run()
    shop.document["sources"]["orders"]["silver"]["id"] = "id + 10"
    shop.document["gold"]["daily"]["window"] = "1 month"
    shop.load()
    ids = {(1, 1, 2), (11, 11, 12)}
    root, written, last = str(shop.lakehouse.root), 0, 0

    def before(_: str) -> None:
        nonlocal written
        written += watch.root is not None
        if watch.root and written >= last:  # also later ones: a dead process writes nothing
            is_main = threading.current_thread() is threading.main_thread()
            raise Killed if is_main else OSError("killed")  # Java waits for the other thread

    watch = install()
    monkeypatch.setattr(watch, "before", before)
    pending, kills = set[str](), 0
    while tables := {e.table for e in find_edits(shop.config)} | {*journal.rebuilds(shop.config)}:
        # Again from the first write on when a table is complete.
        pending, last, written = tables, last + 1 if tables == pending else 1, 0
        assert last < 100
        watch.begin(shop.lakehouse.root, None)
        try:
            pipeline = shop.lakehouse.pipeline()
            resume.resume_commands(pipeline, LAYERS)
            refresh.apply_edits(pipeline, [edit.table for edit in find_edits(shop.config)])
        except (Killed, MedallionError):
            kills += 1
        finally:
            watch.end()
            for query in spark.streams.active:
                query.stop()
        silver = engine.query(root, "select id from silver.orders order by id").rows
        assert tuple(id_ for (id_,) in silver) in ids
        read = spark.read.format("delta").load(f"{root}/silver/orders").orderBy("id")
        assert tuple(row.id for row in read.select("id").collect()) in ids
        by_month, by_day = [("2026-05-01", 26)], [("2026-05-01", 21), ("2026-05-08", 5)]
        assert sorted(engine.query(root, DAILY).rows) in (by_month, by_day)
    assert kills > 35  # of silver and of gold
    assert tuple(id_ for (id_,) in silver) == (11, 11, 12)
    assert engine.query(root, DAILY).rows == by_month
    audit = run_audit(shop.config, everything=True)
    assert (audit.is_balanced, audit.findings) == (True, ())

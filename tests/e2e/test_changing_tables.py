"""Child tables and gold over silver tables with updates and deletes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from medallion.errors import MedallionError
from medallion.inspect.audit import run_audit
from medallion.inspect.table_checks import verify_tables
from medallion.runtime import planner
from medallion.runtime.erase import Request, erase_rows
from medallion.runtime.refresh import refresh_table
from medallion.spark.errors import StreamError
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables
from tests.support.lakehouse import Lakehouse
from tests.support.strikes import failing_checkpoint_writes

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
        "not_ulm": COUNT | {"output_mode": "update", "where": "city <> 'Ulm'", "window": "1 day"},
        "tag_counts": {"source": "silver.tags", "group_by": ["tag"], "measure": {"n": "count(*)"}},
        "listed": {"sql": "listed.sql"},
    },
}
LISTED = "SELECT customer_id, upper(city) AS city FROM silver.customers WHERE city IS NOT NULL"


def change(customer: int, city: str, hour: int, *tags: str, op: str = "u") -> str:
    values = {"id": customer, "city": city, "at": f"2026-05-01T{hour:02}:00:00Z"}
    return json.dumps(values | {"tags": tags, "op": op})


RUNS = (
    (
        change(1, "Bonn", 10, "a", "bb", "a"),
        change(2, "Bonn", 10),
        change(3, "Ulm", 10, "cc"),
    ),
    # 1 moves, and loses a tag and its duplicate; 2 gets a tag; 3 is deleted with its group.
    (
        change(1, "Jena", 11, "bb"),
        change(2, "Bonn", 12, "d"),
        change(3, "Ulm", 13, op="d"),
    ),
)
EXPECTED: tuple[dict[str, list[tuple[Any, ...]]], ...] = (
    {
        "silver.tags": [(1, "a"), (1, "bb"), (3, "cc")],
        "quarantine.tags": [(1, "a")],
        "silver.long_tags": [(1, "bb"), (3, "cc")],
        "gold.not_ulm": [("Bonn", 2)],
        "gold.tag_counts": [("a", 1), ("bb", 1), ("cc", 1)],
        "gold.listed": [(1, "BONN"), (2, "BONN"), (3, "ULM")],
    },
    {
        "silver.tags": [(1, "bb"), (2, "d")],
        "quarantine.tags": [],
        "silver.long_tags": [(1, "bb")],
        "gold.not_ulm": [("Bonn", 1), ("Jena", 1)],
        "gold.tag_counts": [("bb", 1), ("d", 1)],
        "gold.listed": [(1, "JENA"), (2, "BONN")],
    },
)
ERASED: dict[str, list[tuple[Any, ...]]] = {
    "silver.tags": [(2, "d")],
    "gold.not_ulm": [("Bonn", 1)],
    "gold.tag_counts": [("d", 1)],
    "gold.listed": [(2, "BONN")],
}
COLUMNS = {"silver": ("customer", "tag"), "quarantine": ("customer_id", "item")}


def new_shop(spark: SparkSession, folder: Path, document: dict[str, Any]) -> Lakehouse:
    shop = Lakehouse(spark, folder / "lakehouse")
    conf = shop.copy_of_conf(folder)
    for name, sql in QUERIES.items():
        (conf / name).write_text(sql)
    shop.configure(folder, document)
    return shop


def check_tables(
    shop: Lakehouse,
    expected: dict[str, list[tuple[Any, ...]]],
    everything: bool = True,
    notes: tuple[str, ...] = (),
) -> None:
    for table, rows in expected.items():
        layer = table.partition(".")[0]
        columns = COLUMNS.get(layer, ("city", "n") if table == "gold.not_ulm" else ())
        assert shop.rows(table, *columns) == rows, table
    audit = run_audit(shop.config, everything)
    assert (audit.findings, audit.notes) == ((), notes)


@pytest.fixture(scope="module")
def after_runs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Lakehouse]:
    """Return a copy of the lakehouse after the first run, and the one after both."""
    folder = tmp_path_factory.mktemp("tables")
    shop, copies = new_shop(spark, folder, SHOP), []
    for number, lines in enumerate(RUNS):
        shop.land("customers", f"{number}.json", *lines)
        assert shop.run_without_gates().errors == []
        copies.append(shop.copy(folder / str(number)))
    return copies


@pytest.mark.parametrize("number", range(2))
def test_tables_follow_updates_and_deletes(after_runs: list[Lakehouse], number: int) -> None:
    check_tables(after_runs[number], EXPECTED[number], everything=number == 1)


@pytest.mark.slow
def test_group_merge_without_its_checkpoint(after_runs: list[Lakehouse], tmp_path: Path) -> None:
    """With a new checkpoint it would not see that a group is gone."""
    shop = after_runs[-1].copy(tmp_path / "lakehouse")
    checkpoint = shop.config.layout.checkpoint("gold.not_ulm")
    for log in ("offsets", "commits"):
        (checkpoint / log / "1").local.write_text("v1")
    shop.land("customers", "2.json", change(2, "Jena", 14))
    shop.fill("bronze", "silver")
    with pytest.raises(MedallionError, match=r"cannot continue.*medallion refresh gold\.not_ulm"):
        shop.fill("gold")
    refresh_table(shop.pipeline(), "gold.not_ulm")
    assert shop.rows("gold.not_ulm", "city", "n") == [("Jena", 2)]
    shop.land("customers", "3.json", change(2, "Bonn", 15, "d"))
    assert shop.run_without_gates().errors == []
    refresh_table(shop.pipeline(), "silver.customers")
    check_tables(shop, EXPECTED[-1])


@pytest.mark.slow
def test_erase_from_changing_tables(after_runs: list[Lakehouse], tmp_path: Path) -> None:
    """The older change of 1 in Bonn is also erased, and does not become its row."""
    shop = after_runs[-1].copy(tmp_path / "lakehouse")
    for rows in (2, 0):
        request = Request("silver.customers", "city = 'Jena'", cascade=True)
        plan = erase_rows(shop.pipeline(), request).erasure
        assert (plan.rows["bronze.customers"], plan.rows["silver.customers"]) == (rows, rows // 2)
        deleted = "customers: 2 files deleted or overwritten, and not counted again"
        check_tables(shop, ERASED, notes=(f"{deleted}: the ledger's figures stand.",))


ORDERS: dict[str, Any] = {
    "schema": {"id": "long", "customer": "long", "amount": "long", "at": "timestamp"},
    "silver": {"id": "id", "customer": "customer", "amount": "amount", "ordered_at": "at"},
    "keys": ["id", "ordered_at"],
    "event_time": "ordered_at",
}
REVENUE: dict[str, Any] = {
    "sources": {"customers": CUSTOMERS, "orders": ORDERS},
    "gold": {
        "best": {"sql": "best.sql"},
        "by_city": {"sql": "by_city.sql"},
        "daily_revenue": {
            "source": "silver.orders",
            "window": "1 day",
            "group_by": ["customer"],
            "measure": {"revenue": "sum(amount)"},
            "output_mode": "update",
        },
    },
}
BY_CITY = """
SELECT r.window_start AS day, c.city, sum(r.revenue) AS revenue
FROM gold.daily_revenue r JOIN silver.customers c ON r.customer = c.customer_id GROUP BY 1, 2
"""
BEST = """
SELECT city, revenue, rank() OVER (ORDER BY revenue DESC) AS place FROM gold.by_city
WHERE day = (SELECT max(window_start) FROM gold.daily_revenue)
"""
QUERIES = {"listed.sql": LISTED, "by_city.sql": BY_CITY, "best.sql": BEST}
FIRST, SECOND = "2026-05-01 00:00:00", "2026-05-02 00:00:00"


def order(number: int, customer: int, amount: int, day: int) -> str:
    at = f"2026-05-0{day}T09:00:00Z"
    return json.dumps({"id": number, "customer": customer, "amount": amount, "at": at})


AFTER: dict[str, list[tuple[Any, ...]]] = {
    "gold.by_city": [(FIRST, "Bonn", 10 + 5 + 100 + 20), (SECOND, "Bonn", 7)],
    "gold.best": [("Bonn", 7, 1)],
}


def write_silver(shop: Lakehouse, customers: dict[int, str], *orders: str) -> None:
    """Append orders to silver, and the first customers; later, these move to another city."""
    path = shop.config.layout.table
    rows = [json.loads(line) for line in orders]
    table = shop.spark.createDataFrame(rows, "id long, customer long, amount long, at string")
    table = table.withColumn("ordered_at", F.to_timestamp("at")).drop("at").coalesce(1)
    table.write.format("delta").mode("append").save(str(path("silver.orders")))
    silver = path("silver.customers")
    table = shop.spark.createDataFrame([*customers.items()], "customer_id long, city string")
    properties = shop.config.properties("silver.customers")
    delta_tables.create_table(silver, table.schema.json(), properties)
    if moved := shop.rows("silver.customers", "customer_id"):
        assert {key for (key,) in moved} >= {*customers}
        for customer, city in customers.items():
            moves = {"city": f"'{city}'"}
            DeltaTable(silver).update(moves, predicate=f"customer_id = {customer}")
    else:
        table.coalesce(1).write.format("delta").mode("append").save(str(silver))


def test_gold_reads_gold(spark: SparkSession, tmp_path: Path) -> None:
    """The tables of silver are written directly."""
    shop = new_shop(spark, tmp_path, REVENUE)
    orders = order(1, 1, 10, 1), order(2, 1, 5, 1), order(3, 2, 20, 1)
    write_silver(shop, {1: "Bonn", 2: "Ulm"}, *orders)
    shop.fill("gold")
    assert shop.rows("gold.by_city") == [(FIRST, "Bonn", 10 + 5), (FIRST, "Ulm", 20)]
    assert shop.rows("gold.best") == [("Bonn", 15, 2), ("Ulm", 20, 1)]
    plan = planner.plan_run(shop.config, RunRecords(shop.config.layout))
    assert not [q for q in plan.queries if q.query.startswith("gold.") and q.should_run]

    # The batch is written but not committed: it must not be written twice.
    write_silver(shop, {2: "Bonn"}, order(4, 1, 100, 1), order(5, 2, 7, 2))
    with failing_checkpoint_writes(spark) as strikes:
        strikes.ask(r"create .*/gold\.by_city/.*commits/1")
        with pytest.raises(StreamError, match="injected"):
            shop.fill("gold")
        assert strikes.has_struck
    by_city = shop.config.layout.table("gold.by_city")
    version = delta_tables.table_version(by_city)
    shop.fill("gold")
    assert delta_tables.table_version(by_city) == version
    for table, rows in AFTER.items():
        assert shop.rows(table) == rows
    result = verify_tables(shop.config, (), print)
    assert (result.findings, result.notes) == ([], [])


@pytest.mark.slow
def test_gold_that_reads_gold_is_refreshed_and_blocked(spark: SparkSession, tmp_path: Path) -> None:
    shop = new_shop(spark, tmp_path, REVENUE)
    customers = change(1, "Bonn", 10), change(2, "Ulm", 10), change(2, "Bonn", 11)
    orders = order(1, 1, 10, 1), order(2, 1, 5, 1), order(3, 2, 20, 1)
    shop.land("customers", "0.json", *customers)
    shop.land("orders", "0.json", *orders, order(4, 1, 100, 1), order(5, 2, 7, 2))
    assert shop.run_without_gates().errors == []
    check_tables(shop, AFTER)
    refresh_table(shop.pipeline(), "gold.daily_revenue")
    check_tables(shop, AFTER)

    # A blocked gold table stays as it is, and the other tables continue.
    shop.configure(tmp_path, REVENUE | {"gold": REVENUE["gold"] | {"cities": COUNT}})
    type_ = "expect_column_values_to_be_between"
    shop.expect("gold.daily_revenue", "small", type_, "stop", column="revenue", max_value=1000)
    shop.land("customers", "2.json", change(3, "Jena", 10))
    shop.land("orders", "2.json", order(6, 3, 5000, 2))
    blocked = shop.nightly()
    assert (blocked.is_good, blocked.errors) == (False, [])
    assert len(shop.rows("gold.daily_revenue")) == 4
    assert shop.rows("gold.cities") == [("Bonn", 2), ("Jena", 1)]
    for name in ("gold.by_city", "gold.best"):
        assert shop.rows(name) == AFTER[name]
    assert shop.nightly("small").is_good
    check_tables(shop, {"gold.best": [("Bonn", 7, 2), ("Jena", 5000, 1)]})

    erasure = Request("silver.orders", "id = 6", cascade=True, purge=True)
    erase_rows(shop.pipeline(), erasure)
    without_jena = [("Bonn", 7, 1)]
    assert shop.rows("gold.best") == without_jena
    assert shop.run_without_gates().errors == []
    deleted = "orders: 1 file deleted or overwritten, and not counted again"
    notes = (f"{deleted}: the ledger's figures stand.",)  # it had the erased row alone
    check_tables(shop, {"gold.best": without_jena}, notes=notes)

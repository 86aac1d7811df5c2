"""Values that silver's conversions lose: counts, examples, rules, and the run that reports them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.cli import render_runs
from medallion.inspect.problems import ProblemCode
from medallion.layers.silver.conversions import lost_summary
from medallion.state.runs import RescuedField, RescuedSummary
from tests.support.lakehouse import Lakehouse
from tests.support.verdict import take_verdict

# Lines 3, 4 and 6 have an amount that is no number; line 5 has none, and line 7 a blank.
CSV = (
    'id,at,amount\n1,2026-05-01T10:00:00Z,10.5\n2,2026-05-01T10:00:01Z,"12,50"\n'
    "3,2026-05-01T10:00:02Z,n/a\n4,2026-05-01T10:00:03Z,\n5,2026-05-01T10:00:04Z,x\n"
    "6,2026-05-01T10:00:05Z,  \n"
)
ORDERS: dict[str, Any] = {
    "format": "csv",
    "schema": {"id": "long", "at": "timestamp", "amount": "string"},
    "silver": {"id": "id", "at": "at", "amount": "try_cast(amount as double)", "day": "date(at)"},
    "event_time": "at",
    "keys": ["id", "at"],
}
CHANGES: dict[str, Any] = {
    "schema": {
        "id": "long",
        "seq": "long",
        "op": "string",
        "born": "string",
        "at": "string",
        "items": "array<struct<price:string>>",
    },
    "silver": {"id": "id", "born": "try_to_date(born)", "at": "at", "items": "items"},
    "event_time": "at",
    "keys": ["id"],
    "cdc": {"sequence_by": "seq", "apply_as_deletes": "op = 'd'"},
}
LINES = (
    '{"id": 1, "seq": 1, "op": "u", "born": "31.12.1999", "at": "2026-05-01",'
    ' "items": [{"price": "1"}, {"price": "1,5"}, {"price": ""}]}',
    '{"id": 2, "seq": 1, "op": "u", "born": "1999-12-31", "at": "yesterday"}',
    '{"id": 2, "seq": 2, "op": "d", "born": "gone"}',
)
PARTS = {
    "source": "silver.customers",
    "explode": "items",
    "columns": {"id": "id", "pos": "pos", "price": "try_cast(item.price as double)"},
}


class Run:
    """A lakehouse with a source for each case, after a nightly run."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.lakehouse = Lakehouse(spark, folder / "lakehouse")
        strict = {**ORDERS, "on_conversion": "quarantine"}
        sources = {"orders": ORDERS, "strict": strict, "customers": CHANGES}
        silver = {"parts": PARTS}
        self.lakehouse.configure(folder, {"sources": sources, "silver": silver, "gold": {}})
        self.lakehouse.land_text("orders", "a.csv", CSV)
        self.lakehouse.land_text("strict", "a.csv", CSV)
        self.lakehouse.land("customers", "a.json", *LINES)
        self.messages: list[str] = []
        self.outcome = self.lakehouse.run_without_gates(self.messages.append)
        assert self.outcome.is_good, self.outcome


@pytest.fixture(scope="module")
def run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(spark, tmp_path_factory.mktemp("conversions"))


def test_run_names_each_column_that_lost_values(run: Run) -> None:
    assert sorted(line.strip() for line in run.messages if "that ha" in line) == [
        'customers: at is null in 1 row that has a value, such as "yesterday" '
        "(landing/customers/a.json)",
        'customers: born is null in 1 row that has a value, such as "31.12.1999" '
        "(landing/customers/a.json)",
        'orders: amount is null in 3 rows that have a value, such as "12,50" '
        "(landing/orders/a.csv, line 3)",
        'parts: price is null in 1 row that has a value, such as "1,5" (landing/customers/a.json)',
    ]


def test_quarantine_gets_rows_that_lost_values(run: Run) -> None:
    rows = [(2, ["conversion_amount"]), (3, ["conversion_amount"]), (5, ["conversion_amount"])]
    assert run.lakehouse.rows("quarantine.strict", "id", "_failed_rules") == rows
    assert run.lakehouse.rows("silver.strict", "id", "amount") == [(1, 10.5), (4, None), (6, None)]
    assert len(run.lakehouse.rows("silver.orders")) == 6


def test_records_and_commands_have_the_counts(run: Run) -> None:
    amount = {"rows": 3, "example": "12,50", "position": "landing/orders/a.csv, line 3"}
    runs = run.lakehouse.rows("ops.runs", "query", "rescued_rows", "rescued_fields")
    recorded = {query: (rows, fields) for query, rows, fields in runs}
    rows, fields = recorded["silver.orders"]
    assert (rows, json.loads(fields)) == (3, {"amount": amount})
    assert recorded["silver.customers_changes"][0] == 2
    assert recorded["silver.strict"] == (0, None)
    document = json.loads(json.dumps(render_runs.nightly_json(run.outcome)))
    lost = document["lost_in_conversion"]
    assert lost["orders"] == {"rows": 3, "fields": {"amount": amount}}
    assert (lost.keys(), document["rescued"]) == ({"orders", "customers", "parts"}, {})
    problems = take_verdict(run.lakehouse.config).problems
    subjects = [p.subject for p in problems if p.code is ProblemCode.LOST]
    assert sorted(subjects) == ["customers", "customers", "orders", "parts"]


def test_summary_adds_batches() -> None:
    first, second = (
        {"_lost": n, "_lost.a": n, "_first_lost.a": f'{{"example": "{n}"}}'} for n in (2, 1)
    )
    messages: list[str] = []
    none = {"rows": 7, "_lost": 0, "_lost.a": 0, "_first_lost.a": None}
    summary = lost_summary([none, first, second], "t", messages.append)
    assert summary == RescuedSummary(3, {"a": RescuedField(3, "2")})
    assert messages == ['  t: a is null in 3 rows that have a value, such as "2"']

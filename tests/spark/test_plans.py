"""The fields that SQL names, found by Spark's own parser."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from medallion.spark.plans import fields_in


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("try_cast(coalesce(amount, amt) AS double)", {("amount",), ("amt",)}),
        ("user.plan", {("user", "plan")}),
        ("`customer email`", {("customer email",)}),
        ("items[0].sku", {("items",)}),
        ("transform(items, x -> x.sku || suffix)", {("items",), ("suffix",)}),
        ("transform(a, x -> transform(b, y -> x + y))", {("a",), ("b",)}),
        ("date'2020-01-01' > current_date()", set()),
    ],
)
def test_fields_in_finds_names(spark: SparkSession, sql: str, names: set[tuple[str, ...]]) -> None:
    assert fields_in(spark, [sql]) == names


def test_fields_in_leaves_out_arguments_of_functions(spark: SparkSession) -> None:
    expressions = [
        "date_trunc('hour', a) > b",
        "CAST(c AS DATE)",
        "cast(d as string)",
        "DATE_TRUNC('day', b)",
    ]
    assert fields_in(spark, expressions, {"date_trunc", "date"}) == {("b",), ("d",)}

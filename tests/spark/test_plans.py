"""The fields that SQL names, found by Spark's own parser."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from medallion.spark.plans import fields_in, replace_columns


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


@pytest.mark.parametrize(
    ("sql", "replaced"),
    [
        ("make_date(year, Day, 1)", "make_date(year, (row.d), 1)"),
        ("extract(day from day) + day(day)", "extract(day from (row.d)) + day((row.d))"),
        ("interval '1' day + `day`", "interval '1' day + (row.d)"),
        ("transform(a, day -> day + 1) || day", "transform(a, day -> day + 1) || (row.d)"),
        ("filter(a, x -> x.day = day)", "filter(a, x -> x.day = (row.d))"),
        ("day.zip || t.day || day[0]", "(row.d).zip || t.day || (row.d)[0]"),
        ("'😀 day' || day -- day", "'😀 day' || (row.d) -- day"),
        ("`a``day` || day", "`a``day` || (row.d)"),
    ],
)
def test_replace_columns_replaces_names_alone(spark: SparkSession, sql: str, replaced: str) -> None:
    assert replace_columns(spark, sql, {"day": "row.d"}) == replaced


def test_replace_columns_replaces_all_keywords(spark: SparkSession) -> None:
    """Each of Spark's words is a column in an expression, except literals and a function."""
    words = spark.sql("select lower(keyword) as word from sql_keywords()").collect()
    columns = sorted({row.word for row in words} - {"current_path", "false", "null", "true"})
    assert len(columns) > 400
    values = {name: f"row.`{name}`" for name in columns}
    replaced = ", ".join(f"(row.`{name}`)" for name in columns)
    sql = f"array(1, {', '.join(columns)})"
    assert replace_columns(spark, sql, values) == f"array(1, {replaced})"

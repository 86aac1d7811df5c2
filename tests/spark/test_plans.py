"""The fields that SQL names, found by Spark's own parser."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from medallion.spark.plans import converted_value, fields_in, replace_columns


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


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_replace_columns_replaces_all_keywords(spark: SparkSession, step: int) -> None:
    """Each of Spark's words is a column in an expression, except literals and a function."""
    words = spark.sql("select lower(keyword) as word from sql_keywords()").collect()
    columns = sorted({row.word for row in words} - {"current_path", "false", "null", "true"})
    assert len(columns) > 400
    values = {name: f"row.`{name}`" for name in columns}
    some = [name for n, name in enumerate(columns) if not n % step or name.startswith("current")]
    replaced = ", ".join(f"(row.`{name}`)" for name in some)
    sql = f"array(1, {', '.join(some)})"
    assert replace_columns(spark, sql, values) == f"array(1, {replaced})"


def text(sql: str) -> str:
    return f"nullif(trim(try_cast({sql} as string)), '')"


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("try_cast(amount AS double)", text("amount")),
        ("TRY_CAST(replace(trim(`the amount`), ',', '.') AS decimal(10,2))", text("`the amount`")),
        ("try_to_timestamp(day || ' ' || hour, 'dd.MM.yyyy HH')", text("day || ' ' || hour")),
        ("try_cast(nullif(item.price, '-') AS int)", text("nullif(item.price, '-')")),
        ("timestamp_millis(try_cast(t as bigint))", text("t")),
        (
            "coalesce(try_to_date(a), try_to_date(b.c[0], 'dd.MM.yyyy'))",
            f"coalesce({text('a')}, {text('b.c[0]')})",
        ),
        ("upper(try_cast(a as date))", text("a")),
        ("cast(amount as double)", None),  # it fails
        ("trim(a)", None),
        ("coalesce(a, b)", None),
        ("try_cast('1' as int)", None),
        ("try_cast(a as int) + 1", None),
        ("if(b, null, try_cast(a as int))", None),
    ],
)
def test_converted_value(spark: SparkSession, sql: str, value: str | None) -> None:
    assert converted_value(spark, sql) == value


def test_converted_value_of_a_cast(spark: SparkSession) -> None:
    assert converted_value(spark, "created", is_cast=True) == text("created")

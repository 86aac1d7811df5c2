"""Bronze rewritten with a changed schema: columns are cast, and rescued values are moved."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.inspect.audit import run_audit
from medallion.layers.bronze.rewrite import rewrite_rows
from medallion.runtime.refresh import refresh_table
from tests.support.lakehouse import Lakehouse, only_activity

ORIGIN = {"_source_file": "string"}
TECHNICAL_NAMES = ["_rescued_data", "_corrupt_record", "_source_file", "_ingested_at"]


def test_rewrite_rows_moves_values_that_fit(spark: SparkSession) -> None:
    """Long to double, date to timestamp, a struct with one more field, and a new column."""
    rows: list[tuple[Any, ...]] = [
        (1, None, None, None, None, None, "a", None),
        (None, None, None, '{"n":1.5,"new":true}', None, None, "b", None),
        (None, None, {"x": 1}, '{"n":"high","user":{"x":1,"y":"z"}}', None, None, "c", None),
        (None, None, None, None, "{broken", None, "d", None),
        (2**60 + 1, None, {"x": 5}, '{"other":"\\u00e9"}', None, None, "e", None),
    ]
    schema = "n long, day date, user struct<x:long>, _rescued_data string, _corrupt_record string"
    frame = spark.createDataFrame(
        rows, f"{schema}, spare string, _source_file string, _ingested_at timestamp"
    ).drop("spare")
    frame = frame.selectExpr(
        "n", "if(n = 1, date'2026-05-01', null) as day", "user", *frame.columns[3:]
    )
    schema_after = {
        "n": "double",
        "day": "timestamp",
        "user": "struct<x:long,y:string>",
        "new": "boolean",
    }
    rewritten = {
        row._source_file: row for row in rewrite_rows(frame, schema_after, ORIGIN).collect()
    }
    assert [*rewritten["a"].asDict()] == [
        *schema_after,
        "_rescued_data",
        "_corrupt_record",
        *ORIGIN,
        "_ingested_at",
    ]
    values = {
        key: (row.n, str(row.day), row.user and tuple(row.user), row.new, row._rescued_data)
        for key, row in rewritten.items()
    }
    assert values == {
        "a": (1.0, "2026-05-01 00:00:00", None, None, None),
        "b": (1.5, "None", None, True, None),
        "c": (None, "None", (1, "z"), None, '{"n":"high"}'),
        "d": (None, "None", None, None, None),
        "e": (float(2**60), "None", (5, None), None, '{"other":"é"}'),
    }
    assert rewritten["d"]._corrupt_record == "{broken"


def test_rewrite_rows_of_typed_columns_keeps_digits(spark: SparkSession) -> None:
    rows = [
        ("1.25", None, None, "a"),
        ("99999999.99", None, '{"tag":"x","n":7}', "b"),
        (None, None, '{"price":1.2345,"n":2.5}', "c"),
        (None, None, '{"price":1.23456}', "d"),
    ]
    frame = spark.createDataFrame(
        rows, "price string, _corrupt_record string, _rescued_data string, _source_file string"
    ).selectExpr("cast(price as decimal(10,2)) as price", "* except (price)", "now() _ingested_at")
    schema_after = {"price": "decimal(12,4)", "n": "long"}
    rewritten = rewrite_rows(frame, schema_after, ORIGIN, is_typed=True)
    assert rewritten.columns == ["price", "n", *TECHNICAL_NAMES]
    assert {r._source_file: (str(r.price), r.n, r._rescued_data) for r in rewritten.collect()} == {
        "a": ("1.2500", None, None),
        "b": ("99999999.9900", 7, '{"tag":"x"}'),
        "c": ("1.2345", None, '{"n":2.5}'),
        "d": ("None", None, '{"price":1.23456}'),
    }


def test_rewrite_rows_of_csv_reads_strings_as_numbers(spark: SparkSession) -> None:
    """As a refresh after a hint does: CSV has no types, so the strings are not JSON strings."""
    rows = [("10", "a"), (" 12.50 ", "b"), ("n/a", "c"), (None, "d")]
    frame = spark.createDataFrame(rows, "amount string, _source_file string").selectExpr(
        *("amount", "cast(null as string) as _rescued_data"),
        *("cast(null as string) as _corrupt_record", "_source_file", "now() as _ingested_at"),
    )

    def amounts(is_text: bool) -> list[tuple[float | None, str | None]]:
        rewritten = rewrite_rows(frame, {"amount": "double"}, ORIGIN, is_text=is_text)
        ordered = rewritten.orderBy("_source_file")
        return [(row.amount, row._rescued_data) for row in ordered.collect()]

    odd = (None, '{"amount":"n/a"}')
    assert amounts(is_text=True) == [(10.0, None), (12.5, None), odd, (None, None)]
    assert amounts(is_text=False)[0] == (None, '{"amount":"10"}')


@pytest.mark.parametrize("is_text", [True, False])
def test_rewrite_rows_of_decimals(spark: SparkSession, is_text: bool) -> None:
    """No digit is lost on the way to a decimal, or from one to a string."""
    large = "12345678901234567.90"
    strings = [("1.10", "1.10"), ("1.105", None), (large, large), ("n/a", None)]
    frame = spark.createDataFrame([(text, text) for text, _ in strings], "v string, n string")
    columns = ("null as _corrupt_record", "n as _source_file", "now() as _ingested_at")
    frame = frame.selectExpr("v", "cast(null as string) as _rescued_data", *columns)
    as_decimal = rewrite_rows(frame, {"v": "decimal(20,2)"}, ORIGIN, is_text=is_text)
    rows = {row._source_file: (row.v, row._rescued_data) for row in as_decimal.collect()}
    assert rows == {
        text: (Decimal(number), None) if number else (None, f'{{"v":"{text}"}}')
        for text, number in strings
    }
    as_string = rewrite_rows(as_decimal, {"v": "string"}, ORIGIN, is_text=is_text)
    assert {row._source_file: row.v for row in as_string.collect()} == dict(
        zip(rows, rows, strict=True)
    )
    as_double = rewrite_rows(as_decimal, {"v": "double"}, ORIGIN, is_text=is_text)
    assert [row.v for row in as_double.where("_source_file = '1.10'").collect()] == [1.1]


def test_rewrite_rows_of_typed_columns_moves_only_exact_doubles(spark: SparkSession) -> None:
    """A whole number beyond 2^53, and zeros in front, would be other values as doubles."""
    kept = ('{"n":9007199254740993}', '{"n":"0012"}', '{"n":"12D"}')
    moved = {'{"n":0.1234567890123456}': 0.1234567890123456, '{"n":12.50}': 12.5, '{"n":7}': 7.0}
    frame = spark.createDataFrame([(text,) for text in (*kept, *moved)], "_rescued_data string")
    frame = frame.selectExpr(
        *("cast(null as double) as n", "cast(null as string) as _corrupt_record", "_rescued_data"),
        *("_rescued_data as _source_file", "now() as _ingested_at"),
    )
    rows = rewrite_rows(frame, {"n": "double"}, ORIGIN, is_typed=True).collect()
    assert {row._source_file: row.n for row in rows} == {**dict.fromkeys(kept), **moved}
    assert {row._rescued_data for row in rows} == {None, *kept}


def sale(order: str, **more: Any) -> str:
    return json.dumps({"order": order, "time": "2026-05-01T10:00:00Z", **more})


def sales(home: Lakehouse, **more: Any) -> Lakehouse:
    """Configure the source activity to store the amount of each order in silver, without rules."""
    silver = {
        "recorded_at": "time",
        "device": "order",
        "amount": "try_cast(amount as double)",
        **dict.fromkeys(("user_id", "x", "y", "z"), "1"),
    }
    defaults = {"schema": None, "hints": {}, "silver": silver, "keys": ("device", "recorded_at")}
    return only_activity(home, **{**defaults, **more})


def revenue(home: Lakehouse) -> float:
    return sum(amount or 0 for (amount,) in home.rows("silver.activity", "amount"))


def test_refresh_bronze_applies_a_changed_hint(lakehouse: Lakehouse) -> None:
    home = sales(lakehouse)
    nine_digits = "2026-05-01T10:00:00.123456789Z"
    first = sale("o1", amount=10, seen="soon"), sale("o2", amount=20, seen=nine_digits)
    home.land("activity", "1.json", *first)
    home.fill("bronze")
    home.land("activity", "2.json", sale("o3", amount=12.5), sale("o4", amount="30"))
    home.fill("bronze")
    home.fill("silver")
    assert home.rows("bronze.activity", "amount") == [(10,), (20,), (None,), (None,)]
    sales(home, hints={"amount": "string", "seen": "timestamp"})
    refresh_table(home.pipeline(), "bronze.activity")
    assert home.rows("bronze.activity", "seen", "_rescued_data")[:2] == [
        (None, f'{{"seen":"{nine_digits}"}}'),
        (None, '{"seen":"soon"}'),
    ]
    assert sorted(home.rows("bronze.activity", "order", "amount")) == [
        ("o1", "10"),
        ("o2", "20"),
        ("o3", "12.5"),
        ("o4", "30"),
    ]
    assert revenue(home) == 72.5
    home.land("activity", "3.json", sale("o5", amount=1))
    home.fill("bronze", "silver")
    assert revenue(home) == 73.5
    assert run_audit(home.config, everything=True).is_balanced


def test_type_widening_rewrites_bronze_automatically(lakehouse: Lakehouse) -> None:
    home = sales(
        lakehouse, schema_evolution="addNewColumnsWithTypeWidening", hints={"fixed": "long"}
    )
    first = sale("o1", amount=10, ref=2**53 + 1), sale("o2", amount=20, note={"a": 1})
    home.land("activity", "1.json", *first)
    home.fill("bronze")
    home.fill("silver")
    more = sale("o3", amount=12.5, ref=0.5), sale("o4", fixed=0.5, note={"a": 1.5, "b": 2})
    home.land("activity", "2.json", *more)
    outcome = home.run_without_gates()
    assert outcome.errors == []
    # No double equals 2^53 + 1.
    refs = [ref for (ref,) in home.rows("bronze.activity", "ref")]
    assert refs == ["0.5", "9007199254740993", None, None]
    assert home.rows("bronze.activity", "amount", "note", "_rescued_data") == [
        (10.0, None, None),
        (12.5, None, None),
        (20.0, {"a": 1.0, "b": None}, None),
        (None, {"a": 1.5, "b": 2}, '{"fixed":0.5}'),
    ]
    assert revenue(home) == 42.5
    assert run_audit(home.config).is_balanced


def test_optional_field_is_null_until_it_lands(lakehouse: Lakehouse) -> None:
    home = sales(lakehouse)
    silver = {**home.config.sources["activity"].silver, "coupon": "offer.coupon"}
    home = sales(home, silver=silver)
    home.land("activity", "1.json", sale("o1", amount=1))
    home.fill("bronze")
    pipeline = home.pipeline()
    pipeline.start_flow(pipeline.flow("silver.activity"), None)  # creates the table
    home.land("activity", "2.json", sale("o2", amount=2, offer={"coupon": "C1", "until": 3}))
    home.fill("bronze", "silver")
    assert home.rows("silver.activity", "device", "coupon") == [("o1", None), ("o2", "C1")]
    offers = home.rows("bronze.activity", "offer", "_rescued_data")
    assert ({"coupon": "C1", "until": 3}, None) in offers


def test_new_hint_adds_a_column_without_new_rows(lakehouse: Lakehouse) -> None:
    home = sales(lakehouse)
    home.land("activity", "1.json", sale("o1", amount=1))
    home.fill("bronze")
    home = sales(home, hints={"tax": "double"})
    source = home.config.sources["activity"]
    silver = replace(source, silver={**source.silver, "tax": "tax"})
    home.config = replace(home.config, sources={"activity": silver})
    home.fill("bronze")
    assert home.rows("bronze.activity", "tax") == [(None,)]

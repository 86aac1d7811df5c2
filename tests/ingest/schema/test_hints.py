"""Types that `hints` declare for nested fields and fields that come later, and money in CSV."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal

import duckdb
import pytest

from medallion.errors import ConfigError
from medallion.ingest.schema.evolution import Schema
from medallion.ingest.schema.growth import FieldPath
from medallion.inspect.audit import run_audit
from medallion.layers.bronze.flow import Bronze
from tests.support.lakehouse import Lakehouse, only_activity

HINTS = {
    "items.price": "decimal(10,2)",
    "items.tax.rate": "double",
    "address.zip code": "string",
    "doc.prices": "map<string,double>",
    "id.orig_p": "string",
}
FIRST = '{"items":[{"price":1.1,"tax":{"rate":7}},{"price":"2.25"}],"address":{"zip code":1067}}'


def open_schema(
    home: Lakehouse, named: Collection[FieldPath] = (), can_rewrite: bool = False
) -> Schema:
    source = home.config.sources["activity"]
    return Schema(home.config, source, lambda _: named, can_rewrite)


def infer(home: Lakehouse, *lines: str) -> list[str]:
    rows = home.spark.createDataFrame([(line,) for line in lines], "value string")
    return open_schema(home).infer(rows.coalesce(1), "1 file")


def grow(home: Lakehouse, *rescued: str) -> list[str]:
    frame = home.spark.createDataFrame([(text,) for text in rescued], "_rescued_data string")
    return open_schema(home).grow(frame, 2).added


def test_hints_of_nested_fields(lakehouse: Lakehouse) -> None:
    home = only_activity(lakehouse, schema=None, hints=HINTS)
    assert infer(home, FIRST, '{"id.orig_p": 5}') == []
    schema = open_schema(home)
    assert schema.columns == {
        "items": "array<struct<price:decimal(10,2),tax:struct<rate:double>>>",
        "address": "struct<zip_code:string>",
        "id_orig_p": "string",
    }
    assert schema.names == {"id_orig_p": "id.orig_p", "address.zip_code": "zip code"}


def test_hints_of_fields_that_come_later(lakehouse: Lakehouse) -> None:
    """A field gets its type when it comes, whatever its first values look like."""
    home = only_activity(lakehouse, schema=None, hints=HINTS)
    infer(home, '{"items":[{"sku":"a"}]}')
    assert grow(home, '{"items":[{"price":1}]}', '{"id.orig_p":7}') == [
        "items.price",
        "id_orig_p",
    ]
    assert grow(home, '{"doc":{"prices":{"k 1":1,"k 2":"x"}}}') == ["doc"]
    assert open_schema(home).columns == {
        "items": "array<struct<sku:string,price:decimal(10,2)>>",
        "id_orig_p": "string",
        "doc": "struct<prices:map<string,double>>",
    }


def test_hints_of_fields_that_only_the_configuration_reads(lakehouse: Lakehouse) -> None:
    home = only_activity(lakehouse, schema=None, hints=HINTS)
    infer(home, '{"n":1}')
    named = [("items", "[]", "price"), ("doc", "prices", "[]"), ("id_orig_p",), ("address", "zip")]
    added = open_schema(home, named).add_configured_fields()
    assert added == ["address.zip", "doc.prices[]", "id_orig_p", "items[].price"]
    assert open_schema(home).columns == {
        "n": "long",
        "items": "array<struct<price:decimal(10,2)>>",
        "doc": "struct<prices:map<string,double>>",
        "address": "struct<zip:string>",
        "id_orig_p": "string",
    }


def test_hinted_struct_gets_further_fields(lakehouse: Lakehouse) -> None:
    """In the order in which they come, which a table keeps."""
    home = only_activity(lakehouse, schema=None, hints={"at": "struct<n:string>", "id.n": "long"})
    infer(home, '{"at":{"m":1,"n":2}}')
    assert open_schema(home).columns == {"at": "struct<n:string>"}
    assert grow(home, '{"at":{"m":1,"n":2}}') == ["at.m"]
    home = only_activity(lakehouse, schema=None, hints={"at": "struct<k:string,n:string>"})
    named = [("at", "p"), ("id_n",)]
    assert open_schema(home, named).add_configured_fields() == ["at.p", "id_n"]
    assert open_schema(home).columns == {
        "at": "struct<n:string,m:long,k:string,p:string>",
        "id_n": "string",
    }


def test_keys_that_are_data_give_no_columns(lakehouse: Lakehouse) -> None:
    """They are more than the fields that a table can have, and their values vary."""
    hints = {"prices": "map<string,double>", "doc.prices": "map<string,string>"}
    home = only_activity(lakehouse, schema=None, hints=hints)
    values = ",".join(f'"sku-{number}":{number}' for number in range(2_100))
    lines = [f'{{"prices":{{{values}}},"doc":{{"prices":{{"a":{n},{values}}}}}}}' for n in range(5)]
    assert infer(home, *lines, '{"doc":{"prices":{"a":"x"}}}') == []
    columns = {"prices": "map<string,double>", "doc": "struct<prices:map<string,string>>"}
    assert open_schema(home).columns == columns


def test_hint_that_contradicts_the_table(lakehouse: Lakehouse) -> None:
    home = only_activity(lakehouse, schema=None, hints={})
    infer(home, '{"items":[{"price":1.5}],"doc":{"prices":{"a":1}}}')
    home = only_activity(lakehouse, schema=None, hints=HINTS)
    with pytest.raises(ConfigError, match=r"hints\.items is array.*decimal.*, but .*double.*: med"):
        open_schema(home)
    assert open_schema(home, can_rewrite=True).columns == {
        "items": "array<struct<price:decimal(10,2)>>",
        "doc": "struct<prices:map<string,double>>",
    }


def test_nested_hints_of_all_rows(lakehouse: Lakehouse) -> None:
    """Bronze has the exact values; after a refresh, also those of older rows."""
    settings = {"schema": None, "silver": {"items": "items"}, "keys": ("items",), "event_time": ""}
    home = only_activity(lakehouse, **settings, hints={})
    home.land("activity", "1.json", '{"items":[{"price":0.1},{"price":0.2}]}')
    home.fill("bronze")
    home = only_activity(lakehouse, **settings, hints={"items.price": "decimal(10,2)"})
    bronze = home.pipeline().flow("bronze.activity")
    assert isinstance(bronze, Bronze)
    bronze.rewrite_table(bronze.schema(can_rewrite=True))
    home.land("activity", "2.json", '{"items":[{"price":1.10}]}', '{"items":[{"price":1.105}]}')
    home.fill("bronze")
    rows = home.rows("bronze.activity", "items", "_rescued_data")
    prices = [item["price"] for items, _ in rows for item in items or ()]
    assert sum(prices) == Decimal("1.40")
    assert [text for _, text in rows if text] == ['{"items":[{"price":1.105}]}']
    assert run_audit(home.config).is_balanced


MONEY = 'order,amount\n1,0.10\n2,0.20\n3,1.105\n4,\n5, 7 \n6,"1,50"\n7,12345678.90\n'


def test_money_in_csv(lakehouse: Lakehouse) -> None:
    """The sum of doubles would be 0.30000000000000004."""
    hints = {"amount": "decimal(10,2)", "rate": "decimal(3,2)"}
    settings = {"format": "csv", "schema": None, "partition_columns": ("rate",)}
    home = only_activity(lakehouse, hints=hints, **settings)
    home.land_text("activity", "rate=0.19/1.csv", MONEY)
    home.land_text("activity", "rate=0.195/2.csv", "order,amount\n8,1\n")
    home.fill("bronze")
    rows = home.rows("bronze.activity", "order", "amount", "rate", "_rescued_data")
    vat, vat_2 = Decimal("0.19"), None
    assert sorted(rows) == [
        ("1", Decimal("0.10"), vat, None),
        ("2", Decimal("0.20"), vat, None),
        ("3", None, vat, '{"amount":"1.105"}'),
        ("4", None, vat, None),
        ("5", Decimal("7.00"), vat, None),
        ("6", None, vat, '{"amount":"1,50"}'),
        ("7", Decimal("12345678.90"), vat, None),
        ("8", Decimal("1.00"), vat_2, '{"rate":"0.195"}'),
    ]


def test_nested_hints_of_parquet(lakehouse: Lakehouse) -> None:
    settings = {"format": "parquet", "schema": None, "hints": {"items.price": "decimal(10,2)"}}
    home = only_activity(lakehouse, **settings)
    for name, prices in {"1": "0.1::double", "2": "1.105::double", "3": "7"}.items():
        file = home.land("activity", f"{name}.parquet")
        query = f"select [{{'price': {prices}}}] as items"
        duckdb.execute(f"copy ({query}) to '{file}' (format parquet)")
    home.fill("bronze")
    rows = home.rows("bronze.activity", "items", "_rescued_data")
    assert sorted(rows, key=repr) == [
        (None, '{"items":[{"price":1.105}]}'),
        ([{"price": Decimal("0.10")}], None),
        ([{"price": Decimal("7.00")}], None),
    ]


def test_time_format_of_a_dotted_name_is_of_a_column(lakehouse: Lakehouse) -> None:
    home = only_activity(lakehouse, schema=None, hints={"at.n": "timestamp_millis"})
    infer(home, '{"at":{"n":1},"at.n":2}')
    columns = {"at_n": "timestamp", "at": "struct<n:long>"}
    assert open_schema(home).columns == columns
    assert open_schema(home).fields == {"at.n": "timestamp_millis", "at": "struct<n:long>"}

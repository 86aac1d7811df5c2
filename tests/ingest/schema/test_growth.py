"""Growth of types, and rows whose fields need new columns or types."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.ingest.schema.growth import grow_type, new_fields_sql, wider_type
from medallion.spark.plans import type_ddl

KNOWN = {
    "n": "long",
    "user": "struct<name:string,at:struct<x:long>>",
    "items": "array<struct<id:long>>",
}


@pytest.mark.parametrize(
    ("known", "new", "result"),
    [
        ("struct<a:long>", "struct<b:string>", "struct<a:long,b:string>"),
        ("struct<a:struct<x:long>>", "struct<a:struct<y:long>>", "struct<a:struct<x:long,y:long>>"),
        ("array<struct<a:long>>", "array<struct<b:long>>", "array<struct<a:long,b:long>>"),
        ("struct<Name:string>", "struct<name:string>", "struct<Name:string>"),
        ("struct<a:long>", "string", "struct<a:long>"),
        ("long", "string", "long"),
    ],
)
@pytest.mark.usefixtures("spark")  # Spark parses the types
def test_grow_type_adds_fields_and_keeps_types(known: str, new: str, result: str) -> None:
    dtypes = T.DataType.fromDDL(known), T.DataType.fromDDL(new)
    assert type_ddl(grow_type(*dtypes, can_widen=False)) == result


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("known", "new", "result"),
    [
        ("struct<a:long>", "string", "struct<a:long>"),
        (
            "struct<a:long,b:struct<c:long>>",
            "struct<a:double,b:string>",
            "struct<a:double,b:struct<c:long>>",
        ),
        ("array<long>", "array<double>", "array<double>"),
        ("long", "struct<a:long>", "string"),
    ],
)
def test_grow_type_keeps_nested_types_of_other_shapes(known: str, new: str, result: str) -> None:
    dtypes = T.DataType.fromDDL(known), T.DataType.fromDDL(new)
    assert type_ddl(grow_type(*dtypes, can_widen=True)) == result


@pytest.mark.parametrize(
    ("one", "other", "result"),
    [
        ("int", "bigint", "long"),
        ("bigint", "double", "double"),
        ("bigint", "decimal(10,2)", "decimal(21,2)"),
        ("decimal(10,2)", "decimal(12,4)", "decimal(12,4)"),
        ("decimal(38,0)", "decimal(38,10)", "string"),
        ("date", "timestamp", "timestamp"),
        ("date", "bigint", "string"),
        ("struct<a:int>", "string", "string"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_wider_type(one: str, other: str, result: str) -> None:
    dtypes = T.DataType.fromDDL(one), T.DataType.fromDDL(other)
    assert type_ddl(wider_type(*dtypes)) == type_ddl(wider_type(*dtypes[::-1])) == result


ROWS = {
    None: (False, False),
    '{"n":1.5}': (False, True),  # a value that does not fit
    '{"new":1}': (True, True),
    '{"new":null}': (False, False),
    '{"new":[]}': (False, False),
    '{"new":{"a":[null]}}': (False, False),
    '{"new":""}': (True, True),
    '{"new":{"a":true}}': (True, True),
    '{"user":{"name":"a","plan":"gold"}}': (True, True),
    '{"user":{"name":"a","plan":null}}': (False, True),
    '{"user":{"at":{"x":1,"y":2}}}': (True, True),
    '{"user":"ann"}': (False, True),
    '{"items":[{"id":1},{"id":2,"sku":"s"}]}': (True, True),
    '{"items":[{"id":"a"}]}': (False, True),
    '{"gone":1}': (False, False),  # excluded by name
    '{"a b":1,"it\'s":2,"x.y":3}': (True, True),
    '{"a":1,"a":2}': (False, False),  # duplicate field
}


def test_new_fields_sql(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(text,) for text in ROWS], "_rescued_data string")
    conditions = [F.expr(new_fields_sql(KNOWN, ["gone"], True, widen)) for widen in (False, True)]
    rows = frame.select("_rescued_data", *conditions).collect()
    assert {text: (new, widen) for text, new, widen in rows} == ROWS


def test_new_fields_sql_at_the_column_limit(spark: SparkSession) -> None:
    frame = spark.createDataFrame([('{"new":1}',)], "_rescued_data string")
    assert frame.where(new_fields_sql(KNOWN, [], False, False)).count() == 0

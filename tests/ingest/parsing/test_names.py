"""Fields whose names Delta does not allow, and their columns."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.ingest.parsing.fast_path import LineLayout
from medallion.ingest.parsing.names import (
    ColumnNamer,
    column_path,
    field_types,
    with_comments,
)
from medallion.ingest.parsing.parse import parse_lines
from medallion.ingest.parsing.rescued import rescued_fields, rescued_rule_names
from medallion.ingest.parsing.typed import typed_column_name
from medallion.storage.table_specs import column_name

pytestmark = pytest.mark.usefixtures("interpreted")

COLUMNS = {
    "id_orig_h": "string",
    "customer_email": "string",
    "At_": "timestamp",
    "user": "struct<zip_code:string,items:array<struct<Order_ID:long,n:long>>>",
    "n": "long",
}
NAMES = {
    "id_orig_h": "id.orig_h",
    "customer_email": "customer email",
    "At_": "At?",
    "user.zip_code": "zip code",
    "user.items.Order_ID": "Order ID",
}
FULL = {
    "id.orig_h": "10.1.1.2",
    "customer email": 'a "b" \\ c',
    "At?": "2026-05-01T10:00:00Z",
    "user": {"zip code": "10115", "items": [{"Order ID": 7, "n": 1}]},
    "n": 3,
}


def read(spark: SparkSession, *records: object) -> list[Row]:
    lines = [json.dumps(each) for each in records]
    fields = field_types(COLUMNS, NAMES)
    frame = spark.createDataFrame(list(enumerate(lines)), "at int, value string")
    layout = LineLayout.from_lines(lines[:1], fields)
    return parse_lines(frame, COLUMNS, layout, fields).orderBy("at").collect()


def test_column_name_replaces_characters() -> None:
    names = ["customer email", "id.orig_h", "a\tb\nc", "x(y)=1;", "@t", "größe", "it's?"]
    assert list(map(column_name, names)) == [
        *("customer_email", "id_orig_h", "a_b_c", "x_y__1_", "@t", "größe", "it_s_"),
    ]


def test_parse_lines_fills_renamed_columns(spark: SparkSession) -> None:
    """On each path of the parser: original order, another order, and additional fields."""
    shuffled = dict(reversed(FULL.items()))
    other_case = {**FULL, "new": 1.0, "Customer Email": "A"}
    del other_case["customer email"]
    rows = read(spark, FULL, shuffled, {**FULL, "new.one": 1}, other_case)
    for row, email in zip(rows, [*[FULL["customer email"]] * 3, "A"], strict=True):
        assert row.asDict(recursive=True) | {"_ingested_at": None} == {
            "id_orig_h": "10.1.1.2",
            "customer_email": email,
            "At_": rows[0]["At_"],
            "user": {"zip_code": "10115", "items": [{"Order_ID": 7, "n": 1}]},
            "n": 3,
            "_rescued_data": row["_rescued_data"],
            "_corrupt_record": None,
            "at": row["at"],
            "_ingested_at": None,
        }
    assert str(rows[0]["At_"]) == "2026-05-01 10:00:00"
    rescued = [json.loads(row["_rescued_data"] or "null") for row in rows]
    assert rescued[:3] == [None, None, {"new.one": 1}]
    assert rescued[3]["new"] == 1.0


def test_rescued_data_has_original_names(spark: SparkSession) -> None:
    bad = {**FULL, "At?": "soon", "user": {"zip code": "1", "items": [{"Order ID": "x", "n": 2}]}}
    (row,) = read(spark, bad)
    assert json.loads(row["_rescued_data"]) == {name: bad[name] for name in ("At?", "user")}
    assert (row["At_"], row["user"]["zip_code"]) == (None, "1")


def test_rescued_fields_and_rules_with_names(spark: SparkSession) -> None:
    bad = {**FULL, "At?": "soon", "user": {"zip code": "1", "items": [{"Order ID": "x", "n": 2}]}}
    frame = spark.createDataFrame([(json.dumps(bad),)], "value string")
    rows = parse_lines(frame, COLUMNS, None, field_types(COLUMNS, NAMES))
    types = {name: T.DataType.fromDDL(dtype) for name, dtype in COLUMNS.items()}
    rules = {"at": ["At_"], "id": ["user", "items", "Order_ID"], "n": ["user", "items", "n"]}
    (row,) = rows.select(
        F.expr(rescued_fields(types, NAMES)).alias("fields"),
        F.expr(rescued_rule_names(types, rules, NAMES)).alias("rules"),
    ).collect()
    paths = [list(field.path) for field in row.fields]
    assert paths == [["At?"], ["user", "items", "Order ID"]]
    assert column_path(paths[1], NAMES) == ["user", "items", "Order_ID"]
    assert row.rules == ["at", "id"]


def test_typed_columns_are_renamed(spark: SparkSession) -> None:
    values = spark.sql("select 'a' as `customer email`, named_struct('zip code', '1') as user")
    typed = [
        F.col(f"`{field.name}`").alias(typed_column_name(n, field.name, field.dataType))
        for n, field in enumerate(values.schema)
    ]
    columns = {"customer_email": "string", "user": "struct<zip_code:string>"}
    fields = field_types(columns, NAMES)
    (row,) = parse_lines(values.select(*typed), columns, None, fields).collect()
    assert (row.customer_email, row.user, row["_rescued_data"]) == ("a", Row(zip_code="1"), None)


def test_column_namer_keeps_known_names(spark: SparkSession) -> None:
    namer = ColumnNamer(dict(NAMES))
    columns = namer.columns(
        {
            "Id.Orig_H": "long",  # the same field in another case
            "id_orig_h": "string",  # a different field
            "id orig h": "string",
            "user": "struct<`zip code`:string,`zip-code`:string,`zip;code`:long>",
            "new.field": "double",
        },
        COLUMNS,
    )
    assert columns == {
        "id_orig_h": "long",
        "user": "struct<zip_code:string,`zip-code`:string>",
        "new_field": "double",
    }
    assert namer.names == {**NAMES, "new_field": "new.field"}
    assert namer.collisions == {
        "id_orig_h": "id_orig_h",
        "id orig h": "id_orig_h",
        "user.zip;code": "user.zip_code",
    }


def test_column_namer_names_declared_columns(spark: SparkSession) -> None:
    fields = {"customer email": "string", "b_c": "string", "b c": "string"}
    namer = ColumnNamer(unnamed=["Customer_Email", "b_c"])
    columns = namer.columns(fields, {"Customer_Email": "string", "b_c": "string"})
    assert columns == {"Customer_Email": "string", "b_c": "string"}
    assert namer.names == {"Customer_Email": "customer email"}
    assert namer.collisions == {"b c": "b_c"}


def test_with_comments_at_every_depth(spark: SparkSession) -> None:
    table = T.StructType(
        [T.StructField(name, T.DataType.fromDDL(dtype)) for name, dtype in COLUMNS.items()]
    )
    commented = with_comments(table, NAMES)
    assert isinstance(commented, T.StructType)
    assert commented["id_orig_h"].metadata == {"comment": "id.orig_h"}
    assert commented["n"].metadata == {}
    assert '"metadata":{"comment":"Order ID"},"name":"Order_ID"' in commented.json()

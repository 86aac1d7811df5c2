"""Decimals and maps of `hints` and `schema`: exact, or rescued."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.ingest.parsing.parse import parse_lines
from medallion.ingest.parsing.typed import typed_column_name

pytestmark = pytest.mark.usefixtures("interpreted")

MONEY, LARGE, SMALL = "decimal(10,2)", "decimal(38,2)", "decimal(20,10)"
# The columns of one batch: planning it takes most of the time of a test.
NAMES = {MONEY: "money", LARGE: "large", SMALL: "small"}
# A value as JSON has it, and the decimal; None if it does not fit.
DECIMALS: list[tuple[str, str, str | None]] = [
    (MONEY, "1.10", "1.10"),
    (MONEY, "12", "12.00"),
    (MONEY, "-0.5", "-0.50"),
    (MONEY, "1.100", "1.10"),
    (MONEY, "1e3", "1000.00"),
    (MONEY, "12345678.9", "12345678.90"),  # Java writes 1.23456789E7
    (MONEY, '"1.10"', "1.10"),
    (MONEY, '"99999999.99"', "99999999.99"),
    (MONEY, "1.105", None),
    (MONEY, '"1.105"', None),
    (MONEY, '"0.001"', None),
    (MONEY, "1e-3", None),
    (MONEY, "100000000", None),
    (MONEY, '"100000000.00"', None),
    (MONEY, '"1,000.00"', None),
    (MONEY, '"1.000,00"', None),
    (MONEY, '"12 EUR"', None),
    (MONEY, '"1."', None),
    (MONEY, '"NaN"', None),
    (MONEY, "true", None),
    (MONEY, "[1]", None),
    (LARGE, "123456789012345678901234567890123456.78", "123456789012345678901234567890123456.78"),
    (LARGE, '"123456789012345678901234567890123456.78"', "123456789012345678901234567890123456.78"),
    (LARGE, "12345678901234567.89", "12345678901234567.89"),
    (LARGE, "12345678901234567.891", None),
    (LARGE, "1.0000000000000000000000000000000000000000001", None),
    (LARGE, "1234567890123456789012345678901234567", None),
    (SMALL, "1.5E-7", "0.0000001500"),
    (SMALL, "1.5E-11", None),
]
# The field alone, in another order beside a new field, and with a field that is repeated.
SHAPES = ['{{"id":"a","{}":{}}}', '{{"{}": {}, "ID": "a"}}', '{{"{}":{},"new":1}}']
NESTED = "struct<v:{0},items:array<struct<v:{0}>>,by_key:map<string,{0}>>"
WITHIN = ['{{"v":{}}}', '{{"items":[{{"v":{}}},{{}}]}}', '{{"by_key":{{"a b":{}}}}}']


def rows_of(spark: SparkSession, lines: list[str], schema: dict[str, str]) -> list[Any]:
    frame = spark.createDataFrame(list(enumerate(lines)), "n int, value string")
    return parse_lines(frame, schema).orderBy("n").collect()


def test_decimals_are_exact_or_rescued(spark: SparkSession) -> None:
    cases = [
        (shape.format(NAMES[dtype], value), NAMES[dtype], expected)
        for dtype, value, expected in DECIMALS
        for shape in SHAPES
    ]
    schema = {"id": "string", **{name: dtype for dtype, name in NAMES.items()}}
    rows = rows_of(spark, [line for line, *_ in cases], schema)
    for row, (line, name, expected) in zip(rows, cases, strict=True):
        assert row[name] == (None if expected is None else Decimal(expected)), line
        rescued = json.loads(row["_rescued_data"] or "{}")
        value = json.loads(line)[name]
        assert rescued.get(name) == (value if expected is None else None), line
        assert row["_corrupt_record"] is None


def test_nested_decimals_are_exact_or_rescued(spark: SparkSession) -> None:
    cases = [
        (f'{{"{NAMES[dtype]}": {within.format(value)}}}', NAMES[dtype], expected)
        for dtype, value, expected in DECIMALS
        for within in WITHIN
    ]
    schema = {name: NESTED.format(dtype) for dtype, name in NAMES.items()}
    rows = rows_of(spark, [line for line, *_ in cases], schema)
    for row, (line, name, expected) in zip(rows, cases, strict=True):
        if expected is None:
            rescued = json.loads(row["_rescued_data"])
            assert rescued == json.loads(line)
        else:
            at = row[name]
            values = [at.v, *(item.v for item in at["items"] or ()), *(at.by_key or {}).values()]
            assert [v for v in values if v is not None] == [Decimal(expected)], line
            assert row["_rescued_data"] is None, line


MAPS: list[tuple[str, str, Any]] = [
    ("double", '{"sku-1": 1.5, "sku-7": 2}', {"sku-1": 1.5, "sku-7": 2.0}),
    ("double", '{"sku-1":1.5,"sku-7":2.0}', {"sku-1": 1.5, "sku-7": 2.0}),
    ("double", "{}", {}),
    ("double", '{"a": null, "B": 1, "b": 2}', {"a": None, "B": 1.0, "b": 2.0}),
    ("double", '{"a": 1, "b": "many"}', None),
    ("double", '{"a": 1e400}', None),
    ("double", '{"a":1.0,"a":1.0}', None),
    ("double", '{"a": 1, "a": 2}', None),
    ("double", "[1]", None),
    ("double", '"none"', None),
    ("long", '{"z":1,"a":2}', {"z": 1, "a": 2}),
    ("long", '{"z": 1.5}', None),
    ("long", '{"z": 9223372036854775808}', None),
    ("boolean", '{"a":true,"b":false}', {"a": True, "b": False}),
    ("boolean", '{"a": 1}', None),
    ("string", '{"a.b":"x","é \\" \\n":"y"}', {"a.b": "x", 'é " \n': "y"}),
    ("string", '{"a": 12345678901234567.89}', None),  # Spark would round it
    ("date", '{"a": "2026-05-01"}', {"a": "2026-05-01"}),
    ("date", '{"a": "2026-05"}', None),
]


@pytest.mark.parametrize("has_fields", [True, False])
def test_maps_are_exact_or_rescued(spark: SparkSession, has_fields: bool) -> None:
    """The keys are data, also as a map within a struct in an array."""
    cases = [
        (shape.format(dtype, f'[{{"m":{value}}}]' if has_fields else value), dtype, expected)
        for dtype, value, expected in MAPS
        for shape in SHAPES
    ]
    column_type = "array<struct<m:map<string,{}>>>" if has_fields else "map<string,{}>"
    schema = {"id": "string", **{dtype: column_type.format(dtype) for dtype, *_ in MAPS}}
    rows = rows_of(spark, [line for line, *_ in cases], schema)
    for row, (line, dtype, expected) in zip(rows, cases, strict=True):
        column = row[dtype]
        if expected is None:
            assert f'"{dtype}":' in row["_rescued_data"], line
            if '"a":1.0,"a"' in line or '"a": 1, "a"' in line:
                assert column is None  # readers of Parquet refuse repeated keys
        else:
            value = column[0].m if has_fields else column
            shown = {k: str(v) if dtype == "date" else v for k, v in value.items()}
            assert shown == expected, line
            assert json.loads(row["_rescued_data"] or "{}").keys() <= {"new"}, line


def test_rounded_decimal_of_a_line_with_repeated_field(spark: SparkSession) -> None:
    """VARIANT refuses such a line: the rounded value would be beside the rescued one."""
    line = '{"at":[{"v":1.105}],"x":1,"x":1}'
    (row,) = rows_of(spark, [line], {"at": f"array<struct<v:{MONEY}>>"})
    assert (row["at"], row["_rescued_data"]) == (None, line)


def test_decimals_of_typed_strings(spark: SparkSession) -> None:
    values = spark.sql("select '1.10' as fits, '1.105' as long, 0.1D as number")
    frame: DataFrame = values.select(
        *(
            F.col(field.name).alias(typed_column_name(n, field.name, field.dataType))
            for n, field in enumerate(values.schema)
        )
    )
    (row,) = parse_lines(frame, dict.fromkeys(("fits", "long", "number"), MONEY)).collect()
    assert (row.fits, row.long, row.number) == (Decimal("1.10"), None, Decimal("0.10"))
    assert json.loads(row["_rescued_data"]) == {"long": "1.105"}

"""Values of files with types: kept exactly, or rescued completely."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from medallion.ingest.parsing.parse import parse_lines
from medallion.ingest.parsing.typed import typed_column_name
from medallion.ingest.schema.columns import file_types
from medallion.storage.table_specs import CORRUPT, RESCUED


class TypedValue(NamedTuple):
    """A value of a file, the type of its column, and the expected results."""

    sql: str
    column: str
    kept: Any
    rescued: Any = None


AT = datetime(2018, 3, 2, 10, 2, 33, 123457, tzinfo=UTC)
BIG = Decimal("12345678901234567890.123456789012345678")
CASES = {
    # of the column's type
    "decimal": TypedValue(f"cast('{BIG}' as decimal(38,18))", "decimal(38,18)", BIG),
    "map": TypedValue("map('a', 1L, 'b', null)", "map<string,long>", {"a": 1, "b": None}),
    "map of dates": TypedValue("map(date'2018-03-02', 1)", "map<date,int>", {date(2018, 3, 2): 1}),
    "binary": TypedValue("x'00ff'", "binary", b"\x00\xff"),
    "float": TypedValue("cast(0.1 as float)", "float", 0.10000000149011612),
    "null": TypedValue("cast(null as decimal(9,2))", "decimal(9,2)", None),
    "timestamp_ntz": TypedValue("timestamp_ntz'2018-03-02 10:02:33.123457'", "timestamp", AT),
    # of another type with an equal value
    "wider": TypedValue("7", "long", 7),
    "narrower": TypedValue("7L", "int", 7),
    "beyond int": TypedValue("3000000000L", "int", None, 3000000000),
    "integral double": TypedValue("2D", "long", 2),
    "fraction": TypedValue("12.5D", "long", None, 12.5),
    "NaN": TypedValue("double('NaN')", "long", None, "NaN"),
    "beyond 2^53": TypedValue("9007199254740993L", "double", None, 9007199254740993),
    "greatest long": TypedValue("9223372036854775807L", "double", None, 9223372036854775807),
    "greatest long as double": TypedValue(
        "9223372036854775807D", "long", None, 9.223372036854776e18
    ),
    "up to 2^53": TypedValue("9007199254740992L", "double", 9007199254740992.0),
    "float in double": TypedValue("cast(0.1 as float)", "double", 0.10000000149011612),
    "double in float": TypedValue("0.1D", "float", None, 0.1),
    "more digits": TypedValue("12.34BD", "decimal(12,4)", Decimal("12.3400")),
    "fewer digits": TypedValue("12.3400BD", "decimal(10,2)", Decimal("12.34")),
    "too many digits": TypedValue("12.3456BD", "decimal(10,2)", None, 12.3456),
    "too large": TypedValue("123456.5BD", "decimal(6,2)", None, 123456.5),
    "decimal in double": TypedValue("409.93BD", "double", 409.93),
    "long decimal in double": TypedValue(
        "1234567890123456.12BD", "double", None, Decimal("1234567890123456.12")
    ),
    "integral decimal": TypedValue("5.00BD", "long", 5),
    "long in decimal": TypedValue("5L", "decimal(10,2)", Decimal("5.00")),
    "day in time": TypedValue("date'2018-03-02'", "timestamp", datetime(2018, 3, 2, tzinfo=UTC)),
    "time in day": TypedValue(
        "timestamp'2018-03-02 10:02:33.5Z'", "date", None, "2018-03-02T10:02:33.500000Z"
    ),
    "seconds": TypedValue("1519984953L", "timestamp", AT.replace(microsecond=0)),
    "string in time": TypedValue("'2018-03-02T10:02:33.123457Z'", "timestamp", AT),
    "nanoseconds": TypedValue(
        "'2018-03-02 10:02:33.123457001'", "timestamp", None, "2018-03-02 10:02:33.123457001"
    ),
    "month in time": TypedValue("'2018-03'", "timestamp", None, "2018-03"),
    "string in day": TypedValue("'2018-03-02'", "date", date(2018, 3, 2)),
    "string in long": TypedValue("'7'", "long", None, "7"),
    "long in string": TypedValue("7L", "string", "7"),
    "small decimal in string": TypedValue(
        "cast('0.000000000000000001' as decimal(38,18))", "string", "0.000000000000000001"
    ),
    "time in string": TypedValue(
        "timestamp'2018-03-02 10:02:33Z'", "string", "2018-03-02T10:02:33.000000Z"
    ),
    "bytes in string": TypedValue("x'00ff'", "string", "AP8="),
    "map in string": TypedValue("map('a', 1.50BD)", "string", '{"a":1.50}'),
    "interval in string": TypedValue("interval '1' day", "string", "INTERVAL '1' DAY"),
    # values that readers of the table could not show
    "not UTF-8": TypedValue("cast(x'4be4' as string)", "string", None, "Kä"),
    "nested not UTF-8": TypedValue(
        "map('k', array(cast(x'4be4' as string)))",
        "map<string,array<string>>",
        None,
        {"k": ["Kä"]},
    ),
    "year 10000": TypedValue(
        "timestamp'+10000-01-01 00:00:00Z'", "timestamp", None, "+10000-01-01T00:00:00.000000Z"
    ),
    "year 0": TypedValue("date'0000-12-31'", "date", None, "0000-12-31"),
    # nested
    "struct": TypedValue(
        "struct(1 as n, 'x' as s)", "struct<n:long,s:string,t:double>", Row(n=1, s="x", t=None)
    ),
    "field in other case": TypedValue("struct(1L as N)", "struct<n:long>", Row(n=1)),
    "struct with an unknown field": TypedValue(
        "struct(1L as n, 2.50BD as m)", "struct<n:long>", None, {"n": 1, "m": 2.5}
    ),
    "struct with an unknown null field": TypedValue(
        "struct(1L as n, cast(null as int) as m)", "struct<n:long>", Row(n=1)
    ),
    "struct is null": TypedValue("cast(null as struct<m:int>)", "struct<n:long>", None),
    "struct with a misfit": TypedValue("struct('x' as n)", "struct<n:long>", None, {"n": "x"}),
    "list": TypedValue("array(1, null, 3)", "array<long>", [1, None, 3]),
    "list with a misfit": TypedValue("array(1D, 2.5D)", "array<long>", None, [1.0, 2.5]),
    "list of structs": TypedValue(
        "array(struct(1 as n, 2 as m), struct(3 as n, 4 as m))",
        "array<struct<n:long>>",
        None,
        [{"n": 1, "m": 2}, {"n": 3, "m": 4}],
    ),
    "map of another type": TypedValue("map('a', 1)", "map<string,long>", None, {"a": 1}),
    "map in struct": TypedValue("map('a', 1L)", "struct<a:long>", None, {"a": 1}),
    "map keys not JSON": TypedValue(
        "map(date'2018-03-02', 1.5D)",
        "map<date,long>",
        None,
        "{2018-03-02 -> 1.5}",
    ),
    "struct in string": TypedValue("struct(1 as n)", "string", '{"n":1}'),
    "struct in long": TypedValue("struct(x'00ff' as b)", "long", None, {"b": "AP8="}),
}


@pytest.fixture(scope="module")
def row(spark: SparkSession) -> Row:
    """Return one row with a column for each case."""
    values = spark.sql(f"select {', '.join(f'{case.sql} as `{n}`' for n, case in CASES.items())}")
    typed = [
        F.col(f"`{field.name}`").alias(typed_column_name(number, field.name, field.dataType))
        for number, field in enumerate(values.schema)
    ]
    rows = values.select(*typed, F.lit("a.parquet").alias("_source_file"))
    return parse_lines(rows, {name: case.column for name, case in CASES.items()}).collect()[0]


@pytest.mark.parametrize("name", CASES)
def test_value_is_kept_or_rescued(row: Row, name: str) -> None:
    case = CASES[name]
    kept = row[name]
    if isinstance(kept, datetime):
        kept = kept.astimezone(UTC)
    if isinstance(kept, bytearray):
        kept = bytes(kept)
    assert kept == case.kept
    rescued = json.loads(row[RESCUED], parse_float=Decimal)
    expected = case.rescued
    if not isinstance(expected, Decimal):  # json.dumps does not support Decimal
        expected = json.loads(json.dumps(expected), parse_float=Decimal)
    assert rescued.get(name) == expected
    assert row[CORRUPT] is None


def test_unknown_columns_and_types_of_several_files(spark: SparkSession) -> None:
    """One name with two types, and names in two cases: each row keeps the value of its file."""
    files = [
        ("1L as amount, 2.50BD as price, struct(1 as n) as at, null as nothing", 1),
        ("1.5D as amount, 1.2345BD as PRICE, struct(2 as n, 'x' as s) as at", 2),
        ("'much' as other, interval '1' day as step, 7 as price", 3),
    ]
    parts, number = [], 0
    for sql, _ in files:
        values = spark.sql(f"select {sql}")
        typed = []
        for field in values.schema:
            typed.append(
                F.col(field.name).alias(typed_column_name(number, field.name, field.dataType))
            )
            number += 1
        parts.append(values.select(*typed))
    rows = parts[0].unionByName(parts[1], True).unionByName(parts[2], True)
    types = file_types(rows, {})
    assert types == {
        "amount": "double",
        "price": "decimal(14,4)",  # integer digits of an int, and four decimal places
        "at": "struct<n:int,s:string>",
        "other": "string",
        "step": "string",
    }
    parsed_rows = parse_lines(rows, {"amount": "long", "price": "decimal(10,2)"}).collect()
    kept = sorted(
        ((row.amount, row.price, json.loads(row[RESCUED])) for row in parsed_rows), key=str
    )
    assert kept == [
        (1, Decimal("2.50"), {"at": {"n": 1}}),
        (None, Decimal("7.00"), {"other": "much", "step": "INTERVAL '1' DAY"}),
        (None, None, {"amount": 1.5, "PRICE": 1.2345, "at": {"n": 2, "s": "x"}}),
    ]
    kept_all = parse_lines(rows, types).collect()
    assert {row[RESCUED] for row in kept_all} == {None}
    assert {row.at for row in kept_all} == {Row(n=1, s=None), Row(n=2, s="x"), None}

"""Values that Spark's parser silently changes are kept exactly or rescued."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from medallion.ingest.parsing.parse import parse_lines
from medallion.spark.plans import type_ddl

pytestmark = pytest.mark.usefixtures("interpreted")  # test_fast_path compares it as compiled


def read(spark: SparkSession, schema: dict[str, str], *lines: str) -> dict[str, tuple[Any, ...]]:
    """Return, for each line, bronze's columns as JSON and the rescued data."""
    frame = spark.createDataFrame(
        [(line, line) for line in lines], "value string, _source_file string"
    )
    parsed = parse_lines(frame.selectExpr("*", "now() as _source_modified_at"), schema)
    columns = f"to_json(struct({', '.join(schema)})) as columns"
    rows = parsed.selectExpr("_source_file", columns, "_rescued_data").collect()
    return {line: (json.loads(values), rescued) for line, values, rescued in rows}


def rescued(results: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    return {line: json.loads(rescued_json or "{}") for line, (_, rescued_json) in results.items()}


NOT_DATES = ["20180302", "17000", "123", "2018", "2018-03", "-5", "2018-03-02T10:02:33Z"]
NOT_DATES += ["2018-03-02 10", " 17000", "2018-03-02T"]


def test_date_column_rescues_incomplete_dates(spark: SparkSession) -> None:
    """Spark would read digits as days since 1970, and take the date of a timestamp."""
    schema = {"day": "date", "at": "struct<days:array<date>>"}
    lines = [json.dumps({"day": text}) for text in NOT_DATES]
    lines += [json.dumps({"at": {"days": ["2018-03-02", text]}}) for text in NOT_DATES]
    results = read(spark, schema, *lines)
    assert rescued(results) == {line: json.loads(line) for line in lines}
    assert all("day" not in values for values, _ in results.values())


def test_date_column(spark: SparkSession) -> None:
    texts = ("2018-03-02", "2018-3-2", " 2018-03-02 ")
    lines = [json.dumps({"day": text, "days": [text]}) for text in texts]
    results = read(spark, {"day": "date", "days": "array<date>"}, *lines)
    expected = ({"day": "2018-03-02", "days": ["2018-03-02"]}, None)
    assert results == dict.fromkeys(lines, expected)


def test_struct_column_rescues_strings_with_json(spark: SparkSession) -> None:
    schema = {"at": "struct<lat:double,in:struct<n:bigint>>", "ways": "array<struct<x:double>>"}
    schema |= {"deep": "array<array<struct<x:double>>>"}
    values: list[dict[str, Any]] = [
        *({"at": {"in": text}} for text in ("{}", '{"n":null}', '{"n":1}', "", "null")),
        *({"ways": [text]} for text in ("{}", '{"x":null}')),
        *({"deep": [[text]]} for text in ("{}", '{"x":null}')),
        *({"deep": [text]} for text in ("[]", "[null]")),
    ]
    lines = [json.dumps(value) for value in values]
    assert rescued(read(spark, schema, *lines)) == {line: json.loads(line) for line in lines}


ONE_OF_TWO = [
    '{"at":{"lat":1e400,"since":"2018-03-02"}}',
    '{"at":{"lat":1.5,"since":"2018-03-02T10:02"}}',
    '{"some":[1e400,1.5]}',
    '{"some":[1.5,1e400]}',
]


def test_nested_column_rescues_one_of_two_values(spark: SparkSession) -> None:
    schema = {"at": "struct<lat:double,since:date>", "some": "array<double>"}
    results = read(spark, schema, *ONE_OF_TWO)
    assert results == {line: ({}, line) for line in ONE_OF_TWO}


def test_unpaired_surrogate_is_corrupt(spark: SparkSession) -> None:
    lines = [r'{"id":"p","name":"\ud800"}', r'{"name":"\ude00\ud83d"}', r'{"name":"a\\\ud83d"}']
    complete = r'{"id":"\\ud800","name":"\ud83d\ude00"}'
    results = read(spark, {"id": "string", "name": "string"}, *lines, complete)
    assert [results[line] for line in lines] == [({}, None)] * 3
    assert results[complete] == (json.loads(complete), None)


def test_types_in_upper_case_rescue_like_others(spark: SparkSession) -> None:
    ddl = {"at": "struct<a: STRING COMMENT 'why', t: TIMESTAMP>", "tags": "array<STRING>"}
    schema = {name: type_ddl(T.DataType.fromDDL(dtype)) for name, dtype in ddl.items()}
    lines = (
        '{"at":{"a":12345678901234567890.5}}',
        '{"tags":[0.12345678901234567890]}',
        '{"at":{"t":"+12018-03-02T10:02:33.000Z"}}',
    )
    results = read(spark, schema, *lines)
    assert all(rescued_json and json.loads(rescued_json) for _, rescued_json in results.values())


def test_years_out_of_range_in_a_single_column(spark: SparkSession) -> None:
    """Its columns, written as JSON, equal the line."""
    schema = {"at": "struct<since:array<timestamp>,days:array<date>>"}
    lines = [
        f'{{"at":{{"since":["{since}"],"days":["{day}"]}}}}'
        for since, day in (
            ("+275760-09-13T00:00:00.000Z", "2018-03-02"),
            ("0000-12-31T00:00:00.000Z", "2018-03-02"),
            ("2018-03-02T00:00:00.000Z", "0000-12-31"),
        )
    ]
    results = read(spark, schema, *lines)
    assert rescued(results) == {line: json.loads(line) for line in lines}
    assert [values for values, _ in results.values()] == [{}, {}, {}]


INEXACT = [
    "12345678901234567.89",
    "1e400",
    "-2.9e400",
    f"{'7' * 300}e10",  # as large, with a short exponent
    "0.10000000000000000001",
    "-1.23456789012345678",
]
EXACT = [
    "1.5",
    "-0.25",
    "1.50",
    "1.5e3",
    "10",
    "12345678901234567890123456789012345678901234567890",
]


def test_string_column_rescues_inexact_numbers(spark: SparkSession) -> None:
    """Spark converts a number to a double before it writes it as a string."""
    schema = {"id": "string", "at": "struct<ids:array<string>>"}
    lines = [f'{{"id":{number}}}' for number in INEXACT]
    nested = [f'{{"at":{{"ids":[{number}]}}}}' for number in INEXACT]
    results = read(spark, schema, *lines, *nested)
    assert [line for line, (_, rescued_json) in results.items() if rescued_json is None] == []
    assert all("id" not in values for values, _ in results.values())
    for number, line in zip(INEXACT, lines, strict=True):
        assert number in results[line][1]


STRINGS = [*INEXACT, "1E16", "-.", "Infinity"]


def test_string_column_keeps_exact_numbers(spark: SparkSession) -> None:
    lines = [f'{{"id":{number},"at":{{"ids":[{number}]}}}}' for number in EXACT]
    lines += [json.dumps({"id": text, "at": {"ids": [text]}}) for text in STRINGS]
    results = read(spark, {"id": "string", "at": "struct<ids:array<string>>"}, *lines)
    assert {
        line: rescued_json
        for line, (_, rescued_json) in results.items()
        if rescued_json is not None
    } == {}
    for line, (values, _) in results.items():
        expected = json.loads(line, parse_int=str, parse_float=lambda text: str(float(text)))
        assert values == expected


def test_string_column_with_a_list_of_numbers(spark: SparkSession) -> None:
    """The first list is exact but spelled differently; the second loses digits."""
    exact, inexact, unchanged = (
        "[ 0.5, 1234567890123456.5 ]",
        "[0.5, 12345678901234567.89]",
        "[ 0.5, 25 ]",
    )
    lines = [f'{{"id": {numbers}}}' for numbers in (exact, inexact, unchanged)]
    results = read(spark, {"id": "string"}, *lines)
    assert [results[line] for line in lines] == [
        ({}, '{"id":[0.5,1234567890123456.5]}'),
        ({}, '{"id":[0.5,12345678901234567.89]}'),
        ({"id": "[0.5,25]"}, None),
    ]


ROUNDED_EQUALS_OTHER = [
    '{{"id":{0}0000000000000001,"x":{0}}}',
    '{{"x":{0},"id":{0}0000000000000001}}',
]
ROUNDED_EQUALS_OTHER += [
    '{{"id":[{0}0000000000000001],"x":[{0}]}}',
    '{{"at":[{0}0000000000000001,{0}]}}',
]
ROUNDED_EQUALS_OTHER += ['{{"in":{{"id":{0}0000000000000001,"x":"{0}"}}}}']


def test_rounded_number_equal_to_another_field_is_rescued(spark: SparkSession) -> None:
    schema = {"id": "string", "x": "string", "at": "array<string>"}
    schema |= {"in": "struct<id:string,x:string>"}
    lines = [line.format("0.1000") for line in ROUNDED_EQUALS_OTHER]
    results = read(spark, schema, *lines)
    names = ["id", "id", "id", "at", "in"]
    for name, line in zip(names, lines, strict=True):
        values, rescued_json = results[line]
        assert name not in values, line
        assert "0.10000000000000000001" in rescued_json
        assert "x" in values or name in ("at", "in")


def test_exact_values_in_a_line_with_long_numbers(spark: SparkSession) -> None:
    """A line with many digits takes the exact path with all its fields."""
    line = r'{"id":"9.10","x":0.5,"at":["1.0E5","[",2.50],"in":{"id":"é\n","x":"0.1"},"ts":%s}'
    line %= "1519984953.123456789"
    schema = {"id": "string", "x": "string", "at": "array<string>"}
    schema |= {"in": "struct<id:string,x:string>", "ts": "double"}
    values = {
        "id": "9.10",
        "x": "0.5",
        "at": ["1.0E5", "[", "2.5"],
        "in": {"id": "é\n", "x": "0.1"},
    }
    results = read(spark, schema, line)
    assert results == {line: (values | {"ts": 1519984953.1234567}, None)}


def test_long_list_is_read_once(spark: SparkSession) -> None:
    """If each item read the list again, one line with an embedding would take hours."""
    schema = {"wave": "array<double>", "ways": "array<struct<x:double>>", "texts": "array<string>"}
    numbers = [number / 8 for number in range(20_000)]
    complete = json.dumps({"wave": numbers})
    texts = json.dumps(numbers)
    column_by_line = {
        json.dumps({"wave": [*numbers, "end"]}): "wave",
        json.dumps({"ways": [*({"x": number} for number in numbers), {"y": 1}]}): "ways",
        f'{{"texts": {texts}, "wave": [1e400]}}': "wave",
        f'{{"texts": {texts[:-1]}, 0.50000000000000000001]}}': "texts",
    }
    start = time.monotonic()
    results = read(spark, schema, complete, *column_by_line)
    assert time.monotonic() - start < 60
    assert results[complete] == ({"wave": numbers}, None)
    for line, name in column_by_line.items():
        assert json.loads(results[line][1])[name] == json.loads(line)[name]
    _, _, infinite, rounded = column_by_line
    assert results[infinite][0] == {"texts": list(map(str, numbers))}
    assert "texts" not in results[rounded][0]

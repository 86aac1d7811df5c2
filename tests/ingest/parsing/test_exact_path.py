"""What Spark's parser makes of a value that is not what the line says, without a word."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from medallion.ingest.parsing.parse import parse_lines
from medallion.spark.plans import type_ddl


def read(spark: SparkSession, schema: dict[str, str], *lines: str) -> dict[str, tuple[Any, ...]]:
    """What bronze has of each line: the columns as JSON, and what was rescued."""
    rows = [(line, line) for line in lines]
    frame = spark.createDataFrame(rows, "value string, _source_file string")
    found = parse_lines(frame.selectExpr("*", "now() as _source_modified_at"), schema)
    columns = f"to_json(struct({', '.join(schema)})) as columns"
    some = found.selectExpr("_source_file", columns, "_rescued_data").collect()
    return {line: (json.loads(said), rescued) for line, said, rescued in some}


def rescued(found: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    return {line: json.loads(kept or "{}") for line, (_, kept) in found.items()}


NO_DAYS = ["20180302", "17000", "123", "2018", "2018-03", "-5", "2018-03-02T10:02:33Z"]
NO_DAYS += ["2018-03-02 10", " 17000", "2018-03-02T"]


def test_a_text_without_a_whole_date_is_no_day(spark: SparkSession) -> None:
    """Spark takes digits for days since 1970, and a time for its day."""
    schema = {"day": "date", "at": "struct<days:array<date>>"}
    lines = [json.dumps({"day": text}) for text in NO_DAYS]
    lines += [json.dumps({"at": {"days": ["2018-03-02", text]}}) for text in NO_DAYS]
    found = read(spark, schema, *lines)
    assert rescued(found) == {line: json.loads(line) for line in lines}
    assert all("day" not in said for said, _ in found.values())


@pytest.mark.parametrize("text", ["2018-03-02", "2018-3-2", " 2018-03-02 "])
def test_a_day(spark: SparkSession, text: str) -> None:
    line = json.dumps({"day": text, "days": [text]})
    found = read(spark, {"day": "date", "days": "array<date>"}, line)
    assert found == {line: ({"day": "2018-03-02", "days": ["2018-03-02"]}, None)}


def test_an_object_that_came_as_a_text_is_rescued(spark: SparkSession) -> None:
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


def test_one_of_two_nested_values_that_its_type_cannot_say(spark: SparkSession) -> None:
    schema = {"at": "struct<lat:double,since:date>", "some": "array<double>"}
    found = read(spark, schema, *ONE_OF_TWO)
    assert found == {line: ({}, line) for line in ONE_OF_TWO}


def test_half_a_surrogate_pair_is_corrupt(spark: SparkSession) -> None:
    lines = [r'{"id":"p","name":"\ud800"}', r'{"name":"\ude00\ud83d"}', r'{"name":"a\\\ud83d"}']
    whole = r'{"id":"\\ud800","name":"\ud83d\ude00"}'
    found = read(spark, {"id": "string", "name": "string"}, *lines, whole)
    assert [found[line] for line in lines] == [({}, None)] * 3
    assert found[whole] == (json.loads(whole), None)


def test_types_in_capitals_are_judged_as_others(spark: SparkSession) -> None:
    written = {"at": "struct<a: STRING COMMENT 'why', t: TIMESTAMP>", "tags": "array<STRING>"}
    schema = {name: type_ddl(T.DataType.fromDDL(kind)) for name, kind in written.items()}
    lines = (
        '{"at":{"a":12345678901234567890.5}}',
        '{"tags":[0.12345678901234567890]}',
        '{"at":{"t":"+12018-03-02T10:02:33.000Z"}}',
    )
    found = read(spark, schema, *lines)
    assert all(kept and json.loads(kept) for _, kept in found.values())


def test_a_year_that_no_reader_can_say_within_a_line_of_one_column(spark: SparkSession) -> None:
    """Written out again as JSON, its columns are the line."""
    schema = {"at": "struct<since:array<timestamp>,days:array<date>>"}
    lines = [
        f'{{"at":{{"since":["{since}"],"days":["{day}"]}}}}'
        for since, day in (
            ("+275760-09-13T00:00:00.000Z", "2018-03-02"),
            ("0000-12-31T00:00:00.000Z", "2018-03-02"),
            ("2018-03-02T00:00:00.000Z", "0000-12-31"),
        )
    ]
    found = read(spark, schema, *lines)
    assert rescued(found) == {line: json.loads(line) for line in lines}
    assert [said for said, _ in found.values()] == [{}, {}, {}]


ROUNDED = [
    "12345678901234567.89",
    "1e400",
    "-2.9e400",
    f"{'7' * 300}e10",  # as large, with few digits in its exponent
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


def test_a_number_that_a_text_cannot_say_is_rescued(spark: SparkSession) -> None:
    """Spark writes a number out again as a double, where it has to be a text."""
    schema = {"id": "string", "at": "struct<ids:array<string>>"}
    lines = [f'{{"id":{number}}}' for number in ROUNDED]
    nested = [f'{{"at":{{"ids":[{number}]}}}}' for number in ROUNDED]
    found = read(spark, schema, *lines, *nested)
    assert [line for line, (_, kept) in found.items() if kept is None] == []
    assert all("id" not in said for said, _ in found.values())
    for number, line in zip(ROUNDED, lines, strict=True):
        assert number in found[line][1]


TEXTS = [*ROUNDED, "1E16", "-.", "Infinity"]


def test_a_number_that_a_text_says_is_not(spark: SparkSession) -> None:
    lines = [f'{{"id":{number},"at":{{"ids":[{number}]}}}}' for number in EXACT]
    lines += [json.dumps({"id": text, "at": {"ids": [text]}}) for text in TEXTS]
    found = read(spark, {"id": "string", "at": "struct<ids:array<string>>"}, *lines)
    assert {line: kept for line, (_, kept) in found.items() if kept is not None} == {}
    for line, (said, _) in found.items():
        texts = json.loads(line, parse_int=str, parse_float=lambda text: str(float(text)))
        assert said == texts


def test_numbers_in_a_list_that_a_text_holds(spark: SparkSession) -> None:
    """A double says the first ones exactly, but written otherwise; of the next it loses digits."""
    long, lost, short = "[ 0.5, 1234567890123456.5 ]", "[0.5, 12345678901234567.89]", "[ 0.5, 25 ]"
    lines = [f'{{"id": {numbers}}}' for numbers in (long, lost, short)]
    found = read(spark, {"id": "string"}, *lines)
    assert [found[line] for line in lines] == [
        ({}, '{"id":[0.5,1234567890123456.5]}'),
        ({}, '{"id":[0.5,12345678901234567.89]}'),
        ({"id": "[0.5,25]"}, None),
    ]


VOUCHED_FOR = ['{{"id":{0}0000000000000001,"x":{0}}}', '{{"x":{0},"id":{0}0000000000000001}}']
VOUCHED_FOR += ['{{"id":[{0}0000000000000001],"x":[{0}]}}', '{{"at":[{0}0000000000000001,{0}]}}']
VOUCHED_FOR += ['{{"in":{{"id":{0}0000000000000001,"x":"{0}"}}}}']


def test_a_number_is_rounded_though_another_field_says_what_it_became(spark: SparkSession) -> None:
    schema = {"id": "string", "x": "string", "at": "array<string>"}
    schema |= {"in": "struct<id:string,x:string>"}
    lines = [line.format("0.1000") for line in VOUCHED_FOR]
    found = read(spark, schema, *lines)
    names = ["id", "id", "id", "at", "in"]
    for name, line in zip(names, lines, strict=True):
        said, kept = found[line]
        assert name not in said, line
        assert "0.10000000000000000001" in kept
        assert "x" in said or name in ("at", "in")


def test_beside_an_exact_number_a_text_is_what_the_line_says(spark: SparkSession) -> None:
    """A line with many digits is looked at closely, whatever else it says."""
    line = r'{"id":"9.10","x":0.5,"at":["1.0E5","[",2.50],"in":{"id":"é\n","x":"0.1"},"ts":%s}'
    line %= "1519984953.123456789"
    schema = {"id": "string", "x": "string", "at": "array<string>"}
    schema |= {"in": "struct<id:string,x:string>", "ts": "double"}
    said = {"id": "9.10", "x": "0.5", "at": ["1.0E5", "[", "2.5"], "in": {"id": "é\n", "x": "0.1"}}
    found = read(spark, schema, line)
    assert found == {line: (said | {"ts": 1519984953.1234567}, None)}


def test_a_list_is_read_once_and_not_once_for_each_item(spark: SparkSession) -> None:
    """A wave, say, or an embedding: with its items times its length, one line would take hours."""
    schema = {"wave": "array<double>", "ways": "array<struct<x:double>>", "texts": "array<string>"}
    many = [number / 8 for number in range(20_000)]
    whole = json.dumps({"wave": many})
    texts = json.dumps(many)
    kept = {
        json.dumps({"wave": [*many, "end"]}): "wave",
        json.dumps({"ways": [*({"x": number} for number in many), {"y": 1}]}): "ways",
        f'{{"texts": {texts}, "wave": [1e400]}}': "wave",
        f'{{"texts": {texts[:-1]}, 0.50000000000000000001]}}': "texts",
    }
    began = time.monotonic()
    found = read(spark, schema, whole, *kept)
    assert time.monotonic() - began < 60
    assert found[whole] == ({"wave": many}, None)
    for line, name in kept.items():
        assert json.loads(found[line][1])[name] == json.loads(line)[name]
    _, _, infinite, rounded = kept
    assert found[infinite][0] == {"texts": list(map(str, many))}
    assert "texts" not in found[rounded][0]

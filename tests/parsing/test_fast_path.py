"""The shorter paths say of a line what the exact one does, or nothing."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.parsing.exact_path import exact_path
from medallion.parsing.fast_path import fast_path
from medallion.parsing.layout import Layout
from medallion.parsing.plain_path import plain_path
from medallion.parsing.times import PLAIN_TIME

FLAT = {"id": "string", "n": "long", "x": "double", "ts": "timestamp", "day": "date"}
FLAT["yes"] = "boolean"
# Where the fast path leaves a column's value.
VALUE = {name: f"_parsed.`{name}`" for name in (*FLAT, "tags", "at")}
VALUE |= {name: f"{PLAIN_TIME}{name}" for name in ("ts", "day")}
NESTED = FLAT | {"tags": "array<string>", "at": "struct<lat:double,since:timestamp>"}

VALUES = [
    *("null", "true", "0", "-0", "7", "-7", "1.5", "1e3", "1e400", "-1e400", "1E-400", "007"),
    *("1519984953", "-1519984953", "9223372036854775807", "9223372036854775808", "1519984953000"),
    *("9223372036854", "999999999999", "1000000000000", "1519984953000000000", "1519984953.5"),
    *('""', '" "', '"a"', '"é😀"', r'"é\\"', r'"\ud83d\ude00"', r'"\ud800"', '"?"', '":"', '"}"'),
    *('"Infinity"', '"7"', '"1519984953"', '"2018"', '"2018-03"', '"2018-03-02"', '"2018-3-2"'),
    *('"2018-03-02T10:02:33"', '"2018-03-02 10:02:33.123456789Z"', '"2018-03-02T10:02:33+0100"'),
    *('" 2018-03-02"', '"2018-03-02 "', '"2018-02-30"', '"0000-00-00"', '"9999-12-31T23:59:60"'),
    *('"10115"', '"1234-5"', '"2018-03    "', '"1234-5-6"', '"1:02:03-08:00"', '"123"', "10115"),
    *('"10:02"', '"T10:02:33"', '"1:2:3"', '"-2018-03-02"', '"+10000-01-01"', '"12345-01-01"'),
    *('"2018-3-2 10"', '"2018-3-2T1"', '"2018-3-2 x"', '"2018-03-02 "'),
    *('"2018-03-02T"', '"2018-03-02x"', '"now"', '"epoch"', '"2018-W09-5"', "NaN", "Infinity"),
    *("[]", "[1]", '["a"]', '["a",null]', '["a",{"b":1}]', "{}", '{"lat":1}', '{"lat":"x"}'),
    *('{"lat":"Infinity"}', '{"lat":"NaN"}', '{"lat":1e400}', '["Infinity"]', "[1e400]"),
    *('{"lat":1,"lat":2}', '{"lon":1}', '{"since":"10:02"}', '{"since":"2018-03-02"}', '[["a"]]'),
]
SHAPES = [
    '{{"{0}":{1}}}',
    '{{"{0}":{1}}}, {{"{0}":{1}}}',
    '{{"{0}":{1}}}], [{{}}',
    '{{"{0}": {1}}}',
    '{{"id": "a", "{0}": {1}}}',
    '{{"{0}":{1},"yes":true}}',
    '{{"{0}":{1}, "yes": true}}',
    '{{"yes":true,"{0}":{1}}}',
    '{{"{0}" : {1}}}',
    '{{ "{0}"\t:{1} }} ',
    ' {{"{0}":{1}}}',
    '{{"{0}":{1},"{0}":{1}}}',
    '{{"{0}":null,"{0}":{1}}}',
    '{{"{0}":{1},"more":{1}}}',
    '{{"more":{1},"id":"a","n": 12}}',
    '{{"a b": {1}, "Id":"x", "\\u0061": 1, "x": 1.5}}',
    '{{"more":1,"n":2,"more":{1}}}',
    '{{"{0}":{1}}}}}',
    '{{"{0}":{1}}} {{}}',
    '[{{"{0}":{1}}}]',
    '{{"{0}":{1},}}',
    '{{"{0}":{1}',
]
PLAIN = [
    '{"id": "nexus4_1", "n": 0, "x": -5.958191, "ts": "2018-03-02T10:02:33.000+0000", "yes": true}',
    '{"ts":1519984953,"id":"phone 2"}',
    '{"day":"2018-03-02","x":1,"tags":["a","b"],"at":{"lat":1.5,"since":"2018-03-02T10:02:33Z"}}',
    '{"id":null,"n":null}',
    '{"id":"Zoë 😀: {","x":1e-3}',
    '{"more": 1424686733176, "id": "a", "Id": null, "x": 0.0358, "b": "1.5", "c": [1, "c"]}',
    "{}",
]


Schema = dict[str, str]


def on_all_paths(
    spark: SparkSession, lines: list[str], schema: Schema, layout: Layout | None = None
) -> DataFrame:
    """What the fast path adds to lines, and `plain` and `exact`, what the others make of them."""
    frame = spark.createDataFrame([(line,) for line in lines], "value string")
    rows = fast_path(frame, schema, layout or Layout.of((), schema))
    paths = {"plain": plain_path(schema), "exact": exact_path(schema)}
    return rows.withColumns({name: F.expr(path) for name, path in paths.items()})


@pytest.mark.parametrize("schema", [FLAT, NESTED, {}], ids=["flat", "nested", "no columns"])
def test_what_is_said_is_the_same_on_the_exact_path(spark: SparkSession, schema: Schema) -> None:
    lines = [s.format(name, value) for s in SHAPES for name in NESTED for value in VALUES]
    lines += ["", "null", "[]", "]", "],[", "{", "}", '"']
    rows = on_all_paths(spark, lines, schema).cache()
    same = " and ".join(["true", *(f"exact.`{name}` <=> {VALUE[name]}" for name in schema)])
    nothing_else = "exact._corrupt_record is null and exact._rescued_data is null"
    wrong = rows.where(f"_is_same and not ({same} and {nothing_else})")
    assert [row.value for row in wrong.select("value").collect()] == []
    wrong = rows.where("plain is not null and not plain <=> exact")
    assert [row.value for row in wrong.select("value").collect()] == []
    rows.unpersist()


@pytest.mark.parametrize(
    ("schema", "lines"),
    [(NESTED, PLAIN), (FLAT, ['{"id": "a", "nanoseconds": 1424686733176178965, "x": 1}'])],
    ids=["nested", "flat"],
)
def test_lines_as_they_should_be_are_not_odd(
    spark: SparkSession, schema: Schema, lines: list[str]
) -> None:
    """Otherwise all would be right still, but slow."""
    odd = on_all_paths(spark, lines, schema).where("not _is_same and plain is null")
    assert [row.value for row in odd.select("value").collect()] == []


def test_the_values_are_those_of_the_line(spark: SparkSession) -> None:
    """By Python's own parser, for the types that JSON has."""
    for row in on_all_paths(spark, PLAIN, NESTED).collect():
        line = json.loads(row.value)
        for name in ("id", "n", "x", "yes", "tags"):
            assert row._parsed[name] == line.get(name), row.value


# Of writers who put fields in an order of their own, leave some out, or have more of them.
WRITERS = [
    ['{"x":1.5,"ts":1519984953,"id":"a","n":1,"yes":true,"day":"2018-03-02"}'],
    ['{"id": "a", "x": 0.5}', '{"n": 7, "x": 0.5}', '{"day": "2018-03-02", "n": 7}'],
    ['{"at_ms":1424686733176,"id":"a","at_ns":1424686733176178965,"x":1.5}'],
    ['{"id":"a","more":"é: {","less":-0.25,"are":true,"n":1}', '{"are":false,"less":"none"}'],
    ['{"more":{"a":[1,"b"]},"id":"a","less":[]}'],
    [f'{{"x":{n}}}' for n in ("0.0", "-0.0", "0.00085", "8.5E-4", "1.0E10", "-1424686733.176")],
    [f'{{"x":{n}}}' for n in ("0.0000012345678901234567", "10000000.0", "-99999999999999.9")],
]


@pytest.mark.parametrize("lines", WRITERS)
def test_lines_like_those_of_a_layout_take_the_fast_path(
    spark: SparkSession, lines: list[str]
) -> None:
    rows = on_all_paths(spark, lines, FLAT, Layout.of(lines, FLAT)).collect()
    same = [row for row in rows if row._is_same]
    assert [row.value for row in same] == lines[: len(same)]
    assert len(same) == len(lines) - ('"less":"none"' in lines[-1])  # a number in the first
    assert on_all_paths(spark, ["{}"], {}, Layout.of(["{}"], {})).where("_is_same").count() == 1
    for row in same:
        more = {k: v for k, v in json.loads(row.value).items() if k not in FLAT}
        assert json.loads(row._more or "{}") == more == json.loads(row.exact._rescued_data or "{}")


# Each is one layout for all the lines of its shape, whatever value they have.
LIKE = [
    '{{"more":1,"id":"a","{0}":{1}}}',
    '{{"{0}": {1}, "id": "a", "more": "b"}}',
    '{{"{0}":{1}}}',
    '{{"id":"a","id":{1}}}',
    '{{"more":{1},"more":1}}',
    '{{"more":{1},"Id":"a"}}',
]


@pytest.mark.parametrize("shape", LIKE)
@pytest.mark.parametrize("first", ["1", '"a"', "[]"])
def test_no_layout_changes_what_a_line_says(spark: SparkSession, shape: str, first: str) -> None:
    lines = [shape.format(name, value) for name in ("id", "ts", "more", "x") for value in VALUES]
    layout = Layout.of([shape.format("more", first), shape.format("x", first)], FLAT)
    rows = on_all_paths(spark, lines, FLAT, layout)
    same = " and ".join(f"exact.`{name}` <=> {VALUE[name]}" for name in FLAT)
    wrong = rows.where(f"_is_same and not ({same} and exact._corrupt_record is null)")
    assert [row.value for row in wrong.select("value").collect()] == []
    for row in rows.where("_is_same").collect():
        more = {k: v for k, v in json.loads(row.value).items() if k not in FLAT}
        assert json.loads(row._more or "{}") == more, row.value

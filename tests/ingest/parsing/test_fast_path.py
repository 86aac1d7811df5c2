"""The fast path gives the same result as the exact path, or none."""

from __future__ import annotations

import itertools
import json

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.ingest.parsing.exact_path import exact_path
from medallion.ingest.parsing.fast_path import LineLayout, fast_path
from medallion.ingest.parsing.times import CONVERTED

FLAT = {"id": "string", "n": "long", "x": "double", "ts": "timestamp", "day": "date"}
FLAT["yes"] = "boolean"
# Where the fast path stores a column's value.
VALUE = {name: f"_parsed.`{name}`" for name in (*FLAT, "tags", "at")}
VALUE |= {name: f"{CONVERTED}{name}" for name in ("ts", "day")}
NESTED = FLAT | {"tags": "array<string>", "at": "struct<lat:double,since:timestamp>"}
# The fields have the names of those in NESTED, so that the lines of VALUES are theirs, too.
DECLARED = {"id": "string", "x": "decimal(10,2)", "tags": "array<struct<x:decimal(38,2)>>"}
DECLARED |= {"at": "map<string,double>", "n": "map<string,struct<m:map<string,decimal(10,2)>>>"}

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
    *("1.10", "1.105", '"1.10"', '"1.105"', "12345678.90", "12345678901234567.89", "0.1e1", '" 1"'),
    *('[{"x":1.10}]', '[{"x":1.105}]', '[{"x":"1,000"}]', '[{"x":12345678901234567.89}]'),
    *('{"a":1.5,"b c":2.0}', '{"a": 1, "b": null}', '{"a":1.5,"a":1.5}', '{"a":"1.5"}'),
    *('{"k":{"m":{"p":1.10}}}', '{"k":{"m":{"p":1.105}}}', '{"k":{"m":{"p":1.10,"p":1.10}}}'),
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
LINES = [
    '{"id": "nexus4_1", "n": 0, "x": -5.958191, "ts": "2018-03-02T10:02:33.000+0000", "yes": true}',
    '{"ts":1519984953,"id":"phone 2"}',
    '{"day":"2018-03-02","x":1,"tags":["a","b"],"at":{"lat":1.5,"since":"2018-03-02T10:02:33Z"}}',
    '{"id":null,"n":null}',
    '{"id":"Zoë 😀: {","x":1e-3}',
    '{"more": 1424686733176, "id": "a", "more_yet": null, "x": 0.0358, "b": "1.5", "c": [1, "c"]}',
    "{}",
]


Schema = dict[str, str]


def parse_on_fast_path(
    spark: SparkSession, lines: list[str], schema: Schema, layout: LineLayout | None = None
) -> DataFrame:
    frame = spark.createDataFrame([(line,) for line in lines], "value string")
    return fast_path(frame, schema, layout or LineLayout.from_lines((), schema))


def parse_on_both_paths(
    spark: SparkSession, lines: list[str], schema: Schema, layout: LineLayout | None = None
) -> DataFrame:
    """Return the columns of the fast path, and `exact` with the other path's result."""
    rows = parse_on_fast_path(spark, lines, schema, layout)
    return rows.withColumn("exact", F.expr(exact_path(schema)))


def unknown_fields(line: str) -> dict[str, object]:
    """Return the fields of a line that FLAT does not have."""
    return {name: value for name, value in json.loads(line).items() if name not in FLAT}


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(FLAT, id="flat", marks=pytest.mark.slow),  # its columns are also in NESTED
        pytest.param(NESTED, id="nested"),
        pytest.param(DECLARED, id="declared"),
        pytest.param({}, id="no columns"),
    ],
)
def test_fast_path_equals_the_exact_path(spark: SparkSession, schema: Schema) -> None:
    lines = [s.format(name, value) for s in SHAPES for name in NESTED for value in VALUES]
    lines += ["", "null", "[]", "]", "],[", "{", "}", '"']
    rows = parse_on_both_paths(spark, lines, schema).cache()
    decimals = {"x": f"{CONVERTED}x"} if schema is DECLARED else {}
    values = {**VALUE, **decimals}
    # Spark compares no maps.
    is_equal = " and ".join(
        f"to_json(struct(exact.`{name}` as v)) <=> to_json(struct({values[name]} as v))"
        for name in schema
    )
    is_valid = "exact._corrupt_record is null and exact._rescued_data is null"
    is_different = f"_is_same and not ({is_equal or 'true'} and {is_valid})"
    different = rows.where(is_different)
    assert [row.value for row in different.select("value").collect()] == []
    rows.unpersist()


@pytest.mark.usefixtures("interpreted")
def test_fast_path_values_equal_the_line(spark: SparkSession) -> None:
    """By Python's own parser, for the JSON types."""
    for row in parse_on_both_paths(spark, LINES, NESTED).collect():
        line = json.loads(row.value)
        for name in ("id", "n", "x", "yes", "tags"):
            assert row._parsed[name] == line.get(name), row.value


# Lines of writers with their own order of fields, with missing or additional fields.
WRITERS = [
    ['{"x":1.5,"ts":1519984953,"id":"a","n":1,"yes":true,"day":"2018-03-02"}'],
    ['{"id": "a", "x": 0.5}', '{"n": 7, "x": 0.5}', '{"day": "2018-03-02", "n": 7}'],
    ['{"at_ms":1424686733176,"id":"a","at_ns":1424686733176178965,"x":1.5}'],
    ['{"id":"a","more":"é: {","less":-0.25,"are":true,"n":1}', '{"are":false,"less":"none"}'],
    ['{"more":{"a":[1,"b"]},"id":"a","less":[]}'],
    [f'{{"x":{n}}}' for n in ("0.0", "-0.0", "0.00085", "8.5E-4", "1.0E10", "-1424686733.176")],
    [f'{{"x":{n}}}' for n in ("0.0000012345678901234567", "10000000.0", "-99999999999999.9")],
    [
        r'{"id":"Zo\u00e8 \ud83d\ude00","n":1}',
        r'{"id":"a \"b\" c\\","n":2}',
        r'{"id":"\/\n","n":3}',
    ],
    [r'{"id": "\u00e8", "ts": "2018\u002d03-02", "day": "2018-03-02"}', '{"id": "?"}'],
    [r'{"more": "\u00e8", "id": "\t", "are": 1.5}', r'{"id": "\t", "are": 1}'],
    ["{}"],
]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("lines", WRITERS)
def test_lines_of_the_layout_take_the_fast_path(spark: SparkSession, lines: list[str]) -> None:
    layout = LineLayout.from_lines(lines, FLAT)
    rows = parse_on_fast_path(spark, lines, FLAT, layout).where("_is_same").collect()
    slow = [line for line in lines if '"less":"none"' in line]  # a number in the layout
    assert [row.value for row in rows] == [line for line in lines if line not in slow]
    for row in rows:
        columns = {name: row._parsed[name] for name in ("id", "n", "x") if row._parsed[name]}
        assert columns.items() <= json.loads(row.value).items()
        assert json.loads(row._more or "{}") == unknown_fields(row.value)


@pytest.mark.usefixtures("interpreted")
def test_exact_path_rescues_unknown_fields(spark: SparkSession) -> None:
    lines = list(itertools.chain(*WRITERS))
    for row in parse_on_both_paths(spark, lines, FLAT).collect():
        assert json.loads(row.exact._rescued_data or "{}") == unknown_fields(row.value), row.value


@pytest.mark.usefixtures("interpreted")
def test_fast_path_without_columns(spark: SparkSession) -> None:
    lines, layout = ["{}", '{"a":1}', "[]"], LineLayout.from_lines(["{}"], {})
    rows = parse_on_fast_path(spark, lines, {}, layout).where("_is_same").collect()
    assert [row.value for row in rows] == ["{}"]


# Escapes, and what they could hide: duplicate fields, unpaired surrogates, quotes.
STRINGS = [
    *(r'"\u00e8"', r'"\ud83d\ude00"', r'"\ud83d"', r'"\ude00?"', r'"\ud83d\ude00?"', r'"?\u00e8"'),
    *(r'"a\"b"', r'"\\"', r'"\\\""', r'"\/\b\f\n\r\t"', r'"\u0000"', r'"\u003f\ud800"', r'"\x"'),
    *(r'"a\",\"id\":\"b"', r'"\",\"n\":7,\"id\":\""', r'"a\": \"b"', r'":\""', r'"\u0022"'),
    *(r'"2018\u002d03-02"', r'"\u0031519984953"', r'"2018-03-02\u0020"', r'"\u0049nfinity"'),
    *(r'"\"\""', r'"\"\",\"id\":\"\""', r'"\"\",\"n\":7"', r'"\u00š1"', r'"\\u00š1"'),
    *('"\\u00e8\x00"', '"\\u00e8\x1f"', r'"\u00e"', r'"\u00E8"', '"\\u00e8\x7f"', '"\u2028\\n"'),
]
ESCAPED = [
    '{{"id":{0},"n":7}}',
    '{{"id": {0}, "n": 7}}',
    '{{"id": {0},"n": 7}}',
    '{{"id":{0},"id":"b","n":7}}',
    '{{"id":"b","id":{0},"n":7}}',
    '{{"id":{0},"n":7,"n":7}}',
    '{{"id":{0},"n":7.0}}',
    '{{"id":{0},"n":"7"}}',
    '{{"id":[{0}],"n":7}}',
    '{{"id":{{"id":{0}}},"n":7}}',
    r'{{"\u0069d":{0},"n":7}}',
    r'{{"id":{0},"\":\"":7}}',
    '{{"id":{0},"n":7}} ',
    '{{"id":{0},"n":7}}, {{"id":{0},"n":7}}',
    '{{"ts":{0},"day":{0}}}',
    '{{"more":{0},"id":{0}}}',
    '{{"more":"a","more":{0},"id":{0}}}',
    '{{"more":[{0}],"id":"a"}}',
    '{{"less":{0},"id":{0}}}',
    '{{"less":{0},"id":"a","id":"b"}}',
]


# Each shape has one layout for all its lines and values.
LAYOUT_SHAPES = [
    '{{"more":1,"id":"a","{0}":{1}}}',
    '{{"{0}": {1}, "id": "a", "more": "b"}}',
    '{{"{0}":{1}}}',
    '{{"id":"a","id":{1}}}',
    '{{"more":{1},"more":1}}',
    '{{"more":{1},"Id":"a"}}',
]


FIRST = ["1", '"a"', "[]"]
_LAYOUTS = [(shape, FIRST[n % 3]) for n, shape in enumerate(LAYOUT_SHAPES)]
_ALL_LAYOUTS = itertools.product(LAYOUT_SHAPES, FIRST)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("shape", "first"),
    [
        *_LAYOUTS,
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in _ALL_LAYOUTS
            if each not in _LAYOUTS
        ),
    ],
)
def test_layout_does_not_change_results(spark: SparkSession, shape: str, first: str) -> None:
    lines = [shape.format(name, value) for name in ("id", "ts", "more", "x") for value in VALUES]
    layout = LineLayout.from_lines([shape.format("more", first), shape.format("x", first)], FLAT)
    rows = parse_on_fast_path(spark, lines, FLAT, layout)
    rows = rows.withColumn("exact", F.expr(exact_path(FLAT)))
    is_equal = " and ".join(f"exact.`{name}` <=> {VALUE[name]}" for name in FLAT)
    is_right = F.expr(f"{is_equal} and exact._corrupt_record is null").alias("is_right")
    rows_on_fast_path = rows.where("_is_same").select("value", "_more", is_right).collect()
    assert [row.value for row in rows_on_fast_path if row.is_right is not True] == []
    for row in rows_on_fast_path:
        assert json.loads(row._more or "{}") == unknown_fields(row.value), row.value


# The first lines of a batch, and a shape of lines that match their layout.
@pytest.mark.parametrize(
    ("first", "shape"),
    [
        (['{"id":"a","n":1}'], '{{"id":{0},"n":7}}'),
        (['{"more":"a","id":"b"}', '{"less":1,"n":1}'], '{{"more":{0},"id":{0}}}'),
    ],
)
def test_fast_path_with_escapes(spark: SparkSession, first: list[str], shape: str) -> None:
    lines = [escaped.format(text) for escaped in ESCAPED for text in STRINGS]
    rows = parse_on_both_paths(spark, lines, FLAT, LineLayout.from_lines(first, FLAT)).cache()
    is_equal = " and ".join(f"exact.`{name}` <=> {VALUE[name]}" for name in FLAT)
    is_different = f"_is_same and not ({is_equal} and exact._corrupt_record is null)"
    different = rows.where(is_different)
    assert [row.value for row in different.select("value").collect()] == []
    rows_on_fast_path = rows.where("_is_same").collect()
    assert {shape.format(text) for text in STRINGS[:2]} <= {row.value for row in rows_on_fast_path}
    for row in rows_on_fast_path:
        line = json.loads(row.value, object_pairs_hook=without_duplicates)
        unknown = {k: v for k, v in line.items() if k not in FLAT}
        assert (
            json.loads(row._more or "{}") == unknown == json.loads(row.exact._rescued_data or "{}")
        )
        assert row._parsed.id == line.get("id")
    rows.unpersist()


def without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object's fields; fail if one occurs twice."""
    assert len({name for name, _ in pairs}) == len(pairs), pairs
    return dict(pairs)


SCHEMA = {"id": "string", "n": "long", "x": "double"}


def test_layout_without_lines_has_the_schema_order() -> None:
    assert LineLayout.from_lines([], SCHEMA) == LineLayout(["id", "n", "x"])


def test_layout_inserts_fields_after_their_predecessors() -> None:
    lines = ['{"x":1,"id":"a"}', '{"b":1,"x":1}', '{"id":"a","c":"b","x":2}', '{"id":"a","x":1}']
    assert LineLayout.from_lines(lines, SCHEMA) == LineLayout(
        ["b", "x", "id", "n", "c"], {"b": "", "c": '"'}
    )


def test_layout_merges_two_orders() -> None:
    schema = {"id": "string", "action": "string", "ts": "timestamp", "time": "timestamp"}
    lines = ['{"id":"a","action":"b","ts":"c"}', '{"time":1,"action":"b"}']
    assert LineLayout.from_lines(lines, schema) == LineLayout(["time", "id", "action", "ts"])


@pytest.mark.parametrize(
    "line",
    [
        *("", "[]", "null", "1", '["id", 1]', "{", '{"id":', "[" * 100_000, '{"more":null}'),
        *('{"a b":1}', '{"_conflict":1}', '{"é":1}', '{"":1}', '{"ID":1}', f'{{"{"a" * 129}":1}}'),
        '{"a`b":1}',
        '{"a\\"b":1}',
        '{"a\'b":1}',
        '{"1":1}',
    ],
)
def test_layout_skips_unusual_lines(line: str) -> None:
    assert LineLayout.from_lines([line], SCHEMA) == LineLayout(["id", "n", "x"])


def test_layout_keeps_one_of_two_spellings() -> None:
    assert LineLayout.from_lines(['{"more":1,"More":"a"}'], {}) == LineLayout(
        ["more"], {"more": ""}
    )


def test_layout_keeps_a_hundred_unknown_fields() -> None:
    line = json.dumps({f"a{number}": number for number in range(1000)})
    assert list(LineLayout.from_lines([line], {"id": "string"}).quotes) == [
        f"a{n}" for n in range(100)
    ]


@pytest.mark.usefixtures("interpreted")
def test_fast_path_of_decimals_and_maps(spark: SparkSession) -> None:
    lines = ['{"id":"a","x":1.25,"at":{"a b":1.5}}', '{"id": "a", "x": "1.10"}', '{"at":{}}']
    schema = {name: DECLARED[name] for name in ("id", "x", "at")}
    rows = parse_on_fast_path(spark, lines, schema)
    assert [row.value for row in rows.where("not _is_same").select("value").collect()] == []

"""Every line is kept: what each kind of line becomes."""

from __future__ import annotations

import calendar
import json
from collections.abc import Mapping, Sequence
from datetime import UTC

import pytest
from pyspark.sql import Row, SparkSession

from medallion.parsing.parse import parse

SCHEMA = {"id": "string", "n": "long", "x": "double", "ts": "timestamp"}
NESTED = {"id": "string", "at": "struct<lat:double,tags:array<string>,in:struct<n:bigint>>"}
NESTED["ways"] = "array<struct<x:double>>"
FITS, RESCUED, CORRUPT = "fits", "rescued", "corrupt"

# line, what becomes of it, the values of id, n, x, and what is rescued
LINES = [
    ('{"id": "a", "n": 1, "x": 0.5}', FITS, ("a", 1, 0.5), None),
    ('{"id":"a"}', FITS, ("a", None, None), None),
    ("{}", FITS, (None, None, None), None),
    ('{"id": null, "n": null}', FITS, (None, None, None), None),
    ('  {"id": "a"} \t', FITS, ("a", None, None), None),
    ('{"id": "a}b{"}', FITS, ("a}b{", None, None), None),
    ('{"id": "}"} ', FITS, ("}", None, None), None),
    ('{"id": {"deep": [1, 2]}}', FITS, ('{"deep":[1,2]}', None, None), None),
    (
        '{"id": "a", "extra": {"v": [1, "2"]}}',
        RESCUED,
        ("a", None, None),
        {"extra": {"v": [1, "2"]}},
    ),
    ('{"id": "a", "n": "one"}', RESCUED, ("a", None, None), {"n": "one"}),
    ('{"id": "a", "n": 1.5}', RESCUED, ("a", None, None), {"n": 1.5}),
    (
        '{"id": "a", "n": 99999999999999999999}',
        RESCUED,
        ("a", None, None),
        {"n": 99999999999999999999},
    ),
    ('{"id": "a", "x": "fast", "n": 3}', RESCUED, ("a", 3, None), {"x": "fast"}),
    ('{"id": "a", "x": true, "new": null}', RESCUED, ("a", None, None), {"x": True, "new": None}),
    ('{"ID": "a"}', RESCUED, (None, None, None), {"ID": "a"}),
    ('{"id": "a", "ts": "no time"}', RESCUED, ("a", None, None), {"ts": "no time"}),
    ('{"id": "a", "_rescued_data": 1}', RESCUED, ("a", None, None), {"_rescued_data": 1}),
    ('{"id": "a"', CORRUPT, (None, None, None), None),
    ('{"id": "a", "n": 1', CORRUPT, (None, None, None), None),
    ('{"id": "a"} and more', CORRUPT, (None, None, None), None),
    ('{"id": "a"}{"id": "b"}', CORRUPT, (None, None, None), None),
    ('{"id": "a"},{"id": "b"}', CORRUPT, (None, None, None), None),
    ('{"id": "a"}]', CORRUPT, (None, None, None), None),
    ('{"id": "a"}], [{"id": "b"}', CORRUPT, (None, None, None), None),
    ('{"id": "a"}}', CORRUPT, (None, None, None), None),
    ('[{"id": "a"}]', CORRUPT, (None, None, None), None),
    ("{'id': 'a'}", CORRUPT, (None, None, None), None),
    ('{"id": "a",}', CORRUPT, (None, None, None), None),
    ('{"x": NaN}', CORRUPT, (None, None, None), None),
    ("42", CORRUPT, (None, None, None), None),
    ('"text"', CORRUPT, (None, None, None), None),
    ("null", CORRUPT, (None, None, None), None),
    ("not json at all", CORRUPT, (None, None, None), None),
    ("\ufeff{}", CORRUPT, (None, None, None), None),
]


def rows_of(spark: SparkSession, lines: Sequence[str], schema: Mapping[str, str]) -> list[Row]:
    """What lines become, in their order: all in one job."""
    frame = spark.createDataFrame(
        [(line, f"{number:06}") for number, line in enumerate(lines)],
        "value string, _source_file string",
    )
    found = parse(frame.selectExpr("*", "now() as _source_modified_at"), schema).collect()
    assert len(found) == len(lines)
    return sorted(found, key=lambda row: str(row["_source_file"]))


@pytest.fixture(scope="module")
def outcomes(spark: SparkSession) -> dict[str, tuple[object, ...]]:
    """Line to (id, n, x, rescued, corrupt)."""
    found = rows_of(spark, [line for line, *_ in LINES], SCHEMA)
    return {
        line: (row.id, row.n, row.x, row["_rescued_data"], row["_corrupt_record"])
        for (line, *_), row in zip(LINES, found, strict=True)
    }


@pytest.mark.parametrize(("line", "kind", "values", "rescued"), LINES, ids=[x[0] for x in LINES])
def test_line(
    outcomes: dict[str, tuple[object, ...]],
    line: str,
    kind: str,
    values: tuple[object, ...],
    rescued: object,
) -> None:
    *found, found_rescued, corrupt = outcomes[line]
    assert tuple(found) == values
    assert corrupt == (line if kind == CORRUPT else None)
    if kind == RESCUED:
        assert isinstance(found_rescued, str)
        assert json.loads(found_rescued) == rescued
    else:
        assert found_rescued is None


def test_a_field_named_twice_keeps_both_values(spark: SparkSession) -> None:
    line = '{"id": "a", "id": "b"}'
    (row,) = rows_of(spark, [line], SCHEMA)
    assert row["_rescued_data"] == line
    assert row["_corrupt_record"] is None


def test_times(spark: SparkSession) -> None:
    moment = calendar.timegm((2018, 3, 2, 10, 2, 33))
    written: list[object] = [
        "2018-03-02T10:02:33Z",
        "2018-03-02T10:02:33",
        "2018-03-02T11:02:33+01:00",
        "2018-03-02T10:02:33.000+0000",
        "2018-03-02 10:02:33",
        moment,
    ]
    rows = rows_of(spark, [json.dumps({"ts": each}) for each in written], SCHEMA)
    found = [(row.ts.replace(tzinfo=UTC).timestamp(), row["_rescued_data"]) for row in rows]
    assert found == [(moment, None)] * len(written)


NESTED_VALUES: list[tuple[dict[str, object], bool]] = [
    ({}, False),
    ({"at": None}, False),
    ({"at": {"lat": 1, "tags": ["a", None], "in": {"n": 1}}}, False),
    ({"at": {"in": {"n": None}, "lat": None, "tags": None}}, False),
    ({"at": {"tags": []}, "ways": []}, False),
    ({"ways": [{"x": 1.5}, None, {"x": None}, {}]}, False),
    ({"at": {"lat": "north"}}, True),
    ({"at": {"alt": 1}}, True),
    ({"at": {"in": {"n": 1.5}}}, True),
    ({"at": {"in": {"m": 1}}}, True),
    ({"at": {"tags": "a"}}, True),
    ({"at": [1]}, True),
    ({"at": "here"}, True),
    ({"ways": [{"x": 1}, {"x": "far"}]}, True),
    ({"ways": [{"x": 1, "y": 2}]}, True),
    ({"ways": {"x": 1}}, True),
    ({"ways": [1]}, True),
]


def test_a_nested_value_is_taken_whole_or_kept(spark: SparkSession) -> None:
    lines = [json.dumps(value) for value, _ in NESTED_VALUES]
    rows = rows_of(spark, lines, NESTED)
    assert [row["_corrupt_record"] for row in rows] == [None] * len(lines)
    kept = [
        (line, json.loads(row["_rescued_data"] or "{}"))
        for line, row in zip(lines, rows, strict=True)
    ]
    by_hand = [value if is_kept else {} for value, is_kept in NESTED_VALUES]
    assert kept == list(zip(lines, by_hand, strict=True))


def test_a_line_that_is_not_utf8_loses_no_byte(spark: SparkSession) -> None:
    raw = b'{"id": "caf\xe9"}'
    frame = spark.createDataFrame([(bytearray(raw), "f")], "raw binary, _source_file string")
    lines = frame.selectExpr(
        "cast(raw as string) as value", "_source_file", "now() as _source_modified_at"
    )
    row = parse(lines, SCHEMA).collect()[0]
    assert row.id is None
    assert row["_corrupt_record"].encode("latin-1") == raw


UNDATED = ['"2018"', '"10115"', '"1234-5"', '"-2018"', '"2018-03"', '"2018-03    "', '" 2018"']
UNDATED += ['"10:02"', '"T1:2:3"', '"1:02:03-08:00"']


def test_a_text_without_a_whole_date_is_no_time(spark: SparkSession) -> None:
    """Spark takes it for a year, a month or a time of today."""
    lines = [f'{{"ts":{written}}}' for written in UNDATED]
    lines += [f'{{"at":{{"since":[{written}]}}}}' for written in UNDATED]
    rows = rows_of(spark, lines, {"ts": "timestamp", "at": "struct<since:array<timestamp>>"})
    assert [json.loads(row["_rescued_data"] or "{}") for row in rows] == list(
        map(json.loads, lines)
    )
    assert [row.ts for row in rows] == [None] * len(lines)


def test_few_seconds_are_a_time(spark: SparkSession) -> None:
    lines = ['{"ts":10115}', '{"ts": 10115, "id": "10115 Berlin"}']
    found = rows_of(spark, lines, SCHEMA)
    times = [(row.ts.replace(tzinfo=UTC).timestamp(), row["_rescued_data"]) for row in found]
    assert times == [(10115, None)] * 2

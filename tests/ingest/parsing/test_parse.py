"""Every line is kept: what each kind of line becomes."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from medallion.ingest.parsing.fast_path import LineLayout
from medallion.ingest.parsing.parse import parse_lines
from tests.support.parsing import rows_of

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
    ('{"ID": "a"}', FITS, ("a", None, None), None),
    ('{"id": "a", "ts": "no time"}', RESCUED, ("a", None, None), {"ts": "no time"}),
    ('{"id": "a", "_rescued_data": 1}', RESCUED, ("a", None, None), {"_rescued_data": 1}),
    ('{"id": "a", "n": 10.0, "new": 10}', RESCUED, ("a", None, None), {"n": 10, "new": 10}),
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
    # To Jackson the digits of an escape are the low bytes of any letters.
    (r'{"id":"\u00š1"}', CORRUPT, (None, None, None), None),
    (r'{"id":"\u12İ0","new":1}', CORRUPT, (None, None, None), None),
    (r'{"\u00Ł1":1}', CORRUPT, (None, None, None), None),
    (r'{"id":"\\u12İ0"}', FITS, (r"\u12İ0", None, None), None),
    (
        '{"id": "a", "ts": "2018-03-02T1:2:3BST"}',
        RESCUED,
        ("a", None, None),
        {"ts": "2018-03-02T1:2:3BST"},
    ),
    (
        '{"id": "a", "ts": "2018-03-02T10:02:3NZ"}',
        RESCUED,
        ("a", None, None),
        {"ts": "2018-03-02T10:02:3NZ"},
    ),
    ('{"id": "a",}', CORRUPT, (None, None, None), None),
    ('{"x": NaNs}', CORRUPT, (None, None, None), None),
    ("42", CORRUPT, (None, None, None), None),
    ('"text"', CORRUPT, (None, None, None), None),
    ("null", CORRUPT, (None, None, None), None),
    ("not json at all", CORRUPT, (None, None, None), None),
    ("\ufeff{}", CORRUPT, (None, None, None), None),
]


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
    kept = [json.loads(row["_rescued_data"] or "{}") for row in rows]
    by_hand = [value if is_kept else {} for value, is_kept in NESTED_VALUES]
    assert dict(zip(lines, kept, strict=True)) == dict(zip(lines, by_hand, strict=True))


@pytest.mark.parametrize("raw", [b'{"id": "caf\xe9"}', b'{"id": "\\n caf\xe9"}'])
def test_a_line_that_is_not_utf8_loses_no_byte(spark: SparkSession, raw: bytes) -> None:
    frame = spark.createDataFrame([(bytearray(raw), "f")], "raw binary, _source_file string")
    lines = frame.selectExpr(
        "cast(raw as string) as value", "_source_file", "now() as _source_modified_at"
    )
    row = parse_lines(lines, SCHEMA).collect()[0]
    assert row.id is None
    assert row["_corrupt_record"].encode("latin-1") == raw


def test_a_number_of_seconds_beside_a_text_that_begins_like_it(spark: SparkSession) -> None:
    (row,) = rows_of(spark, ['{"ts": 10115, "id": "10115 Berlin"}'], SCHEMA)
    assert (row.ts.timestamp(), row.id) == (10115, "10115 Berlin")
    assert row["_rescued_data"] is None


LONG = 30_000  # 3,000 end a thread with a stack of 1 MiB, as tests have it
LONG_TEXTS = [
    *("a" * LONG, "1" * LONG, "0.1" * LONG, "1e-" * LONG, ", " * LONG, "-" * LONG, " " * LONG),
    *("[" * LONG, "{" * LONG, '"' * LONG, "\\" * LONG, ":,[1" * LONG, "é😀" * LONG, "a\n" * LONG),
    *("e-" + "0" * LONG, "1." + "2" * LONG, "2018-" * LONG, "2018-03-02T" + "1" * LONG),
    "2018-03-02T10:02:33." + "0" * LONG + "1",
]


def test_long_texts_need_no_stack(spark: SparkSession) -> None:
    """A pattern of alternatives that repeat ends a thread, and whole numbers took minutes."""
    schema = {"id": "string", "ts": "timestamp", "at": "struct<tags:array<string>,since:date>"}
    values = [
        *({"id": text} for text in LONG_TEXTS),
        *({"at": {"tags": [text]}} for text in LONG_TEXTS),
        *({"ts": text} for text in LONG_TEXTS),
        *({"at": {"since": text}} for text in LONG_TEXTS),
        *({"new": [text]} for text in LONG_TEXTS),
    ]
    found = rows_of(spark, [json.dumps(value) for value in values], schema)
    for number, value in enumerate(values):
        row, is_column = found[number], number < 2 * len(LONG_TEXTS)
        said = {"id": row.id} if row.id is not None else {"at": {"tags": row.at and row.at.tags}}
        assert not is_column or said == value
        assert json.loads(row["_rescued_data"] or "{}") == ({} if is_column else value)
        assert row["_corrupt_record"] is None


def test_lines_of_any_depth_are_kept(spark: SparkSession) -> None:
    every = [300, 900, 1_000, 100_000, 1_000_000]
    deep = [
        (levels, name, text)
        for levels in every
        for text in ("[" * levels + "]" * levels, '{"a":' * levels + "1" + "}" * levels)
        for name in ("new", "at", "id", "ts")
    ]
    lines = [f'{{"{name}":{text}}}' for _, name, text in deep]
    found = rows_of(spark, lines, NESTED | {"ts": "timestamp"})
    for (levels, name, _), line, row in zip(deep, lines, found, strict=True):
        kept = row["_corrupt_record"] or row["_rescued_data"] or f'{{"{name}":{row.id}}}'
        assert kept == line, (levels, name)
        # Beyond 1,000 levels a parser may refuse it: RFC 8259, section 9.
        assert (row["_corrupt_record"] is None) == (levels < 1_000), (levels, name)


HOSTILE = [
    *("7" * 1_001, "0." + "7" * 1_001, "1e400", "-1e-400", "1e99999999999", "1.50", "10.0", "-0"),
    *("[" * 900 + "]" * 900, '{"a":' * 990 + "1" + "}" * 990, '{"a":1,"a":2}', '[1e400,"b"]'),
    *(r'"\ud800"', r'"\u0061"', '"\t"', '"a\tb"', r'"a\"b"', "NaN", "tru", "null", '"Infinity"'),
    *("'a'", '"2018-03-02T10:02:33Z"', '"",""', '1}{"id":"b"', '1,"id":"b"', "1,", '"é😀"'),
]


@pytest.mark.parametrize("like", ['{"id":"a","new":1,"n":1}', '{"new":"b","ts":"c","id":"a"}'])
def test_what_becomes_of_a_line_does_not_depend_on_the_lines_before(
    spark: SparkSession, like: str
) -> None:
    """Fields that the schema does not know are parsed, too, where the first lines have them."""
    shapes = ['{"id":"a","new":%s,"n":1}', '{"new":%s,"ts":"2018-03-02T10:02:33Z","id":"a"}']
    shapes += ['{"new":%s,"new":1}', '{"id":%s,"new":1,"n":1}', '{"new":"b","ts":%s,"id":"a"}']
    lines = [shape.replace("%s", value) for shape in shapes for value in HOSTILE]
    frame = spark.createDataFrame([(line, line) for line in lines], "value string, line string")
    layout = LineLayout.from_lines([like], SCHEMA)
    assert layout.quotes.keys() == {"new"}
    found = {
        row.line: row for row in parse_lines(frame, SCHEMA, layout).drop("_ingested_at").collect()
    }
    for row in parse_lines(frame, SCHEMA).drop("_ingested_at").collect():
        other = found[row.line].asDict()
        kept, also = row["_rescued_data"], other["_rescued_data"]
        if kept != also:  # as the line says it, where the line was kept, or another spelling
            said = json.loads(row.line)
            assert json.loads(also) == {"new": said["new"]}, row.line
            assert kept == row.line or json.loads(kept) == {"new": said["new"]}
        assert other | {"_rescued_data": kept} == row.asDict(), row.line

"""Every line is kept: as columns, rescued data or a corrupt record."""

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

# Line, result, the values of id, n and x, and rescued data.
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
    # Jackson reads the low bytes of any letters as the digits of an escape.
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
    """Map each line to (id, n, x, rescued, corrupt)."""
    rows = rows_of(spark, [line for line, *_ in LINES], SCHEMA)
    return {
        line: (row.id, row.n, row.x, row["_rescued_data"], row["_corrupt_record"])
        for (line, *_), row in zip(LINES, rows, strict=True)
    }


@pytest.mark.parametrize(
    ("line", "result", "values", "rescued"), LINES, ids=[case[0] for case in LINES]
)
def test_line(
    outcomes: dict[str, tuple[object, ...]],
    line: str,
    result: str,
    values: tuple[object, ...],
    rescued: object,
) -> None:
    *columns, rescued_json, corrupt = outcomes[line]
    assert tuple(columns) == values
    assert corrupt == (line if result == CORRUPT else None)
    if result == RESCUED:
        assert isinstance(rescued_json, str)
        assert json.loads(rescued_json) == rescued
    else:
        assert rescued_json is None


@pytest.mark.usefixtures("interpreted")
def test_duplicate_field_keeps_both_values(spark: SparkSession) -> None:
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


def test_nested_value_fits_or_is_rescued(spark: SparkSession) -> None:
    lines = [json.dumps(value) for value, _ in NESTED_VALUES]
    rows = rows_of(spark, lines, NESTED)
    assert [row["_corrupt_record"] for row in rows] == [None] * len(lines)
    rescued = [json.loads(row["_rescued_data"] or "{}") for row in rows]
    expected = [value if is_rescued else {} for value, is_rescued in NESTED_VALUES]
    assert dict(zip(lines, rescued, strict=True)) == dict(zip(lines, expected, strict=True))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("raw", [b'{"id": "caf\xe9"}', b'{"id": "\\n caf\xe9"}'])
def test_line_that_is_not_utf8_keeps_its_bytes(spark: SparkSession, raw: bytes) -> None:
    frame = spark.createDataFrame([(bytearray(raw), "f")], "raw binary, _source_file string")
    lines = frame.selectExpr(
        "cast(raw as string) as value", "_source_file", "now() as _source_modified_at"
    )
    row = parse_lines(lines, SCHEMA).collect()[0]
    assert row.id is None
    assert row["_corrupt_record"].encode("latin-1") == raw


@pytest.mark.usefixtures("interpreted")
def test_epoch_seconds_and_string_with_the_same_digits(spark: SparkSession) -> None:
    (row,) = rows_of(spark, ['{"ts": 10115, "id": "10115 Berlin"}'], SCHEMA)
    assert (row.ts.timestamp(), row.id) == (10115, "10115 Berlin")
    assert row["_rescued_data"] is None


LONG = 30_000  # 3,000 overflow a stack of 1 MiB, which threads have in tests
LONG_STRINGS = [
    *("a" * LONG, "1" * LONG, "0.1" * LONG, "1e-" * LONG, ", " * LONG, "-" * LONG, " " * LONG),
    *("[" * LONG, "{" * LONG, '"' * LONG, "\\" * LONG, ":,[1" * LONG, "é😀" * LONG, "a\n" * LONG),
    *("e-" + "0" * LONG, "1." + "2" * LONG, "2018-" * LONG, "2018-03-02T" + "1" * LONG),
    "2018-03-02T10:02:33." + "0" * LONG + "1",
]


def test_long_strings_do_not_overflow_the_stack(spark: SparkSession) -> None:
    """A regex with repeated alternatives overflows the stack; long integers took minutes."""
    schema = {"id": "string", "ts": "timestamp", "at": "struct<tags:array<string>,since:date>"}
    values = [
        *({"id": text} for text in LONG_STRINGS),
        *({"at": {"tags": [text]}} for text in LONG_STRINGS),
        *({"ts": text} for text in LONG_STRINGS),
        *({"at": {"since": text}} for text in LONG_STRINGS),
        *({"new": [text]} for text in LONG_STRINGS),
    ]
    rows = rows_of(spark, [json.dumps(value) for value in values], schema)
    for number, value in enumerate(values):
        row, is_column = rows[number], number < 2 * len(LONG_STRINGS)
        value_in_row = (
            {"id": row.id} if row.id is not None else {"at": {"tags": row.at and row.at.tags}}
        )
        assert not is_column or value_in_row == value
        assert json.loads(row["_rescued_data"] or "{}") == ({} if is_column else value)
        assert row["_corrupt_record"] is None


def test_deeply_nested_lines_are_kept(spark: SparkSession) -> None:
    depths = [300, 900, 1_000, 100_000]
    cases = [
        (levels, name, text)
        for levels in depths
        for text in ("[" * levels + "]" * levels, '{"a":' * levels + "1" + "}" * levels)
        for name in ("new", "at", "id", "ts")
    ]
    lines = [f'{{"{name}":{text}}}' for _, name, text in cases]
    rows = rows_of(spark, lines, NESTED | {"ts": "timestamp"})
    for (levels, name, _), line, row in zip(cases, lines, rows, strict=True):
        rescued = row["_corrupt_record"] or row["_rescued_data"] or f'{{"{name}":{row.id}}}'
        assert rescued == line, (levels, name)
        # A parser may reject more than 1,000 levels: RFC 8259, section 9.
        assert (row["_corrupt_record"] is None) == (levels < 1_000), (levels, name)


HOSTILE = [
    *("7" * 1_001, "0." + "7" * 1_001, "1e400", "-1e-400", "1e99999999999", "1.50", "10.0", "-0"),
    *("[" * 900 + "]" * 900, '{"a":' * 990 + "1" + "}" * 990, '{"a":1,"a":2}', '[1e400,"b"]'),
    *(r'"\ud800"', r'"\u0061"', '"\t"', '"a\tb"', r'"a\"b"', "NaN", "tru", "null", '"Infinity"'),
    *("'a'", '"2018-03-02T10:02:33Z"', '"",""', '1}{"id":"b"', '1,"id":"b"', "1,", '"é😀"'),
]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    "layout_line", ['{"id":"a","new":1,"n":1}', '{"new":"b","ts":"c","id":"a"}']
)
def test_layout_does_not_change_results(spark: SparkSession, layout_line: str) -> None:
    """Unknown fields are parsed too if the first lines have them."""
    shapes = ['{"id":"a","new":%s,"n":1}', '{"new":%s,"ts":"2018-03-02T10:02:33Z","id":"a"}']
    shapes += ['{"new":%s,"new":1}', '{"id":%s,"new":1,"n":1}', '{"new":"b","ts":%s,"id":"a"}']
    lines = [shape.replace("%s", value) for shape in shapes for value in HOSTILE]
    frame = spark.createDataFrame([(line, line) for line in lines], "value string, line string")
    layout = LineLayout.from_lines([layout_line], SCHEMA)
    assert layout.quotes.keys() == {"new"}
    rows = {
        row.line: row for row in parse_lines(frame, SCHEMA, layout).drop("_ingested_at").collect()
    }
    for row in parse_lines(frame, SCHEMA).drop("_ingested_at").collect():
        other = rows[row.line].asDict()
        rescued, rescued_by_layout = row["_rescued_data"], other["_rescued_data"]
        if rescued != rescued_by_layout:  # the complete line, or another spelling of the value
            fields = json.loads(row.line)
            assert json.loads(rescued_by_layout) == {"new": fields["new"]}, row.line
            assert rescued == row.line or json.loads(rescued) == {"new": fields["new"]}
        assert other | {"_rescued_data": rescued} == row.asDict(), row.line

"""Time formats of `hints` and `schema`, and Python's tokens that are not JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from medallion.ingest.parsing.parse import parse_lines
from medallion.ingest.parsing.typed import typed_column_name

pytestmark = pytest.mark.usefixtures("interpreted")

MICROS = "2026-05-01 10:00:00.605139"
CASES: list[tuple[str, str, str | None]] = [
    ("timestamp_seconds", "1777629600", "2026-05-01 10:00:00"),
    ("timestamp_seconds", "1777629600.605139", MICROS),  # Zeek
    ("timestamp_seconds", '"1777629600.605139"', MICROS),
    ("timestamp_seconds", "-1", "1969-12-31 23:59:59"),
    ("timestamp_seconds", '"soon"', None),
    ("timestamp_seconds", "true", None),
    ("timestamp_seconds", "1777629600000", None),  # the year 58,300
    ("timestamp_millis", "1777629600605", "2026-05-01 10:00:00.605"),
    ("timestamp_millis", '"1777629600605"', "2026-05-01 10:00:00.605"),
    ("timestamp_millis", "1777629600605.139", MICROS),
    ("timestamp_micros", "1777629600605139", MICROS),
    ("timestamp_nanos", "1777629600605139000", MICROS),
    ("timestamp_nanos", "1777629600605139999", MICROS),  # rounded down
    ("timestamp_millis", '"2026-05-01"', None),
    ("timestamp 'dd.MM.yyyy HH:mm'", '"01.05.2026 10:00"', "2026-05-01 10:00:00"),
    ("timestamp 'dd.MM.yyyy HH:mm'", '"2026-05-01"', None),
    ("timestamp 'dd.MM.yyyy'", '"31.02.2026"', None),
    ("timestamp 'dd/MMM/yyyy:HH:mm:ss Z'", '"01/May/2026:12:00:00 +0200"', "2026-05-01 10:00:00"),
    ("timestamp 'yyyyMMdd'", "20260501", "2026-05-01 00:00:00"),
    ("timestamp \"yyyy-MM-dd'T'HH\"".replace('"', "'"), '"2026-05-01T10"', "2026-05-01 10:00:00"),
]


SHAPES = ['{{"id":"a","{}":{}}}', '{{"{}": {}, "ID": "a"}}', '{{"{}":{},"x":1}}']


def test_time_formats_of_json(spark: SparkSession) -> None:
    """Each format is of a field of its own, so that one job reads all cases."""
    dtypes = list(dict.fromkeys(dtype for dtype, *_ in CASES))
    names = {dtype: f"sent at {number}" for number, dtype in enumerate(dtypes)}
    cases = [
        (shape.format(names[dtype], value), names[dtype], expected_time)
        for dtype, value, expected_time in CASES
        for shape in SHAPES
    ]
    lines = [(line, number) for number, (line, *_) in enumerate(cases)]
    columns = {name.replace(" ", "_"): "timestamp" for name in names.values()}
    fields = {"id": "string", **{name: dtype for dtype, name in names.items()}}
    frame = spark.createDataFrame(lines, "value string, n int")
    parsed = parse_lines(frame, {"id": "string", **columns}, None, fields)
    as_strings = [F.col(column).cast("string").alias(f"{column}_text") for column in columns]
    rows = parsed.select("*", *as_strings).orderBy("n").collect()
    for row, (line, name, expected_time) in zip(rows, cases, strict=True):
        column = name.replace(" ", "_")
        assert row[f"{column}_text"] == expected_time, line
        assert [other for other in columns if other != column and row[other]] == [], line
        rescued = json.loads(row["_rescued_data"] or "{}")
        assert (name in rescued) == (expected_time is None), line
        assert row["_corrupt_record"] is None


def test_time_format_of_typed_columns(spark: SparkSession) -> None:
    values = spark.sql("select 1777629600605L as ms, '01.05.2026' as day, true as no")
    typed = [
        F.col(field.name).alias(typed_column_name(n, field.name, field.dataType))
        for n, field in enumerate(values.schema)
    ]
    columns = dict.fromkeys(("ms", "day", "no"), "timestamp")
    formats = {"ms": "timestamp_millis", "day": "timestamp 'dd.MM.yyyy'", "no": "timestamp_seconds"}
    (row,) = parse_lines(values.select(*typed), columns, None, formats).collect()
    assert (str(row.ms), str(row.day)) == ("2026-05-01 10:00:00.605000", "2026-05-01 00:00:00")
    assert (row.no, json.loads(row["_rescued_data"])) == (None, {"no": True})


TOKENS: dict[str, tuple[Any, ...]] = {
    '{"x": NaN, "s": "NaN, \\"Infinity\\"", "n": 1}': (None, 'NaN, "Infinity"', 1, {"x": "NaN"}),
    '{"s": -Infinity, "n": -1, "list": [NaN, 1]}': (
        *(None, "-Infinity", -1, {"list": ["NaN", 1]}),
    ),
}


def test_tokens_of_python_are_strings(spark: SparkSession) -> None:
    columns = {"x": "double", "s": "string", "n": "long"}
    lines = [*TOKENS, '{"x": NaNo}', '{"x": NaN']
    frame = spark.createDataFrame(list(enumerate(lines)), "at int, value string")
    rows = parse_lines(frame, columns).orderBy("at").collect()
    for row, expected in zip(rows, TOKENS.values(), strict=False):
        assert (row.x, row.s, row.n, json.loads(row["_rescued_data"])) == expected
    assert [row["_corrupt_record"] for row in rows[2:]] == lines[2:]

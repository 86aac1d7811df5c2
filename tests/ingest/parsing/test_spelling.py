"""Field names that differ from column names only in case, compared with a model in Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.ingest.files.decode import _spelled
from medallion.ingest.parsing.fast_path import LineLayout
from medallion.ingest.parsing.parse import parse_lines
from tests.support.parsing import rows_of

pytestmark = pytest.mark.usefixtures("interpreted")

SCHEMA = {"id": "string", "Amount": "double", "at": "timestamp", "größe": "long"}
GOOD = {"id": "a", "Amount": 2.5, "at": "2026-05-01T10:00:00Z", "größe": 7}


def record(random: Random) -> dict[str, Any]:
    """Return an object with some known and unknown fields, in one or two spellings."""
    fields: dict[str, Any] = {}
    for name in [*SCHEMA, "new"]:
        for _ in range(random.choice([0, 1, 1, 1, 1, 2])):
            spelled = random.choice([name, name, name.lower(), name.upper(), name.capitalize()])
            value = "odd" if random.random() < 0.1 else GOOD.get(name, "n")
            fields[spelled.replace("SS", "ß")] = value
    shuffled = list(fields.items())
    random.shuffle(shuffled)
    return dict(shuffled)


def expected(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields under their column names, if only one of them matches the column."""
    columns = {name.lower(): name for name in SCHEMA}
    names = [name.lower() for name in fields]
    return {
        columns.get(name.lower(), name) if names.count(name.lower()) == 1 else name: value
        for name, value in fields.items()
    }


def test_records_with_any_spelling(spark: SparkSession) -> None:
    random = Random(7)
    records = [record(random) for _ in range(600)]
    rows = rows_of(spark, [json.dumps(each, ensure_ascii=False) for each in records], SCHEMA)
    respelled = 0
    for each, row in zip(records, rows, strict=True):
        model = expected(each)
        assert row["_corrupt_record"] is None
        fit = {n: v for n, v in model.items() if n == "id" or (n in SCHEMA and v == GOOD[n])}
        rest = {name: value for name, value in model.items() if name not in fit}
        assert json.loads(row["_rescued_data"] or "{}") == rest, each
        for name in SCHEMA:
            value = GOOD["at"] if name == "at" and row["at"] is not None else row[name]
            assert value == fit.get(name), (each, name)
        respelled += len(model.keys() & SCHEMA - each.keys())
    assert respelled > 600


LINES: list[tuple[str, tuple[object, ...], object]] = [
    ('{"ID": "a", "amount": 10.0}', ("a", 10.0), None),
    ('{"ID": "a", "id": "b"}', ("b", None), {"ID": "a"}),
    ('{"ID": "a", "Id": "b", "AMOUNT": 1}', (None, 1.0), {"ID": "a", "Id": "b"}),
    ('{"ID": "a", "AMOUNT": "x", "N": 1}', ("a", None), {"Amount": "x", "N": 1}),
    # Text of the line: VARIANT would sort the fields and change 1.0 to 1.
    ('{"id": {"b": 1.0, "a": 2}, "AMOUNT": 1}', ('{"b":1.0,"a":2}', 1.0), None),
    # A number that would become an integer or invalid: the line is kept as it is.
    ('{"ID": "a", "new": 10.0}', ("a", None), {"ID": "a", "new": 10.0}),
    ('{"ID": "a", "new": 1e400}', (None, None), {"ID": "a", "new": float("inf")}),
    ('{"ID": "a", "ID": "b"}', (None, None), {"ID": "b"}),
]


def test_lines_with_other_spellings(spark: SparkSession) -> None:
    rows = rows_of(spark, [line for line, *_ in LINES], {"id": "string", "Amount": "double"})
    for (line, values, rescued), row in zip(LINES, rows, strict=True):
        assert (row.id, row.Amount) == values, line
        assert json.loads(row["_rescued_data"] or "null") == rescued, line
        assert row["_corrupt_record"] is None


def test_corrupt_line_keeps_its_spelling(spark: SparkSession) -> None:
    (row,) = rows_of(spark, ['{"ID": "a"} and more'], {"id": "string"})
    assert (row.id, row["_corrupt_record"]) == (None, '{"ID": "a"} and more')


def test_layout_with_other_spellings(spark: SparkSession) -> None:
    """The layout has fields that are not in the schema."""
    lines = [f'{{"ID":"a{n}","AMOUNT":{n}.5,"new":{n}}}' for n in range(3)]
    schema = {"id": "string", "Amount": "double"}
    layout = LineLayout.from_lines(lines, schema)
    frame = spark.createDataFrame([(line,) for line in lines], "value string")
    rows = parse_lines(frame, schema, layout).orderBy("id").collect()
    assert [(row.id, row.Amount, row["_rescued_data"]) for row in rows] == [
        (f"a{n}", n + 0.5, f'{{"new":{n}}}') for n in range(3)
    ]


def test_header_names_are_spelled_like_columns() -> None:
    assert _spelled(["ID", "amount", "x"], SCHEMA) == ["id", "Amount", "x"]
    assert _spelled(["ID", "id", "AMOUNT"], SCHEMA) == ["ID", "id", "Amount"]
    assert _spelled(["Größe", "größe"], SCHEMA) == ["Größe", "größe"]

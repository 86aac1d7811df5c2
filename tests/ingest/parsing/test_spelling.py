"""Fields whose names differ from a column's only in case, beside a model in Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from medallion.ingest.parsing.fast_path import LineLayout
from medallion.ingest.parsing.parse import parse_lines
from medallion.ingest.schema.columns import spell_as_columns
from tests.support.parsing import rows_of

SCHEMA = {"id": "string", "Amount": "double", "at": "timestamp", "größe": "long"}
USER = "struct<plan:string,Items:array<struct<Sku:long>>,home:struct<City:string>>"
NESTED = SCHEMA | {"user": USER}
# The names of fields within each, and what is within those.
NAMES: dict[str, Any] = {name: {} for name in SCHEMA}
NAMES["user"] = {"plan": {}, "Items": {"Sku": {}}, "home": {"City": {}}}
TIME = "2026-05-01T10:00:00Z"


def expected(value: Any, names: Mapping[str, Any]) -> Any:
    """The value with the names of the columns, where one of its fields can have each."""
    if isinstance(value, list):
        return [expected(item, names) for item in value]
    if not isinstance(value, dict) or not names:
        return value
    spelled = {name.lower(): name for name in names}
    found = {}
    for name, inner in value.items():
        is_single = sum(other.lower() == name.lower() for other in value) == 1
        known = spelled.get(str(name).lower(), str(name)) if is_single else str(name)
        found[known] = expected(inner, names.get(known, {}))
    return found


def fits(value: Any, name: str) -> bool:
    """Whether a column or a field within one holds a value of those that `record` makes."""
    if name == "user":
        return set(value) <= {"plan", "Items", "home"} and all(fits(v, n) for n, v in value.items())
    if name == "Items":
        return all(set(item) <= {"Sku"} and fits(item.get("Sku", 0), "Sku") for item in value)
    if name == "home":
        return set(value) <= {"City"}
    if name in ("größe", "Sku"):
        return type(value) is int
    if name == "Amount":
        return type(value) is float
    return name in ("id", "plan", "City") or value == TIME


def as_json(value: Any) -> Any:
    """A column's value as JSON has it."""
    if isinstance(value, Row):
        return {n: as_json(v) for n, v in value.asDict().items() if v is not None}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return TIME if hasattr(value, "year") else value


def record(random: Random, names: Mapping[str, Any]) -> dict[str, Any]:
    """An object with some of the fields, and others, in one spelling or two."""
    found: dict[str, Any] = {}
    for name in [*names, "new"]:
        for _ in range(random.choice([0, 1, 1, 1, 1, 2])):
            spelled = random.choice([name, name, name.lower(), name.upper(), name.capitalize()])
            found[spelled.replace("SS", "ß")] = random_value(random, name, names.get(name, {}))
    fields = list(found.items())
    random.shuffle(fields)
    return dict(fields)


def random_value(random: Random, name: str, names: Mapping[str, Any]) -> Any:
    if name == "Items":
        return [record(random, names) for _ in range(random.randrange(3))]
    if names:
        return record(random, names)
    good = {"Amount": 2.5, "at": TIME, "größe": 7, "Sku": 8}.get(name, f"a {name}")
    return "odd" if random.random() < 0.1 else good


@pytest.mark.parametrize("schema", [SCHEMA, NESTED], ids=["flat", "nested"])
def test_records_with_any_spelling(spark: SparkSession, schema: dict[str, str]) -> None:
    random = Random(7)
    names = {name: NAMES[name] for name in schema}
    records = [record(random, names) for _ in range(600)]
    rows = rows_of(spark, [json.dumps(each, ensure_ascii=False) for each in records], schema)
    moved = 0
    for each, row in zip(records, rows, strict=True):
        model = expected(each, names)
        assert row["_corrupt_record"] is None
        kept = {name: value for name, value in model.items() if name not in schema}
        for name in schema:
            value = model.get(name)
            if name in model and not fits(value, name):
                kept[name] = value
            elif name != "user":
                assert as_json(row[name]) == value, (each, name)
            elif value is not None:
                assert without_empty(as_json(row.user)) == without_empty(value), each
        assert json.loads(row["_rescued_data"] or "{}") == kept, each
        moved += len(model.keys() & schema - each.keys())
    assert moved > 600


def without_empty(value: Any) -> Any:
    """The value without objects that have no fields: a struct always has all of its fields."""
    if isinstance(value, dict):
        return {n: v for n, inner in value.items() if (v := without_empty(inner)) != {}}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


LINES: list[tuple[str, tuple[object, ...], object]] = [
    ('{"ID": "a", "amount": 10.0}', ("a", 10.0), None),
    ('{"ID": "a", "id": "b"}', ("b", None), {"ID": "a"}),
    ('{"ID": "a", "Id": "b", "AMOUNT": 1}', (None, 1.0), {"ID": "a", "Id": "b"}),
    ('{"ID": "a", "AMOUNT": "x", "N": 1}', ("a", None), {"Amount": "x", "N": 1}),
    # As the line has it: VARIANT would sort the fields, and make 1.0 of it 1.
    ('{"id": {"b": 1.0, "a": 2}, "AMOUNT": 1}', ('{"b":1.0,"a":2}', 1.0), None),
    # A number that would become a whole one, or none at all: the line stays as it came.
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


def test_a_line_that_is_not_json_keeps_its_names(spark: SparkSession) -> None:
    (row,) = rows_of(spark, ['{"ID": "a"} and more'], {"id": "string"})
    assert (row.id, row["_corrupt_record"]) == (None, '{"ID": "a"} and more')


def test_lines_that_are_all_spelled_otherwise(spark: SparkSession) -> None:
    """Their layout has fields that the schema does not know."""
    lines = [f'{{"ID":"a{n}","AMOUNT":{n}.5,"new":{n}}}' for n in range(3)]
    schema = {"id": "string", "Amount": "double"}
    layout = LineLayout.of(lines, schema)
    frame = spark.createDataFrame([(line,) for line in lines], "value string")
    rows = parse_lines(frame, schema, layout).orderBy("id").collect()
    assert [(row.id, row.Amount, row["_rescued_data"]) for row in rows] == [
        (f"a{n}", n + 0.5, f'{{"new":{n}}}') for n in range(3)
    ]


def test_names_of_a_header_as_columns_spell_them() -> None:
    assert spell_as_columns(["ID", "amount", "x"], SCHEMA) == ["id", "Amount", "x"]
    assert spell_as_columns(["ID", "id", "AMOUNT"], SCHEMA) == ["ID", "id", "Amount"]
    assert spell_as_columns(["Größe", "größe"], SCHEMA) == ["Größe", "größe"]

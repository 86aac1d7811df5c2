"""Fields of a line that did not fit: SQL over the row agrees with a walk through the line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.ingest.parsing.parse import parse_lines
from medallion.ingest.parsing.rescued import rescued_fields, rescued_rule_names

USER = "struct<name:string,age:long,at:struct<lat:double,open:boolean>>"
SCHEMA = {
    "n": "long",
    "text": "string",
    "user": USER,
    "items": "array<struct<sku:string,q:long>>",
    "nums": "array<long>",
}


def columns() -> dict[str, T.DataType]:
    """Return the schema as Spark types; parsing them needs a session."""
    return {name: T.DataType.fromDDL(dtype) for name, dtype in SCHEMA.items()}


class Pairs(list[tuple[str, Any]]):
    """A JSON object, possibly with duplicate fields."""


def to_json(value: Any) -> str:
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{json.dumps(n)}: {to_json(v)}" for n, v in value) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(to_json, value))}]"
    return json.dumps(value)


def parse(spark: SparkSession, lines: list[str]) -> list[Row]:
    """Return bronze's rows in the order of the lines, with the fields that did not fit."""
    numbered = spark.createDataFrame(list(enumerate(lines)), "at int, value string")
    rows = parse_lines(numbered, SCHEMA).withColumn("fields", F.expr(rescued_fields(columns())))
    return rows.orderBy("at").collect()


def fields_of(row: Row) -> dict[str, str]:
    return {".".join(field.path): field.example for field in row.fields or ()}


@pytest.fixture(scope="module")
def cases(spark: SparkSession) -> dict[str, Row]:
    return dict(zip(CASES, parse(spark, list(CASES)), strict=True))


CASES: dict[str, dict[str, str]] = {
    '{"n": 1, "text": "a"}': {},
    '{"n": 12.5}': {"n": "12.5"},
    '{"n": "30", "new": 1}': {"n": "30"},
    '{"n": null, "new": {"n": 1}}': {},
    '{"n": 1, "n": 2}': {"n": "1"},
    '{"n": null, "n": 1, "n": 2}': {"n": "null"},
    '{"new": 1, "new": 2, "n": 3}': {},
    '{"N": 5}': {},
    '{"n": 1, "N": 5}': {},
    '{"n": 99999999999999999999, "text": "%s"}' % ("x" * 50): {"n": "99999999999999999999"},
    '{"user": "%s"}' % ("y" * 50): {"user": "y" * 40},
    '{"user": {"name": "a", "plan": "pro"}}': {"user.plan": "pro"},
    '{"user": {"name": "a", "plan": null}}': {},
    '{"user": {"name": "a", "age": "old"}}': {"user.age": "old"},
    '{"user": {"Name": "a"}}': {"user.name": "a"},  # only top-level names are case-insensitive
    '{"user": {"name": "a", "Name": "b"}}': {"user.Name": "b"},
    '{"user": {"name": "a", "name": "b"}}': {"user.name": "a"},
    '{"user": {"at": {"lat": "far", "lon": 2}}}': {"user.at.lat": "far", "user.at.lon": "2"},
    '{"user": {"a.b": 1, "name": "x"}}': {"user.a.b": "1"},
    '{"items": [{"sku": "a", "q": 1}, {"q": "x"}, {"q": "y"}]}': {"items.q": "x"},
    '{"items": [{"sku": "a", "price": 2}, null]}': {"items.price": "2"},
    '{"items": {"sku": "a"}}': {"items": '{"sku":"a"}'},
    '{"nums": [1, null, 3]}': {},
    '{"nums": [1, "a"]}': {"nums": '[1,"a"]'},
    "no JSON": {},
}


@pytest.mark.parametrize("line", CASES)
def test_rescued_fields(cases: dict[str, Row], line: str) -> None:
    assert fields_of(cases[line]) == CASES[line]


def walk(value: Any, dtype: T.DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths at which a JSON value does not fit a type."""
    if value is None:
        return
    if isinstance(dtype, T.StructType):
        if not isinstance(value, Pairs):
            yield path
            return
        types = {field.name: field.dataType for field in dtype}
        names = [name for name, _ in value]
        for name, inner in value:
            if name in types:
                yield from [(*path, name)] if names.count(name) > 1 else ()
                yield from walk(inner, types[name], (*path, name))
            elif path and inner is not None:
                yield (*path, name)
    elif isinstance(dtype, T.ArrayType):
        if not isinstance(value, list) or isinstance(value, Pairs):
            yield path
            return
        for item in value:
            yield from walk(item, dtype.elementType, path)
    elif not isinstance(dtype, T.StringType):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        fits: dict[type[T.DataType], bool] = {
            T.LongType: is_number and isinstance(value, int),
            T.DoubleType: is_number,
            T.BooleanType: isinstance(value, bool),
        }
        if not fits[type(dtype)]:
            yield path


def existing_path(path: tuple[str, ...], row: Row) -> str:
    """Truncate a path at a value that Spark's parser left out."""
    value: Any = row
    for at, name in enumerate(path):
        if not isinstance(value, Row) or name not in value:
            break
        value = value[name]
        if value is None:
            return ".".join(path[: at + 1])
    return ".".join(path)


def outermost(paths: set[str]) -> set[str]:
    """Drop paths within other paths: of a duplicate field, either value may be read."""
    return {p for p in paths if not any(p.startswith(f"{other}.") for other in paths)}


def any_value(random: Random, dtype: T.DataType, depth: int = 0) -> Any:
    """Return a value that fits a type, sometimes one of another type."""
    if random.random() < 0.12:
        return random.choice([None, True, 7, 2.5, "text", Pairs([("deep", 1)]), [1], []])
    if isinstance(dtype, T.StructType):
        names = [field.name for field in dtype if random.random() < 0.8]
        names += ["more"] * (random.random() < 0.1)
        names += names[:1] * (random.random() < 0.05)
        types = {field.name: field.dataType for field in dtype}
        random.shuffle(names)
        return Pairs(
            (name, any_value(random, types.get(name, T.LongType()), depth + 1)) for name in names
        )
    if isinstance(dtype, T.ArrayType):
        return [any_value(random, dtype.elementType, depth + 1) for _ in range(random.randrange(4))]
    values_by_type: dict[type[T.DataType], Any] = {
        T.LongType: 5,
        T.DoubleType: 0.5,
        T.BooleanType: False,
        T.StringType: "a",
    }
    return values_by_type[type(dtype)]


def test_rescued_fields_equal_a_walk_through_the_line(spark: SparkSession) -> None:
    random = Random(39)
    schema = T.StructType([T.StructField(name, dtype) for name, dtype in columns().items()])
    values = [value for _ in range(400) if isinstance(value := any_value(random, schema), Pairs)]
    rows = parse(spark, [to_json(value) for value in values])
    expected = [
        {existing_path(path, row) for path in walk(value, schema)}
        for value, row in zip(values, rows, strict=True)
    ]
    assert sum(map(bool, expected)) > 100
    different = [
        (to_json(value), paths, fields_of(row))
        for value, paths, row in zip(values, expected, rows, strict=True)
        if outermost(paths) != outermost(set(fields_of(row)))
    ]
    assert different == []


RULES = {
    "rescued_n": ("n",),
    "rescued_user": ("user",),
    "rescued_user.name": ("user", "name"),
    "rescued_items": ("items",),
}
BROKEN_RULES: dict[str, list[str]] = {
    '{"n": 1}': [],
    '{"n": 12.5}': ["rescued_n"],
    '{"nums": ["a"]}': [],
    '{"user": {"name": "a", "plan": "pro"}}': ["rescued_user"],
    '{"user": {"Name": "a"}}': ["rescued_user", "rescued_user.name"],
    '{"user": "a", "n": "b"}': ["rescued_n", "rescued_user", "rescued_user.name"],
    '{"items": [{"q": "x"}]}': ["rescued_items"],
}


def test_rescued_rule_names(spark: SparkSession) -> None:
    numbered = spark.createDataFrame(list(enumerate(BROKEN_RULES)), "at int, value string")
    rows = parse_lines(numbered, SCHEMA).withColumn(
        "broken", F.expr(rescued_rule_names(columns(), RULES))
    )
    assert [row.broken for row in rows.orderBy("at").collect()] == list(BROKEN_RULES.values())

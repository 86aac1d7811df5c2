"""Which fields of a line did not fit: by SQL over the row, and by a walk through the line."""

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
from medallion.ingest.parsing.rescued import paths_overlap, rescued_fields, rescued_rule_names

USER = "struct<name:string,age:long,at:struct<lat:double,open:boolean>>"
SCHEMA = {
    "n": "long",
    "text": "string",
    "user": USER,
    "items": "array<struct<sku:string,q:long>>",
    "nums": "array<long>",
}


def columns() -> dict[str, T.DataType]:
    """The schema in Spark's types, which it takes a session to parse."""
    return {name: T.DataType.fromDDL(kind) for name, kind in SCHEMA.items()}


class Pairs(list[tuple[str, Any]]):
    """A JSON object, which may name a field twice."""


def dumped(value: Any) -> str:
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{json.dumps(n)}: {dumped(v)}" for n, v in value) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(dumped, value))}]"
    return json.dumps(value)


def parsed(spark: SparkSession, lines: list[str]) -> list[Row]:
    """Bronze's rows, with the fields that did not fit, in the order of the lines."""
    numbered = spark.createDataFrame(list(enumerate(lines)), "at int, value string")
    rows = parse_lines(numbered, SCHEMA).withColumn("fields", F.expr(rescued_fields(columns())))
    return rows.orderBy("at").collect()


def fields_of(row: Row) -> dict[str, str]:
    return {".".join(field.path): field.example for field in row.fields or ()}


@pytest.fixture(scope="module")
def cases(spark: SparkSession) -> dict[str, Row]:
    return dict(zip(CASES, parsed(spark, list(CASES)), strict=True))


CASES: dict[str, dict[str, str]] = {
    '{"n": 1, "text": "a"}': {},
    '{"n": 12.5}': {"n": "12.5"},
    '{"n": "30", "new": 1}': {"n": "30"},
    '{"n": null, "new": {"n": 1}}': {},
    '{"n": 1, "n": 2}': {"n": "1"},
    '{"new": 1, "new": 2, "n": 3}': {},
    '{"N": 5}': {},
    '{"n": 1, "N": 5}': {},
    '{"n": 99999999999999999999, "text": "%s"}' % ("x" * 50): {"n": "99999999999999999999"},
    '{"user": "%s"}' % ("y" * 50): {"user": "y" * 40},
    '{"user": {"name": "a", "plan": "pro"}}': {"user.plan": "pro"},
    '{"user": {"name": "a", "plan": null}}': {},
    '{"user": {"name": "a", "age": "old"}}': {"user.age": "old"},
    '{"user": {"Name": "a"}}': {"user.name": "a"},  # only top-level names may differ in case
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
def test_fields_that_did_not_fit(cases: dict[str, Row], line: str) -> None:
    assert fields_of(cases[line]) == CASES[line]


def walk(value: Any, kind: T.DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths at which a JSON value does not fit a type."""
    if value is None:
        return
    if isinstance(kind, T.StructType):
        if not isinstance(value, Pairs):
            yield path
            return
        types = {field.name: field.dataType for field in kind}
        names = [name for name, _ in value]
        for name, inner in value:
            if name in types:
                yield from [(*path, name)] if names.count(name) > 1 else ()
                yield from walk(inner, types[name], (*path, name))
            elif path and inner is not None:
                yield (*path, name)
    elif isinstance(kind, T.ArrayType):
        if not isinstance(value, list) or isinstance(value, Pairs):
            yield path
            return
        for item in value:
            yield from walk(item, kind.elementType, path)
    elif not isinstance(kind, T.StringType):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        fits: dict[type[T.DataType], bool] = {
            T.LongType: is_number and isinstance(value, int),
            T.DoubleType: is_number,
            T.BooleanType: isinstance(value, bool),
        }
        if not fits[type(kind)]:
            yield path


def as_far_as_held(path: tuple[str, ...], row: Row) -> str:
    """Cut a path off at a value that Spark's parser left out, with all that is within."""
    value: Any = row
    for at, name in enumerate(path):
        if not isinstance(value, Row) or name not in value:
            break
        value = value[name]
        if value is None:
            return ".".join(path[: at + 1])
    return ".".join(path)


def outermost(paths: set[str]) -> set[str]:
    """Leave out what is within another path: of a field named twice, either value may be read."""
    return {p for p in paths if not any(p.startswith(f"{other}.") for other in paths)}


def any_value(random: Random, kind: T.DataType, depth: int = 0) -> Any:
    """A value that fits a type, or now and then another one."""
    if random.random() < 0.12:
        return random.choice([None, True, 7, 2.5, "text", Pairs([("deep", 1)]), [1], []])
    if isinstance(kind, T.StructType):
        names = [field.name for field in kind if random.random() < 0.8]
        names += ["more"] * (random.random() < 0.1)
        names += names[:1] * (random.random() < 0.05)
        types = {field.name: field.dataType for field in kind}
        random.shuffle(names)
        return Pairs(
            (name, any_value(random, types.get(name, T.LongType()), depth + 1)) for name in names
        )
    if isinstance(kind, T.ArrayType):
        return [any_value(random, kind.elementType, depth + 1) for _ in range(random.randrange(4))]
    of: dict[type[T.DataType], Any] = {
        T.LongType: 5,
        T.DoubleType: 0.5,
        T.BooleanType: False,
        T.StringType: "a",
    }
    return of[type(kind)]


def test_fields_of_any_line_are_those_of_a_walk(spark: SparkSession) -> None:
    random = Random(39)
    whole = T.StructType([T.StructField(name, kind) for name, kind in columns().items()])
    values = [value for _ in range(400) if isinstance(value := any_value(random, whole), Pairs)]
    found = parsed(spark, [dumped(value) for value in values])
    expected = [
        {as_far_as_held(path, row) for path in walk(value, whole)}
        for value, row in zip(values, found, strict=True)
    ]
    assert sum(map(bool, expected)) > 100
    different = [
        (dumped(value), said, fields_of(row))
        for value, said, row in zip(values, expected, found, strict=True)
        if outermost(said) != outermost(set(fields_of(row)))
    ]
    assert different == []


RULES = {
    "rescued_n": ("n",),
    "rescued_user": ("user",),
    "rescued_user.name": ("user", "name"),
    "rescued_items": ("items",),
}
BROKEN: dict[str, list[str]] = {
    '{"n": 1}': [],
    '{"n": 12.5}': ["rescued_n"],
    '{"nums": ["a"]}': [],
    '{"user": {"name": "a", "plan": "pro"}}': ["rescued_user"],
    '{"user": {"Name": "a"}}': ["rescued_user", "rescued_user.name"],
    '{"user": "a", "n": "b"}': ["rescued_n", "rescued_user", "rescued_user.name"],
    '{"items": [{"q": "x"}]}': ["rescued_items"],
}


def test_rules_broken_by_fields_that_did_not_fit(spark: SparkSession) -> None:
    numbered = spark.createDataFrame(list(enumerate(BROKEN)), "at int, value string")
    rows = parse_lines(numbered, SCHEMA).withColumn(
        "broken", F.expr(rescued_rule_names(columns(), RULES))
    )
    found = [row.broken for row in rows.orderBy("at").collect()]
    assert found == list(BROKEN.values())


def test_a_path_touches_its_parts_and_its_holders() -> None:
    assert paths_overlap(("user",), ("USER", "plan"))
    assert paths_overlap(("user", "plan"), ("user",))
    assert not paths_overlap(("user", "plan"), ("user", "name"))
    assert not paths_overlap(("user",), ("users",))

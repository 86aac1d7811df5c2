"""In which order lines have their fields, from a few of them."""

from __future__ import annotations

import json

import pytest

from medallion.ingest.parsing.layout import LineLayout

SCHEMA = {"id": "string", "n": "long", "x": "double"}


def test_without_lines_it_is_the_order_of_the_schema() -> None:
    assert LineLayout.of([], SCHEMA) == LineLayout(["id", "n", "x"])


def test_fields_stand_as_in_the_first_line_and_others_behind_those_that_they_follow() -> None:
    lines = ['{"x":1,"id":"a"}', '{"b":1,"x":1}', '{"id":"a","c":"b","x":2}', '{"id":"a","x":1}']
    assert LineLayout.of(lines, SCHEMA) == LineLayout(
        ["b", "x", "id", "n", "c"], {"b": "", "c": '"'}
    )


def test_two_shapes_of_lines_have_one_order() -> None:
    schema = {"id": "string", "action": "string", "ts": "timestamp", "time": "timestamp"}
    lines = ['{"id":"a","action":"b","ts":"c"}', '{"time":1,"action":"b"}']
    found = LineLayout.of(lines, schema)
    assert found == LineLayout(["time", "id", "action", "ts"])


@pytest.mark.parametrize(
    ("lines", "is_full"),
    [
        (['{"id":"a","n":1,"x":1}'] * 2, True),
        (['{"id":"a","n":1,"x":1}', '{"id":"a","n":1}'], False),
        (['{"id":"a","n":1}'], False),
        (["{}"], False),
        ([], False),
    ],
)
def test_whether_each_line_has_all_fields(lines: list[str], is_full: bool) -> None:
    assert LineLayout.of(lines, SCHEMA).is_full is is_full


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
def test_what_is_unusual_is_passed_over(line: str) -> None:
    assert LineLayout.of([line], SCHEMA) == LineLayout(["id", "n", "x"])


def test_one_of_two_names_that_differ_in_case() -> None:
    assert LineLayout.of(['{"more":1,"More":"a"}'], {}) == LineLayout(["more"], {"more": ""}, True)


def test_a_hundred_fields_that_are_unknown_and_no_more() -> None:
    line = json.dumps({f"a{number}": number for number in range(1000)})
    assert list(LineLayout.of([line], {"id": "string"}).quotes) == [f"a{n}" for n in range(100)]

"""Types of columns that nobody declared: only what surely is a time becomes one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from medallion.ingest.schema import inference
from medallion.ingest.schema.columns import MAX_COLUMNS
from medallion.ingest.schema.inference import OddValues

DATED = ["2018-03-02", "2018-03-02T10:02:33Z", "2018-03-02 10:02:33.5", "2018-03-02T10:02:33+01:00"]
DATED += ["2018-03-02T10:02+0100", "2016-02-29T23:59:59.1234560Z"]
NANOSECONDS = ["2026-05-01T10:00:00.2234302Z", "2026-05-01T10:00:00.347712782+02:00"]
UNDATED = ["01067", "10115", "2018", "1234-5", "2018-03", "-2018", "+12345", "10:02", "T10:02:33"]
UNDATED += ["2018-02-29", "0000-01-01", "2018-13-01", "2018-03-02T24:00", "2018-03-02T10:60"]
UNDATED += [
    "2016-12-31T23:59:60Z",
    "2018-03-02T10:02:33.1234567891",
    "2018-03-02T10:02:33 BST",
    "2018-W09",
]


def infer(lines: Iterable[str]) -> dict[str, str]:
    """The columns that lines make."""
    return inference.infer_schema(lines).columns


def inferred(*values: Any) -> str | None:
    """The type of a field that has these values, each in a line of its own."""
    return infer([json.dumps({"f": value}) for value in values]).get("f")


@pytest.mark.parametrize("text", DATED)
def test_a_text_with_a_whole_date_is_a_time(text: str) -> None:
    assert inferred(text, None) == "timestamp"
    assert inferred({"at": [text, text]}) == "struct<at:array<timestamp>>"


@pytest.mark.parametrize("text", UNDATED)
def test_a_text_without_one_is_none(text: str) -> None:
    assert inferred(text) == "string"
    assert inferred({"a": [{"in": text}]}) == "struct<a:array<struct<in:string>>>"


@pytest.mark.parametrize("text", NANOSECONDS)
def test_a_time_with_nanoseconds_is_a_string_if_nested(text: str) -> None:
    """Bronze keeps the digits beyond the microsecond for columns that are not nested."""
    assert inferred(text, DATED[0]) == "timestamp"
    assert inferred({"at": text}, {"at": DATED[0]}) == "struct<at:string>"
    assert inferred([text]) == "array<string>"


def odd(*values: Any) -> list[OddValues]:
    """The odd values of a field that has these values, each in a line of its own."""
    found = inference.infer_schema([json.dumps({"f": value}) for value in values])
    return found.odd_values.get("f", [])


def test_a_few_odd_values_do_not_decide_the_type() -> None:
    """One `N/A` among six times made the column a string."""
    times = [f"2026-05-01T10:0{minute}:00Z" for minute in range(5)]
    assert inferred(*times, "N/A") == "timestamp"
    assert odd(*times, None, "N/A") == [OddValues("f", "timestamp", 1, 6, '"N/A"', 7)]
    assert odd(*times) == []
    assert inferred(*times[:4], "N/A") == "timestamp"
    assert inferred(*times[:3], "N/A") == "string"
    assert odd(*times[:3], "N/A") == []


@pytest.mark.parametrize(
    ("values", "kind", "rows"),
    [
        ([1, 2, 3, 4.5, ""], "double", 1),
        ([*range(38), "-", ""], "long", 2),  # 5 % of 40
        ([*range(37), "-", ""], "string", 0),
        ([True, False, True, True, "maybe"], "boolean", 1),
        ([*range(19), True], "long", 1),
        ([{"a": 1}] * 4 + ["none"], "struct<a:long>", 1),
        ([[1]] * 4 + [{}], "array<long>", 1),
        (["1001", 1002, "1003", 1004, "1005"], "string", 0),  # half of them
        (["a", "b", "c", "d", 5], "string", 0),  # a string holds the other one as well
        (["a", "b", "c", "d", {"x": 1}], "string", 0),
        ([2**63, 1, 2, 3, 4, "x"], "string", 0),  # no number holds the others
        ([[]] * 5 + ["x"], "string", 0),  # nobody knows yet of what
        (["2018-03-02"] * 5 + [1], "timestamp", 1),
    ],
)
def test_which_values_are_odd(values: list[Any], kind: str, rows: int) -> None:
    for some in (values, values[::-1]):
        assert inferred(*some) == kind
        assert sum(each.rows for each in odd(*some)) == rows


def test_odd_values_within_nested_ones_are_counted_by_row() -> None:
    """A single odd item makes the whole value of its row one that does not fit."""
    values = [*([{"in": [1, 2]}] * 4), {"in": [1, "x", "y"]}]
    assert inferred(*values) == "struct<in:array<long>>"
    assert odd(*values) == [OddValues("f.in[]", "long", 1, 5, '"x"', 5)]
    assert inferred(*([[1] * 50 + ["x"]] * 50)) == "array<string>"


def test_half_of_the_values_without_a_date_make_a_string() -> None:
    assert inferred(*DATED[:1], "2018") == "string"
    among = [{"in": text} for text in (*DATED, "2018")]
    assert inferred(among, [{"in": DATED[0], "n": 1}]) == "array<struct<in:string,n:long>>"


def test_columns_are_in_the_order_of_the_fields() -> None:
    rows = ['{"z":1,"id":"a","at":{"y":1,"b":2}}', '{"z":1,"new":1,"id":"a","at":{"x":0,"y":1}}']
    assert list(infer(rows)) == ["z", "id", "at", "new"]
    assert infer(rows)["at"] == "struct<y:long,b:long,x:long>"


def test_a_line_that_is_not_an_object_makes_no_columns() -> None:
    assert infer(['{"f":"10115"} and more', '{"f":"2018-03-02"}x', "[1]", "1", ""]) == {}
    assert infer(['{"f": NaN}', '{"f": [Infinity]}', '{"f": -Infinity}', '{"f": 1}']) == {
        "f": "long"
    }


BEYOND_LONG, BEYOND_DOUBLE = 9223372036854775809, 2**53 + 1


def test_whole_numbers_that_no_double_can_say_are_texts() -> None:
    assert inferred(BEYOND_LONG, BEYOND_LONG + 1) == "string"
    assert inferred(10**39 + 1) == "string"  # a decimal has 38 digits
    assert inferred(10**400) == "string"
    assert inferred(BEYOND_DOUBLE, 0.5) == "string"
    assert inferred(10**400, 0.5) == "string"
    assert inferred(2**63) == inferred(-(2**63) - 1) == "string"
    assert inferred({"a": [BEYOND_LONG]}, {"a": [1]}) == "struct<a:array<string>>"


def test_other_numbers_are_numbers() -> None:
    assert inferred(BEYOND_DOUBLE, 1) == "long"
    assert inferred(2**63 - 1, -(2**63)) == "long"
    assert inferred(2**53, 0.5, 1e300) == "double"
    assert inferred({"a": [1, 0.5]}) == "struct<a:array<double>>"


def test_names_that_differ_in_case_are_one_column() -> None:
    """The values of `Amount` were in no column, nor asked for the type of `amount`."""
    rows = ['{"amount": 1}', '{"Amount": 2.5}', '{"amount": 3}']
    assert infer(rows) == {"amount": "double"}
    assert infer([*rows, *rows[1:2] * 2]) == {"Amount": "double"}
    ids = ['{"deviceId": "a"}', '{"deviceId": "b", "DeviceId": null}', '{"DeviceId": 7}']
    assert infer(ids) == {"deviceId": "string"}
    assert infer(['{"a": 1}', '{"A": 1}']) == {"a": "long"}
    assert inferred({"a": 1}, {"a": 1}, {"A": "x"}) == "struct<a:string>"
    assert inferred({"a": {"b": [1]}}, {"A": {"B": [0.5], "c": 1}}) == (
        "struct<a:struct<b:array<double>,c:long>>"
    )
    found = inference.infer_schema([*rows, '{"AMOUNT": 4}', '{"amount": 5}', '{"Amount": "N/A"}'])
    assert found.odd_values["amount"] == [OddValues("amount", "double", 1, 6, '"N/A"', 6)]


MIXED: list[tuple[list[Any], str | None]] = [
    ([True, False], "boolean"),
    ([True, 1], "string"),
    ([1, "a"], "string"),
    (["2018-03-02", 1], "string"),
    ([[1], 1], "string"),
    ([[1], {"a": 1}], "string"),
    ([[], 1], "string"),
    ([{"a": 1}, "a"], "string"),
    ([{"b": 1}, {"a": None, "c": "x"}, {"b": 0.5}], "struct<b:double,c:string>"),
    ([[1, None], [], [2]], "array<long>"),
    ([{"a b": 1, "a-b": 1}], "struct<`a b`:long,`a-b`:long>"),
    ([None, [], [None], [[{}]]], None),
    ([None, {}, {"a": []}], None),
]


@pytest.mark.parametrize(("values", "kind"), MIXED, ids=str)
def test_the_type_that_can_say_all_values(values: list[Any], kind: str | None) -> None:
    assert inferred(*values) == kind
    assert inferred(*reversed(values)) == kind
    assert inferred(*({"in": value} for value in values)) == (kind and f"struct<in:{kind}>")


def nested(levels: int, value: Any = 1) -> Any:
    return value if levels == 0 else {"a": nested(levels - 1, value)}


def test_what_is_nested_deeper_than_a_column_may_be_makes_none() -> None:
    assert inferred(nested(5)) == "struct<a:" * 5 + "long" + ">" * 5
    assert inferred(nested(4, [1])) == "struct<a:" * 4 + "array<long>" + ">" * 4
    assert inferred(nested(6)) is None
    assert inferred(nested(5, [1])) is None
    assert inferred(nested(7), nested(6)) is None
    # A text can say anything.
    assert inferred(nested(6), "text") == "string"
    assert inferred(nested(6), nested(5)) == "struct<a:" * 5 + "string" + ">" * 5


@pytest.mark.parametrize("levels", [300, 900, 1_000, 100_000, 3_000_000])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}"), ("[", ""), ('{"a":[', "")])
def test_a_line_of_any_depth_is_passed_over(levels: int, begin: str, end: str) -> None:
    """It ended the engine's thread once, and every later night hung."""
    deep = f'{{"n":1,"deep":{begin * levels}1{end * levels}}}'
    assert infer([deep, '{"m":2}']).get("m") == "long"
    assert "deep" not in infer([deep])


def test_so_many_names_and_no_more_within_a_column() -> None:
    assert inferred({f"f{number}": 1 for number in range(MAX_COLUMNS)}) is not None
    wide = json.dumps({"f": {f"f{number}": 1 for number in range(MAX_COLUMNS + 1)}, "g": 1})
    assert infer([wide]) == {"g": "long"}
    assert inference.infer_schema([wide]).invalid == {
        "f": "it has more than 2,000 fields within it"
    }
    assert (
        len(infer(json.dumps({f"f{line}_{n}": 1 for n in range(100)}) for line in range(100)))
        == 10_000
    )

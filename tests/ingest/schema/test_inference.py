"""Inference of columns that are not declared; only complete dates and times become timestamps."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from medallion.ingest.schema import inference
from medallion.ingest.schema.columns import MAX_COLUMNS

TIMES = ["2018-03-02", "2018-03-02T10:02:33Z", "2018-03-02 10:02:33.5", "2018-03-02T10:02:33+01:00"]
TIMES += ["2018-03-02T10:02+0100", "2016-02-29T23:59:59.1234560Z"]
NANOSECONDS = ["2026-05-01T10:00:00.2234302Z", "2026-05-01T10:00:00.347712782+02:00"]
NOT_TIMES = ["01067", "10115", "2018", "1234-5", "2018-03", "-2018", "+12345", "10:02", "T10:02:33"]
NOT_TIMES += ["2018-02-29", "0000-01-01", "2018-13-01", "2018-03-02T24:00", "2018-03-02T10:60"]
NOT_TIMES += [
    "2016-12-31T23:59:60Z",
    "2018-03-02T10:02:33.1234567891",
    "2018-03-02T10:02:33 BST",
    "2018-W09",
]


def infer(lines: Iterable[str]) -> dict[str, str]:
    """Return the columns inferred from lines."""
    return inference.infer_schema(lines).columns


def inferred(*values: Any) -> str | None:
    """Return the type inferred for a field from one value per line."""
    return infer([json.dumps({"f": value}) for value in values]).get("f")


@pytest.mark.parametrize("text", TIMES)
def test_complete_dates_are_timestamps(text: str) -> None:
    assert inferred(text, None) == "timestamp"
    assert inferred({"at": [text, text]}) == "struct<at:array<timestamp>>"


@pytest.mark.parametrize("text", NOT_TIMES)
def test_incomplete_dates_are_strings(text: str) -> None:
    assert inferred(text) == "string"
    assert inferred({"a": [{"in": text}]}) == "struct<a:array<struct<in:string>>>"


@pytest.mark.parametrize("text", NANOSECONDS)
def test_times_with_nanoseconds_are_strings(text: str) -> None:
    """A timestamp would lose their last digits."""
    assert inferred(text, TIMES[0]) == "string"
    assert inferred({"at": text}, {"at": TIMES[0]}) == "struct<at:string>"
    assert inferred([text]) == "array<string>"


def test_few_odd_values_do_not_change_the_type() -> None:
    """For example one `N/A` among many times."""
    times = [f"2026-05-01T10:0{minute}:00Z" for minute in range(5)]
    assert inferred(*times, "N/A") == "timestamp"
    assert inferred(*times, None, "N/A", None) == "timestamp"
    assert inferred(*times[:4], "N/A") == "timestamp"
    assert inferred(*times[:3], "N/A") == "string"


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2, 3, 4.5, ""], "double"),
        ([*range(38), "-", ""], "long"),  # 5 % of 40
        ([*range(37), "-", ""], "string"),
        ([True, False, True, True, "maybe"], "boolean"),
        ([*range(19), True], "long"),
        ([{"a": 1}] * 4 + ["none"], "struct<a:long>"),
        ([[1]] * 4 + [{}], "array<long>"),
        (["1001", 1002, "1003", 1004, "1005"], "string"),  # half of the values
        (["a", "b", "c", "d", 5], "string"),  # a string column can hold the other value
        (["a", "b", "c", "d", {"x": 1}], "string"),
        ([2**63, 1, 2, 3, 4, "x"], "string"),  # no numeric type holds all
        ([[]] * 5 + ["x"], "string"),  # the item type is unknown
        (["2018-03-02"] * 5 + [1], "timestamp"),
    ],
)
def test_odd_values(values: list[Any], dtype: str) -> None:
    for ordered in (values, values[::-1]):
        assert inferred(*ordered) == dtype


def test_nested_odd_values_are_counted_by_row() -> None:
    """One odd item makes the complete value of its row a misfit."""
    values = [*([{"in": [1, 2]}] * 4), {"in": [1, "x", "y"]}]
    assert inferred(*values) == "struct<in:array<long>>"
    assert inferred(*([[1] * 50 + ["x"]] * 50)) == "array<string>"


def test_half_incomplete_dates_are_strings() -> None:
    assert inferred(*TIMES[:1], "2018") == "string"
    items = [{"in": text} for text in (*TIMES, "2018")]
    assert inferred(items, [{"in": TIMES[0], "n": 1}]) == "array<struct<in:string,n:long>>"


def test_columns_are_in_the_order_of_the_fields() -> None:
    rows = ['{"z":1,"id":"a","at":{"y":1,"b":2}}', '{"z":1,"new":1,"id":"a","at":{"x":0,"y":1}}']
    assert list(infer(rows)) == ["z", "id", "at", "new"]
    assert infer(rows)["at"] == "struct<y:long,b:long,x:long>"


def test_lines_that_are_not_objects_have_no_columns() -> None:
    assert infer(['{"f":"10115"} and more', '{"f":"2018-03-02"}x', "[1]", "1", ""]) == {}
    assert infer(['{"f": NaN}', '{"f": [Infinity]}', '{"f": -Infinity}', '{"f": 1}']) == {
        "f": "long"
    }


BEYOND_LONG, BEYOND_DOUBLE = 9223372036854775809, 2**53 + 1


def test_integers_beyond_long_and_double_are_strings() -> None:
    assert inferred(BEYOND_LONG, BEYOND_LONG + 1) == "string"
    assert inferred(10**39 + 1) == "string"  # a decimal has 38 digits
    assert inferred(10**400) == "string"
    assert inferred(BEYOND_DOUBLE, 0.5) == "string"
    assert inferred(10**400, 0.5) == "string"
    assert inferred(2**63) == inferred(-(2**63) - 1) == "string"
    assert inferred({"a": [BEYOND_LONG]}, {"a": [1]}) == "struct<a:array<string>>"


def test_numeric_types() -> None:
    assert inferred(BEYOND_DOUBLE, 1) == "long"
    assert inferred(2**63 - 1, -(2**63)) == "long"
    assert inferred(2**53, 0.5, 1e300) == "double"
    assert inferred({"a": [1, 0.5]}) == "struct<a:array<double>>"


def test_names_that_differ_in_case_share_a_column() -> None:
    """The type covers the values of all spellings."""
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
    odd = ['{"AMOUNT": 4}', '{"amount": 5}', '{"Amount": "N/A"}']
    assert infer([*rows, *odd]) == {"amount": "double"}


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


@pytest.mark.parametrize(("values", "dtype"), MIXED, ids=str)
def test_type_of_mixed_values(values: list[Any], dtype: str | None) -> None:
    assert inferred(*values) == dtype
    assert inferred(*reversed(values)) == dtype
    assert inferred(*({"in": value} for value in values)) == (dtype and f"struct<in:{dtype}>")


def nested(levels: int, value: Any = 1) -> Any:
    return value if levels == 0 else {"a": nested(levels - 1, value)}


def test_values_beyond_the_nesting_limit_have_no_column() -> None:
    assert inferred(nested(5)) == "struct<a:" * 5 + "long" + ">" * 5
    assert inferred(nested(4, [1])) == "struct<a:" * 4 + "array<long>" + ">" * 4
    assert inferred(nested(6)) is None
    assert inferred(nested(5, [1])) is None
    assert inferred(nested(7), nested(6)) is None
    # A string holds any value.
    assert inferred(nested(6), "text") == "string"
    assert inferred(nested(6), nested(5)) == "struct<a:" * 5 + "string" + ">" * 5


@pytest.mark.parametrize("levels", [300, 900, 1_000, 100_000, 3_000_000])
@pytest.mark.parametrize(
    ("opening", "closing"), [("[", "]"), ('{"a":', "}"), ("[", ""), ('{"a":[', "")]
)
def test_deeply_nested_lines_do_not_overflow_the_stack(
    levels: int, opening: str, closing: str
) -> None:
    """A stack overflow would end the engine's thread, and later runs would hang."""
    line = f'{{"n":1,"deep":{opening * levels}1{closing * levels}}}'
    assert infer([line, '{"m":2}']).get("m") == "long"
    assert "deep" not in infer([line])


def test_inference_limits_nested_fields() -> None:
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

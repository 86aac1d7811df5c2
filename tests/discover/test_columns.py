"""Inferred names, types, times and keys of columns."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from medallion.discover import columns
from medallion.discover.columns import Column
from medallion.storage.table_specs import column_name


def infer(rows: list[dict[str, Any]], has_types: bool = True) -> dict[str, Column]:
    return {column.name: column for column in columns.infer_columns(rows, has_types)[0]}


@pytest.mark.parametrize(
    ("field", "bronze", "silver"),
    [
        ("Order ID", "Order_ID", "order_id"),
        ("id.orig_h", "id_orig_h", "id_orig_h"),
        ("customer email", "customer_email", "customer_email"),
        ("sentAt", "sentAt", "sent_at"),
        ("@t", "`@t`", "t"),
        ("2nd", "`2nd`", "c_2nd"),
        ("Größe", "`Größe`", "grosse"),
    ],
)
def test_column_names(field: str, bronze: str, silver: str) -> None:
    (column,) = infer([{field: 1}]).values()
    assert (column.sql, column.name) == (bronze, silver)
    assert column.sql.strip("`") == column_name(field)


def test_name_collisions_are_numbered() -> None:
    assert list(infer([{"a b": 1, "a-b": 2, "window_start": 3}])) == [
        "a_b",
        "a_b_2",
        "window_start_2",
    ]


def test_fields_of_small_structs_are_columns() -> None:
    rows: list[dict[str, Any]] = [
        {"a": {"b c": {"d": 1}, "e": [1]}, "f": None},
        {"a": None, "f": None},
    ]
    (d, e), empty = columns.infer_columns(rows, has_types=True)
    assert (d.name, d.sql, d.type) == ("a_b_c_d", "a.b_c.d", "long")
    assert (e.name, e.type, empty) == ("a_e", "array", ["f"])
    wide = {"a": {f"x{n}": n for n in range(50)}}
    assert infer([wide])["a"].type == "struct"
    assert infer([{"a": {f"x{n}": n}} for n in range(50)])["a"].type == "struct"


def test_column_types() -> None:
    rows: list[dict[str, Any]] = [{"i": "1", "d": "1.5", "b": "true", "t": "2026-05-01", "s": "x"}]
    assert [c.type for c in infer(rows, has_types=False).values()] == [
        *("long", "double", "boolean", "timestamp", "string")
    ]
    assert infer(rows)["i"].type == "string"


NOON = datetime(2026, 5, 1, 12)


@pytest.mark.parametrize(
    ("field", "value", "hint"),
    [
        ("at", "2026-05-01T12:00:00Z", ""),
        ("at", "2026-05-01 14:00:00.000000000+02:00", ""),
        ("ts", 1777636800, "timestamp_seconds"),
        ("ts", 1777636800.0, "timestamp_seconds"),
        ("sentAt", 1777636800000, "timestamp_millis"),
        ("time", 1777636800000000, "timestamp_micros"),
        ("epoch", 1777636800000000000, "timestamp_nanos"),
        ("ts", "1777636800000", "timestamp_millis"),
        ("x", "1.5.2026 12:00", "timestamp 'd.M.yyyy H:mm'"),
        ("x", "05/01/2026 12:00:00 PM", "timestamp 'dd/MM/yyyy hh:mm:ss a'"),
        ("x", "5/1/2026 12:00 PM", "timestamp 'd/M/yyyy h:mm a'"),
        ("datetime", "20260501120000", "timestamp 'yyyyMMddHHmmss'"),
        ("x", "01.05.2026 12:00", "timestamp 'dd.MM.yyyy HH:mm'"),
        ("x", "2026/05/01 12:00:00", "timestamp 'yyyy/MM/dd HH:mm:ss'"),
        ("x", "01/May/2026:12:00:00 +0000", "timestamp 'dd/MMM/yyyy:HH:mm:ss Z'"),
    ],
)
def test_time_formats(field: str, value: object, hint: str) -> None:
    (column,) = infer([{field: value}]).values()
    time_format = columns.detect_time_format(column)
    assert time_format
    assert (time_format.hint, time_format.times) in (
        (hint, [NOON]),
        (hint, [NOON.replace(month=1, day=5)]),
    )


@pytest.mark.parametrize(
    "value", [5, 1777636800, "x", "2026-13-01", "32.01.2026", "20260501", "1.5.26", True]
)
def test_values_that_are_not_times(value: object) -> None:
    (column,) = infer([{"size": value}]).values()
    assert columns.detect_time_format(column) is None


def test_ambiguous_day_and_month() -> None:
    time_format = columns.detect_time_format(infer([{"d": "01/05/2026"}])["d"])
    assert time_format
    assert (time_format.hint, time_format.other) == (
        "timestamp 'dd/MM/yyyy'",
        "timestamp 'MM/dd/yyyy'",
    )
    time_format = columns.detect_time_format(infer([{"d": "01/05/2026"}, {"d": "01/13/2026"}])["d"])
    assert time_format
    assert (time_format.hint, time_format.other) == ("timestamp 'MM/dd/yyyy'", "")


def times_of(field: str, *values: object) -> columns.TimeFormat:
    time_format = columns.detect_time_format(infer([{field: value} for value in values])[field])
    assert time_format
    return time_format


def test_epochs_of_two_units_are_those_of_most() -> None:
    """A run reports the others: they are before 1990, or in the future."""
    assert times_of("ts", *[1777636800000] * 2, 1777636800).hint == "timestamp_millis"
    assert times_of("ts", *[1777636800] * 2, 1777636800000).hint == "timestamp_seconds"


def test_zero_is_the_year_1970() -> None:
    time_format = times_of("ts", 1777636800, 0, 1777636801)
    assert min(time_format.times) == datetime(1970, 1, 1)
    assert columns.detect_time_format(infer([{"ts": 0}, {"ts": 0}])["ts"]) is None
    assert columns.detect_time_format(infer([{"ts": 5}, {"ts": 1777636800}])["ts"]) is None


def test_two_digit_years_are_from_2000_to_2099() -> None:
    """As in Java: Python would take 71 for 1971."""
    time_format = times_of("born", "12.03.67", "17.08.71", "05.01.01")
    assert time_format.hint == "timestamp 'dd.MM.yy'"
    assert time_format.times == [datetime(2067, 3, 12), datetime(2071, 8, 17), datetime(2001, 1, 5)]
    assert time_format.mistake.startswith("yy is 2000 to 2099, so 2 of 3 values")
    assert "if(born > _ingested_at, born - interval 100 years, born)" in time_format.mistake
    assert times_of("born", "05.01.01").mistake == ""


def test_one_odd_value_among_times() -> None:
    rows = [{"at": "2026-05-01"}] * 5 + [{"at": "n/a"}]
    time_format = columns.detect_time_format(infer(rows)["at"])
    assert time_format
    assert time_format.reason == "ISO 8601, except 1"


def test_time_candidates_order() -> None:
    row: dict[str, Any] = {
        "updated_at": "2026-05-02 10:00:00",
        "day": "2026-05-01",
        "x": "2026-05-01 10:00:00",
        "meta": {"time": "2026-05-01 10:00:00"},
        "created_at": "2026-05-01 10:00:00",
    }
    names = [c.name for c, _ in columns.time_candidates([*infer([row]).values()], 1)]
    assert names == ["created_at", "meta_time", "day", "updated_at", "x"]
    assert columns.time_candidates([*infer([row]).values()], 2) == []  # null in half of the rows


def test_key_candidates() -> None:
    rows = [{"name": f"n{n}", "at_id": 1, "order_id": n, "x": {"id": n}} for n in range(4)]
    keys = columns.key_candidates([*infer(rows).values()], 4)
    assert [column.name for column in keys] == ["order_id", "x_id"]
    rows = [{"shop_id": n // 2, "item_no": n % 2, "id": None if n else 1} for n in range(4)]
    assert columns.key_candidates([*infer(rows).values()], 4) == []
    rows = [{"Bestellnr": n, "KUNDENNUMMER": f"K{n}", "paid": n} for n in range(4)]
    keys = columns.key_candidates([*infer(rows).values()], 4)
    assert [column.name for column in keys] == ["bestellnr", "kundennummer"]

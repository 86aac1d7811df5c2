"""A gold table in update mode has the rows that it would have in complete mode."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.lakehouse import Lakehouse

EVENTS = ("action_counts", "user_activity")
ACTIVITY = ("device_counts", "device_totals")


def event(time: str, action: str, device: str | None = None) -> str:
    at = f"2018-03-02T{time}Z"
    return json.dumps({"id": device, "action": action, "ts": at})


def recording(time: str, device: str, index: int) -> str:
    at = f"2018-03-02T{time}Z"
    axes = {"x": 0.1, "y": 0.2, "z": 9.8}
    return json.dumps({"Recorded_At": at, "Device": device, "Index": index, **axes})


NIGHTS = (
    (
        [
            event("10:01:00", "open", "a"),
            event("10:02:00", "close", "a"),
            event("13:00:00", "open"),
        ],
        [recording("10:01:00", "a", 0), recording("13:00:00", "b", 1)],
    ),
    (  # late, in a window that is there, in a new one, and twice; and on time
        [
            event("10:03:00", "open", "a"),
            event("08:00:00", "open", "b"),
            event("08:00:00", "open", "b"),
            event("10:01:00", "open", "a"),
            event("13:04:59", "open"),
            event("13:05:00", "close"),
        ],
        [
            recording("10:09:59", "a", 2),
            recording("10:10:00", "c", 3),
            recording("10:01:00", "a", 0),
            recording("13:00:01", "b", 4),
        ],
    ),
    (  # nothing but late rows
        [event("08:00:01", "open", "b"), event("10:01:00", "other")],
        [recording("08:00:00", "a", 5)],
    ),
)


@pytest.fixture
def in_update_mode(lakehouse: Lakehouse) -> Lakehouse:
    """Beside each table of gold, the same in update mode."""
    tables = dict(lakehouse.config.gold)
    for name, table in lakehouse.config.gold.items():
        twin = f"{name}_updated"
        tables[twin] = replace(table, name=twin, output_mode="update")
    no_keys = replace(tables["device_totals"], name="all_rows", group_by=())
    tables["all_rows"] = no_keys
    tables["all_rows_updated"] = replace(no_keys, name="all_rows_updated", output_mode="update")
    lakehouse.config = replace(lakehouse.config, gold=tables)
    return lakehouse


def test_update_mode_equals_complete_mode(in_update_mode: Lakehouse) -> None:
    lakehouse = in_update_mode
    counts = []
    for number, (events, recordings) in enumerate(NIGHTS):
        lakehouse.land("event", f"{number}.json", *events)
        lakehouse.land("activity", f"{number}.json", *recordings)
        report = lakehouse.nightly()
        assert report.is_good, report
        for name in (*EVENTS, *ACTIVITY, "all_rows"):
            complete = lakehouse.rows(f"gold.{name}")
            assert complete, name
            assert lakehouse.rows(f"gold.{name}_updated") == complete, name
        counts.append(dict(lakehouse.rows("gold.device_totals_updated")))
    assert counts == [{"a": 1, "b": 1}, {"a": 2, "b": 2, "c": 1}, {"a": 3, "b": 2, "c": 1}]
    # Rows without a device go around the watermark and do not move it from 09:02: the rows of
    # 08:00:00 and 08:00:01 are late, once each.
    assert report.balances["event"].late_rows == 2
    assert report.balances["event"].duplicate_rows == 2
    assert report.balances["activity"].late_rows == 3
    assert report.balances["activity"].duplicate_rows == 1
    windows = "window_start", "action", "total_events"
    assert lakehouse.rows("gold.action_counts_updated", *windows) == [
        ("2018-03-02 08:00:00", "open", 2),
        ("2018-03-02 10:00:00", "close", 1),
        ("2018-03-02 10:00:00", "open", 2),
        ("2018-03-02 10:00:00", "other", 1),
        ("2018-03-02 13:00:00", "close", 1),
        ("2018-03-02 13:00:00", "open", 2),
    ]

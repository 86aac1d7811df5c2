"""A gold table in update mode has the same rows as in complete mode."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medallion.inspect.audit import run_audit
from tests.support.lakehouse import Lakehouse, redefined
from tests.support.lines import event, recording
from tests.support.updates import BY_WINDOWS, WINDOWS

EVENTS = ("action_counts", "user_activity")
ACTIVITY = ("device_counts", "device_totals")


RUNS = (
    (
        [
            event("10:01:00", "a", "open"),
            event("10:02:00", "a", "close"),
            event("13:00:00", None, "open"),
        ],
        [recording("10:01:00", "a", 0), recording("13:00:00", "b", 1)],
    ),
    (  # late: in an existing window, in a new one, and twice; and on time
        [
            event("10:03:00", "a", "open"),
            event("08:00:00", "b", "open"),
            event("08:00:00", "b", "open"),
            event("10:01:00", "a", "open"),
            event("13:04:59", None, "open"),
            event("13:05:00", None, "close"),
        ],
        [
            recording("10:09:59", "a", 2),
            recording("10:10:00", "c", 3),
            recording("10:01:00", "a", 0),
            recording("13:00:01", "b", 4),
        ],
    ),
    (  # only late rows
        [event("08:00:01", "b", "open"), event("10:01:00", None, "other")],
        [recording("08:00:00", "a", 5)],
    ),
)


# Rows without a device bypass the watermark and do not move it from 09:02: the rows of 08:00:00
# and 08:00:01 are late, once each.
LATE_AND_DUPLICATE = (2, 2)


def land(lakehouse: Lakehouse, number: int) -> None:
    events, recordings = RUNS[number]
    lakehouse.land("event", f"{number}.json", *events)
    lakehouse.land("activity", f"{number}.json", *recordings)


def check_expected(lakehouse: Lakehouse) -> None:
    """Check the counts after three runs, and the late and duplicate rows."""
    assert lakehouse.rows("gold.device_totals_updated") == [("a", 3), ("b", 2), ("c", 1)]
    assert lakehouse.rows("gold.all_rows_updated") == [(6,)]
    assert lakehouse.rows("gold.action_counts_updated", *WINDOWS) == BY_WINDOWS
    balances = run_audit(lakehouse.config).balances
    assert (balances["event"].late_rows, balances["event"].duplicate_rows) == LATE_AND_DUPLICATE
    assert (balances["activity"].late_rows, balances["activity"].duplicate_rows) == (3, 1)


@pytest.fixture
def in_both_modes(lakehouse: Lakehouse) -> Lakehouse:
    """Add a table without groups, and a copy of each gold table in update mode."""
    tables = dict(lakehouse.config.gold)
    tables["all_rows"] = redefined(replace(tables["device_totals"], name="all_rows"), group_by=())
    for name, table in list(tables.items()):
        updated = f"{name}_updated"
        tables[updated] = replace(table, name=updated, output_mode="update")
    lakehouse.config = replace(lakehouse.config, gold=tables)
    return lakehouse


@pytest.mark.slow
@pytest.mark.usefixtures("production_streams")
def test_update_mode_equals_complete_mode(in_both_modes: Lakehouse) -> None:
    lakehouse = in_both_modes
    for number in range(len(RUNS)):
        land(lakehouse, number)
        report = lakehouse.nightly()
        assert report.is_good, report
        for name in (*EVENTS, *ACTIVITY, "all_rows"):
            complete = lakehouse.rows(f"gold.{name}")
            assert complete, name
            assert lakehouse.rows(f"gold.{name}_updated") == complete, name
    check_expected(lakehouse)

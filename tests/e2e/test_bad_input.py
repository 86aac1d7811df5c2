"""Whatever lands, each row is somewhere, and the balance adds up."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from medallion.config.queries import query_names
from medallion.inspect.audit import Audit, run_audit
from medallion.runtime.outcome import Outcome
from medallion.storage import delta_tables
from tests.support.lakehouse import Lakehouse

GOOD = {
    "Recorded_At": "2015-02-23T10:18:54.958+0000",
    "Device": "phone",
    "Index": 1,
    "Model": "nexus4",
    "User": "g",
    "gt": "stand",
    "x": 0.1,
    "y": 0.2,
    "z": 9.8,
}


def but(**fields: Any) -> str:
    return json.dumps({**GOOD, **fields})


def without(*fields: str) -> str:
    return json.dumps({name: value for name, value in GOOD.items() if name not in fields})


# One file each. The lines, the rows that come to silver, and the rules that the others break.
# The Device is the file's name, so that no row is a duplicate of another file's.
AXES = ["missing_x", "missing_y", "missing_z"]
NOTHING = ["missing_event_time", "missing_device", "missing_index", *AXES]
MALFORMED = ["malformed_line", *NOTHING]
ACTIVITY: dict[str, tuple[list[str], int, list[list[str]]]] = {
    "cut short": ([but()[:40], but()], 1, [MALFORMED]),
    "no JSON at all": (["hello", "\x00", "<a/>"], 0, [MALFORMED] * 3),
    "two on a line": ([but() + but(Index=2), but() + " garbage"], 2, [MALFORMED]),
    "not an object": (["[]", "1", '"text"', "null"], 0, [MALFORMED] * 4),
    "empty object": (["{}"], 0, [NOTHING]),
    "text for a number": ([but(x="high")], 0, [["rescued_x", "missing_x"]]),
    "number for a time": (
        [but(Recorded_At="yesterday")],
        0,
        [["rescued_Recorded_At", "missing_event_time"]],
    ),
    "fraction for a whole": ([but(Index=1.5)], 0, [["rescued_Index", "missing_index"]]),
    "null device": ([but(Device=None)], 0, [["missing_device"]]),
    "unknown field": ([but(battery=0.5), but(Index=2)], 2, []),
    "no time": ([without("Recorded_At")], 0, [["missing_event_time"]]),
    "no device": ([without("Device")], 0, [["missing_device"]]),
    "no axes": ([without("x", "y", "z")], 0, [AXES]),
    "no model": ([without("Model", "User", "gt")], 1, []),
    "null key": ([but(Index=None)], 0, [["missing_index"]]),
    "blank device": ([but(Device="  ")], 0, [["missing_device"]]),
    "future": ([but(Recorded_At="2999-01-01T00:00:00Z")], 0, [["future_event_time"]]),
    "blank lines": (["", but(), "   ", "\t", "", but(Index=2), ""], 2, []),
    "only blank lines": (["", "  ", ""], 0, []),
    "empty": ([], 0, []),
    "carriage returns": ([but() + "\r", "\r", but(Index=2) + "\r"], 2, []),
    "twice": ([but(), but()], 1, []),
}
EVENTS: dict[str, tuple[list[str], int, list[list[str]]]] = {
    "both shapes": (
        ['{"id": "p", "action": "open", "ts": "2018-03-02T10:02:33"}']
        + ['{"time": 1520000000, "action": "Open"}'] * 2,
        3,  # without a device there are no duplicates
        [],
    ),
    "no action": (['{"id": "p", "ts": "2018-03-02T10:02:34"}'], 0, [["missing_action"]]),
    "no time": (['{"id": "p", "action": "open"}'], 0, [["missing_event_time"]]),
    "malformed": (["{]"], 0, [["malformed_line", "missing_event_time", "missing_action"]]),
}
GOLD = {"device_totals": "total_recordings", "action_counts": "total_events"}
OWN_DEVICE = json.dumps(GOOD["Device"])


@dataclass(frozen=True)
class First:
    """What a night without files left: its report, its audit, and the rows of each table."""

    lakehouse: Lakehouse
    report: Outcome
    audit: Audit
    rows: dict[str, int]


@pytest.fixture(scope="module")
def first(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> First:
    lakehouse = Lakehouse(spark, tmp_path_factory.mktemp("bad input") / "lakehouse")
    lakehouse.keep_only("activity", "event", *GOLD)
    lakehouse.config.layout.landing("activity").local.mkdir(parents=True)
    report = lakehouse.run_without_gates()
    layout = lakehouse.config.layout
    found = {name: layout.table(name) for name in query_names(lakehouse.config)}
    found |= {f"quarantine.{n}": layout.table(f"quarantine.{n}") for n in ("activity", "event")}
    rows = {
        n: delta_tables.row_count(table)
        for n, table in found.items()
        if delta_tables.table_exists(table)
    }
    return First(lakehouse, report, run_audit(lakehouse.config), rows)


@pytest.fixture(scope="module")
def lakehouse(first: First) -> Lakehouse:
    """After a second night over all the files."""
    lakehouse = first.lakehouse
    for name, (lines, _, _) in ACTIVITY.items():
        own = [line.replace(OWN_DEVICE, json.dumps(name)) for line in lines]
        lakehouse.land("activity", f"{name}.json", *own)
    for name, (lines, _, _) in EVENTS.items():
        lakehouse.land("event", f"{name}.json", *lines)
    report = lakehouse.run_without_gates()
    assert report.is_good, report
    return lakehouse


def of_file(lakehouse: Lakehouse, table: str, name: str, *columns: str) -> list[tuple[Any, ...]]:
    rows = lakehouse.rows(table, "_source_file", *columns)
    return [tuple(row) for file, *row in rows if Path(unquote(file)).stem == name]


def in_order(rules: list[list[str]]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(sorted(broken)) for broken in rules)


@pytest.mark.parametrize("name", ACTIVITY)
def test_where_each_recording_is(lakehouse: Lakehouse, name: str) -> None:
    _, good, broken = ACTIVITY[name]
    assert len(of_file(lakehouse, "silver.activity", name)) == good
    found = of_file(lakehouse, "quarantine.activity", name, "_failed_rules")
    assert in_order([rules for (rules,) in found]) == in_order(broken)


@pytest.mark.parametrize("name", EVENTS)
def test_where_each_event_is(lakehouse: Lakehouse, name: str) -> None:
    _, good, broken = EVENTS[name]
    assert len(of_file(lakehouse, "silver.event", name)) == good
    found = of_file(lakehouse, "quarantine.event", name, "_failed_rules")
    assert in_order([rules for (rules,) in found]) == in_order(broken)


@pytest.mark.parametrize(("source", "files"), [("activity", ACTIVITY), ("event", EVENTS)])
def test_the_balance_adds_up(lakehouse: Lakehouse, source: str, files: dict[str, Any]) -> None:
    balance = run_audit(lakehouse.config).balances[source]
    lines = sum(bool(line.strip()) for listed, _, _ in files.values() for line in listed)
    lines += sum(line.count("}{") for listed, _, _ in files.values() for line in listed)
    assert balance.is_balanced
    assert balance.landed_lines == balance.bronze_rows == lines
    assert balance.silver_rows == sum(good for _, good, _ in files.values())
    assert balance.quarantined_rows == sum(len(broken) for _, _, broken in files.values())
    assert balance.duplicate_rows == (1 if source == "activity" else 0)
    assert balance.late_rows == 0


def test_nothing_of_a_broken_line_is_lost(lakehouse: Lakehouse) -> None:
    """The line itself, or what did not fit, is in bronze and in quarantine."""
    for table in ("bronze.activity", "quarantine.activity"):
        raw = of_file(lakehouse, table, "no JSON at all", "_corrupt_record")
        assert Counter(raw) == Counter([("hello",), ("\x00",), ("<a/>",)])
        ((rescued, x),) = of_file(lakehouse, table, "text for a number", "_rescued_data", "x")
        assert (json.loads(rescued), x) == ({"x": "high"}, None)
    new = of_file(lakehouse, "bronze.activity", "unknown field", "battery", "_rescued_data")
    assert sorted(new, key=str) == [(0.5, None), (None, None)]


def test_a_first_night_without_files(first: First, lakehouse: Lakehouse) -> None:
    """One source had an empty folder, the other none; later nights fill the tables made then."""
    assert first.report.is_good, first.report
    assert first.audit.is_balanced
    made = [f"{a}.{b}" for a in ("bronze", "silver", "quarantine") for b in ("activity", "event")]
    made += [f"gold.{name}" for name in GOLD]
    assert first.rows == dict.fromkeys(made, 0)
    for name, files in zip(GOLD, (ACTIVITY, EVENTS), strict=True):
        counted = sum(n for (n,) in lakehouse.rows(f"gold.{name}", GOLD[name]))
        assert counted == sum(good for _, good, _ in files.values())

"""Invalid input: each row is in some table, and the balance adds up."""

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


def with_fields(**fields: Any) -> str:
    return json.dumps({**GOOD, **fields})


def without(*fields: str) -> str:
    return json.dumps({name: value for name, value in GOOD.items() if name not in fields})


# One file each: its lines, the number of rows in silver, and the rules that the others break. Each
# file's name is its Device, so no row duplicates one of another file.
AXES = ["missing_x", "missing_y", "missing_z"]
ALL_MISSING = ["missing_event_time", "missing_device", "missing_index", *AXES]
MALFORMED = ["malformed_line", *ALL_MISSING]
ACTIVITY: dict[str, tuple[list[str], int, list[list[str]]]] = {
    "truncated": ([with_fields()[:40], with_fields()], 1, [MALFORMED]),
    "no JSON at all": (["hello", "\x00", "<a/>"], 0, [MALFORMED] * 3),
    "two on a line": (
        [with_fields() + with_fields(Index=2), with_fields() + " garbage"],
        2,
        [MALFORMED],
    ),
    "not an object": (["[]", "1", '"text"', "null"], 0, [MALFORMED] * 4),
    "empty object": (["{}"], 0, [ALL_MISSING]),
    "text for a number": ([with_fields(x="high")], 0, [["rescued_x", "missing_x"]]),
    "number for a time": (
        [with_fields(Recorded_At="yesterday")],
        0,
        [["rescued_Recorded_At", "missing_event_time"]],
    ),
    "fraction for a whole": ([with_fields(Index=1.5)], 0, [["rescued_Index", "missing_index"]]),
    "null device": ([with_fields(Device=None)], 0, [["missing_device"]]),
    "unknown field": ([with_fields(battery=0.5), with_fields(Index=2)], 2, []),
    "no time": ([without("Recorded_At")], 0, [["missing_event_time"]]),
    "no device": ([without("Device")], 0, [["missing_device"]]),
    "no axes": ([without("x", "y", "z")], 0, [AXES]),
    "no model": ([without("Model", "User", "gt")], 1, []),
    "null key": ([with_fields(Index=None)], 0, [["missing_index"]]),
    "blank device": ([with_fields(Device="  ")], 0, [["missing_device"]]),
    "future": ([with_fields(Recorded_At="2999-01-01T00:00:00Z")], 0, [["future_event_time"]]),
    "blank lines": (["", with_fields(), "   ", "\t", "", with_fields(Index=2), ""], 2, []),
    "only blank lines": (["", "  ", ""], 0, []),
    "empty": ([], 0, []),
    "carriage returns": ([with_fields() + "\r", "\r", with_fields(Index=2) + "\r"], 2, []),
    "twice": ([with_fields(), with_fields()], 1, []),
}
EVENTS: dict[str, tuple[list[str], int, list[list[str]]]] = {
    "both shapes": (
        ['{"id": "p", "action": "open", "ts": "2018-03-02T10:02:33"}']
        + ['{"time": 1520000000, "action": "Open"}'] * 2,
        3,  # rows without a device are never duplicates
        [],
    ),
    "no action": (['{"id": "p", "ts": "2018-03-02T10:02:34"}'], 0, [["missing_action"]]),
    "no time": (['{"id": "p", "action": "open"}'], 0, [["missing_event_time"]]),
    "malformed": (["{]"], 0, [["malformed_line", "missing_event_time", "missing_action"]]),
}
OWN_DEVICE = json.dumps(GOOD["Device"])


@dataclass(frozen=True)
class EmptyRun:
    """The report, audit and row counts of a run without files."""

    lakehouse: Lakehouse
    report: Outcome
    audit: Audit
    rows: dict[str, int]


@pytest.fixture(scope="module")
def empty_run(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> EmptyRun:
    lakehouse = Lakehouse(spark, tmp_path_factory.mktemp("bad input") / "lakehouse")
    lakehouse.keep_only("activity", "event", "action_counts")
    lakehouse.config.layout.landing("activity").local.mkdir(parents=True)
    report = lakehouse.run_without_gates()
    layout = lakehouse.config.layout
    tables = {name: layout.table(name) for name in query_names(lakehouse.config)}
    tables |= {f"quarantine.{n}": layout.table(f"quarantine.{n}") for n in ("activity", "event")}
    rows = {
        n: delta_tables.row_count(table)
        for n, table in tables.items()
        if delta_tables.table_exists(table)
    }
    return EmptyRun(lakehouse, report, run_audit(lakehouse.config), rows)


@pytest.fixture(scope="module")
def lakehouse(empty_run: EmptyRun) -> Lakehouse:
    """Return the lakehouse after a second run over all files."""
    lakehouse = empty_run.lakehouse
    for name, (lines, _, _) in ACTIVITY.items():
        landed_lines = [line.replace(OWN_DEVICE, json.dumps(name)) for line in lines]
        lakehouse.land("activity", f"{name}.json", *landed_lines)
    for name, (lines, _, _) in EVENTS.items():
        lakehouse.land("event", f"{name}.json", *lines)
    report = lakehouse.run_without_gates()
    assert report.is_good, report
    return lakehouse


def rows_of_file(
    lakehouse: Lakehouse, table: str, name: str, *columns: str
) -> list[tuple[Any, ...]]:
    rows = lakehouse.rows(table, "_source_file", *columns)
    return [tuple(row) for file, *row in rows if Path(unquote(file)).stem == name]


def rule_counts(rules: list[list[str]]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(sorted(broken)) for broken in rules)


@pytest.mark.parametrize("name", ACTIVITY)
def test_rows_of_each_recording_file(lakehouse: Lakehouse, name: str) -> None:
    _, good, broken = ACTIVITY[name]
    assert len(rows_of_file(lakehouse, "silver.activity", name)) == good
    quarantined = rows_of_file(lakehouse, "quarantine.activity", name, "_failed_rules")
    assert rule_counts([rules for (rules,) in quarantined]) == rule_counts(broken)


@pytest.mark.parametrize("name", EVENTS)
def test_rows_of_each_event_file(lakehouse: Lakehouse, name: str) -> None:
    _, good, broken = EVENTS[name]
    assert len(rows_of_file(lakehouse, "silver.event", name)) == good
    quarantined = rows_of_file(lakehouse, "quarantine.event", name, "_failed_rules")
    assert rule_counts([rules for (rules,) in quarantined]) == rule_counts(broken)


@pytest.mark.parametrize(("source", "files"), [("activity", ACTIVITY), ("event", EVENTS)])
def test_balance_adds_up(lakehouse: Lakehouse, source: str, files: dict[str, Any]) -> None:
    balance = run_audit(lakehouse.config).balances[source]
    lines = sum(bool(line.strip()) for file_lines, _, _ in files.values() for line in file_lines)
    lines += sum(line.count("}{") for file_lines, _, _ in files.values() for line in file_lines)
    assert balance.is_balanced
    assert balance.landed_lines == balance.bronze_rows == lines
    assert balance.silver_rows == sum(good for _, good, _ in files.values())
    assert balance.quarantined_rows == sum(len(broken) for _, _, broken in files.values())
    assert balance.duplicate_rows == (1 if source == "activity" else 0)
    assert balance.late_rows == 0


def test_invalid_lines_are_kept(lakehouse: Lakehouse) -> None:
    """The line, or the value that did not fit, is in bronze and in quarantine."""
    for table in ("bronze.activity", "quarantine.activity"):
        raw = rows_of_file(lakehouse, table, "no JSON at all", "_corrupt_record")
        assert Counter(raw) == Counter([("hello",), ("\x00",), ("<a/>",)])
        ((rescued, x),) = rows_of_file(lakehouse, table, "text for a number", "_rescued_data", "x")
        assert (json.loads(rescued), x) == ({"x": "high"}, None)
    new = rows_of_file(lakehouse, "bronze.activity", "unknown field", "battery", "_rescued_data")
    assert sorted(new, key=str) == [(0.5, None), (None, None)]


def test_first_run_without_files(empty_run: EmptyRun, lakehouse: Lakehouse) -> None:
    """One source had an empty directory, the other none; later runs fill the same tables."""
    assert empty_run.report.is_good, empty_run.report
    assert empty_run.audit.is_balanced
    created = [
        f"{a}.{b}" for a in ("bronze", "silver", "quarantine") for b in ("activity", "event")
    ]
    assert empty_run.rows == dict.fromkeys([*created, "gold.action_counts"], 0)
    total = sum(n for (n,) in lakehouse.rows("gold.action_counts", "total_events"))
    assert total == sum(good for _, good, _ in EVENTS.values())

"""How each query stands: figures by arithmetic, from records and checkpoints made by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from medallion.cli.render_runs import status_json, status_text
from medallion.config.loader import load
from medallion.config.model import Config
from medallion.errors import UsageError
from medallion.inspect.status import QueryStatus, query_statuses
from medallion.inspect.verdict import LakehouseVerdict, Observations
from medallion.state import ledger, refresh_plan
from medallion.state.ledger import Entry, Ledger, State
from medallion.state.refresh_plan import RefreshPlan
from medallion.state.runs import RunState
from medallion.storage import delta_tables, locks, records
from medallion.storage.table_specs import TableSpec
from tests.support import PROJECT, checkpoints, runs
from tests.support.home import Home, tree

START = 1_700_000_000_000_000  # 2023-11-14T22:13:20Z
QUERIES = [
    "bronze.activity",
    "bronze.event",
    "silver.activity",
    "silver.event",
    "gold.device_counts",
    "gold.device_totals",
    "gold.action_counts",
    "gold.user_activity",
]


@pytest.fixture
def config(home: Home) -> Config:
    return replace(load({}, PROJECT), layout=home.layout)


def of(config: Config, query: str) -> QueryStatus:
    (found,) = (one for one in query_statuses(config) if one.query == query)
    return found


def record(config: Config, query: str, **more: Any) -> None:
    runs.record(config, query, **{"started_at": START, "seconds": 2.0, **more})


def add_rows(config: Config, table: str, rows: int) -> None:
    path = config.layout.table(table)
    records.append_records(
        path, TableSpec({"n": "long"}), [{"n": number} for number in range(rows)]
    )
    log = path / "_delta_log" / f"{delta_tables.table_version(path):020}.json"
    actions = [json.loads(line) for line in log.local.read_text(encoding="utf-8").splitlines()]
    for action in actions:
        if "commitInfo" in action:  # as Spark writes it
            action["commitInfo"]["operationMetrics"] = {"numOutputRows": str(rows)}
    log.local.write_text("".join(f"{json.dumps(action)}\n" for action in actions), encoding="utf-8")


def test_before_anything_has_run(config: Config) -> None:
    found = query_statuses(config)
    assert [one.query for one in found] == QUERIES
    assert {one.state for one in found} == {"never run"}
    assert not config.layout.root.local.exists()
    for one in found:
        assert (one.last_batch, one.last_run_at, one.rows_in, one.error) == (None,) * 4
        assert one.waiting_rows == (None if one.query.startswith("bronze") else 0)
    backlog = found[0].backlog
    assert backlog
    assert (backlog.files, backlog.bytes, backlog.oldest_age) == (0, 0, None)
    assert (backlog.bytes_per_second, backlog.caught_up_in) == (None, 0.0)


def test_tables_that_wait_for_a_rebuild(config: Config) -> None:
    left = ("gold.device_totals",)
    config.layout.refresh_plan.parent.local.mkdir(parents=True)
    refresh_plan.write_plan(config.layout, RefreshPlan("silver.activity", then=left))
    expected = {one.query: one.error for one in query_statuses(config) if one.error}
    assert expected == dict.fromkeys(
        left, "waits to be rebuilt: the next `medallion nightly` completes the refresh"
    )


def test_a_damaged_plan_is_reported_by_silver_and_gold(config: Config) -> None:
    config.layout.refresh_plan.parent.local.mkdir(parents=True)
    config.layout.refresh_plan.local.write_text("{")
    expected = {one.query: one.error or "" for one in query_statuses(config)}
    assert [name for name, error in expected.items() if "plan.json is damaged" in error] == QUERIES[
        2:
    ]
    assert expected["bronze.event"] == ""


def test_files_that_wait_before_the_first_run(home: Home, config: Config) -> None:
    home.land("a.json", "x" * 100, age=1000)
    home.land("b.json", "x" * 50, age=10)
    backlog = of(config, "bronze.activity").backlog
    assert backlog
    assert (backlog.files, backlog.bytes) == (2, 150)
    assert backlog.oldest_age == pytest.approx(1000, abs=5)
    assert (backlog.bytes_per_second, backlog.caught_up_in) == (None, None)
    for name in ("a.json", "b.json"):
        home.land(name, age=-3600)  # of a machine whose clock is ahead of ours
    backlog = of(config, "bronze.activity").backlog
    assert backlog
    assert (backlog.files, backlog.oldest_age) == (2, 0.0)


def test_backlog_estimate_from_the_last_busy_run(home: Home, config: Config) -> None:
    taken = {0: 9000, 1: 300, 2: 500}  # bytes by batch
    Ledger(home.layout, "activity").write(
        Entry("activity", f"landing/activity/{n}", 1, size, 1, 1, State.INGESTED, None, n, 1, 5)
        for n, size in taken.items()
    )
    record(config, "bronze.activity", first_batch=0, last_batch=0, rows_in=5, seconds=1.0)
    busy = {"started_at": START + 1, "first_batch": 1, "last_batch": 2, "rows_in": 10}
    record(config, "bronze.activity", **busy, seconds=4.0)
    empty = {"started_at": START + 2, "first_batch": 3, "last_batch": 3, "rows_in": 0}
    record(config, "bronze.activity", **empty, seconds=100.0)
    home.land("a.json", "x" * 700, age=20)
    found = of(config, "bronze.activity")
    assert found.backlog
    assert found.backlog.bytes_per_second == 200.0  # (300 + 500) bytes in 4 s
    assert found.backlog.caught_up_in == 3.5  # 700 bytes
    assert found.rows_in == 0  # of the last run


def test_rows_that_wait_for_a_query_that_never_ran(config: Config) -> None:
    add_rows(config, "bronze.activity", 3)
    add_rows(config, "bronze.activity", 4)
    assert of(config, "silver.activity").waiting_rows == 7
    assert of(config, "silver.event").waiting_rows == 0
    assert of(config, "gold.device_counts").waiting_rows == 0


@pytest.mark.parametrize(("read", "waiting"), [(1, 7), (2, 4), (3, 0)])
def test_rows_that_wait_for_a_query_that_did(config: Config, read: int, waiting: int) -> None:
    add_rows(config, "bronze.activity", 3)  # version 1, after the table itself
    add_rows(config, "bronze.activity", 4)
    checkpoints.write_completed(config.layout, "silver.activity", 8, version=1)
    checkpoints.write_completed(
        config.layout, "silver.activity", 9, read, watermark=1_519_984_953_000
    )
    found = of(config, "silver.activity")
    assert (found.last_batch, found.waiting_rows) == (9, waiting)
    assert found.watermark == "2018-03-02T10:02:33Z"


def damage(config: Config, table: str) -> str:
    """Truncate a table's newest commit; return the start of the error."""
    newest = max((config.layout.table(table) / "_delta_log").local.glob("*.json"))
    newest.write_bytes(b"")
    return f"{table}: {newest} is corrupt or truncated"


def test_a_damaged_table_is_reported_by_its_queries(config: Config) -> None:
    record(config, "silver.activity", rows_in=5)
    for table, count in (("bronze.activity", 3), ("bronze.event", 4)):
        add_rows(config, table, count)
    expected = damage(config, "bronze.activity")
    found = {one.query: one for one in query_statuses(config)}
    assert [n for n, one in found.items() if not one.is_known] == [*QUERIES[:1], "silver.activity"]
    assert found["bronze.activity"].state == "unknown"
    assert found["bronze.activity"].backlog, "files wait all the same"
    assert str(found["bronze.activity"].error).startswith(expected.partition(": ")[2])
    broken = found["silver.activity"]
    assert (broken.rows_in, broken.waiting_rows) == (5, None)
    assert str(broken.error).startswith(f"backlog unknown: {expected}")
    assert found["silver.event"].waiting_rows == 4
    offsets = config.layout.checkpoint("silver.event") / "offsets"
    checkpoints.write_completed(config.layout, "silver.event", 0, version=1)
    (offsets / "0").local.write_text("")
    assert not of(config, "silver.event").is_known


@pytest.mark.parametrize(
    ("place", "unknown"),
    [
        ("silver/activity", ["silver.activity", "gold.device_counts", "gold.device_totals"]),
        ("gold/device_totals/_delta_log", ["gold.device_totals"]),
        ("_checkpoints/silver.event", ["silver.event"]),
        ("silver", ["silver.activity", "silver.event", *QUERIES[4:]]),
        ("ops/runs", QUERIES),
    ],
)
def test_missing_permission_is_reported_by_its_queries(
    place: str, unknown: list[str], unprivileged_home: Home
) -> None:
    config = replace(load({}, PROJECT), layout=unprivileged_home.layout)
    for table in ("silver.activity", "silver.event", "gold.device_totals"):
        add_rows(config, table, 3)
    record(config, "silver.event")
    checkpoints.write_completed(config.layout, "silver.event", 0, version=1)
    with locks.lock_layers(config.layout, ["silver"], "run silver"):
        pass
    (config.layout.root / place).local.chmod(0)
    found = query_statuses(config)
    assert [one.query for one in found if not one.is_known] == unknown
    denied = [one.query for one in found if "Permission denied" in (one.error or "")]
    assert denied == unknown


def test_a_damaged_record_hides_no_backlog(home: Home, config: Config) -> None:
    home.land("a.json", "x" * 100)
    record(config, "bronze.activity")
    expected = damage(config, "ops.runs")
    found = query_statuses(config)
    assert {(one.state, one.is_known) for one in found} == {("unknown", False)}
    assert all(str(one.error).startswith(f"last run unknown: {expected}") for one in found)
    assert found[0].backlog
    assert found[0].backlog.bytes == 100


def test_the_last_run_counts_not_the_first(config: Config) -> None:
    record(config, "silver.event", state="failed", error="it broke", started_at=START)
    record(config, "silver.event", started_at=START + 60_000_000, rows_in=8, rows_out=5)
    found = of(config, "silver.event")
    assert (found.state, found.error) == ("done", None)
    assert (found.rows_in, found.rows_out) == (8, 5)
    assert found.last_run_at == "2023-11-14T22:14:20Z"


def test_a_failed_query_has_its_error(config: Config) -> None:
    record(config, "silver.event", started_at=START)
    record(config, "silver.event", state="failed", error="it broke", started_at=START + 1)
    found = query_statuses(config)
    assert of(config, "silver.event").state == "failed"
    document = status_json(found, Observations(RunState.empty()), LakehouseVerdict())
    (shown,) = (q for q in document["queries"] if q["query"] == "silver.event")
    assert shown["error"] == "it broke"
    json.dumps(document)


def test_a_gate_is_no_run_of_its_query(config: Config) -> None:
    record(config, "bronze.event", kind="gate", state="held")
    assert of(config, "bronze.event").state == "never run"


HOLD = """
import sys, time
from pathlib import Path
from medallion.storage import locks
from medallion.storage.paths import Layout
with locks.lock_layers(Layout(Path(sys.argv[1])), ["bronze", "silver"], "stream"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_what_another_process_runs_now(config: Config) -> None:
    record(config, "bronze.event", state="failed", error="it broke")
    arguments = [sys.executable, "-c", HOLD, str(config.layout.root)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(arguments, **pipes) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == "held\n"
        stream = f"medallion stream, pid {process.pid}"
        states = {one.query: one.state for one in query_statuses(config)}
        assert states.pop("bronze.event") == f"failed, retried by {stream}"
        assert {states.pop(query, None) for query in QUERIES[:4]} == {f"running ({stream})", None}
        assert set(states.values()) == {"never run"}
        with (
            pytest.raises(UsageError, match=str(process.pid)),
            locks.lock_layers(config.layout, ["bronze"], "run bronze"),
        ):
            pass
        process.stdin.close()
        process.wait(30)
    assert of(config, "bronze.event").state == "failed"
    assert of(config, "silver.event").state == "never run"


ASK = """
import sys, time
from pathlib import Path
from medallion.storage import locks
from medallion.storage.paths import Layout
while True:
    locks.lock_holder(Layout(Path(sys.argv[1])), "bronze")
    print("asked", flush=True)
    time.sleep(0.001)
"""


def test_status_never_blocks_a_run(config: Config) -> None:
    """Finding out who holds a layer's lock takes the lock for a moment."""
    with locks.lock_layers(config.layout, ["bronze"], "run bronze"):
        pass
    arguments = [sys.executable, "-c", ASK, str(config.layout.root)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            for _ in range(200):  # as often as it asks, and at least once beside each question
                assert process.stdout.readline() == "asked\n"
                for _ in range(5):
                    with locks.lock_layers(config.layout, ["bronze"], "run bronze"):
                        pass
            assert process.poll() is None
        finally:
            process.kill()


def test_status_writes_nothing(home: Home, config: Config) -> None:
    home.land("a.json")
    home.land("10:30.json")
    home.poll()
    home.land("b.json")
    add_rows(config, "bronze.activity", 3)
    record(config, "bronze.activity", rows_in=3)
    checkpoints.write_completed(config.layout, "silver.activity", 0, version=1, watermark=1000)
    before = tree(home.layout.root.local)
    status_text(query_statuses(config))
    assert tree(home.layout.root.local) == before
    assert len(ledger.read_entries(home.layout)) == 2

"""The status of each query, from records and checkpoints written by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from medallion.cli.render_runs import status_json, status_text
from medallion.config.model import Config
from medallion.errors import UsageError
from medallion.inspect.problems import LakehouseVerdict
from medallion.inspect.status import QueryStatus, query_statuses
from medallion.state import ledger
from medallion.state.ledger import Entry, Ledger, State
from medallion.storage import delta_tables, locks, records
from medallion.storage.table_specs import TableSpec
from tests.support import checkpoints, runs
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
    return home.project_config


def status_of(config: Config, query: str) -> QueryStatus:
    (status,) = (s for s in query_statuses(config) if s.query == query)
    return status


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


def test_status_before_the_first_run(config: Config) -> None:
    statuses = query_statuses(config)
    assert [status.query for status in statuses] == QUERIES
    assert {status.state for status in statuses} == {"never run"}
    assert not config.layout.root.local.exists()
    for status in statuses:
        assert (status.last_batch, status.last_run_at, status.rows_in, status.error) == (None,) * 4
        assert status.waiting_rows == (None if status.query.startswith("bronze") else 0)
    backlog = statuses[0].backlog
    assert backlog
    assert (backlog.files, backlog.bytes, backlog.oldest_age) == (0, 0, None)
    assert backlog.bytes_per_second is None


def test_backlog_of_files_before_the_first_run(home: Home, config: Config) -> None:
    home.land("a.json", "x" * 100, age=1000)
    home.land("b.json", "x" * 50, age=10)
    backlog = status_of(config, "bronze.activity").backlog
    assert backlog
    assert (backlog.files, backlog.bytes) == (2, 150)
    assert backlog.oldest_age == pytest.approx(1000, abs=5)
    assert backlog.bytes_per_second is None
    for name in ("a.json", "b.json"):
        home.land(name, age=-3600)  # written by a machine whose clock is ahead
    backlog = status_of(config, "bronze.activity").backlog
    assert backlog
    assert (backlog.files, backlog.oldest_age) == (2, 0.0)


def test_backlog_estimate_from_the_last_busy_run(home: Home, config: Config) -> None:
    sizes = {0: 9000, 1: 300, 2: 500}  # bytes by batch
    Ledger(home.layout, "activity").write(
        Entry("activity", f"landing/activity/{n}", 1, size, 1, 1, State.INGESTED, None, n, 1, 5)
        for n, size in sizes.items()
    )
    record(config, "bronze.activity", first_batch=0, last_batch=0, rows_in=5, seconds=1.0)
    busy = {"started_at": START + 1, "first_batch": 1, "last_batch": 2, "rows_in": 10}
    record(config, "bronze.activity", **busy, seconds=4.0)
    empty = {"started_at": START + 2, "first_batch": 3, "last_batch": 3, "rows_in": 0}
    record(config, "bronze.activity", **empty, seconds=100.0)
    home.land("a.json", "x" * 700, age=20)
    status = status_of(config, "bronze.activity")
    assert status.backlog
    assert status.backlog.bytes_per_second == 200.0  # (300 + 500) bytes in 4 s
    assert status.rows_in == 0  # of the last run


def test_waiting_rows_before_the_first_run(config: Config) -> None:
    add_rows(config, "bronze.activity", 3)
    add_rows(config, "bronze.activity", 4)
    assert status_of(config, "silver.activity").waiting_rows == 7
    assert status_of(config, "silver.event").waiting_rows == 0
    assert status_of(config, "gold.device_counts").waiting_rows == 0


@pytest.mark.parametrize(("read", "waiting"), [(1, 7), (2, 4), (3, 0)])
def test_waiting_rows_after_a_run(config: Config, read: int, waiting: int) -> None:
    add_rows(config, "bronze.activity", 3)  # version 1; version 0 created the table
    add_rows(config, "bronze.activity", 4)
    checkpoints.write_completed(config.layout, "silver.activity", 8, version=1)
    checkpoints.write_completed(
        config.layout, "silver.activity", 9, read, watermark=1_519_984_953_000
    )
    status = status_of(config, "silver.activity")
    assert (status.last_batch, status.waiting_rows) == (9, waiting)
    assert status.watermark == "2018-03-02T10:02:33Z"


def damage(config: Config, table: str) -> str:
    """Truncate a table's newest commit; return the start of the error."""
    newest = max((config.layout.table(table) / "_delta_log").local.glob("*.json"))
    newest.write_bytes(b"")
    return f"{table}: {newest} is corrupt or truncated"


def test_damaged_table_is_an_error_of_its_queries(config: Config) -> None:
    record(config, "silver.activity", rows_in=5)
    for table, count in (("bronze.activity", 3), ("bronze.event", 4)):
        add_rows(config, table, count)
    expected = damage(config, "bronze.activity")
    statuses = {status.query: status for status in query_statuses(config)}
    assert [n for n, status in statuses.items() if not status.is_known] == [
        *QUERIES[:1],
        "silver.activity",
    ]
    assert statuses["bronze.activity"].state == "unknown"
    assert statuses["bronze.activity"].backlog, "files wait all the same"
    assert str(statuses["bronze.activity"].error).startswith(expected.partition(": ")[2])
    silver = statuses["silver.activity"]
    assert (silver.rows_in, silver.waiting_rows) == (5, None)
    assert str(silver.error).startswith(f"backlog unknown: {expected}")
    assert statuses["silver.event"].waiting_rows == 4
    offsets = config.layout.checkpoint("silver.event") / "offsets"
    checkpoints.write_completed(config.layout, "silver.event", 0, version=1)
    (offsets / "0").local.write_text("")
    assert not status_of(config, "silver.event").is_known


@pytest.mark.parametrize(
    ("path", "unknown"),
    [
        ("silver/activity", ["silver.activity", "gold.device_counts", "gold.device_totals"]),
        ("gold/device_totals/_delta_log", ["gold.device_totals"]),
        ("_checkpoints/silver.event", ["silver.event"]),
        ("silver", ["silver.activity", "silver.event", *QUERIES[4:]]),
        ("ops/runs", QUERIES),
    ],
)
def test_missing_permission_is_an_error_of_its_queries(
    path: str, unknown: list[str], closable_home: Home
) -> None:
    config = closable_home.project_config
    for table in ("silver.activity", "silver.event", "gold.device_totals"):
        add_rows(config, table, 3)
    record(config, "silver.event")
    checkpoints.write_completed(config.layout, "silver.event", 0, version=1)
    with locks.lock_layers(config.layout, ["silver"], "run silver"):
        pass
    (config.layout.root / path).local.chmod(0)
    statuses = query_statuses(config)
    assert [status.query for status in statuses if not status.is_known] == unknown
    without_permission = [
        status.query for status in statuses if "Permission denied" in (status.error or "")
    ]
    assert without_permission == unknown


def test_damaged_run_history_hides_no_backlog(home: Home, config: Config) -> None:
    home.land("a.json", "x" * 100)
    record(config, "bronze.activity")
    expected = damage(config, "ops.runs")
    statuses = query_statuses(config)
    assert {(status.state, status.is_known) for status in statuses} == {("unknown", False)}
    assert all(str(status.error).startswith(f"last run unknown: {expected}") for status in statuses)
    assert statuses[0].backlog
    assert statuses[0].backlog.bytes == 100


def test_status_of_the_last_run(config: Config) -> None:
    record(config, "silver.event", state="failed", error="it broke", started_at=START)
    record(config, "silver.event", started_at=START + 60_000_000, rows_in=8, rows_out=5)
    status = status_of(config, "silver.event")
    assert (status.state, status.error) == ("done", None)
    assert (status.rows_in, status.rows_out) == (8, 5)
    assert status.last_run_at == "2023-11-14T22:14:20Z"


def test_failed_query_has_its_error(config: Config) -> None:
    record(config, "silver.event", started_at=START)
    record(config, "silver.event", state="failed", error="it broke", started_at=START + 1)
    statuses = query_statuses(config)
    assert status_of(config, "silver.event").state == "failed"
    document = status_json(statuses, LakehouseVerdict())
    (query,) = (q for q in document["queries"] if q["query"] == "silver.event")
    assert query["error"] == "it broke"
    json.dumps(document)


def test_gate_is_no_run_of_its_query(config: Config) -> None:
    record(config, "bronze.event", kind="gate", state="held")
    assert status_of(config, "bronze.event").state == "never run"


HOLD = """
import sys, time
from pathlib import Path
from medallion.storage import locks
from medallion.storage.layout import Layout
with locks.lock_layers(Layout(Path(sys.argv[1])), ["bronze", "silver"], "stream"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_status_of_queries_in_another_process(config: Config) -> None:
    record(config, "bronze.event", state="failed", error="it broke")
    arguments = [sys.executable, "-c", HOLD, str(config.layout.root)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(arguments, **pipes) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == "held\n"
        (stream,) = {locks.lock_holder(config.layout, "silver")}
        assert stream
        assert stream.startswith(f"pid {process.pid} (stream, since ")
        states = {status.query: status.state for status in query_statuses(config)}
        assert states.pop("bronze.event") == f"failed, retried by {stream}"
        assert {states.pop(query, None) for query in QUERIES[:4]} == {f"running: {stream}", None}
        assert set(states.values()) == {"never run"}
        with (
            pytest.raises(UsageError, match=str(process.pid)),
            locks.lock_layers(config.layout, ["bronze"], "run bronze"),
        ):
            pass
        process.stdin.close()
        process.wait(30)
    assert status_of(config, "bronze.event").state == "failed"
    assert status_of(config, "silver.event").state == "never run"


ASK = """
import sys, time
from pathlib import Path
from medallion.storage import locks
from medallion.storage.layout import Layout
while True:
    locks.lock_holder(Layout(Path(sys.argv[1])), "bronze")
    print("asked", flush=True)
    time.sleep(0.001)
"""


def test_status_never_blocks_a_run(config: Config) -> None:
    """Finding the holder of a layer's lock takes the lock for a moment."""
    with locks.lock_layers(config.layout, ["bronze"], "run bronze"):
        pass
    arguments = [sys.executable, "-c", ASK, str(config.layout.root)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            # The process polls the lock without a pause; lock several times per poll.
            for _ in range(200):
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

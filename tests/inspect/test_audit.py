"""The audit beside writers, and with tables that cannot be read."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medallion.cli.render_runs import balance_verdict
from medallion.config.loader import load
from medallion.config.model import Config, Kafka
from medallion.ingest.formats import record_format, refuse_format_change
from medallion.inspect import audit as module
from medallion.inspect.audit import run_audit
from medallion.inspect.overview import take_overview
from medallion.state import topics
from medallion.state.ledger import Entry, Ledger, State
from medallion.state.runs import Runs
from medallion.state.topics import PartitionProgress
from medallion.storage import locks, records, table_specs
from medallion.storage.table_specs import FILE_ORIGIN_COLUMNS
from tests.support import PROJECT, checkpoints, runs
from tests.support.home import Home

# A deletion vector, as Delta has it in its log: the first row of a file is deleted.
FIRST_ROW = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg00000",
    "sizeInBytes": 34,
    "cardinality": 1,
}


@pytest.mark.parametrize(("state", "is_balanced"), [("done", True), ("failed", False)])
def test_failed_recording_beside_a_stream_is_a_finding(
    state: str, is_balanced: bool, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last batch is unrecorded: for the moment, or because recording failed."""
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    config = replace(load({}, PROJECT), layout=home.layout)
    checkpoints.write_completed(config.layout, "bronze.activity", 0, version=1)
    row = {"kind": "query", "query": "bronze.activity", "started_at": 1, "state": state}
    Runs(config.layout).write([{**row, "error": None if is_balanced else "the disk is full"}])
    with locks.lock_layers(config.layout, ["bronze", "silver"], "stream"):
        found = run_audit(config, everything=True)
    assert found.is_balanced == is_balanced
    expected = ["bronze.activity: failed with unrecorded batches (the disk is full); "]
    assert [finding[: len(expected[0])] for finding in found.findings] == expected * (
        not is_balanced
    )
    assert found.unchecked == ("activity",)
    assert found.notes[-1] == "gold: not verified: activity is being written."


def test_interrupted_silver_is_reported_beside_bronze(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bronze's process does not record silver's batches, so the audit does not wait."""
    config = replace(load({}, PROJECT), layout=home.layout)
    checkpoints.write_completed(config.layout, "silver.activity", 0, version=1)
    rows(config, "silver.activity", 4, n="long")
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    messages: list[str] = []
    with locks.lock_layers(config.layout, ["bronze"], "run bronze"):
        found = run_audit(config, report=messages.append)
    expected = "silver.activity: a run was interrupted before its last batches were recorded"
    assert found.findings[0].startswith(expected)
    assert (found.is_balanced, found.unchecked, messages) == (False, (), [])
    checkpoints.write_completed(config.layout, "bronze.event", 0, version=1)
    with locks.lock_layers(config.layout, ["bronze"], "run bronze"):
        found = run_audit(config, report=messages.append)
    assert found.findings[0].startswith(expected)
    assert (found.is_balanced, found.unchecked) == (False, ("event",))
    assert messages == [f"waiting until {who()} has recorded its last batches"]
    assert found.notes[0].startswith(f"event: not checked: {who()} is writing it")


def who() -> str:
    return f"medallion run bronze, pid {os.getpid()}"


def rows(config: Config, table: str, count: int, **columns: str) -> Path:
    """Write a table of `count` empty rows; return the file of its last commit."""
    folder = config.layout.table(table)
    records.append_records(
        folder, replace(table_specs.table_spec(table), columns=columns), [{}] * count
    )
    return max((folder / "_delta_log").local.glob("*.json"))


@pytest.mark.parametrize("is_quick", [True, False])
def test_a_batch_that_ends_during_the_check_is_no_finding(
    is_quick: bool, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are in the ledger by then, and were not in the balance: it is checked again, unless
    the stream is quicker every time."""
    known = load({}, PROJECT)
    config = replace(known, layout=home.layout, sources={"event": known.sources["event"]}, gold={})
    batches = iter(range(100))

    def batch(*_: object) -> None:
        number = next(batches)
        if number < 2 or is_quick:
            rows(config, "bronze.event", 7, _source_file="string")
            file = Entry(
                "event", f"{number}.json", 1, 5, 0, 0, State.INGESTED, batch=number, rows=7
            )
            Ledger(home.layout, "event").write([file])
            row = {"kind": "query", "query": "bronze.event", "state": "done", "rows_in": 7}
            Runs(home.layout).write([{**row, "started_at": 1}])

    batch()
    monkeypatch.setattr(module, "refuse_format_change", batch)  # the first call of a check
    monkeypatch.setattr(module, "PATIENCE", 0.5 if is_quick else 60)
    with locks.lock_layers(config.layout, ["bronze", "silver"], "stream"):
        found = run_audit(config)
    assert (found.findings, found.is_balanced) == ((), True)
    assert found.unchecked == (("event",) if is_quick else ())
    assert ("not checked" in "".join(found.notes)) == is_quick
    assert is_quick or found.balances["event"].bronze_rows == 14


def test_an_unreadable_table_hides_no_other_finding(home: Home) -> None:
    config = replace(load({}, PROJECT), layout=home.layout)
    for source, count in (("activity", 2), ("event", 3)):
        last = rows(config, f"bronze.{source}", count, _source_file="string")
        if source == "activity":
            last.write_text("{")
    found = run_audit(config)
    assert found.findings[0].startswith(f"bronze.activity: {home.layout.root}/bronze/activity/")
    assert found.findings[1] == "event: 0 lines were read, but bronze has 3 rows."
    assert found.balances["event"].bronze_rows == 3
    assert not found.is_balanced


def balanced(home: Home) -> Config:
    """Two rows of activity, of which silver and quarantine have one each, and three of event."""
    config = replace(load({}, PROJECT), layout=home.layout)
    for source, count in (("activity", 2), ("event", 3)):
        rows(config, f"bronze.{source}", count, **FILE_ORIGIN_COLUMNS)
        runs.record(config, f"bronze.{source}", rows_in=count)
        Ledger(config.layout, source).write(
            [Entry(source, "a.json", 1, 5, 0, 0, State.INGESTED, batch=0, rows=count)]
        )
    for layer in ("silver", "quarantine"):
        rows(config, f"{layer}.activity", 1, n="long")
    checkpoints.write_completed(config.layout, "silver.activity", 0, version=2)
    runs.record(config, "silver.activity", last_batch=0)
    assert run_audit(config).is_balanced
    return config


def test_the_verdict_names_failed_queries(home: Home) -> None:
    config = balanced(home)
    row = {"kind": "query", "query": "gold.device_totals", "started_at": 1, "state": "failed"}
    Runs(config.layout).write([row])
    found = run_audit(config)
    assert (found.is_balanced, found.failed) == (True, ("gold.device_totals",))
    but = "the last run of gold.device_totals failed (medallion status)"
    assert balance_verdict(found) == f"balanced, but {but}"


@pytest.mark.parametrize("layer", ["bronze", "silver", "quarantine"])
@pytest.mark.parametrize("is_cut", [True, False])
def test_missing_data_files_are_a_finding(layer: str, is_cut: bool, home: Home) -> None:
    """A file that was removed, or truncated by an interrupted copy."""
    config = balanced(home)
    table = config.layout.table(f"{layer}.activity")
    (file,) = table.local.glob("*.parquet")
    if is_cut:
        file.write_bytes(file.read_bytes()[:-9])
    else:
        file.unlink()
    found = run_audit(config)
    (expected,) = found.findings
    gone = f"1 data file missing or truncated, such as {file.name}"
    again = f", or move {table} away and run medallion refresh silver.activity"
    assert expected == (
        f"{layer}.activity: the table at {table} cannot be read ({gone}): restore the "
        f"table's files from a copy{again if layer != 'bronze' else ''}."
    )
    assert not found.is_balanced
    assert found.balances["event"].bronze_rows == 3


@pytest.mark.parametrize("is_marked", [True, False])
def test_deletion_vectors_and_missing_stats_are_counted(is_marked: bool, home: Home) -> None:
    """A row that is deleted by a mark beside its file is one of the file's count; and of a file
    without a count, Delta's own reader says that it has none."""
    config = balanced(home)
    newest = config.layout.table("silver.activity") / "_delta_log" / f"{1:020}.json"
    actions = [json.loads(line) for line in newest.local.read_text(encoding="utf-8").splitlines()]
    (add,) = (action["add"] for action in actions if "add" in action)
    if is_marked:
        add["deletionVector"] = FIRST_ROW
        both = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
        actions.append({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **both}})
    else:
        del add["stats"]
    newest.local.write_text(
        "".join(f"{json.dumps(action)}\n" for action in actions), encoding="utf-8"
    )
    found = run_audit(config)
    assert found.is_balanced != is_marked
    expected = (
        "bronze has 2 rows, but silver, quarantine, duplicates, waiting, superseded and deleted "
        "rows add up to 1."
    )
    assert [line for line in found.findings if expected in line] == [
        f"activity: {expected}"
    ] * is_marked


@pytest.mark.parametrize(
    "place",
    [
        "bronze/activity",
        "bronze/activity/_delta_log",
        "_checkpoints/silver.activity",
        "ops/files",
    ],
)
def test_missing_permission_hides_no_other_finding(place: str, unprivileged_home: Home) -> None:
    config = balanced(unprivileged_home)
    (config.layout.root / place).local.chmod(0)
    found = run_audit(config)
    (expected,) = found.findings
    assert f"{config.layout.root}/{place}" in expected
    assert expected.endswith(": Permission denied.")
    assert found.balances["event"].bronze_rows == 3
    assert not found.is_balanced
    assert take_overview(config).audit == found


def test_an_unreadable_run_history_is_a_finding(home: Home) -> None:
    """Nothing can be balanced, but other findings are reported."""
    config = replace(load({}, PROJECT), layout=home.layout)
    runs.record(config, "bronze.event")
    newest = max((config.layout.table("ops.runs") / "_delta_log").local.glob("*.json"))
    newest.write_text("{")
    found = run_audit(config, everything=True)
    assert found.findings[0].startswith(f"ops.runs: {newest} is corrupt or truncated")
    assert not found.is_balanced


def test_a_changed_source_type_is_a_finding(home: Home) -> None:
    """The table is intact: it lacks the columns of messages."""
    config = replace(load({}, PROJECT), layout=home.layout)
    rows(config, "bronze.event", 1, **FILE_ORIGIN_COLUMNS)
    asked = Kafka(("127.0.0.1:1",), ("events",), "json", "earliest", 1)
    source = replace(config.sources["event"], format="kafka", stream=asked)
    found = run_audit(replace(config, sources={"event": source}, gold={}), everything=True)
    assert found.findings == (
        "event: 0 lines were read, but bronze has 1 row.",
        "bronze.event was written by another source type than kafka: give this source a new name.",
    )


@pytest.mark.parametrize(
    ("other", "known"), [({"format": "csv"}, True), ({"multi_line": True}, True), ({}, False)]
)
def test_a_changed_file_format_is_a_finding(other: dict[str, Any], known: bool, home: Home) -> None:
    """Ten lines of JSON are nine rows of CSV, and one document: each file would be a finding."""
    home.land("a.json", "{}\n" * 10)
    home.poll()
    record_format(home.config, home.source)
    home.change(**other)
    refuse_format_change(home.config, home.source)  # nothing was ingested so far
    home.ingest("a.json")
    rows(home.config, "bronze.activity", 10, **FILE_ORIGIN_COLUMNS)
    found = run_audit(home.config).findings
    expected = "bronze.activity has files that were ingested as json, not as"
    assert any(line.startswith(expected) for line in found) == known
    (home.layout.checkpoint("bronze.activity") / "medallion.json").local.unlink()
    refuse_format_change(home.config, home.source)  # of a lakehouse that is older than the note


def test_lost_and_waiting_input_is_a_note(home: Home) -> None:
    config = replace(load({}, PROJECT), layout=home.layout)
    states = [State.VANISHED, State.VANISHED, State.PENDING, State.REJECTED]
    files = (Entry("event", f"{n}.json", 1, 5, 0, 0, state=s) for n, s in enumerate(states))
    back = Entry("event", "back.json", 1, 5, 0, 0, state=State.VANISHED)
    came_back = replace(back, version=2, state=State.INGESTED)
    Ledger(home.layout, "event").write([*files, back, came_back])
    parts = [
        PartitionProgress("activity", "clicks", part, "id", 0, 9, 0, 0, lost=2) for part in (0, 1)
    ]
    topics.write_progress(
        home.layout,
        [*parts, PartitionProgress("activity", "new", 0, "id", 0, 9, 0, 0, made_anew=1)],
    )
    asked = Kafka(("127.0.0.1:1",), ("clicks", "new"), "json", "earliest", 1)
    source = replace(config.sources["activity"], format="kafka", stream=asked)
    found = run_audit(replace(config, sources={**config.sources, "activity": source}))
    assert found.is_balanced
    assert found.notes == (
        "activity: 4 offsets of topic clicks lost; topic new was recreated 1 time: messages not "
        "yet read are lost.",
        "event: 2 files gone without being ingested (medallion files --state vanished); 1 file not "
        "ingested yet (medallion files --state pending).",
    )

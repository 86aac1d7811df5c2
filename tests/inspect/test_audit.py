"""The audit beside writers, and with unreadable tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medallion.cli.render_runs import balance_verdict
from medallion.config.loader import load
from medallion.config.model import Config
from medallion.config.tables import Kafka
from medallion.ingest.formats import record_format, refuse_format_change
from medallion.inspect import audit as module
from medallion.inspect.audit import Audit, run_audit
from medallion.inspect.overview import take_overview
from medallion.state import topics
from medallion.state.ledger import Entry, Ledger, State
from medallion.state.runs import RunRecords
from medallion.state.topics import PartitionProgress
from medallion.storage import locks, records, table_specs
from medallion.storage.table_specs import FILE_ORIGIN_COLUMNS
from tests.support import PROJECT, checkpoints, runs
from tests.support.home import Home

# A deletion vector as in Delta's log: the first row of a file is deleted.
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
    """The last batch is not recorded yet, or its recording failed."""
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    config = home.project_config
    checkpoints.write_completed(config.layout, "bronze.activity", 0, version=1)
    row = {"kind": "query", "query": "bronze.activity", "started_at": 1, "state": state}
    RunRecords(config.layout).write([{**row, "error": None if is_balanced else "the disk is full"}])
    with locks.lock_layers(config.layout, ["bronze", "silver"], "stream"):
        audit = run_audit(config, everything=True)
    assert audit.is_balanced == is_balanced
    expected = ["bronze.activity: failed with unrecorded batches (the disk is full); "]
    assert [finding[: len(expected[0])] for finding in audit.findings] == expected * (
        not is_balanced
    )
    assert unchecked(audit) == ["activity"]
    assert audit.notes[-1] == "gold: not verified: activity is being written."


def test_interrupted_silver_is_reported_beside_bronze(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bronze's process does not record silver's batches, so the audit does not wait."""
    config = home.project_config
    checkpoints.write_completed(config.layout, "silver.activity", 0, version=1)
    rows(config, "silver.activity", 4, n="long")
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    messages: list[str] = []
    with locks.lock_layers(config.layout, ["bronze"], "run bronze"):
        audit = run_audit(config, report=messages.append)
    expected = "silver.activity: a run was interrupted before its last batches were recorded"
    assert audit.findings[0].startswith(expected)
    assert (audit.is_balanced, unchecked(audit), messages) == (False, [], [])
    checkpoints.write_completed(config.layout, "bronze.event", 0, version=1)
    with locks.lock_layers(config.layout, ["bronze"], "run bronze"):
        audit = run_audit(config, report=messages.append)
        holder = locks.lock_holder(config.layout, "bronze")
    assert audit.findings[0].startswith(expected)
    assert (audit.is_balanced, unchecked(audit)) == (False, ["event"])
    assert messages == [f"waiting until {holder} has recorded its last batches"]
    assert audit.notes[0].startswith(f"event: not checked: {holder} is writing it")


def unchecked(audit: Audit) -> list[str]:
    """Return the sources that were not checked."""
    return [each.subject for each in audit.problems if each.code == "not_checked"]


def rows(config: Config, table: str, count: int, **columns: str) -> Path:
    """Write a table of `count` empty rows; return the file of its last commit."""
    folder = config.layout.table(table)
    records.append_records(
        folder, replace(table_specs.table_spec(table), columns=columns), [{}] * count
    )
    return max((folder / "_delta_log").local.glob("*.json"))


@pytest.mark.parametrize("is_quick", [True, False])
def test_batch_that_ends_during_the_check_is_no_finding(
    is_quick: bool, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit repeats a check during which a batch ends, until its patience ends."""
    project = load({}, PROJECT)
    config = replace(
        project, layout=home.layout, sources={"event": project.sources["event"]}, gold={}
    )
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
            RunRecords(home.layout).write([{**row, "started_at": 1}])

    batch()
    monkeypatch.setattr(module, "refuse_format_change", batch)  # called first in a check
    monkeypatch.setattr(module, "PATIENCE", 0.5 if is_quick else 60)
    with locks.lock_layers(config.layout, ["bronze", "silver"], "stream"):
        audit = run_audit(config)
    assert (audit.findings, audit.is_balanced) == ((), True)
    assert unchecked(audit) == ["event"] * is_quick
    assert ("not checked" in "".join(audit.notes)) == is_quick
    assert is_quick or audit.balances["event"].bronze_rows == 14


def test_unreadable_table_hides_no_other_finding(home: Home) -> None:
    config = home.project_config
    for source, count in (("activity", 2), ("event", 3)):
        last = rows(config, f"bronze.{source}", count, _source_file="string")
        if source == "activity":
            last.write_text("{")
    audit = run_audit(config)
    assert audit.findings[0].startswith(f"bronze.activity: {home.layout.root}/bronze/activity/")
    assert audit.findings[1] == "event: 0 lines were read, but bronze has 3 rows."
    assert audit.balances["event"].bronze_rows == 3
    assert not audit.is_balanced


def balanced(home: Home) -> Config:
    """Record two rows of activity (one in silver, one in quarantine), and three of event."""
    config = home.project_config
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


def test_balance_verdict_names_failed_queries(home: Home) -> None:
    config = balanced(home)
    row = {"kind": "query", "query": "gold.device_totals", "started_at": 1, "state": "failed"}
    RunRecords(config.layout).write([row])
    audit = run_audit(config)
    assert audit.is_balanced
    assert balance_verdict(audit) == "balanced, but failed: gold.device_totals"


@pytest.mark.parametrize("layer", ["bronze", "silver", "quarantine"])
@pytest.mark.parametrize("is_truncated", [True, False])
def test_missing_data_files_are_a_finding(layer: str, is_truncated: bool, home: Home) -> None:
    """The file was removed, or truncated by an interrupted copy."""
    config = balanced(home)
    table = config.layout.table(f"{layer}.activity")
    (file,) = table.local.glob("*.parquet")
    if is_truncated:
        file.write_bytes(file.read_bytes()[:-9])
    else:
        file.unlink()
    audit = run_audit(config)
    (expected,) = audit.findings
    problem = f"1 data file missing or truncated, such as {file.name}"
    move_away = f", or move {table} away and run medallion refresh silver.activity"
    assert expected == (
        f"{layer}.activity: the table at {table} cannot be read ({problem}): restore the "
        f"table's files from a copy{move_away if layer != 'bronze' else ''}."
    )
    assert not audit.is_balanced
    assert audit.balances["event"].bronze_rows == 3


@pytest.mark.parametrize("has_deletion_vector", [True, False])
def test_deletion_vectors_and_missing_stats_are_counted(
    has_deletion_vector: bool, home: Home
) -> None:
    """Deleted rows still count in their file; a file without statistics is read."""
    config = balanced(home)
    newest = config.layout.table("silver.activity") / "_delta_log" / f"{1:020}.json"
    actions = [json.loads(line) for line in newest.local.read_text(encoding="utf-8").splitlines()]
    (add,) = (action["add"] for action in actions if "add" in action)
    if has_deletion_vector:
        add["deletionVector"] = FIRST_ROW
        features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
        actions.append({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    else:
        del add["stats"]
    newest.local.write_text(
        "".join(f"{json.dumps(action)}\n" for action in actions), encoding="utf-8"
    )
    audit = run_audit(config)
    assert audit.is_balanced != has_deletion_vector
    expected = (
        "bronze has 2 rows, but silver, quarantine, duplicates, waiting, superseded and deleted "
        "rows add up to 1."
    )
    assert [line for line in audit.findings if expected in line] == [
        f"activity: {expected}"
    ] * has_deletion_vector


@pytest.mark.parametrize(
    "path",
    [
        "bronze/activity",
        "bronze/activity/_delta_log",
        "_checkpoints/silver.activity",
        "ops/files",
    ],
)
def test_missing_permission_hides_no_other_finding(path: str, closable_home: Home) -> None:
    config = balanced(closable_home)
    (config.layout.root / path).local.chmod(0)
    audit = run_audit(config)
    (expected,) = audit.findings
    assert f"{config.layout.root}/{path}" in expected
    assert expected.endswith(": Permission denied.")
    assert audit.balances["event"].bronze_rows == 3
    assert not audit.is_balanced
    assert take_overview(config).audit == audit


def test_unreadable_run_history_is_a_finding(home: Home) -> None:
    """Nothing can be balanced, but other findings are reported."""
    config = home.project_config
    runs.record(config, "bronze.event")
    newest = max((config.layout.table("ops.runs") / "_delta_log").local.glob("*.json"))
    newest.write_text("{")
    audit = run_audit(config, everything=True)
    assert audit.findings[0].startswith(f"ops.runs: {newest} is corrupt or truncated")
    assert not audit.is_balanced


def test_changed_source_type_is_a_finding(home: Home) -> None:
    """The table is intact: it lacks the columns of messages."""
    config = home.project_config
    rows(config, "bronze.event", 1, **FILE_ORIGIN_COLUMNS)
    kafka = Kafka(("127.0.0.1:1",), ("events",), "json", "earliest", 1)
    source = replace(config.sources["event"], format="kafka", stream=kafka)
    audit = run_audit(replace(config, sources={"event": source}, gold={}), everything=True)
    assert audit.findings == (
        "event: 0 lines were read, but bronze has 1 row.",
        "bronze.event was written by another source type than kafka: give this source a new name.",
    )


@pytest.mark.parametrize(
    ("changes", "is_finding"),
    [({"format": "csv"}, True), ({"multi_line": True}, True), ({}, False)],
)
def test_changed_file_format_is_a_finding(
    changes: dict[str, Any], is_finding: bool, home: Home
) -> None:
    """Ten lines of JSON are nine rows of CSV or one document: each file would be a finding."""
    home.land("a.json", "{}\n" * 10)
    home.poll()
    record_format(home.config, home.source)
    home.change(**changes)
    refuse_format_change(home.config, home.source)  # nothing was ingested so far
    home.ingest("a.json")
    rows(home.config, "bronze.activity", 10, **FILE_ORIGIN_COLUMNS)
    findings = run_audit(home.config).findings
    expected = "bronze.activity has files that were ingested as json, not as"
    assert any(line.startswith(expected) for line in findings) == is_finding
    (home.layout.checkpoint("bronze.activity") / "medallion.json").local.unlink()
    # A lakehouse from before the format was recorded.
    refuse_format_change(home.config, home.source)


def test_lost_and_waiting_input_is_a_note(home: Home) -> None:
    config = home.project_config
    states = [State.VANISHED, State.VANISHED, State.PENDING, State.REJECTED]
    files = (Entry("event", f"{n}.json", 1, 5, 0, 0, state=s) for n, s in enumerate(states))
    vanished = Entry("event", "back.json", 1, 5, 0, 0, state=State.VANISHED)
    reappeared = replace(vanished, version=2, state=State.INGESTED)
    Ledger(home.layout, "event").write([*files, vanished, reappeared])
    parts = [
        PartitionProgress("activity", "clicks", part, "id", 0, 9, 0, 0, lost=2) for part in (0, 1)
    ]
    topics.write_progress(
        home.layout,
        [*parts, PartitionProgress("activity", "new", 0, "id", 0, 9, 0, 0, made_anew=1)],
    )
    kafka = Kafka(("127.0.0.1:1",), ("clicks", "new"), "json", "earliest", 1)
    source = replace(config.sources["activity"], format="kafka", stream=kafka)
    audit = run_audit(replace(config, sources={**config.sources, "activity": source}))
    assert audit.is_balanced
    assert audit.notes == (
        "activity: 4 offsets of topic clicks lost; topic new was recreated 1 time: messages not "
        "yet read are lost.",
        "event: 2 files gone without being ingested (medallion files --state vanished); 1 file not "
        "ingested yet (medallion files --state pending).",
    )

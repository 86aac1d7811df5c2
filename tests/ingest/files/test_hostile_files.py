"""Hostile files, all in one lakehouse: each is ingested or rejected as the catalogue specifies."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.inspect.audit import run_audit
from medallion.state import ledger
from medallion.state.ledger import Entry, State
from tests.support.hostile_files import CATALOGUE, NOT_UTF8
from tests.support.hostile_lines import HostileFile
from tests.support.lakehouse import Lakehouse

COLUMNS = ("Device", "Index", "x", "Recorded_At", "_rescued_data", "_corrupt_record")
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Ingested:
    """The ledger and bronze after one run."""

    lakehouse: Lakehouse
    entries: dict[str, Entry]
    rows: dict[str, Rows]


def land(root: Path, case: HostileFile) -> None:
    path = root / case.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if case.make:
        case.make(path)
    else:
        path.write_bytes(case.content)
    if case.modified_at is not None:
        os.utime(path, (case.modified_at, case.modified_at))


@pytest.fixture(scope="module")
def ingested(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    """Run bronze once over the whole catalogue."""
    lakehouse = Lakehouse(spark, tmp_path_factory.mktemp("hostile") / "lakehouse")
    lakehouse.keep_only("activity", "event", "device_counts", "action_counts")
    # Otherwise the unknown fields would be columns, and rescued data would be empty.
    sources = {
        name: replace(source, schema_evolution="rescue")
        for name, source in lakehouse.config.sources.items()
    }
    lakehouse.config = replace(lakehouse.config, sources=sources)
    for case in (*CATALOGUE, NOT_UTF8):
        land(lakehouse.root, case)
    lakehouse.fill("bronze")
    rows: dict[str, Rows] = defaultdict(list)
    for file, *values in lakehouse.rows("bronze.activity", "_source_file", *COLUMNS):
        rows[file].append(dict(zip(COLUMNS, values, strict=True)))
    entries = {entry.path: entry for entry in ledger.read_entries(lakehouse.config.layout)}
    return Ingested(lakehouse, entries, rows)


def pairs(text: str) -> Any:
    """Parse JSON with all fields of an object, including duplicates, in any order."""
    return json.loads(text, object_pairs_hook=lambda fields: sorted(fields, key=repr))


def state_of(entry: Entry | None) -> str | None:
    """Return the state, with archived as ingested."""
    if entry is None:
        return None
    return State.INGESTED if entry.state == State.ARCHIVED else entry.state


@pytest.mark.parametrize("case", CATALOGUE, ids=[case.name for case in CATALOGUE])
def test_hostile_file(ingested: Ingested, case: HostileFile) -> None:
    entry, rows = ingested.entries.get(case.path), ingested.rows.get(case.path, [])
    assert state_of(entry) == case.state, entry
    assert len(rows) == case.rows
    assert sum(row["_corrupt_record"] is not None for row in rows) == case.corrupt
    assert sum(row["_rescued_data"] is not None for row in rows) == case.rescued
    for column, values in case.expected_values.items():
        assert Counter(row[column] for row in rows) == Counter(values), column
    if case.raw is not None:
        assert Counter(row["_corrupt_record"] for row in rows) == Counter(case.raw)
    if case.rescued_data is not None:
        rescued = [row["_rescued_data"] for row in rows if row["_rescued_data"] is not None]
        assert [pairs(text) for text in rescued] == [pairs(text) for text in case.rescued_data]
    if entry is None:
        return
    assert case.reason in (entry.why or "")
    if case.state == State.INGESTED:
        counts = (entry.rows, entry.corrupt_rows, entry.rescued_rows)
        assert counts == (case.rows, case.corrupt, case.rescued)
        assert entry.why is None


@pytest.mark.parametrize(
    "case", [k for k in CATALOGUE if k.state == State.REJECTED], ids=lambda case: case.name
)
def test_rejected_file_is_moved_with_its_reason(ingested: Ingested, case: HostileFile) -> None:
    root, entry = ingested.lakehouse.root, ingested.entries[case.path]
    assert entry.moved_to
    assert entry.moved_to.startswith(f"rejected/{case.source}/")
    moved = root / entry.moved_to
    assert os.path.lexists(moved)
    assert not os.path.lexists(root / entry.path)
    reasons = [file.read_bytes().decode() for file in moved.parent.glob("*.reason.txt")]
    assert f"{entry.path}: {entry.why}\n" in reasons
    if not case.make:
        assert moved.read_bytes() == case.content


@pytest.mark.slow  # a smaller selection runs in all layers in e2e/test_bad_input
def test_next_nightly_run_balances(ingested: Ingested) -> None:
    """Silver, gates and gold handle all rows, and bronze its new columns."""
    lakehouse = ingested.lakehouse
    lakehouse.land("activity", "afterwards.json", '{"Device":"d","field_7":7,"field_8":"x"}')
    lakehouse.nightly()
    audit = run_audit(lakehouse.config, everything=True)
    assert audit.findings == ()
    assert audit.is_balanced
    balance = audit.balances["activity"]
    assert balance.landed_lines == balance.bronze_rows == 1 + sum(case.rows for case in CATALOGUE)
    assert balance.waiting_rows == 0


def test_name_that_is_not_utf8_is_reported_escaped(ingested: Ingested) -> None:
    (name,) = [path for path in ingested.entries if path.startswith("landing/activity/bytes")]
    assert (ingested.entries[name].state, ingested.entries[name].rows) == (State.PENDING, None)
    assert (ingested.lakehouse.root / NOT_UTF8.path).read_bytes() == NOT_UTF8.content


def test_ledger_has_every_path_once(ingested: Ingested) -> None:
    """Except hidden files so new that they may still be written."""
    expected = {case.path for case in CATALOGUE if case.state}
    assert expected <= set(ingested.entries)
    rows = {path for path, entry in ingested.entries.items() if entry.rows}
    assert set(ingested.rows) == rows
    assert len(expected) + 1 == len(ingested.entries)  # plus the name that is not UTF-8

"""Hostile files, all in one lakehouse: each becomes what the catalogue says."""

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
class Taken:
    """What the ledger and bronze had after one run."""

    lakehouse: Lakehouse
    entries: dict[str, Entry]
    rows: dict[str, Rows]


def land(root: Path, kind: HostileFile) -> None:
    path = root / kind.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind.make:
        kind.make(path)
    else:
        path.write_bytes(kind.content)
    if kind.modified_at is not None:
        os.utime(path, (kind.modified_at, kind.modified_at))


@pytest.fixture(scope="module")
def taken(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Taken:
    """After one run of bronze over the whole catalogue."""
    lakehouse = Lakehouse(spark, tmp_path_factory.mktemp("hostile") / "lakehouse")
    lakehouse.keep_only("activity", "event", "device_counts", "action_counts")
    # Else the many unknown fields would be columns, and rescue nothing.
    sources = {
        name: replace(source, schema_evolution="rescue")
        for name, source in lakehouse.config.sources.items()
    }
    lakehouse.config = replace(lakehouse.config, sources=sources)
    for kind in (*CATALOGUE, NOT_UTF8):
        land(lakehouse.root, kind)
    lakehouse.pipeline().run("bronze")
    rows: dict[str, Rows] = defaultdict(list)
    for file, *values in lakehouse.rows("bronze.activity", "_source_file", *COLUMNS):
        rows[file].append(dict(zip(COLUMNS, values, strict=True)))
    entries = {entry.path: entry for entry in ledger.read_entries(lakehouse.config.layout)}
    return Taken(lakehouse, entries, rows)


def pairs(written: str) -> Any:
    """JSON with every field of an object, also one that is there twice, in any order."""
    return json.loads(written, object_pairs_hook=lambda found: sorted(found, key=repr))


def state_of(entry: Entry | None) -> str | None:
    """The state; archived is what a file becomes after it was ingested."""
    if entry is None:
        return None
    return State.INGESTED if entry.state == State.ARCHIVED else entry.state


@pytest.mark.parametrize("kind", CATALOGUE, ids=[kind.name for kind in CATALOGUE])
def test_kind(taken: Taken, kind: HostileFile) -> None:
    entry, rows = taken.entries.get(kind.path), taken.rows.get(kind.path, [])
    assert state_of(entry) == kind.state, entry
    assert len(rows) == kind.rows
    assert sum(row["_corrupt_record"] is not None for row in rows) == kind.corrupt
    assert sum(row["_rescued_data"] is not None for row in rows) == kind.rescued
    for column, values in kind.expected_values.items():
        assert Counter(row[column] for row in rows) == Counter(values), column
    if kind.raw is not None:
        assert Counter(row["_corrupt_record"] for row in rows) == Counter(kind.raw)
    if kind.rescued_data is not None:
        found = [row["_rescued_data"] for row in rows if row["_rescued_data"] is not None]
        assert [pairs(text) for text in found] == [pairs(text) for text in kind.rescued_data]
    if entry is None:
        return
    assert kind.reason in (entry.why or "")
    if kind.state == State.INGESTED:
        counts = (entry.rows, entry.corrupt_rows, entry.rescued_rows)
        assert counts == (kind.rows, kind.corrupt, kind.rescued)
        assert entry.why is None


@pytest.mark.parametrize(
    "kind", [k for k in CATALOGUE if k.state == State.REJECTED], ids=lambda kind: kind.name
)
def test_a_rejected_file_lies_in_rejected_with_its_reason(taken: Taken, kind: HostileFile) -> None:
    root, entry = taken.lakehouse.root, taken.entries[kind.path]
    assert entry.moved_to
    assert entry.moved_to.startswith(f"rejected/{kind.source}/")
    moved = root / entry.moved_to
    assert os.path.lexists(moved)
    assert not os.path.lexists(root / entry.path)
    reasons = [file.read_bytes().decode() for file in moved.parent.glob("*.reason.txt")]
    assert f"{entry.path}: {entry.why}\n" in reasons
    if not kind.make:
        assert moved.read_bytes() == kind.content


@pytest.mark.slow  # of bad lines and files in all layers; those of fewer kinds: e2e/test_bad_input
def test_a_night_after_it_balances(taken: Taken) -> None:
    """Silver, gates and gold come to terms with it all, and bronze with the fields it learned."""
    lakehouse = taken.lakehouse
    lakehouse.land("activity", "afterwards.json", '{"Device":"d","field_7":7,"field_8":"x"}')
    lakehouse.nightly()
    found = run_audit(lakehouse.config, everything=True)
    assert found.findings == ()
    assert found.is_balanced
    balance = found.balances["activity"]
    assert balance.landed_lines == balance.bronze_rows == 1 + sum(kind.rows for kind in CATALOGUE)
    assert balance.waiting_rows == 0


def test_a_name_that_is_not_utf8_is_told_as_it_can_be_spelled(taken: Taken) -> None:
    (name,) = [path for path in taken.entries if path.startswith("landing/activity/bytes")]
    assert (taken.entries[name].state, taken.entries[name].rows) == (State.PENDING, None)
    assert (taken.lakehouse.root / NOT_UTF8.path).read_bytes() == NOT_UTF8.content


def test_every_path_is_in_the_ledger_and_in_one_place(taken: Taken) -> None:
    """What lies in landing is known, or so fresh and hidden that it may still be written."""
    told = {kind.path for kind in CATALOGUE if kind.state}
    assert told <= set(taken.entries)
    rows = {path for path, entry in taken.entries.items() if entry.rows}
    assert set(taken.rows) == rows
    assert len(told) + 1 == len(taken.entries)  # and that which is not UTF-8

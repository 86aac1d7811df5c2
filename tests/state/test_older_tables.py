"""Tables that are older than their records; e2e/test_checkpoints has a nightly run with one."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from medallion.runtime import maintenance
from medallion.runtime.recorder import flow_row
from medallion.state import pending_work
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables, records, table_specs
from medallion.storage.paths import StoragePath
from tests.support.checkpoints import write_completed
from tests.support.lakehouse import Lakehouse

GOLD, SILVER = "gold.device_totals", "silver.activity"


@pytest.fixture
def home(tmp_path: Path) -> Lakehouse:
    home = Lakehouse(None, tmp_path)
    write(home, SILVER, 4)
    return home


def write(home: Lakehouse, table: str, commits: int) -> Path:
    """Add commits to a table, which is created if it is missing."""
    path = home.layout.table(table)
    for _ in range(commits):
        records.append_records(
            path, replace(table_specs.table_spec(table), columns={"n": "long"}), [{"n": 1}]
        )
    return path.local


def has_older_table(home: Lakehouse, query: str) -> bool:
    """Return whether a query reports an older table; a nightly run must agree."""
    runs = RunRecords(home.layout)
    checkpoint = home.layout.checkpoint(query)
    checkpoint.local.mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").local.write_text('{"id": "one"}')
    reason = pending_work.older_table_reason(home.config, runs, query)
    reasons = set(pending_work.unfinished_reasons(home.config, runs, query))
    assert (pending_work.WorkReason.OUTDATED_TABLE in reasons) == (reason is not None)
    return reason is not None


def restore(table: Path, copy: Path) -> None:
    shutil.rmtree(table)
    shutil.copytree(copy, table)


def test_older_table_by_its_readers(home: Lakehouse) -> None:
    silver, copy = home.layout.table(SILVER), home.layout.root / "copy"
    shutil.copytree(silver, copy)
    write(home, SILVER, 3)
    newest, checkpoint = delta_tables.table_version(silver), home.layout.checkpoint(GOLD)
    write_completed(home.layout, GOLD, 0, newest + 1, of=delta_tables.table_id(silver))
    write(home, GOLD, 1)
    RunRecords(home.layout).write([run_record(home, GOLD)])
    assert not has_older_table(home, GOLD)
    assert not has_older_table(home, SILVER)
    restore(silver.local, copy.local)
    assert has_older_table(home, GOLD)
    assert has_older_table(home, SILVER)  # its next commit would reuse a version that gold has read
    assert pending_work.older_table_reason(home.config, RunRecords(home.layout), GOLD) == (
        "gold.device_totals cannot start: silver.activity is older than its records. Restore "
        "the whole root from one backup, or rebuild gold.device_totals from the existing rows "
        "with medallion refresh gold.device_totals."
    )
    # A truncated offset is repaired or rejected by its query.
    (checkpoint / "offsets/0").local.write_text("v1\n{")
    assert not pending_work.has_read_more(checkpoint, silver)


def run_record(home: Lakehouse, query: str) -> dict[str, object]:
    version = delta_tables.table_version(home.layout.table(query))
    row = {"kind": "query", "query": query, "state": "done", "started_at": time.time_ns() // 1000}
    return {**row, "first_batch": 0, "last_batch": 0, "table_version": version}


def test_older_table_by_the_record(home: Lakehouse) -> None:
    """A table that was moved away restarts at version 0 and is not an older copy."""
    gold, copy = write(home, GOLD, 2), home.layout.root / "copy"
    shutil.copytree(gold, copy)
    write(home, GOLD, 3)
    write_completed(home.layout, GOLD, 0, 1, of=delta_tables.table_id(home.layout.table(SILVER)))
    RunRecords(home.layout).write([run_record(home, GOLD)])
    assert not has_older_table(home, GOLD)
    restore(gold, copy.local)
    assert has_older_table(home, GOLD)
    frequent = replace(home.config, maintain=replace(home.config.maintain, compact_from=2))
    for _ in range(3):  # each run would add a commit
        notes = maintenance.maintain(frequent, RunRecords(home.layout), ["gold"]).notes
    assert any(f"{GOLD}: left as it is" in note for note in notes)
    assert has_older_table(home, GOLD)
    shutil.rmtree(gold)
    assert pending_work.older_table_reason(home.config, RunRecords(home.layout), GOLD) is None
    write(home, GOLD, 1)
    RunRecords(home.layout).write([run_record(home, GOLD)])
    assert not has_older_table(home, GOLD)
    # The next runs count only what they wrote, not all rows since the table was created.
    for rows in (1, 2):
        write(home, GOLD, rows)
        row = flow_row(RunRecords(home.layout), flow_of(GOLD, StoragePath(gold)), {})
        assert (row["rows_out"], row["table_version"]) == (
            rows,
            delta_tables.table_version(StoragePath(gold)),
        )
        RunRecords(home.layout).write([row])


def flow_of(table: str, path: StoragePath) -> Any:
    run = Mock(started_at=0, seconds=1.0, batches={})
    run.configure_mock(**{"error.return_value": None, "watermark.return_value": None})
    flow = Mock(targets=[table], target_paths=[path], started_run=run)
    flow.name = table  # a reserved argument of Mock
    return flow


def test_older_table_of_bronze(home: Lakehouse) -> None:
    """Bronze resumes only with the table that its record is about."""
    name = "bronze.activity"
    bronze, copy = write(home, name, 2), home.layout.root / "copy"
    shutil.copytree(bronze, copy)
    write(home, name, 1)
    RunRecords(home.layout).write([run_record(home, name)])
    write_completed(home.layout, name, 0, 1)
    assert not has_older_table(home, name)
    restore(bronze, copy.local)
    assert has_older_table(home, name)
    assert pending_work.older_table_reason(home.config, RunRecords(home.layout), name) == (
        "bronze.activity cannot start: bronze.activity is older than its records. Restore "
        "the whole root from one backup."
    )

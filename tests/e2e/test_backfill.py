"""Backfills while nothing else runs; test_processes has one beside a stream."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from medallion.inspect.audit import run_audit
from medallion.runtime import backfill
from medallion.state import journal
from medallion.state.journal import Backfill
from medallion.storage.paths import StoragePath
from tests.support.command import Cli
from tests.support.lakehouse import Lakehouse
from tests.support.old_files import old_files


def test_backfill_while_nothing_runs(lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """This run also completes an earlier backfill that was interrupted."""
    lakehouse.keep_only("event", "action_counts")
    monkeypatch.setattr(backfill, "open_pipeline", lambda *_: nullcontext(lakehouse.pipeline()))
    layout = lakehouse.config.layout
    interrupted, folder = lakehouse.root / "interrupted run", lakehouse.root / "elsewhere"
    old_files(folder)
    old_files(interrupted)
    backfill.request_backfill(lakehouse.config, "event", interrupted)
    messages: list[str] = []
    result = backfill.run_backfill(lakehouse.config, "event", folder, messages.append)
    assert (result.files, result.new_files, result.rows) == (3, 2, 5)
    (refused,) = result.refused
    assert layout.root / refused.path == StoragePath(folder / "c.json")
    assert "PNG" in (refused.why or "")
    # Files outside of landing stay in place.
    assert sorted(f.name for f in folder.rglob("*.json")) == ["a.json", "b.json", "c.json"]
    assert journal.read_entries(lakehouse.config, Backfill) == []
    second = backfill.run_backfill(
        lakehouse.config, "event", folder / ".." / "elsewhere", messages.append
    )
    assert second.new_files == 0
    audit = run_audit(lakehouse.config)
    assert audit.is_balanced
    balance = audit.balances["event"]
    # The other directory has the same four rows.
    assert (balance.bronze_rows, balance.silver_rows, balance.duplicate_rows) == (10, 4, 6)
    totals = lakehouse.rows("gold.action_counts", "total_events")
    assert sum(count for (count,) in totals) == 4


@pytest.mark.slow
def test_backfill_command_while_nothing_runs(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    old_files(folder)
    process = cli("backfill", "event", str(folder), "--json")
    assert process.returncode == 1, process.stderr  # one file was refused
    result = json.loads(process.stdout)
    assert (result["files"], result["new_files"], result["rows"]) == (3, 2, 5)
    (refused,) = result["refused"]
    assert refused["path"] == str(folder / "c.json")
    balance = cli.json("audit", "--deep")["sources"]["event"]
    assert balance["bronze_rows"] == 5
    assert (balance["silver_rows"], balance["duplicate_rows"]) == (4, 1)
    counts = cli.json("sql", "select sum(total_events) from gold.action_counts")["rows"]
    assert counts == [[4]]

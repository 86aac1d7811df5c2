"""Files from anywhere, taken in once, where nothing is running; beside a stream: test_processes."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from medallion.ingest.files import discovery
from medallion.inspect.audit import run_audit
from medallion.runtime import backfill
from medallion.storage.paths import StoragePath
from tests.support.command import Cli
from tests.support.lakehouse import Lakehouse
from tests.support.old_files import old_files


def test_a_backfill_with_nothing_running(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a request that was cut off, which this run sees to as well."""
    lakehouse.keep_only("event", "action_counts")
    monkeypatch.setattr(backfill, "open_pipeline", lambda *_: nullcontext(lakehouse.pipeline()))
    layout = lakehouse.config.layout
    cut_off, folder = lakehouse.root / "cut off", lakehouse.root / "elsewhere"
    old_files(folder)
    old_files(cut_off)
    discovery.request_backfill(layout, "event", cut_off)
    said: list[str] = []
    found = backfill.run_backfill(lakehouse.config, "event", folder, said.append)
    assert (found.files, found.new_files, found.rows) == (3, 2, 5)
    (refused,) = found.refused
    assert layout.root / refused.path == StoragePath(folder / "c.json")
    assert "PNG" in (refused.why or "")
    # They are their owner's: each lies where it lay.
    assert sorted(f.name for f in folder.rglob("*.json")) == ["a.json", "b.json", "c.json"]
    assert discovery.pending_backfills(layout, "event") == []
    again = backfill.run_backfill(
        lakehouse.config, "event", folder / ".." / "elsewhere", said.append
    )
    assert again.new_files == 0
    found_by_audit = run_audit(lakehouse.config, everything=True)
    assert found_by_audit.findings == ()
    balance = found_by_audit.balances["event"]
    # Four rows, which the other folder repeats.
    assert (balance.bronze_rows, balance.silver_rows, balance.duplicate_rows) == (10, 4, 6)
    counted = lakehouse.rows("gold.action_counts", "total_events")
    assert sum(count for (count,) in counted) == 4


@pytest.mark.slow
def test_the_command_of_a_backfill_with_nothing_running(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    old_files(folder)
    done = cli("backfill", "event", str(folder), "--json")
    assert done.returncode == 1, done.stderr  # one file was refused
    found = json.loads(done.stdout)
    assert (found["files"], found["new_files"], found["rows"]) == (3, 2, 5)
    (refused,) = found["refused"]
    assert refused["path"] == str(folder / "c.json")
    balance = cli.json("audit", "--deep")["sources"]["event"]
    assert balance["bronze_rows"] == 5
    assert (balance["silver_rows"], balance["duplicate_rows"]) == (4, 1)
    counts = cli.json("sql", "select sum(total_events) from gold.action_counts")["rows"]
    assert counts == [[4]]

"""Streams continue over tables whose old files and commits were compacted and removed."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from medallion.config.values import Duration
from medallion.inspect.audit import run_audit
from medallion.runtime import maintenance, refresh
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables
from tests.support.lakehouse import Lakehouse
from tests.support.lines import event

TABLES = ("bronze.event", "silver.event")
FIRST = range(3)  # the commit that creates the table, and those of two runs


def land(lakehouse: Lakehouse, minute: int, *actions: str) -> None:
    times = (f"10:{minute:02}:{second:02}" for second in range(len(actions)))
    lines = [event(time, action=action) for time, action in zip(times, actions, strict=True)]
    lakehouse.land("event", f"{minute}.json", *lines)


def maintain(lakehouse: Lakehouse) -> None:
    """Run maintenance an hour after the first commits."""
    layout = lakehouse.config.layout
    hour_ago = time.time() - 3600
    for table in (*map(layout.table, TABLES), layout.queue("event")):
        # Commits before the last checkpoint may be removed, and there are only a few.
        DeltaTable(table).create_checkpoint()
        for version in FIRST:
            commit = table / "_delta_log" / f"{version:020}.json"
            if commit.local.exists():
                os.utime(commit, (hour_ago, hour_ago))
    result = maintenance.maintain(
        lakehouse.config, RunRecords(lakehouse.config.layout), ("bronze", "silver", "gold")
    )
    assert result.notes == ()


@pytest.fixture
def maintained(lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> Lakehouse:
    """Return a lakehouse whose first files and commits were removed between its runs."""
    monkeypatch.setattr(maintenance, "_HOUR", 0.0)  # compacted files may be removed at once
    lakehouse.keep_only("event", "action_counts")
    policy = replace(
        lakehouse.config.maintain, retention=Duration.parse("10 minutes"), compact_from=2
    )
    lakehouse.config = replace(lakehouse.config, maintain=policy)
    layout = lakehouse.config.layout
    for minute, actions in enumerate((["open", "open"], ["open", "close"])):
        land(lakehouse, minute, *actions)
        lakehouse.fill("bronze", "silver")
    lakehouse.fill("gold")
    before = {name: set(layout.table(name).local.glob("*.parquet")) for name in TABLES}
    maintain(lakehouse)  # compacts, and sets the shorter retention
    land(lakehouse, 2, "close")
    lakehouse.fill()
    maintain(lakehouse)
    for name in TABLES:
        assert len(before[name]) == 2
        assert not before[name] & set(layout.table(name).local.glob("*.parquet"))
        # The first commits are removed.
        assert delta_tables.earliest_version(layout.table(name)) >= 2
    return lakehouse


def test_streams_continue_after_maintenance(maintained: Lakehouse) -> None:
    """Each row once."""
    lakehouse = maintained
    land(lakehouse, 3, "open", "open", "close")
    lakehouse.land("event", "again.json", event("10:00:00"))  # a duplicate of the first row
    lakehouse.run()
    assert dict(lakehouse.rows("gold.action_counts", "action", "total_events")) == {
        "open": 5,
        "close": 3,
    }
    audit = run_audit(lakehouse.config)
    assert audit.is_balanced
    balance = audit.balances["event"]
    assert (balance.bronze_rows, balance.silver_rows, balance.duplicate_rows) == (9, 8, 1)


@pytest.mark.slow  # test_rewrite rebuilds silver from a bronze table that was overwritten
def test_refresh_after_maintenance(maintained: Lakehouse) -> None:
    """A rebuilt table starts with bronze as it is, without its first commits."""
    lakehouse, layout = maintained, maintained.layout
    lakehouse.config = replace(lakehouse.config, gold={})
    refresh.refresh_table(lakehouse.pipeline(), "silver.event")
    assert delta_tables.row_count(layout.table("silver.event")) == 5
    assert run_audit(lakehouse.config, everything=True).findings == ()

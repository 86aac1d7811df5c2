"""Streams go on over tables that were compacted and rid of their old files and commits."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from medallion.config.values import Duration
from medallion.inspect.audit import run_audit
from medallion.runtime import maintenance, refresh
from medallion.state.runs import Runs
from medallion.storage import delta_tables
from tests.support.lakehouse import Lakehouse
from tests.support.lines import event

TABLES = ("bronze.event", "silver.event")
FIRST = range(4)  # that which makes the table, and those of three nights


def land(lakehouse: Lakehouse, minute: int, *actions: str) -> None:
    times = (f"10:{minute:02}:{at:02}" for at in range(len(actions)))
    lines = [event(time, action=action) for time, action in zip(times, actions, strict=True)]
    lakehouse.land("event", f"{minute}.json", *lines)


def maintain(lakehouse: Lakehouse) -> None:
    """Maintenance after an hour in which only the first commits were made."""
    layout = lakehouse.config.layout
    hour_ago = time.time() - 3600
    for table in (*map(layout.table, TABLES), layout.intake("event")):
        # Commits before the last checkpoint may go, and there are but a few.
        DeltaTable(table).create_checkpoint()
        for version in FIRST:
            commit = table / "_delta_log" / f"{version:020}.json"
            if commit.local.exists():
                os.utime(commit, (hour_ago, hour_ago))
    found = maintenance.maintain(
        lakehouse.config, Runs(lakehouse.config.layout), ("bronze", "silver", "gold")
    )
    assert found.notes == ()


def test_everything_goes_on_after_old_files_and_commits_are_gone(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_HOUR", 0.0)  # what compaction replaces now may go at once
    lakehouse.keep_only("event", "action_counts")
    policy = replace(
        lakehouse.config.maintain, retention=Duration.parse("10 minutes"), compact_from=2
    )
    lakehouse.config = replace(lakehouse.config, maintain=policy)
    layout = lakehouse.config.layout
    for minute, actions in enumerate((["open"], ["open", "close"], ["open"])):
        land(lakehouse, minute, *actions)
        lakehouse.fill("bronze", "silver")
    lakehouse.fill("gold")
    before = {name: set(layout.table(name).local.glob("*.parquet")) for name in TABLES}
    maintain(lakehouse)  # puts together, and gives tables the shorter retention
    land(lakehouse, 3, "close")
    lakehouse.fill()
    maintain(lakehouse)
    for name in TABLES:
        assert len(before[name]) == 3
        assert not before[name] & set(layout.table(name).local.glob("*.parquet"))
        assert delta_tables.earliest_version(layout.table(name)) >= 3  # the first ones are gone

    # The streams go on, each row once.
    land(lakehouse, 4, "open", "open", "close")
    lakehouse.land("event", "again.json", event("10:00:00"))  # as the first one
    lakehouse.fill()
    assert dict(lakehouse.rows("gold.action_counts", "action", "total_events")) == {
        "open": 5,
        "close": 3,
    }
    found = run_audit(replace(lakehouse.config, gold={}), everything=True)
    assert (found.findings, found.is_balanced) == ((), True)
    balance = found.balances["event"]
    assert (balance.bronze_rows, balance.silver_rows, balance.duplicate_rows) == (9, 8, 1)

    # A rebuilt table begins with bronze as it is: its first commits are gone.
    pipeline = lakehouse.pipeline()
    refresh.refresh_table(pipeline, "silver.event")
    assert delta_tables.row_count(layout.table("silver.event")) == 8
    assert run_audit(lakehouse.config, everything=True).is_balanced

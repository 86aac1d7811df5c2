"""Stale sources and gold tables, from records written by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.config.values import Duration
from medallion.inspect import freshness
from medallion.state.ledger import Entry, Ledger
from medallion.state.runs import RunRecords, RunState
from medallion.storage import clock
from tests.support import PROJECT, runs
from tests.support.home import Home

HOUR = 3600 * 1_000_000
NOW = 1_700_000_000_000_000  # 2023-11-14T22:13:20Z
DAY = Duration.parse("1 day")


@pytest.fixture
def config(home: Home, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Return the project with `expect_every` of a day for `event` and gold.device_totals."""
    monkeypatch.setattr(clock, "now_micros", lambda: NOW)
    project = load({}, PROJECT)
    sources = {**project.sources, "event": replace(project.sources["event"], expect_every=DAY)}
    totals = replace(project.gold["device_totals"], expect_every=DAY)
    gold = {**project.gold, "device_totals": totals}
    return replace(project, layout=home.layout, sources=sources, gold=gold)


def stale(config: Config) -> dict[str, str]:
    problems = freshness.stale_problems(config, RunRecords(config.layout).run_state)
    return {problem.subject: problem.sentence for problem in problems}


def since(hours: float) -> str:
    """Return the sentence about a table whose last rows arrived some hours ago."""
    time = datetime.fromtimestamp((NOW - round(hours * HOUR)) // 1_000_000, UTC)
    return f"no new rows since {time:%Y-%m-%dT%H:%M:%SZ} (expect_every: 1 day)"


def ingest(config: Config, hours_ago: float, seen_hours_ago: float = 0, **more: Any) -> None:
    """Record a file of `event`, modified and first seen at these times."""
    modified, first_seen = (NOW - round(hours * HOUR) for hours in (hours_ago, seen_hours_ago))
    path, state = f"landing/event/{hours_ago}{more}", "archived"
    row = Entry("event", path, 1, 5, modified, first_seen, **{"state": state, "rows": 3, **more})
    Ledger(config.layout, "event").write([row])


def test_stale_tables_never_filled(config: Config) -> None:
    assert stale(config) == dict.fromkeys(
        ("event", "gold.device_totals"), "never had a row (expect_every: 1 day)"
    )


@pytest.mark.parametrize(("hours", "is_stale"), [(23.9, False), (24.1, True)])
def test_stale_tables_of_source_by_its_newest_file(
    config: Config, hours: float, is_stale: bool
) -> None:
    ingest(config, 90, 80)
    ingest(config, hours)
    # Empty files and files that are not ingested do not count.
    ingest(config, 1, rows=0)
    ingest(config, 1, state="pending", rows=None)
    ingest(config, 1, state="rejected", rows=None)
    assert stale(config).get("event", "fresh") == (since(hours) if is_stale else "fresh")


def test_stale_tables_with_a_writer_ahead_of_the_clock(config: Config) -> None:
    ingest(config, -500, seen_hours_ago=30)
    assert stale(config)["event"] == since(30)


def test_stale_tables_of_gold_by_its_last_run_with_rows(config: Config) -> None:
    ended = NOW - 25 * HOUR
    busy = {"started_at": ended - 7_000_000, "seconds": 7.0, "rows_in": 4}
    runs.record(config, "gold.device_totals", **busy)
    runs.record(config, "gold.device_totals", started_at=NOW - HOUR, rows_in=0)
    runs.record(config, "gold.action_counts", started_at=NOW - HOUR, rows_in=4)
    assert stale(config)["gold.device_totals"] == since(25)
    runs.record(config, "gold.device_totals", started_at=NOW - HOUR, rows_in=1)
    assert "gold.device_totals" not in stale(config)


def test_stale_tables_of_stream_by_its_last_run_with_rows(config: Config) -> None:
    stream = load({}, PROJECT).sources["event"]
    event = replace(stream, expect_every=DAY, stream=object(), format="kafka")  # type: ignore[arg-type]
    config = replace(config, sources={"event": event})
    runs.record(config, "bronze.event", started_at=NOW - 30 * HOUR, seconds=0.0, rows_in=4)
    assert stale(config)["event"] == since(30)
    runs.record(config, "bronze.event", started_at=NOW - 20 * HOUR, rows_in=4)
    assert "event" not in stale(config)


def test_stale_tables_nothing_expected(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `expect_every` nothing is read."""
    monkeypatch.delattr(freshness, "last_arrivals")
    config = replace(load({}, PROJECT), layout=config.layout)
    assert [*freshness.stale_problems(config, RunState())] == []

"""The overview of a lakehouse, without Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.ingest.schema import registry
from medallion.inspect.overview import Run, take_overview
from medallion.storage import records
from medallion.storage.delta_tables import TableSize
from medallion.storage.table_specs import TableSpec
from tests.support import PROJECT
from tests.support.home import Home
from tests.support.runs import record
from tests.support.sql import write

DAY = 24 * 3600 * 1_000_000
FIRST, SECOND = (datetime(1970, 1, day, tzinfo=UTC) for day in (1, 10))


@pytest.fixture
def config(home: Home) -> Config:
    project = load({}, PROJECT)
    sources = {"event": project.sources["event"]}
    gold = {"action_counts": project.gold["action_counts"]}
    return replace(project, layout=home.layout, sources=sources, gold=gold)


def test_overview_of_an_empty_lakehouse(config: Config) -> None:
    config.layout.root.local.mkdir(parents=True)
    overview = take_overview(config)
    assert (overview.runs, overview.periods, overview.schemas) == ((), {"event": []}, ())
    assert overview.sizes == {}
    assert overview.examples == {"event": []}
    assert overview.unreadable == ()
    assert overview.edges == (
        ("json: event", "bronze.event"),
        ("bronze.event", "silver.event"),
        ("bronze.event", "quarantine.event"),
        ("silver.event", "gold.action_counts"),
    )


def test_overview_runs_and_periods(config: Config) -> None:
    """A refresh ingests no rows."""
    record(config, "bronze.event", started_at=5, rows_in=7, rows_out=6, batches=2)
    record(config, "silver.event", started_at=6, rows_in=90, rows_out=80, quarantined_rows=10)
    silver = {"rows_in": 6, "rows_out": 3, "quarantined_rows": 2, "duplicate_rows": 1}
    record(config, "bronze.event", started_at=9 * DAY + 1, rows_in=2)
    record(config, "bronze.event", started_at=9 * DAY + 2, rows_in=9, state="refreshed")
    record(config, "silver.event", started_at=9 * DAY, state="refreshed", **silver)
    overview = take_overview(config)
    first = datetime(1970, 1, 1, tzinfo=UTC)
    assert overview.periods == {"event": [(first, "rows", 7), (SECOND, "rows", 2)]}
    assert len(overview.runs) == 5
    oldest = Run("bronze.event", "done", 5, 1.0, 2, 7, 6, None, None, None, None)
    assert overview.runs[-1] == oldest


def test_overview_quarantine_by_rule(config: Config) -> None:
    second = "arrow_cast('1970-01-01T00:00:30Z', 'Timestamp(Microsecond, Some(\"UTC\"))')"
    later = second.replace("00:00:30", "00:05:00")
    values = ", ".join(
        [f"(make_array('a', 'b'), 'x{n}', {second})" for n in range(4)]
        + [f"(make_array('a'), NULL, {later})"]
    )
    write(
        config.layout.root.local,
        "quarantine.event",
        f"SELECT * FROM (VALUES {values}) AS t(_failed_rules, id, _ingested_at)",
    )
    overview = take_overview(config)
    assert overview.broken == {"event": {"a": 5, "b": 4}}
    examples = overview.examples["event"]
    assert [row["rule"] for row in examples] == ["a", "a", "a", "b", "b", "b"]
    assert examples[0] == {
        "rule": "a",
        "_failed_rules": ["a"],
        "_ingested_at": FIRST.replace(minute=5),
    }


def test_overview_gold_is_the_newest(config: Config) -> None:
    time = {"window_start": "timestamp", "window_end": "timestamp"}
    spec = TableSpec({**time, "action": "string", "total_events": "long"})
    rows = [
        {"window_start": start, "window_end": start + 1, "action": "a", "total_events": start}
        for start in range(600)
    ]
    records.append_records(config.layout.table("gold.action_counts"), spec, rows)
    overview = take_overview(config)
    (table,) = overview.gold
    assert (table.rows, len(table.first.rows)) == (600, 500)
    assert table.groups == ("window_start", "window_end", "action")
    assert [row[3] for row in table.first.rows[:2]] == [599, 598]
    size = overview.sizes["gold.action_counts"]
    assert (size.rows, size.files) == (600, 1)
    assert size.bytes > 0


def test_overview_schema_changes(config: Config) -> None:
    folder = config.layout.schemas("event")
    registry.add_version(folder, {"id": "string"}, "declared in the configuration")
    registry.add_version(folder, {"battery": "double"}, "new fields in batch 3")
    changes = {(s, each.version): lines for s, each, lines in take_overview(config).schemas}
    assert changes == {("event", 1): ["+ id string"], ("event", 2): ["+ battery double"]}


def test_overview_reports_unreadable_parts(config: Config) -> None:
    write(config.layout.root.local, "gold.action_counts", "SELECT 1 AS n")
    log = config.layout.table("gold.action_counts") / "_delta_log"
    next(log.local.glob("*.json")).write_text("{not json")
    overview = take_overview(config)
    (message,) = overview.unreadable
    assert message.startswith("gold.action_counts: ")
    assert overview.sizes["gold.action_counts"] == TableSize(0, 0, 0, None)


def test_overview_view_keeps_its_order(config: Config) -> None:
    table = config.layout.table("gold.action_counts")
    for first in range(0, 4000, 1000):
        rows = [{"action": f"a{n % 7}", "n": n % 1013} for n in range(first, first + 1000)]
        records.append_records(table, TableSpec({"action": "string", "n": "long"}), rows)
    greatest = sorted(((f"a{n % 7}", n % 1013) for n in range(4000)), key=lambda row: -row[1])
    sql = "SELECT action, n FROM gold.action_counts\nORDER  BY n DESC"
    views = {"top": sql, "other": "SELECT row_number() OVER (ORDER BY n) AS r FROM top"}
    _, top, other = take_overview(replace(config, views=views)).gold
    assert [n for _, n in top.first.rows] == [n for _, n in greatest[:500]]
    assert other.first.rows == [(n,) for n in range(1, 501)]


def test_overview_has_views(config: Config) -> None:
    write(config.layout.root.local, "gold.action_counts", "SELECT 'a' AS action, 1 AS total_events")
    views = {
        "totals": "SELECT action, sum(total_events) AS n FROM gold.action_counts GROUP BY action",
        "large": "SELECT * FROM totals WHERE n > 0",
    }
    overview = take_overview(replace(config, views=views))
    assert [(table.table, table.rows, table.first.rows) for table in overview.gold[1:]] == [
        ("totals", 1, [("a", 1)]),
        ("large", 1, [("a", 1)]),
    ]
    assert overview.edges[-2:] == (("gold.action_counts", "totals"), ("totals", "large"))

"""Gold tables other than plain windows, over three runs: sessions, SQL, and joins.

The last run has much older rows: they merge two sessions, and are too late for the state of a
join. Silver's tables are written directly.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F

from medallion.config.document import Node
from medallion.config.gold import parse_gold_table
from medallion.config.model import GoldTable
from medallion.errors import UsageError
from medallion.inspect.table_checks import verify_tables
from medallion.runtime import planner, refresh
from medallion.spark import checkpoints
from medallion.state.runs import RunRecords
from tests.support.lakehouse import Lakehouse

pytestmark = pytest.mark.usefixtures("production_streams")

RUNS = (
    (
        ("02T23:56:00", "a", "open"),
        ("02T23:59:00", "a", "close"),
        ("02T23:00:00", "b", "open"),
        ("02T23:10:00", "d", "open"),
    ),
    (("03T00:03:00", "a", "close"), ("03T00:20:00", "a", "close"), ("03T02:00:00", "c", "open")),
    (("03T00:07:00", "a", "open"), ("03T00:11:00", "a", "close"), ("03T00:15:30", "a", "close")),
)
RECORDINGS = ((("02T23:58:00", "a"),), (("02T23:30:00", "b"), ("03T02:00:00", "z")), ())
# A phone whose clock was never set: Spark's watermark starts at this time, so no join has the row.
OLDEST = ("1970-01-01T00:00:00", "e", "open")
OPENS = "SELECT device, count(*) AS opens FROM silver.event -- silver.nothing\n"
TABLES = {
    "sessions": {
        "source": "silver.event",
        "session": "5 minutes",
        "group_by": ["device"],
        "measure": {"events": "count(*)"},
    },
    "opens": {"sql": "opens.sql"},
    "closes": {"sql": "closes.sql", "output_mode": "append"},
    "after_opens": {
        "source": "silver.event",
        "where": "action = 'open' OR event_at < timestamp'1969-01-01'",  # reads the event time
        "join": {
            "with": "silver.activity",
            "on": {"device": "device"},
            "within": "1 hour",
            "kind": "left",
            "condition": "event.device <> 'c'",  # rows that fail it wait like all unmatched rows
        },
        "columns": {
            "device": "event.device",
            "opened_at": "event_at",
            "recorded_at": "recorded_at",
        },
    },
}
D, E = "2018-03-02 ", "2018-03-03 "


def configure(lakehouse: Lakehouse) -> None:
    conf = lakehouse.root.parent
    (conf / "opens.sql").write_text(f"{OPENS}WHERE action = 'open' GROUP BY device;")
    (conf / "closes.sql").write_text("select event_at from `silver`.event where action = 'close'")
    sources = lakehouse.config.sources
    gold: dict[str, GoldTable] = {
        name: parse_gold_table(name, Node(value, conf / "pipeline.yaml"), sources, conf)
        for name, value in TABLES.items()
    }
    lakehouse.config = replace(lakehouse.config, gold=gold)


def append_and_run(lakehouse: Lakehouse, number: int) -> None:
    """Append rows to both silver tables, and run gold."""
    events = [(f"2018-03-{time}", device, action) for time, device, action in RUNS[number]]
    events += [OLDEST] if number == 0 else []
    recordings = [(f"2018-03-{time}", device) for time, device in RECORDINGS[number]]
    for table, time, more, rows in (
        ("silver.event", "event_at", ", action string", events),
        ("silver.activity", "recorded_at", "", recordings),
    ):
        frame = lakehouse.spark.createDataFrame(rows, f"{time} string, device string{more}")
        frame = frame.withColumn(time, F.col(time).cast("timestamp")).coalesce(1)
        frame.write.format("delta").mode("append").save(str(lakehouse.config.layout.table(table)))
    lakehouse.fill("gold")


def verify(lakehouse: Lakehouse) -> tuple[list[str], list[str]]:
    """Return the findings and notes of `audit --deep` about gold."""
    result = verify_tables(lakehouse.config, (), print)
    return result.findings, result.notes


def has_to_run(lakehouse: Lakehouse) -> bool:
    """Return whether a nightly run would start the query of the join."""
    plan = planner.plan_run(lakehouse.config, RunRecords(lakehouse.config.layout))
    return {query.query: query.should_run for query in plan.queries}["gold.after_opens"]


def test_sessions_sql_and_joins_over_three_runs(lakehouse: Lakehouse) -> None:
    configure(lakehouse)
    full_config = lakehouse.config
    lakehouse.keep_only("activity", "event", "sessions", "after_opens")
    append_and_run(lakehouse, 0)
    lakehouse.config = full_config  # the other tables process two runs in one batch
    b, c, d, e = (
        (f"{D}23:00:00", f"{D}23:05:00", "b", 1),
        (f"{E}02:00:00", f"{E}02:05:00", "c", 1),
        (f"{D}23:10:00", f"{D}23:15:00", "d", 1),
        ("1970-01-01 00:00:00", "1970-01-01 00:05:00", "e", 1),
    )
    first = (f"{D}23:56:00", f"{E}00:04:00", "a", 2)
    assert lakehouse.rows("gold.sessions") == sorted([first, b, d, e])
    pair = ("a", f"{D}23:56:00", f"{D}23:58:00")
    # A recording may still follow the events at 23:00 and 23:10.
    assert lakehouse.rows("gold.after_opens") == [pair]
    # An hour before the last open at 23:56; `where` excludes the close of 23:59.
    checkpoint = lakehouse.config.layout.checkpoint("gold.after_opens")
    watermark = checkpoints.watermark(checkpoint, checkpoints.last_planned(checkpoint))
    assert watermark == 1000 * datetime(2018, 3, 2, 22, 56, tzinfo=UTC).timestamp()

    append_and_run(lakehouse, 1)
    extended = (f"{D}23:56:00", f"{E}00:08:00", "a", 3)  # across midnight
    single = (f"{E}00:20:00", f"{E}00:25:00", "a", 1)
    assert lakehouse.rows("gold.sessions") == sorted([extended, single, b, c, d, e])
    match = ("b", f"{D}23:00:00", f"{D}23:30:00")  # it arrived a run later
    unmatched = ("d", f"{D}23:10:00", None)
    assert lakehouse.rows("gold.after_opens") == [pair, match, unmatched]
    others = [("b", 1), ("c", 1), ("d", 1), ("e", 1)]
    assert lakehouse.rows("gold.opens") == [("a", 1), *others]
    assert verify(lakehouse)[0] == []
    assert not has_to_run(lakehouse)

    append_and_run(lakehouse, 2)
    merged = (f"{D}23:56:00", f"{E}00:25:00", "a", 7)
    assert lakehouse.rows("gold.sessions") == sorted([merged, b, c, d, e])
    assert lakehouse.rows("gold.opens") == [("a", 2), *others]
    assert len(lakehouse.rows("gold.closes")) == 5
    # One late row is an open; the recording nine minutes before it had left the state.
    assert lakehouse.rows("gold.after_opens") == [pair, match, unmatched]
    assert RunRecords(lakehouse.config.layout).run_state.sums["gold.after_opens"].late_rows == 1
    assert "gold.after_opens: not verified: it lacks late rows" in verify(lakehouse)[1][0]
    assert has_to_run(lakehouse)
    assert refresh.rebuild_late(lakehouse.pipeline(), {"gold.after_opens"}) == []
    assert has_to_run(lakehouse)
    assert refresh.rebuild_late(lakehouse.pipeline()) == []
    late = ("a", f"{E}00:07:00", f"{D}23:58:00")
    assert lakehouse.rows("gold.after_opens") == [pair, late, match, unmatched]
    reason = "unmatched rows of a left join wait for the watermark"
    assert verify(lakehouse) == ([], [f"gold.after_opens: not verified: {reason}."])

    # A refresh's rows are identified by its batch, whose commit is corrupt here.
    commits = lakehouse.config.layout.checkpoint("gold.after_opens") / "commits"
    max(commits.local.glob("[0-9]*"), key=lambda file: int(file.name)).write_text("")
    # A new checkpoint would append all rows again.
    shutil.rmtree(lakehouse.config.layout.checkpoint("gold.closes"))
    with pytest.raises(UsageError, match=r"medallion refresh gold\.closes"):
        lakehouse.fill("gold")
    assert len(lakehouse.rows("gold.closes")) == 5
    assert lakehouse.rows("gold.after_opens") == [pair, late, match, unmatched]

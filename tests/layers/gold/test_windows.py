"""Windows of gold tables that follow the calendar of a time zone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from medallion.config.document import Node
from medallion.config.gold import parse_gold_table
from medallion.config.loader import load
from medallion.config.model import OUTPUT_MODES, Aggregate
from medallion.errors import ConfigError
from medallion.inspect.table_checks import verify_tables
from medallion.layers.definition import changes_between
from medallion.layers.gold.flow import gold_definition
from medallion.layers.gold.transform import aggregated
from tests.support import PROJECT
from tests.support.lakehouse import Lakehouse

BERLIN = {"time_zone": "Europe/Berlin"}


def aggregate(**keys: Any) -> Aggregate:
    """Return an aggregate that counts events, as parsed from pipeline.yaml."""
    definition = table(**keys).definition
    assert isinstance(definition, Aggregate)
    return definition


def table(**keys: Any) -> Any:
    entry = {"source": "silver.event", "measure": {"n": "count(*)"}, **keys}
    node = Node(entry, PROJECT / "conf/pipeline.yaml", "gold.t")
    return parse_gold_table("t", node, load({}, PROJECT).sources, PROJECT / "conf")


# Each case: the config keys, the times (UTC) of rows, and the windows (UTC) with their counts.
WINDOWS = [
    pytest.param(  # daylight saving time starts on this Sunday of 23 hours
        {"window": "1 day", **BERLIN},
        [
            "2026-03-28 22:59",
            "2026-03-28 23:00",
            "2026-03-29 21:59",
            "2026-03-29 22:00",
        ],
        [
            ("2026-03-27 23:00", "2026-03-28 23:00", 1),
            ("2026-03-28 23:00", "2026-03-29 22:00", 2),
            ("2026-03-29 22:00", "2026-03-30 22:00", 1),
        ],
        id="day_of_23_hours",
    ),
    pytest.param(  # it ends on a Sunday of 25 hours, with 02:30 twice
        {"window": "1 day", **BERLIN},
        [
            "2026-10-24 22:00",
            "2026-10-25 00:30",
            "2026-10-25 01:30",
            "2026-10-25 23:00",
        ],
        [
            ("2026-10-24 22:00", "2026-10-25 23:00", 3),
            ("2026-10-25 23:00", "2026-10-26 23:00", 1),
        ],
        id="day_of_25_hours",
    ),
    pytest.param(
        {"window": "1 day", "start": "6 hours", **BERLIN},
        ["2026-03-29 03:59", "2026-03-29 04:00"],
        [
            ("2026-03-28 05:00", "2026-03-29 04:00", 1),
            ("2026-03-29 04:00", "2026-03-30 04:00", 1),
        ],
        id="day_from_6_o_clock",
    ),
    pytest.param(  # midnight of 4 November does not exist
        {"window": "1 day", "time_zone": "America/Sao_Paulo"},
        ["2018-11-04 02:59", "2018-11-04 03:00", "2018-11-05 02:00"],
        [
            ("2018-11-03 03:00", "2018-11-04 03:00", 1),
            ("2018-11-04 03:00", "2018-11-05 02:00", 1),
            ("2018-11-05 02:00", "2018-11-06 02:00", 1),
        ],
        id="day_without_midnight",
    ),
    pytest.param(  # Thursday and Sunday of one week; Monday of the next
        {"window": "1 week"},
        ["2026-12-31 23:59", "2027-01-03 23:59", "2027-01-04 00:00"],
        [
            ("2026-12-28 00:00", "2027-01-04 00:00", 2),
            ("2027-01-04 00:00", "2027-01-11 00:00", 1),
        ],
        id="week_across_new_year",
    ),
    pytest.param(
        {"window": "1 week", "start": "6 days", **BERLIN},
        ["2026-03-28 22:59", "2026-03-28 23:00"],
        [
            ("2026-03-21 23:00", "2026-03-28 23:00", 1),
            ("2026-03-28 23:00", "2026-04-04 22:00", 1),
        ],
        id="week_from_sunday",
    ),
    pytest.param(
        {"window": "1 month", **BERLIN},
        ["2026-02-28 22:59", "2026-02-28 23:00", "2026-03-31 21:59"],
        [
            ("2026-01-31 23:00", "2026-02-28 23:00", 1),
            ("2026-02-28 23:00", "2026-03-31 22:00", 2),
        ],
        id="month",
    ),
    pytest.param(
        {"window": "1 quarter"},
        ["2026-03-31 23:59", "2026-04-01 00:00"],
        [
            ("2026-01-01 00:00", "2026-04-01 00:00", 1),
            ("2026-04-01 00:00", "2026-07-01 00:00", 1),
        ],
        id="quarter",
    ),
    pytest.param(
        {"window": "1 year", "time_zone": "America/New_York"},
        ["2027-01-01 04:59"],
        [("2026-01-01 05:00", "2027-01-01 05:00", 1)],
        id="year",
    ),
    pytest.param(  # fixed lengths count from Thursday, 1970-01-01
        {"window": "7 days"},
        ["2026-12-31 00:00"],
        [("2026-12-31 00:00", "2027-01-07 00:00", 1)],
        id="7_days",
    ),
    pytest.param(
        {"window": "15 min", "start": "5 min"},
        ["2026-12-31 00:04"],
        [("2026-12-30 23:50", "2026-12-31 00:05", 1)],
        id="15_min_from_5_past",
    ),
    pytest.param({"window": "1 month"}, [None], [], id="no_time"),
]


@pytest.mark.parametrize(("keys", "times", "windows"), WINDOWS)
def test_aggregated_windows(
    spark: SparkSession, keys: dict[str, str], times: list[str], windows: list[Any]
) -> None:
    rows = spark.createDataFrame([(time,) for time in times], "at string")
    rows = rows.select(F.col("at").cast("timestamp").alias("event_at"))
    counts = aggregated(rows, "event_at", aggregate(**keys)).orderBy("window_start").collect()
    actual = [(str(r.window_start)[:16], str(r.window_end)[:16], r.n) for r in counts]
    assert actual == windows


def test_definition_changes_with_the_window_keys() -> None:
    fixed = gold_definition(table(window="7 days", time_zone="UTC"))
    assert (fixed.get("start"), fixed.get("time_zone")) == (
        None,
        None,
    )  # earlier releases lack them
    assert changes_between(fixed, gold_definition(table(window="168 h"))) == []
    for keys, changes in (
        ({"window": "1 week"}, ["window: 7 days -> calendar week"]),
        ({"window": "7 days", "start": "1 h"}, ["start: none -> 1 hour"]),
        (
            {"window": "1 week", **BERLIN},
            ["window: 7 days -> calendar week", "time_zone: none -> Europe/Berlin"],
        ),
    ):
        assert list(map(str, changes_between(fixed, gold_definition(table(**keys))))) == changes


def test_group_by_is_optional() -> None:
    assert aggregate().groups == ()
    assert aggregate(window="1 month").groups == ("window_start", "window_end")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"window": "2 weeks"}, r"window must be .*minutes \(min\).*1 week, 1 month"),
        ({"window": "1 fortnight"}, r"window must be .*not '1 fortnight'"),
        ({"window": "1 day", "time_zone": "Berlin"}, "time_zone must be a time zone such as"),
        ({"window": "1 hour", **BERLIN}, "time_zone needs a window of 1 day, 1 week"),
        ({"window": "7 days", **BERLIN}, "time_zone needs a window of 1 day, 1 week"),
        (BERLIN, "time_zone needs a window"),
        ({"window": "1 week", "slide": "1 day"}, "slide cannot be used with a window of week"),
        ({"window": "1 day", "start": "24 hours"}, "start needs a window"),
        ({"start": "1 hour"}, "start needs a window"),
        ({"session": "1 hour", "group_by": ["device"], **BERLIN}, "cannot be used with time_zone"),
        ({"session": "1 hour"}, "group_by must name a column"),
    ],
)
def test_invalid_windows_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        table(**keys)


def test_local_days_pass_the_deep_audit(spark: SparkSession, tmp_path: Path) -> None:
    """A Sunday of 25 hours gets one row in each of two runs."""
    lakehouse = Lakehouse(spark, tmp_path / "lakehouse")
    lakehouse.keep_only("event")
    modes = {mode: table(window="1 day", output_mode=mode, **BERLIN) for mode in OUTPUT_MODES}
    gold = {mode: replace(days, name=mode) for mode, days in modes.items()}
    lakehouse.config = replace(lakehouse.config, gold=gold)
    for times in (["2026-10-24 22:00:00"], ["2026-10-25 22:59:59", "2026-10-25 23:00:00"]):
        rows = spark.createDataFrame([(time,) for time in times], "at string")
        rows = rows.select(F.col("at").cast("timestamp").alias("event_at")).coalesce(1)
        silver = str(lakehouse.config.layout.table("silver.event"))
        rows.write.format("delta").mode("append").save(silver)
        lakehouse.fill("gold")
    for mode in OUTPUT_MODES:
        assert lakehouse.rows(f"gold.{mode}") == [
            ("2026-10-24 22:00:00", "2026-10-25 23:00:00", 2),
            ("2026-10-25 23:00:00", "2026-10-26 23:00:00", 1),
        ]
    verified = verify_tables(lakehouse.config, (), print)
    assert (verified.findings, verified.notes) == ([], [])

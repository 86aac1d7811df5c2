"""The data of the report's charts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from medallion.cli import charts
from medallion.inspect.balance import Balance
from medallion.inspect.catalog import FirstRows
from medallion.inspect.overview import Run
from medallion.sql.result import Result

DAYS = [datetime(2026, 5, day, tzinfo=UTC) for day in (1, 2)]


def rows(columns: tuple[str, ...], *values: tuple[object, ...], groups: str = "") -> FirstRows:
    return FirstRows("gold.t", len(values), Result(columns, list(values)), None, (*groups.split(),))


def test_flow_is_the_balance() -> None:
    chart = charts.flow(Balance(12, 11, 6, 3, 0, 1, 2))
    assert (chart["landed"], chart["bronze"]) == (12, 11)
    assert chart["fates"] == {"silver": 6, "quarantined": 3, "waiting": 2}
    chart = charts.flow(Balance(783, 773, 498, 5, 2, 0, 0, 0, 260, 8, 10))
    fates = {"silver": 498, "quarantined": 5, "duplicate": 2, "superseded": 260, "deleted": 8}
    assert (chart["fates"], sum(fates.values())) == (fates, 773)
    assert chart["erased"] == 10


def test_gold_chart_of_windows_is_lines_by_group() -> None:
    table = rows(
        ("window_start", "window_end", "shop", "n", "mean"),
        (DAYS[1], DAYS[1], 7, 3, 1.5),
        (DAYS[0], DAYS[1], 7, 1, float("nan")),
        (DAYS[0], DAYS[1], None, 2, None),
        groups="window_start window_end shop",
    )
    assert charts.gold_chart(table) == {
        "type": "overTime",
        "measures": {
            "n": {
                "series": {
                    "7": [["2026-05-01T00:00:00Z", 1.0], ["2026-05-02T00:00:00Z", 3.0]],
                    "NULL": [["2026-05-01T00:00:00Z", 2.0]],
                },
                "gaps": [],
            },
            "mean": {
                "series": {
                    "7": [["2026-05-01T00:00:00Z", None], ["2026-05-02T00:00:00Z", 1.5]],
                    "NULL": [["2026-05-01T00:00:00Z", None]],
                },
                "gaps": [],
            },
        },
    }


def test_gold_chart_of_windows_without_groups_is_one_line() -> None:
    chart = charts.gold_chart(rows(("at", "n"), (DAYS[0], 1), (DAYS[1], 2)))
    assert chart is not None
    assert list(chart["measures"]["n"]["series"]) == ["n"]


def test_gold_chart_of_groups_is_bars_of_the_greatest() -> None:
    all_rows = [(f"d{n}", n, Decimal(n)) for n in range(30)]
    chart = charts.gold_chart(rows(("device", "id", "total"), *all_rows))
    assert chart is not None
    assert chart["type"] == "bars"
    assert list(chart["measures"]) == ["total", "id"]
    assert chart["measures"]["total"]["names"] == [f"d{n}" for n in range(29, 9, -1)]
    assert chart["measures"]["total"]["values"][0] == 29.0


def test_gold_chart_draws_seven_groups_and_others() -> None:
    all_rows = [(DAYS[0], f"d{n}", n, 1.0) for n in range(10)]
    table = rows(("at", "device", "n", "mean"), *all_rows, groups="at device")
    chart = charts.gold_chart(replace(table, sums=("n",)))
    assert chart is not None
    assert list(chart["measures"]) == ["mean", "n"]  # the last one is first
    series = chart["measures"]["n"]["series"]
    assert list(series) == [*(f"d{n}" for n in range(9, 2, -1)), "3 others"]
    assert series["3 others"] == [["2026-05-01T00:00:00Z", 0 + 1 + 2]]
    series = chart["measures"]["mean"]["series"]
    assert (len(series), series["3 others (not drawn)"]) == (8, [])


@pytest.mark.parametrize(
    ("known", "gaps"),
    [
        (["2026-05-01", "2026-05-02", "2026-05-03", "2026-05-06"], ["2026-05-04T00:00:00Z"]),
        (["2026-01-01", "2026-02-01", "2026-03-01", "2026-04-01"], []),  # months
        (["2026-01-01", "2026-02-01", "2026-03-01", "2026-05-01"], ["2026-04-01T00:00:00Z"]),
        (["2026-05-01T10:00", "2026-05-01T10:10", "2026-05-01T10:25"], []),
        (["2026-05-01"], []),
    ],
)
def test_missing_times_are_gaps(known: list[str], gaps: list[str]) -> None:
    times: list[Any] = [datetime.fromisoformat(time).replace(tzinfo=UTC) for time in known]
    assert charts._gaps(times) == gaps


def test_gold_chart_needs_numbers_and_groups() -> None:
    assert charts.gold_chart(rows(("device", "is_on"), ("a", True))) is None
    assert charts.gold_chart(rows(("n",), (1,))) is None
    assert charts.gold_chart(rows(())) is None


def test_run_charts_of_seconds_rates_and_batches() -> None:
    runs = [
        Run("bronze.event", "done", 2_000_000, 4.0, 2, 100, 100, None, None, None, None),
        Run("bronze.event", "failed", 1_000_000, None, None, None, 0, None, None, None, "x"),
    ]
    at = "1970-01-01T00:00:02Z"
    series = {name: chart["series"] for name, chart in charts.run_charts(runs).items()}
    assert series == {
        "seconds": {"bronze.event": [[at, 4.0]]},
        "rows_per_second": {"bronze.event": [[at, 25.0]]},
        "rows_per_batch": {"bronze.event": [[at, 50.0]]},
    }


def test_lineage_columns_follow_the_longest_path() -> None:
    edges = [("f", "bronze.a"), ("bronze.a", "silver.a"), ("x.csv", "silver.a"), ("silver.a", "g")]
    assert charts.lineage(edges, ["g", "g"]) == {
        "type": "lineage",
        "columns": [["f", "x.csv"], ["bronze.a"], ["silver.a"], ["g"]],
        "edges": [list(edge) for edge in edges],
        "troubled": ["g"],
    }

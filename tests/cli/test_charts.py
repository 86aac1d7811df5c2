"""The data of the report's charts."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

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
                }
            },
            "mean": {
                "series": {
                    "7": [["2026-05-01T00:00:00Z", None], ["2026-05-02T00:00:00Z", 1.5]],
                    "NULL": [["2026-05-01T00:00:00Z", None]],
                }
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


def test_gold_chart_draws_eight_groups() -> None:
    all_rows = [(DAYS[0], f"d{n}", n) for n in range(20)]
    chart = charts.gold_chart(rows(("at", "device", "n"), *all_rows))
    assert chart is not None
    assert list(chart["measures"]["n"]["series"]) == [f"d{n}" for n in range(19, 11, -1)]


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

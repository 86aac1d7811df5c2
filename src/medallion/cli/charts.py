"""The data of the report's charts; `page/page.js` draws each by its `type`."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from math import isfinite
from typing import Any

from medallion.cli.terminal import cell_text, json_value
from medallion.inspect.balance import Balance
from medallion.inspect.catalog import FirstRows
from medallion.inspect.overview import Overview, Run
from medallion.storage.layout import layer_of
from medallion.storage.table_specs import WINDOW

Chart = dict[str, Any]
_MOST_SERIES, _MOST_BARS = 7, 20
_COLORS = {"rows": "bronze"}
_FATES = ("silver", "quarantined", "duplicate", "superseded", "deleted", "waiting")


def all_charts(overview: Overview) -> dict[str, Chart]:
    """Return the data of each chart by the name that the page has for it."""
    charts = {f"flow:{name}": flow(balance) for name, balance in overview.audit.balances.items()}
    drawn = {"type": "overTime", "stacked": True, "colors": _COLORS}
    periods = {name: points for name, points in overview.periods.items() if points}
    charts |= {f"periods:{name}": drawn | _over_time(points) for name, points in periods.items()}
    for table in overview.gold:
        if chart := gold_chart(table):
            charts[f"gold:{table.table}"] = chart
    charts |= {f"runs:{name}": chart for name, chart in run_charts(overview.runs).items()}
    sizes = {name: size.bytes for name, size in overview.sizes.items()}
    colors = [layer if (layer := layer_of(name)) != "ops" else "other" for name in sizes]
    bars = {"type": "bars", "unit": "bytes", "colors": colors}
    charts["sizes"] = bars | {"names": [*sizes], "values": [*sizes.values()]}
    troubled = [problem.subject for problem in overview.seen.verdict.errors]
    charts["lineage"] = lineage(overview.edges, troubled)
    return charts


def flow(balance: Balance) -> Chart:
    """Return the balance as a flow from landing to what became of each row."""
    figures = {name.partition("_")[0]: value for name, value in asdict(balance).items()}
    fates = {name: figures[name] for name in _FATES if figures[name] or name == "silver"}
    return {**figures, "type": "flow", "fates": fates}


def gold_chart(table: FirstRows) -> Chart | None:
    """Return a table over time by group, or as bars by group; None if it has no numbers.

    The time is the first column of times; the groups are those of the definition, or all columns
    of strings; each other column of numbers is a measure, the last one first. The seven groups with
    the greatest sums have a line, and the others one together if their numbers add up.
    """
    values = zip(*table.first.rows, strict=True)
    columns = dict(zip(table.first.columns, values, strict=False))
    time = next((name for name in columns if _has_only(columns[name], date)), None)
    is_group = {name: _has_only(column, (str, bool)) for name, column in columns.items()}
    groups = [name for name in columns if name in table.groups or is_group[name]]
    groups = [name for name in groups if name not in (time, *WINDOW)]
    others = (name for name in columns if name not in groups)
    measures = [name for name in others if any(map(is_number, columns[name]))]
    if not measures or not (time or groups):
        return None
    names = [
        ", ".join("NULL" if part is None else cell_text(part) for part in parts)
        for parts in zip(*(columns[name] for name in groups), strict=True)
    ]
    charts = {}
    for measure in reversed(measures):  # the first ones are often counts or ids
        numbers = [float(v) if is_number(v) and isfinite(v) else None for v in columns[measure]]
        if time is None:
            charts[measure] = _bars(names, numbers)
        else:
            groups_of_rows = names or [measure] * table.rows
            points = zip(columns[time], groups_of_rows, numbers, strict=False)
            charts[measure] = _over_time(points, measure in table.sums)
    return {"type": "overTime" if time else "bars", "measures": charts}


def _over_time(points: Iterable[tuple[Any, str, float | None]], adds_up: bool = True) -> Chart:
    """Return the series of times, names and numbers, for the names with the greatest sums.

    Args:
        points: the times, names and numbers.
        adds_up: whether the numbers of the other names may be added to one series.
    """
    known = [(time, name, number) for time, name, number in points if time is not None]
    sums, series = defaultdict[str, float](float), defaultdict[str, list[Any]](list)
    for _, name, number in known:
        sums[name] += abs(number or 0)
    greatest = sorted(sums, key=sums.__getitem__, reverse=True)[:_MOST_SERIES]
    rest = f"{len(sums) - len(greatest)} others{'' if adds_up else ' (not drawn)'}"
    others = defaultdict[str, float](float)
    for time, name, number in sorted(known, key=lambda point: (json_value(point[0]), point[1])):
        if name in greatest:
            series[name].append([json_value(time), number])
        else:
            others[json_value(time)] += number or 0
    drawn = {name: series[name] for name in greatest}
    if others:
        drawn[rest] = [list(point) for point in others.items()] if adds_up else []
    return {"series": drawn, "gaps": _gaps(sorted({time for time, _, _ in known}, key=json_value))}


def _gaps(times: list[Any]) -> list[str]:
    """Return a time in each gap between sorted times: where the next one is later than usual."""
    pairs = list(pairwise(times))
    steps = sorted(after - before for before, after in pairs)
    usual: Any = steps[len(steps) // 2] if steps else None
    return [json_value(before + usual) for before, after in pairs if after - before > 1.5 * usual]


def _bars(names: Iterable[str], numbers: Iterable[float | None]) -> Chart:
    pairs = zip(numbers, names, strict=True)
    known = [(number, name) for number, name in pairs if number is not None]
    greatest = sorted(known, key=lambda pair: -pair[0])[:_MOST_BARS]
    return {"names": [name for _, name in greatest], "values": [number for number, _ in greatest]}


def run_charts(runs: Iterable[Run]) -> dict[str, Chart]:
    """Return seconds, rows a second and rows in a batch of each query over its runs."""
    points: dict[str, list[Any]] = {"seconds": [], "rows_per_second": [], "rows_per_batch": []}
    for run in runs:
        values = {
            "seconds": run.seconds,
            "rows_per_second": run.rows_in / run.seconds if run.rows_in and run.seconds else None,
            "rows_per_batch": run.rows_in / run.batches if run.rows_in and run.batches else None,
        }
        for name, value in values.items():
            if value is not None:
                started = datetime.fromtimestamp(run.started_at / 1e6, UTC)
                points[name].append((started, run.query, round(value, 3)))
    return {name: {"type": "overTime", **_over_time(each, False)} for name, each in points.items()}


def lineage(edges: Sequence[tuple[str, str]], troubled: Iterable[str]) -> Chart:
    """Return the graph of sources, tables and outputs, in columns from left to right.

    Args:
        edges: pairs of an input and what is computed from it.
        troubled: tables and outputs to mark.
    """
    column: dict[str, int] = {}
    for source, target in edges:  # each after those of its inputs
        column[target] = max(column.get(target, 0), column.setdefault(source, 0) + 1)
    columns: list[list[str]] = [[] for _ in range(max(column.values(), default=-1) + 1)]
    for name, at in column.items():
        columns[at].append(name)
    drawn = {"type": "lineage", "columns": columns, "edges": [list(edge) for edge in edges]}
    return {**drawn, "troubled": sorted(set(troubled))}


def is_number(value: Any) -> bool:
    """Return whether a value of a row is a number."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _has_only(values: Iterable[Any], types: type | tuple[type, ...]) -> bool:
    """Return whether values are of some types or null, and not all null."""
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, types) for value in known)

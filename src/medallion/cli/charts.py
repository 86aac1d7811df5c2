"""The data of the report's charts; `page/page.js` draws each by its `type`."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from math import isfinite
from typing import Any

from medallion.cli.terminal import cell_text, iso_utc, json_value
from medallion.inspect.balance import Balance
from medallion.inspect.catalog import FirstRows
from medallion.inspect.overview import Overview, Run
from medallion.storage.layout import layer_of
from medallion.storage.table_specs import WINDOW

Chart = dict[str, Any]
_MOST_SERIES, _MOST_BARS = 8, 20
_COLORS = {"silver": "silver", "quarantined": "quarantine", "duplicates": "duplicate"}


def all_charts(overview: Overview) -> dict[str, Chart]:
    """Return the data of each chart by the name that the page has for it."""
    charts = {f"flow:{name}": flow(balance) for name, balance in overview.audit.balances.items()}
    for prefix, periods in (("periods", overview.periods), ("rules", overview.rules)):
        for name, points in periods.items():
            if points:
                drawn = {"type": "overTime", "stacked": True, "colors": _COLORS}
                charts[f"{prefix}:{name}"] = drawn | _over_time(points)
    for table in overview.gold:
        if chart := gold_chart(table):
            charts[f"gold:{table.table}"] = chart
    charts |= {f"runs:{name}": chart for name, chart in run_charts(overview.runs).items()}
    sizes = {name: size.bytes for name, size in overview.sizes.items()}
    charts["sizes"] = {
        "type": "bars",
        "unit": "bytes",
        "names": list(sizes),
        "values": list(sizes.values()),
        "colors": [layer if (layer := layer_of(name)) != "ops" else "other" for name in sizes],
    }
    troubled = [problem.subject for problem in overview.seen.verdict.errors]
    charts["lineage"] = lineage(overview.edges, troubled)
    return charts


def flow(balance: Balance) -> Chart:
    """Return the balance as a flow from landing to what became of each row."""
    fates = {
        "silver": balance.silver_rows,
        "quarantined": balance.quarantined_rows,
        "duplicates": balance.duplicate_rows,
        "waiting": balance.waiting_rows,
    }
    return {
        "type": "flow",
        "landed": balance.landed_lines,
        "bronze": balance.bronze_rows,
        "fates": {name: rows for name, rows in fates.items() if rows or name == "silver"},
    }


def gold_chart(table: FirstRows) -> Chart | None:
    """Return a table over time by group, or as bars by group; None if it has no numbers.

    The time is the first column of times; the groups are those of the definition, or all columns
    of strings; each other column of numbers is a measure. The eight groups with the greatest sums
    have a line.
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
    if not table.groups:
        measures.reverse()  # in the result of a query, the first numbers may be ids
    names = [
        ", ".join("NULL" if part is None else cell_text(part) for part in parts)
        for parts in zip(*(columns[name] for name in groups), strict=True)
    ]
    charts = {}
    for measure in measures:
        numbers = [float(v) if is_number(v) and isfinite(v) else None for v in columns[measure]]
        if time is None:
            charts[measure] = _bars(names, numbers)
        else:
            groups_of_rows = names or [measure] * table.rows
            charts[measure] = _over_time(zip(columns[time], groups_of_rows, numbers, strict=False))
    return {"type": "overTime" if time else "bars", "measures": charts}


def _over_time(points: Iterable[tuple[Any, str, float | None]]) -> Chart:
    """Return the series of times, names and numbers, for the names with the greatest sums."""
    sums, series = Counter[str](), defaultdict[str, list[Any]](list)
    known = [(json_value(time), *rest) for time, *rest in points if time is not None]
    for time, name, number in sorted(known, key=lambda point: point[:2]):
        sums[name] += abs(number or 0)
        series[name].append([time, number])
    return {"series": {name: series[name] for name, _ in sums.most_common(_MOST_SERIES)}}


def _bars(names: Iterable[str], numbers: Iterable[float | None]) -> Chart:
    pairs = zip(numbers, names, strict=True)
    known = [(number, name) for number, name in pairs if number is not None]
    greatest = sorted(known, key=lambda pair: -pair[0])[:_MOST_BARS]
    return {"names": [name for _, name in greatest], "values": [number for number, _ in greatest]}


def run_charts(runs: Iterable[Run]) -> dict[str, Chart]:
    """Return seconds, rows a second and rows in a batch of each query over its runs."""
    series: dict[str, dict[str, list[Any]]] = {
        name: defaultdict(list) for name in ("seconds", "rows_per_second", "rows_per_batch")
    }
    for run in sorted(runs, key=lambda run: run.started_at):
        values = {
            "seconds": run.seconds,
            "rows_per_second": run.rows_in / run.seconds if run.rows_in and run.seconds else None,
            "rows_per_batch": run.rows_in / run.batches if run.rows_in and run.batches else None,
        }
        for name, value in values.items():
            if value is not None:
                series[name][run.query].append([iso_utc(run.started_at), round(value, 3)])
    return {name: {"type": "overTime", "series": lines} for name, lines in series.items()}


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
    return {
        "type": "lineage",
        "columns": columns,
        "edges": [list(edge) for edge in edges],
        "troubled": sorted(set(troubled)),
    }


def is_number(value: Any) -> bool:
    """Return whether a value of a row is a number."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _has_only(values: Iterable[Any], types: type | tuple[type, ...]) -> bool:
    """Return whether values are of some types or null, and not all null."""
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, types) for value in known)

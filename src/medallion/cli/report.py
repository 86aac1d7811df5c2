"""The HTML page of `medallion report`: one file without scripts or external resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from decimal import Decimal
from html import escape
from math import isfinite
from pathlib import Path
from typing import Any

from medallion.cli import render_runs
from medallion.cli.terminal import cell_text, iso_utc, json_value
from medallion.errors import UsageError
from medallion.inspect.balance import Balance
from medallion.inspect.catalog import FirstRows, Overview
from medallion.storage import clock
from medallion.storage import files as small_files
from medallion.storage.paths import resolved_path
from medallion.storage.text import counted, error_reason, printable

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em }
table { border-collapse: collapse; margin: .5em 0 1.5em }
td, th { border-bottom: 1px solid #ddd; padding: .15em .8em .15em 0; text-align: left }
.n { text-align: right; font-variant-numeric: tabular-nums }
.bar { background: #4e79a7; display: inline-block; height: .8em; min-width: 1px }
.flow { display: flex; height: 1.4em; margin: .2em 0; max-width: 50em }
.silver { background: #4e79a7 } .quarantined { background: #e15759 }
.duplicate { background: #f28e2b } .waiting { background: #bab0ac }
.key { display: inline-block; height: .8em; margin: 0 .3em 0 1em; width: .8em }
.bad { color: #b22 }
"""
_FLOW_PARTS = ("silver", "quarantined", "duplicate", "waiting")
_WIDEST = 20  # em


def report_json(overview: Overview) -> dict[str, Any]:
    """Return the content of the page as one JSON document."""
    return {
        "root": overview.root,
        "made_at": iso_utc(overview.created_at),
        **render_runs.audit_json(overview.audit),
        "gold": {
            each.table: {
                "rows": each.rows,
                "columns": list(each.first.columns),
                "first": [[json_value(value) for value in row] for row in each.first.rows],
            }
            for each in overview.gold
        },
        "quarantined": {source: dict(rules) for source, rules in overview.broken.items()},
        "gates": {table: asdict(gate) for table, gate in overview.gates.items()},
        "runs": [{**asdict(run), "started_at": iso_utc(run.started_at)} for run in overview.runs],
        **({"unreadable": list(overview.unreadable)} if overview.unreadable else {}),
    }


def write_report(overview: Overview, page: Path) -> str:
    """Write the page and return its path.

    Raises:
        UsageError: it cannot be written.
    """
    path = resolved_path(page)  # an atomic write replaces a link such as /dev/stdout
    try:
        if path.exists() and not path.is_file():  # or a device
            raise ValueError("not a regular file")
        small_files.write_atomic(path, report_html(overview))
    except (OSError, ValueError) as error:
        advice = "name a file in an existing, writable folder"
        raise UsageError(f"--output {page}: {error_reason(error)}; {advice}.") from None
    return str(page)


def report_html(overview: Overview) -> str:
    """Return the page as HTML."""
    verdict = _escaped(render_runs.balance_verdict(overview.audit))
    body = [
        f"<h1>medallion: {_escaped(overview.root)}</h1>",
        f"<p>{clock.format_time(overview.created_at)}, "
        f"<b class={'good' if overview.audit.is_balanced else 'bad'}>{verdict}</b></p>",
        *_paragraphs(overview.unreadable),
        "<h2>Gold</h2>",
        *map(_gold_table, overview.gold),
        "<h2>Where the rows went</h2>",
        *_flow_section(overview),
        "<h2>Quality</h2>",
        *_quality_section(overview),
        "<h2>Runs, the newest first</h2>",
        _runs_table(overview),
    ]
    head = f'<meta charset="utf-8"><title>medallion</title><style>{_STYLE}</style>'
    return f"<!doctype html>\n<html lang=en><head>{head}</head><body>\n" + "\n".join(body) + "\n"


def _gold_table(table: FirstRows) -> str:
    """Return a table with a bar for each value of the last numeric column."""
    if table.unreadable:
        return f"<h3>{_escaped(table.table)}: cannot be read</h3>"
    shown = len(table.first.rows)
    some = f", the first {shown}" if shown < table.rows else ""
    title = f"<h3>{_escaped(table.table)}: {counted(table.rows, 'row')}{some}</h3>"
    columns = list(zip(*table.first.rows, strict=True))
    measure = next((column for column in reversed(columns) if any(map(_is_number, column))), None)
    bars = _bars(measure) if measure else None
    return title + _html_table(table.first.columns, table.first.rows, bars)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _flow_section(overview: Overview) -> list[str]:
    keys = "".join(f'<span class="key {part}"></span>{part}' for part in _FLOW_PARTS)
    lines = [f"<p>{keys}</p>"]
    for name, balance in overview.audit.balances.items():
        lines += [
            f"<h3>{_escaped(name)}: {counted(balance.landed_lines, 'line')} landed</h3>",
            _flow_bar(balance),
        ]
    rows = [(name, *asdict(balance).values()) for name, balance in overview.audit.balances.items()]
    lines.append(_html_table(("source", *Balance.__dataclass_fields__), rows))
    audit_lines = render_runs.audit_lines(overview.audit)
    return [*lines, *_paragraphs(line for line in audit_lines if line not in overview.unreadable)]


def _paragraphs(lines: Iterable[str]) -> list[str]:
    return [f"<p class=bad>{_escaped(line)}</p>" for line in lines]


def _flow_bar(balance: Balance) -> str:
    rows = {part: getattr(balance, f"{part}_rows") for part in _FLOW_PARTS}
    bars = (
        f'<div class={part} style="flex-grow:{count}" title="{part}: {count:,}"></div>'
        for part, count in rows.items()
        if count
    )
    return f"<div class=flow>{''.join(bars)}</div>"


def _quality_section(overview: Overview) -> list[str]:
    gates = [(name, g.state, g.failed or "", g.version) for name, g in overview.gates.items()]
    lines = [_html_table(("gate of", "state", "failed", "version"), sorted(gates))]
    for source, rules in overview.broken.items():
        if rules:
            title = f"<h3>{_escaped(source)}: quarantined rows by the rule that they break</h3>"
            lines.append(
                title + _html_table(("rule", "rows"), rules.items(), _bars(rules.values()))
            )
    return lines


def _runs_table(overview: Overview) -> str:
    rows = [
        {**asdict(run), "started_at": clock.format_time(run.started_at)} for run in overview.runs
    ]
    columns = list(rows[0]) if rows else []
    return _html_table(
        columns, [list(row.values()) for row in rows], _bars(r.seconds for r in overview.runs)
    )


def _bars(numbers: Iterable[Any]) -> list[str]:
    """Return a bar for each number; the bar is empty for infinities and other values."""
    known = [float(n) if _is_number(n) and isfinite(n) else 0 for n in numbers]
    most = max(known, default=0) or 1
    widths = (max(number, 0) / most * _WIDEST for number in known)
    return [f'<span class=bar style="width:{width:.2f}em"></span>' for width in widths]


def _html_table(
    columns: Iterable[str], rows: Iterable[Sequence[Any]], bars: Sequence[str] | None = None
) -> str:
    """Return an HTML table; `bars` are its last column, without a name."""
    head = "".join(f"<th>{_escaped(name)}" for name in columns) + ("<th>" if bars else "")
    lines = [
        "<tr>" + "".join(map(_table_cell, row)) + (f"<td>{bars[at]}" if bars else "")
        for at, row in enumerate(rows)
    ]
    return f"<table><tr>{head}\n" + "\n".join(lines) + "</table>" if lines else "<p>none yet</p>"


def _table_cell(value: Any) -> str:
    shown = "" if value is None else cell_text(value)
    return f"<td{' class=n' if _is_number(value) else ''}>{_escaped(shown)}"


def _escaped(value: Any) -> str:
    """Escape text from files, which must not act as HTML or control characters."""
    return escape(printable(str(value)))

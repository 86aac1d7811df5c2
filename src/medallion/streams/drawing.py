"""A grid of cells drawn for a terminal (rich) or a notebook (HTML). Values are shown, not obeyed:
control characters are spelled out, and neither markup nor HTML within them means anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from io import StringIO
from shutil import get_terminal_size

from rich import box
from rich.bar import Bar
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from medallion.lakehouse.text import visible

BAR_WIDTH = 32


@dataclass(frozen=True)
class Grid:
    """What is drawn. `right` are the places of columns of numbers; `bars`, where there are any,
    is each row's length in a bar chart, None where it has none."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()
    bars: tuple[float | None, ...] | None = None
    foot: str = ""

    def shares(self) -> Iterator[float | None]:
        """Each bar as a share of the longest, between 0 and 1."""
        lengths = [max(0.0, bar) for bar in self.bars or () if bar is not None]
        longest = max(lengths, default=0.0) or 1.0
        for bar in self.bars or ():
            yield None if bar is None else max(0.0, bar) / longest


def drawn(grid: Grid) -> Group:
    """A grid for rich's console. Title and foot stand outside, for a narrow table folds them."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, header in enumerate(grid.headers):
        text = Text(visible(header))
        table.add_column(text, justify="right" if place in grid.right else "left", overflow="fold")
    if grid.bars is not None:
        table.add_column(min_width=8, max_width=BAR_WIDTH)
    shares = grid.shares()
    for row in grid.rows:
        cells: list[Text | Bar] = [Text(visible(cell)) for cell in row]
        if grid.bars is not None:
            share = next(shares)
            cells.append(Text() if share is None else Bar(1, 0, share, color="cyan"))
        table.add_row(*cells)
    title, foot = Text(visible(grid.title), "bold"), Text(visible(grid.foot))
    return Group(*(part for part in (title, table, foot) if part))


def as_text(grid: Grid) -> str:
    """Plain text, as wide as the terminal."""
    file = StringIO()
    width = get_terminal_size((120, 24)).columns
    Console(file=file, width=width, color_system=None, legacy_windows=False).print(drawn(grid))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def as_html(grid: Grid) -> str:
    """A table with no styles but its own: a notebook's do the rest."""
    heads = "".join(_cell("th", h, p in grid.right) for p, h in enumerate(grid.headers))
    bars = [_bar(share) for share in grid.shares()] if grid.bars is not None else []
    lines = []
    for number, row in enumerate(grid.rows):
        cells = "".join(_cell("td", cell, p in grid.right) for p, cell in enumerate(row))
        lines.append(f"<tr>{cells}{bars[number] if bars else ''}</tr>")
    head = f"<tr>{heads}{'<th></th>' if grid.bars is not None else ''}</tr>"
    foot = f"<div><small>{_safe(grid.foot)}</small></div>" if grid.foot else ""
    return (
        f"<div><b>{_safe(grid.title)}</b></div><table><thead>{head}</thead>"
        f"<tbody>{''.join(lines)}</tbody></table>{foot}"
    )


def _cell(tag: str, text: str, right: bool) -> str:
    return f'<{tag} style="text-align:{"right" if right else "left"}">{_safe(text)}</{tag}>'


def _bar(share: float | None) -> str:
    if share is None:
        return "<td></td>"
    style = f"width:{share * BAR_WIDTH / 2:.2f}em;height:1em;background:#2a9d8f"
    return f'<td style="text-align:left"><div style="{style}"></div></td>'


def _safe(text: str) -> str:
    return escape(visible(text))

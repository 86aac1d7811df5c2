"""A grid of cells, drawn by rich in a terminal and in a notebook. Values are shown, not obeyed:
control characters are spelled out, and markup within them means nothing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat

from rich import box
from rich.bar import Bar
from rich.console import Console, ConsoleOptions, RenderResult
from rich.jupyter import JupyterMixin
from rich.style import Style
from rich.table import Table
from rich.text import Text

from medallion.lakehouse.text import visible

BAR_WIDTH = 32


@dataclass(frozen=True)
class Grid(JupyterMixin):
    """What is drawn. `right` are the places of columns of numbers; `bars`, where there are any,
    is each row's length in a bar chart, None where it has none."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()
    bars: tuple[float | None, ...] | None = None
    foot: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # Title and foot stand outside, for a narrow table folds them.
        if self.title:
            yield Text(visible(self.title), "bold")
        yield self._table()
        if self.foot:
            yield Text(visible(self.foot))

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for place, header in enumerate(self.headers):
            text = Text(visible(header))
            table.add_column(
                text, justify="right" if place in self.right else "left", overflow="fold"
            )
        if self.bars is not None:
            table.add_column(min_width=8, max_width=BAR_WIDTH)
        longest = max((bar for bar in self.bars or () if bar is not None), default=0.0)
        for row, bar in zip(self.rows, self.bars or repeat(None), strict=False):
            cells: list[Text | Bar] = [Text(visible(cell)) for cell in row]
            if bar is not None and longest > 0:
                drawn = Bar(longest, 0, max(0.0, bar))
                drawn.style = Style(color="cyan")  # and no ground, white in a dark notebook
                cells.append(drawn)
            table.add_row(*cells)
        return table

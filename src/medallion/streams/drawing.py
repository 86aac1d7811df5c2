"""Rows of a DataFrame as a grid, drawn by rich in a terminal or a notebook.

Spark formats the values, as in `show`. Control characters are spelled out, and markup in values has
no effect.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, NumericType
from rich import box
from rich.bar import Bar
from rich.console import Console, ConsoleOptions, RenderResult
from rich.jupyter import JupyterMixin
from rich.live import Live
from rich.style import Style
from rich.table import Table
from rich.text import Text

from medallion.errors import UsageError
from medallion.storage.text import printable

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
            yield Text(printable(self.title), "bold")
        yield self._table()
        if self.foot:
            yield Text(printable(self.foot))

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for place, header in enumerate(self.headers):
            text = Text(printable(header))
            table.add_column(
                text, justify="right" if place in self.right else "left", overflow="fold"
            )
        if self.bars is not None:
            table.add_column(min_width=8, max_width=BAR_WIDTH)
        longest = max((bar for bar in self.bars or () if bar is not None), default=0.0)
        for row, bar in zip(self.rows, self.bars or repeat(None), strict=False):
            cells: list[Text | Bar] = [Text(printable(cell)) for cell in row]
            if bar is not None and longest > 0:
                drawn = Bar(longest, 0, max(0.0, bar))
                drawn.style = Style(color="cyan")  # and no ground, white in a dark notebook
                cells.append(drawn)
            table.add_row(*cells)
        return table


_BESIDE_ROWS = 6
"""Lines of a terminal for the title, the headers, the foot, and those around them."""


class TerminalScreen:
    """A table that is drawn over itself. Where standard output is no terminal, the last one."""

    outlives_the_call = False  # it cannot be drawn on after the call that opened it

    def __init__(self, console: Console | None = None) -> None:
        self._console = console = console or Console()
        # Rows of a grid that can be drawn over; None for as many as there are.
        self.room = max(1, console.height - _BESIDE_ROWS) if console.is_terminal else None
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> TerminalScreen:
        self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._live.stop()
        if not self._console.is_terminal:  # rich ends the last line for a terminal alone
            self._console.line()

    def draw(self, grid: Grid) -> None:
        self._live.update(grid, refresh=True)


class NotebookScreen:
    """The output of the cell that runs now; later cells leave it alone."""

    outlives_the_call = True
    room = None

    def __init__(self) -> None:
        self._handle: Any = None

    def __enter__(self) -> NotebookScreen:
        return self

    def __exit__(self, *raised: object) -> None:
        """What was drawn stays."""

    def draw(self, grid: Grid) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(grid, display_id=True)
        else:
            self._handle.update(grid)


Screen = TerminalScreen | NotebookScreen


def screen() -> Screen:
    """The notebook's where this is one, and the terminal's elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return NotebookScreen() if hasattr(shell, "kernel") else TerminalScreen()


_LONGEST = 200
"""Characters of a value that are shown."""


@dataclass(frozen=True)
class Picture:
    """What is shown of a DataFrame: how many rows, and perhaps a bar of one column."""

    df: DataFrame
    rows: int
    bar: str | None = None

    def __post_init__(self) -> None:
        fields = {field.name: field.dataType for field in self.df.schema.fields}
        if self.bar is not None and not isinstance(fields.get(self.bar), NumericType):
            numbers = [name for name, kind in fields.items() if isinstance(kind, NumericType)]
            raise UsageError(
                f"bar={self.bar!r} is not a column of numbers here; "
                f"there are {', '.join(numbers) or 'none'}."
            )

    def first(self, title: str, foot: str = "") -> Grid:
        """The first rows."""
        return self._grid(self._in_words().limit(self.rows).collect(), title, foot)

    def last(self, title: str, foot: str = "") -> Grid:
        """The last ones."""
        return self._grid(self._in_words().tail(self.rows), title, foot)

    @property
    def _kinds(self) -> list[DataType]:
        return [field.dataType for field in self.df.schema.fields]

    def _in_words(self) -> DataFrame:
        # By place, for two columns may have one name.
        places = [f"c{place}" for place, _ in enumerate(self.df.columns)]
        words = [
            (F.hex(p) if isinstance(kind, BinaryType) else F.col(p).cast("string")).alias(p)
            for p, kind in zip(places, self._kinds, strict=True)
        ]
        if self.bar is not None:
            place = places[self.df.columns.index(self.bar)]
            words.append(F.col(place).cast("double").alias("bar"))
        return self.df.toDF(*places).select(*words)

    def _grid(self, found: Sequence[Row], title: str, foot: str) -> Grid:
        kinds = self._kinds
        return Grid(
            title=title,
            headers=tuple(self.df.columns),
            rows=tuple(tuple(map(_cell, row[: len(kinds)])) for row in found),
            right=frozenset(p for p, kind in enumerate(kinds) if isinstance(kind, NumericType)),
            bars=None if self.bar is None else tuple(_length(row[-1]) for row in found),
            foot=foot,
        )


def _cell(text: str | None) -> str:
    if text is None:
        return "NULL"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _length(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None

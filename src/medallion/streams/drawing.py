"""Rows of a DataFrame as a table, drawn by rich in a terminal or a notebook.

Spark formats the values, as in `show`. Control characters are escaped, and markup has no effect.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from medallion.errors import UsageError
from medallion.storage.text import printable

_BAR_WIDTH = 32
_LONGEST = 200  # characters of a value


def refuse_invalid_bar(df: DataFrame, bar: str | None) -> None:
    """Raise UsageError if `bar` is not a column of numbers."""
    numbers = [field.name for field in df.schema if isinstance(field.dataType, NumericType)]
    if bar is not None and bar not in numbers:
        known = ", ".join(numbers) or "none"
        raise UsageError(f"bar={bar!r} is not a column of numbers; these are {known}.")


def draw_table(df: DataFrame, most_rows: int, bar: str | None, newest: bool = False) -> Table:
    """Return a table of the first rows of a DataFrame, or the newest, with bars for one column."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left", caption_justify="left")
    for field in df.schema:
        header, is_number = Text(printable(field.name)), isinstance(field.dataType, NumericType)
        table.add_column(header, justify="right" if is_number else "left", overflow="fold")
    # By position, because two columns may have the same name.
    names = [f"c{number}" for number in range(len(df.columns))]
    strings = df.toDF(*names).select(*(F.col(name).cast("string") for name in names))
    rows = strings.tail(most_rows) if newest else strings.limit(most_rows).collect()
    bars = [""] * len(rows)
    if bar is not None:
        table.add_column(no_wrap=True)
        bars = _bars([row[df.columns.index(bar)] for row in rows])
    for row, line in zip(rows, bars, strict=True):
        cells = [*map(_cell, row), *([line] if bar is not None else [])]
        table.add_row(*map(Text, cells))
    return table


def _bars(values: list[str | None]) -> list[str]:
    numbers = [float(value or "nan") for value in values]
    lengths = [max(0.0, number) if math.isfinite(number) else 0.0 for number in numbers]
    longest = max(lengths, default=0.0) or 1.0
    return ["█" * round(_BAR_WIDTH * length / longest) for length in lengths]


def _cell(value: str | None) -> str:
    shown = printable("NULL" if value is None else value)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


class Screen:
    """The output of the current cell, which is updated while other cells run; or the terminal."""

    def __init__(self) -> None:
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython else None
        self.is_notebook = hasattr(shell, "kernel")
        self._handle: Any = None

    def draw(self, table: Table) -> None:
        """Replace the output of the cell; in a terminal, print the table below the last one."""
        if not self.is_notebook:
            Console().print(table)
            return
        from IPython.display import display

        if self._handle is None:
            self._handle = display(table, display_id=True)
        else:
            self._handle.update(table)

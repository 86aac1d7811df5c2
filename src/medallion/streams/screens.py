"""Where a live table is drawn: a terminal, or the output of a notebook's cell."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.live import Live

from medallion.streams.drawing import Grid

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

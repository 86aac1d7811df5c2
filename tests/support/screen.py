"""A screen that records the tables drawn on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rich.table import Table
from rich.text import Text


@dataclass
class RecordingScreen:
    """Keeps all drawn tables in order; `on_draw` is called after each."""

    is_notebook: bool = False
    tables: list[Table] = field(default_factory=list)
    on_draw: Callable[[], None] = lambda: None

    def draw(self, table: Table) -> None:
        self.tables.append(table)
        self.on_draw()

    @property
    def last_caption(self) -> str:
        return str(self.tables[-1].caption)


def rows_of(table: Table) -> list[tuple[str, ...]]:
    """Return the cells of a table as strings, row by row."""
    columns = [[as_string(cell) for cell in column.cells] for column in table.columns]
    return list(zip(*columns, strict=True))


def as_string(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)

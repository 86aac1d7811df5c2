"""A small result that is a table wherever it is shown, and a row after another to a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from medallion.streams.drawing import Grid, as_html, as_text

Row = TypeVar("Row")

_SHORTENED = ("id", "run_id")
"""Shown by their beginnings: the rows have them whole."""


@dataclass(frozen=True, repr=False)
class Table(Generic[Row]):
    """Rows, each a dataclass `kind`, whose fields are the columns; `empty` is said of none."""

    title: str
    kind: type[Row]
    rows: tuple[Row, ...]
    empty: str

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return as_text(self._grid()) if self.rows else self.empty

    def _repr_html_(self) -> str:
        return as_html(self._grid()) if self.rows else self.empty

    def _grid(self) -> Grid:
        names = [field.name for field in fields(self.kind)]  # type: ignore[arg-type]
        values = [[getattr(row, name) for name in names] for row in self.rows]
        return Grid(
            title=self.title,
            headers=tuple(name.replace("_", " ") for name in names),
            rows=tuple(
                tuple(_cell(name, value) for name, value in zip(names, row, strict=True))
                for row in values
            ),
            right=frozenset(
                place
                for place, column in enumerate(zip(*values, strict=True))
                if any(isinstance(value, (int, float)) for value in column)
            ),
        )


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.1f}"
    return str(value)[:8] if name in _SHORTENED else str(value)

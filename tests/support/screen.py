"""A screen that keeps what was drawn on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from medallion.streams.drawing import Grid


@dataclass
class RecordingScreen:
    """Every grid that was drawn, in order; `on_draw` is called at each."""

    outlives_the_call: bool = False
    room: int | None = None
    grids: list[Grid] = field(default_factory=list)
    on_draw: Callable[[], None] = lambda: None

    def __enter__(self) -> RecordingScreen:
        return self

    def __exit__(self, *raised: object) -> None:
        """Nothing to close."""

    def draw(self, grid: Grid) -> None:
        self.grids.append(grid)
        self.on_draw()

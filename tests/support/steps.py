"""Steps of the journal that are repeated, as after the death of a process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from medallion.state import journal


@contextmanager
def repeated_steps() -> Iterator[None]:
    """Run each step twice, as if the process had died before it marked the step as done."""
    run_steps = journal.run_steps

    def run_twice(layout: Any, entry: Any, steps: Iterable[tuple[str, Callable[[], None]]]) -> None:
        run_steps(layout, entry, [(name, partial(_twice, step)) for name, step in steps])

    with patch.object(journal, "run_steps", run_twice):
        yield


def _twice(step: Callable[[], None]) -> None:
    step()
    step()

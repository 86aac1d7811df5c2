"""What ends a process that stays on."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def ending() -> Iterator[Callable[[], bool]]:
    """Gives whether SIGTERM or Ctrl-C has come, which do nothing else within it.

    Who presses Ctrl-C once more, a second later, does not want to wait for a clean end. (A SIGTERM
    may come twice: `timeout` sends it to the process and to its group.)

    Raises:
        KeyboardInterrupt: within it, at the second Ctrl-C.
    """
    asked_at: float | None = None  # no Event: its lock may be held where the signal comes

    def end(number: int, _: object) -> None:
        nonlocal asked_at
        if asked_at is None:
            asked_at = time.monotonic()
        elif number == signal.SIGINT and time.monotonic() - asked_at > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in _ENDING}
    try:
        yield lambda: asked_at is not None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

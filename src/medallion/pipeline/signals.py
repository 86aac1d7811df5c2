"""What ends a process that stays on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def ending() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set, instead of what they did before.

    Who presses Ctrl-C once more, a second later, does not want to wait for a clean end. (A SIGTERM
    may come twice: `timeout` sends it to the process and to its group.)

    Raises:
        KeyboardInterrupt: within it, at the second Ctrl-C.
    """
    stop, began = threading.Event(), time.monotonic()

    def end(number: int, _: object) -> None:
        nonlocal began
        if not stop.is_set():
            began = time.monotonic()
            stop.set()
        elif number == signal.SIGINT and time.monotonic() - began > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in _ENDING}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""What ends a process: SIGTERM and Ctrl-C, taken up where nothing is cut in two.

A call to Java that a signal cuts in two leaves a stack trace, and while Java starts, Java as well.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


class ShutdownRequest:
    """Takes note of the first signal; nothing else happens until somebody asks.

    Who presses Ctrl-C once more, a second later, does not want to wait for a clean end. (A SIGTERM
    may come twice: `timeout` sends it to the process and to its group.)
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._at = 0.0

    @property
    def is_asked_for(self) -> bool:
        """Whether one of the signals has come."""
        return self.number is not None

    def note(self, number: int, _: object) -> None:
        """Handle a signal.

        Raises:
            KeyboardInterrupt: at the second Ctrl-C.
        """
        if self.number is None:
            # Java may have got the signal too, and what Py4J says of its end is a stack trace.
            logging.disable(logging.CRITICAL)
            self.number, self._at = number, time.monotonic()
        elif number == signal.SIGINT and time.monotonic() - self._at > 1:
            raise KeyboardInterrupt(number)


_endings: list[ShutdownRequest] = []


@contextmanager
def defer_signals() -> Iterator[ShutdownRequest]:
    """Within it the signals are only noted, once however many of these are nested.

    Raises:
        KeyboardInterrupt: within it, at the second Ctrl-C.
    """
    if _endings:
        yield _endings[-1]
        return
    _endings.append(found := ShutdownRequest())
    try:
        with handled(found.note, _NUMBERS):
            yield found
    finally:
        _endings.remove(found)
        logging.disable(logging.NOTSET)


@contextmanager
def handled(handler: Any, numbers: Iterable[signal.Signals]) -> Iterator[None]:
    """Within it these signals have another handler."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def is_shutdown_requested() -> bool:
    """Whether one of the signals has been noted: what fails then may fail for that."""
    return any(each.is_asked_for for each in _endings)


def raise_if_requested() -> None:
    """Raise KeyboardInterrupt, with the signal's number, if one has come: here it may end."""
    if _endings and _endings[-1].number is not None:
        raise KeyboardInterrupt(_endings[-1].number)


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Within it SIGTERM is a KeyboardInterrupt, as Ctrl-C is one to Python."""

    def end(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    with handled(end, [signal.SIGTERM]):
        yield


@contextmanager
def default_signals() -> Iterator[None]:
    """Within it a signal ends the process at once, and a shell sees 130 or 143.

    It is for commands that only read: Python would learn of the signal when the SQL engine comes
    back, which may take hours. A Ctrl-C that is ignored, as behind `&` in a script, stays so.
    """
    heeded = [number for number in _NUMBERS if signal.getsignal(number) != signal.SIG_IGN]
    with handled(signal.SIG_DFL, heeded):
        yield

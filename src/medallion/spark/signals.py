"""SIGTERM and Ctrl-C, deferred so that they interrupt no call to Java.

A signal during such a call leaves a stack trace; while Java starts, it also ends Java.
"""

import logging
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


class ShutdownRequest:
    """The first signal that has come; it has no effect until the program checks for it.

    A second Ctrl-C, a second later, ends the program at once. (A SIGTERM may come twice: `timeout`
    sends it to the process and to its group.)
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._at = 0.0

    def handle(self, number: int, _: object) -> None:
        """Record a signal.

        Raises:
            KeyboardInterrupt: at the second Ctrl-C.
        """
        if self.number is None:
            # Java may get the signal too, and Py4J would log its end as a stack trace.
            logging.disable(logging.CRITICAL)
            self.number, self._at = number, time.monotonic()
        elif number == signal.SIGINT and time.monotonic() - self._at > 1:
            raise KeyboardInterrupt(number)


_requests: list[ShutdownRequest] = []  # one at most


@contextmanager
def defer_signals() -> Iterator[ShutdownRequest]:
    """Only record signals within this context; contexts may be nested.

    Raises:
        KeyboardInterrupt: at the second Ctrl-C.
    """
    if _requests:
        yield _requests[0]
        return
    _requests.append(request := ShutdownRequest())
    try:
        with replace_handlers(request.handle, _NUMBERS):
            yield request
    finally:
        _requests.clear()
        logging.disable(logging.NOTSET)


@contextmanager
def replace_handlers(handler: Any, numbers: Iterable[signal.Signals]) -> Iterator[None]:
    """Set another handler for some signals within this context."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def is_shutdown_requested() -> bool:
    """Return whether a signal has come, which may be the cause of errors."""
    return any(request.number is not None for request in _requests)


def raise_if_requested() -> None:
    """Raise KeyboardInterrupt with the signal's number if one has come."""
    if is_shutdown_requested():
        raise KeyboardInterrupt(_requests[0].number)


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM within this context, as Python does for Ctrl-C."""

    def interrupt(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    with replace_handlers(interrupt, [signal.SIGTERM]):
        yield


@contextmanager
def default_signals() -> Iterator[None]:
    """End the process at once for a signal within this context: a shell sees 130 or 143.

    Commands that only read use it: Python would handle a signal after the SQL engine returns,
    perhaps hours later. A Ctrl-C that is ignored, as after `&` in a script, stays ignored.
    """
    handled_numbers = [number for number in _NUMBERS if signal.getsignal(number) != signal.SIG_IGN]
    with replace_handlers(signal.SIG_DFL, handled_numbers):
        yield

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


_first: list[tuple[int, float]] = []
"""The first signal that has come, and when, in seconds of a monotonic clock."""


def _defer(number: int, _: object) -> None:
    """Record the first signal, which has no effect until the program checks for it.

    A second Ctrl-C, a second later, ends the program at once. (A SIGTERM may come twice: `timeout`
    sends it to the process and to its group.)

    Raises:
        KeyboardInterrupt: at the second Ctrl-C.
    """
    if not _first:
        # Java may get the signal too, and Py4J would log its end as a stack trace.
        logging.disable(logging.CRITICAL)
        _first.append((number, time.monotonic()))
    elif number == signal.SIGINT and time.monotonic() - _first[0][1] > 1:
        raise KeyboardInterrupt(number)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Only record signals within this context; contexts may be nested.

    Raises:
        KeyboardInterrupt: at the second Ctrl-C.
    """
    if signal.getsignal(signal.SIGTERM) is _defer:
        yield
        return
    try:
        with replace_handlers(_defer, _NUMBERS):
            yield
    finally:
        _first.clear()
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
    return bool(_first)


def raise_if_requested() -> None:
    """Raise KeyboardInterrupt with the signal's number if one has come."""
    if _first:
        raise KeyboardInterrupt(_first[0][0])


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

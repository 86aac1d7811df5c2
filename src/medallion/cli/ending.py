"""How a command that only reads ends: at once, for there is nothing to bring to an end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def at_once() -> Iterator[None]:
    """Within it Ctrl-C and SIGTERM end the process themselves, and a shell sees 130 and 143.

    Python would learn of them when the SQL engine comes back, which may take hours. A Ctrl-C that
    is ignored, as behind `&` in a script, stays so.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in (number for number, handler in before.items() if handler != signal.SIG_IGN):
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

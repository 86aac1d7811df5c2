"""One writer process a layer: two drivers that append to one Delta table can lose rows."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import IO

from medallion.errors import UsageError
from medallion.lakehouse.layout import Layout

_TRIES, _PAUSE = 20, 0.01


@contextmanager
def hold(layout: Layout, layers: Iterable[str], command: str) -> Iterator[None]:
    """Hold the layers for this process; the system frees them when it ends, however it ends.

    Raises:
        UsageError: another process holds one of them; the message has its pid and start.
    """
    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(_one(layout, layer, command))
        yield


@contextmanager
def _one(layout: Layout, layer: str, command: str) -> Iterator[None]:
    layout.locks.mkdir(parents=True, exist_ok=True)
    path = layout.locks / f"{layer}.lock"
    with path.open("a+", encoding="utf-8") as file:
        if not _is_ours(file):
            raise UsageError(_held(path.read_text(encoding="utf-8"), layer, layout))
        file.truncate(0)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        json.dump({"command": command, "pid": os.getpid(), "started": started}, file)
        file.flush()
        yield


def _is_ours(file: IO[str]) -> bool:
    """Take the lock; an onlooker that asks for its holder has it for a moment at most."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(_PAUSE)
    return False


def holder(layout: Layout, layer: str) -> str | None:
    """The command that writes a layer now, with its pid; None where nobody does."""
    path = layout.locks / f"{layer}.lock"
    try:
        with path.open(encoding="utf-8") as file:
            # A shared lock is refused where somebody writes, and hinders no other onlooker.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return f"medallion {found['command']}, pid {found['pid']}"
        except ValueError:  # between the lock and its text
            return "medallion"
    return None


def _held(text: str, layer: str, layout: Layout) -> str:
    try:
        holder = json.loads(text)
    except ValueError:  # between the lock and its text
        return f"{layer} of {layout.root} is being written by another process; wait until it ends."
    return (
        f"{layer} of {layout.root} is being written by medallion {holder['command']}, "
        f"pid {holder['pid']}, started {holder['started']}; wait until it ends, or stop it."
    )

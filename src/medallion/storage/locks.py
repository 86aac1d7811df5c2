"""One writer process a layer: two drivers that append to one Delta table can lose rows.

And one writer at a time of the records, which all layers share.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from medallion.errors import UsageError
from medallion.storage import clock
from medallion.storage.paths import Layout
from medallion.storage.text import error_reason

_TRIES, _PAUSE = 1000, 0.01
_TO_LOOK = fcntl.LOCK_SH | fcntl.LOCK_NB


@contextmanager
def lock_layers(layout: Layout, layers: Iterable[str], command: str) -> Iterator[None]:
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
    path = layout.lock(layer)
    with _taken(path) as file:
        if file is None:
            who, since = _holder(path)
            raise UsageError(
                f"{layer} of {layout.root} is being written by {who}{since}; wait until it ends, "
                "or stop it."
            )
        file.truncate(0)
        started = clock.format_time(clock.now_micros())
        json.dump({"command": command, "pid": os.getpid(), "started": started}, file)
        file.flush()
        yield


@contextmanager
def _taken(path: Path) -> Iterator[IO[str] | None]:
    """The locked file; None where another process writes. Onlookers are waited for: on a busy
    machine one may be set aside while it looks."""
    for _ in range(_TRIES):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+", encoding="utf-8") as file:
            if _is_locked(file, fcntl.LOCK_EX | fcntl.LOCK_NB):
                if _is_there(file, path):
                    yield file
                    return
            elif not _is_locked(file, _TO_LOOK):  # which onlookers have, and no writer lets be
                break
        time.sleep(_PAUSE)
    yield None


def _is_locked(file: IO[str], how: int) -> bool:
    """Whether a file is locked now; not, where another process has it, and it is not waited for.

    Raises:
        UsageError: the disk has no locks, as some that lie in a network.
    """
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        return False
    except OSError as error:
        raise UsageError(
            f"{file.name} cannot be locked ({error_reason(error)}), and two runs at once could "
            "lose rows: put the lakehouse on a disk that has locks."
        ) from None
    return True


@contextmanager
def lock_file(table: Path) -> Iterator[None]:
    """Wait until no other process or thread writes a table of records, or a file, and keep them
    waiting."""
    path = table.with_name(f".{table.name}.lock")  # not in the table, which may be moved away
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        if _is_locked(file, fcntl.LOCK_EX) and _is_there(file, path):
            yield
            return
    with lock_file(table):
        yield


def _is_there(file: IO[str], path: Path) -> bool:
    """Whether an open file is the one of that name: it may have been deleted before it was locked,
    and the next process would lock another one."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def lock_holder(layout: Layout, layer: str) -> str | None:
    """The command that writes a layer now, with its pid; None where nobody does, or where that may
    not be seen: mostly the layer's tables may not be, either, which is told of them."""
    path = layout.lock(layer)
    try:
        with path.open(encoding="utf-8") as file:
            # A shared lock is refused where somebody writes, and hinders no other onlooker.
            if _is_locked(file, _TO_LOOK):
                return None
        found = _holder(path)
    except (FileNotFoundError, PermissionError):
        return None
    return found[0]


def _holder(path: Path) -> tuple[str, str]:
    """The command that has locked a file, with its pid; and since when, as far as it says so."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:  # between the lock and its text
        return "medallion", ""
    return f"medallion {found['command']}, pid {found['pid']}", f", started {found['started']}"

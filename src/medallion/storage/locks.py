"""One writer process per layer: two drivers that append to one Delta table can lose rows."""

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

from medallion.errors import UsageError
from medallion.storage import clock
from medallion.storage.files import is_same_file, try_flock
from medallion.storage.paths import Layout, StoragePath

_TRIES, _PAUSE = 50, 0.01  # seconds
_held: set[StoragePath] = set()  # the lock files that this process holds


@contextmanager
def lock_layers(layout: Layout, layers: Iterable[str], command: str) -> Iterator[None]:
    """Hold the locks of layers. The system releases them when the process ends, however it ends.

    Raises:
        UsageError: another process holds one of them (the message has its pid and start).
    """
    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(_lock_layer(layout, layer, command))
        yield


@contextmanager
def _lock_layer(layout: Layout, layer: str, command: str) -> Iterator[None]:
    path = layout.lock(layer)
    with _locked_file(path) as file:
        if file is None:
            holder, start = _holder(path)
            raise UsageError(
                f"{layer} of {layout.root} is being written by {holder}{start}; wait until it "
                "ends, or stop it."
            )
        file.truncate(0)
        started = clock.format_time(clock.now_micros())
        json.dump({"command": command, "pid": os.getpid(), "started": started}, file)
        file.flush()
        _held.add(path)
        try:
            yield
        finally:
            _held.discard(path)


def is_held_here(layout: Layout, layer: str) -> bool:
    """Return True if this process holds the lock of a layer."""
    return layout.lock(layer) in _held


@contextmanager
def _locked_file(path: StoragePath) -> Iterator[IO[str] | None]:
    """Yield the locked file, or None if another process holds it for half a second.

    A single attempt could fail because `lock_holder` locks the file for a moment.
    """
    for _ in range(_TRIES):
        path.parent.create_directory()
        with path.local.open("a+", encoding="utf-8") as file:
            if try_flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB) and is_same_file(file, path.local):
                yield file
                return
        time.sleep(_PAUSE)
    yield None


def lock_holder(layout: Layout, layer: str) -> str | None:
    """Return the command that holds a layer's lock, with its pid; None if no process does.

    Also None if the lock cannot be read: then reading the layer's tables reports the error.
    """
    path = layout.lock(layer)
    try:
        with path.local.open(encoding="utf-8") as file:
            if try_flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB):
                return None
        return _holder(path)[0]
    except (FileNotFoundError, PermissionError):
        return None


def _holder(path: StoragePath) -> tuple[str, str]:
    """Return the command and pid that a lock file names, and the command's start."""
    try:
        holder = json.loads(path.read())
    except ValueError:  # locked, but not written yet
        return "medallion", ""
    return f"medallion {holder['command']}, pid {holder['pid']}", f", started {holder['started']}"

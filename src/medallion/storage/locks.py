"""One writer process per layer: two drivers that append to one Delta table can lose rows."""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import IO, Any

from medallion.errors import UsageError
from medallion.storage import clock, leases
from medallion.storage.files import is_same_file, try_flock
from medallion.storage.layout import Layout
from medallion.storage.paths import ObjectPath, StoragePath

_TRIES, _PAUSE = 50, 0.01  # seconds
_held: dict[StoragePath, Callable[[], None]] = {}  # the locks of this process, and their checks


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
    if isinstance(path, ObjectPath):
        try:
            lease = leases.take(path, command)
        except leases.HeldError as error:
            raise _held_error(layout, layer, *_described(error.document)) from None
        _held[path] = lease.check
        try:
            yield
        finally:
            del _held[path]
            lease.release()
        return
    with _locked_file(path) as file:
        if file is None:
            raise _held_error(layout, layer, *_holder(path))
        file.truncate(0)
        started = clock.format_time(clock.now_micros())
        json.dump({"command": command, "pid": os.getpid(), "started": started}, file)
        file.flush()
        _held[path] = lambda: None
        try:
            yield
        finally:
            del _held[path]


def _held_error(layout: Layout, layer: str, holder: str, start: str) -> UsageError:
    return UsageError(
        f"{layer} of {layout.root} is being written by {holder}{start}; wait until it ends, or "
        "stop it."
    )


def is_held_here(layout: Layout, layer: str) -> bool:
    """Return True if this process holds the lock of a layer."""
    return layout.lock(layer) in _held


def check_locks() -> None:
    """Raise MedallionError if a lock that this process held was lost; a file's lock never is."""
    for check in list(_held.values()):
        check()


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
    if isinstance(path, ObjectPath):
        document = leases.holder(path)
        return _described(document)[0] if document else None
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
        return _described(json.loads(path.read()))
    except ValueError:  # locked, but not written yet
        return "medallion", ""


def _described(holder: Mapping[str, Any]) -> tuple[str, str]:
    where = f" on {holder['host']}" if "host" in holder else ""
    name = f"medallion {holder['command']}, pid {holder['pid']}{where}"
    return name, f", started {holder['started']}"

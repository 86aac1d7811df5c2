"""One writer process per layer: two drivers that append to one Delta table can lose rows."""

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import IO, Any

from medallion.errors import UsageError
from medallion.storage import clock, leases
from medallion.storage.files import is_same_file, try_flock
from medallion.storage.layout import Layout
from medallion.storage.paths import ObjectPath, StoragePath

_TRIES, _PAUSE = 50, 0.01  # seconds
_UNKNOWN = "another process"
_held: dict[StoragePath, leases.Lease | None] = {}  # the locks of this process


@dataclass(frozen=True)
class LockHolder:
    """A process that holds or held the lock of a layer, since a time in microseconds since 1970."""

    command: str
    pid: int
    since: int
    host: str = ""

    @property
    def start(self) -> str:
        """The start to the minute; with its day unless that is today."""
        day, _, time_of_day = clock.format_time(self.since).partition("T")
        is_today = clock.format_time(clock.now_micros()).startswith(day)
        return f"{'' if is_today else f'{day} '}{time_of_day[:5]} UTC"

    def __str__(self) -> str:
        where = f" on {self.host}" if self.host else ""
        return f"pid {self.pid}{where} ({self.command}, since {self.start})"


@contextmanager
def lock_layers(layout: Layout, layers: Iterable[str], command: str) -> Iterator[None]:
    """Hold the locks of layers. The system releases them when the process ends, however it ends.

    Raises:
        UsageError: another process holds one of them (the message names it).
    """
    holder = LockHolder(command, os.getpid(), clock.now_micros())
    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(_lock_layer(layout, layer, holder))
        yield


@contextmanager
def _lock_layer(layout: Layout, layer: str, holder: LockHolder) -> Iterator[None]:
    path = layout.lock(layer)
    if isinstance(path, ObjectPath):
        try:
            lease = leases.take(path, asdict(holder))
        except leases.HeldError as error:
            raise _held_error(layout, layer, _parse(error.args[0])) from None
        _held[path] = lease
        try:
            yield
        finally:
            del _held[path]
            lease.release()
        return
    with _locked_file(path) as file:
        if file is None:
            raise _held_error(layout, layer, _inspect(path)[1])
        file.truncate(0)
        json.dump(asdict(holder), file)
        file.flush()
        _held[path] = None
        try:
            yield
        finally:
            del _held[path]
            file.truncate(0)  # else it was killed


def _held_error(layout: Layout, layer: str, holder: LockHolder | None) -> UsageError:
    return UsageError(
        f"{layer} of {layout.root} is being written by {holder or _UNKNOWN}; wait until it ends, "
        "or stop it."
    )


def is_held_here(layout: Layout, layer: str) -> bool:
    """Return True if this process holds the lock of a layer."""
    return layout.lock(layer) in _held


def check_locks() -> None:
    """Raise MedallionError if a lock that this process held was lost; a file's lock never is."""
    for lease in list(_held.values()):
        if lease:
            lease.check()


def held_leases(layout: Layout, layers: Iterable[str]) -> list[str]:
    """Return the names of the leases that this process holds for layers; a disk has none."""
    held = (_held[layout.lock(layer)] for layer in layers)
    return [lease.name for lease in held if lease]


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
    """Return the process that holds a layer's lock; None if none does.

    Also None if the lock cannot be read: then reading the layer's tables reports the error.
    """
    is_held, holder = _inspect(layout.lock(layer))
    return str(holder or _UNKNOWN) if is_held else None


def killed_processes(layout: Layout, layers: Iterable[str]) -> list[LockHolder]:
    """Return the processes that were killed while they held locks, and that none has followed."""
    found = [_inspect(layout.lock(layer)) for layer in layers]
    return list(dict.fromkeys(holder for is_held, holder in found if holder and not is_held))


def _inspect(path: StoragePath) -> tuple[bool, LockHolder | None]:
    """Return whether a lock is held, and the process that holds it or was killed with it."""
    if isinstance(path, ObjectPath):
        is_held, document = leases.inspect(path)
        return is_held, _parse(document)
    try:
        with path.local.open(encoding="utf-8") as file:
            is_held = not try_flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return is_held, _parse(json.load(file))
    except ValueError:  # not written yet
        return is_held, None
    except (FileNotFoundError, PermissionError):
        return False, None


def _parse(document: Mapping[str, Any]) -> LockHolder | None:
    """Return the process that a lock names; None for the lock of an earlier release."""
    if "since" not in document:
        return None
    since, host = document["since"], document.get("host", "")
    return LockHolder(document["command"], document["pid"], since, host)

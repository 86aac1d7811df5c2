"""Locks in a bucket: leases, by which one process on any machine writes a layer.

A lease is an object `<layer>/.lock/0000000042.json`, which is created if it is absent; the one with
the highest number counts. Its holder writes it again every ten seconds. Another process takes the
next number if the lease is released, if its process has ended on the same machine, or if it has not
changed for a minute, as measured by the other process: clocks are never compared.

A holder that was suspended for longer notices that when it checks the lease, but not between a
check and its next write. What it writes then fails: commits of Delta tables and of checkpoints are
created if absent, and a landed object is deleted only in its state.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from medallion.errors import MedallionError
from medallion.storage import clock, objects
from medallion.storage.paths import ObjectPath, StoragePath

SECONDS = 60
"""After this time without a beat, a lease is void."""
_BEATS, _KEPT = 6, 3
_END = 0.4  # seconds in which a killed process ends


class HeldError(Exception):
    """Another process holds the lease; the argument is its content."""


class Lease:
    """A lease of this process; `release` ends it.

    Args:
        path: its object.
        document: its content.
        valid_from: a time before it was created, as others measure it from its creation.
    """

    def __init__(self, path: StoragePath, document: dict[str, Any], valid_from: float) -> None:
        self._path, self._document, self._valid_from = path, document, valid_from
        self._is_lost, self._released = False, threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """The name of its object."""
        return self._path.name

    def check(self) -> None:
        """Raise MedallionError if another process may hold the lease by now."""
        if self._is_lost or _now() - self._valid_from > SECONDS * 2 / 3:
            raise MedallionError(
                f"{self._path.parent.parent}: another process may write it, as this one was "
                "suspended or had no connection for too long. The next run resumes from here."
            )

    def release(self) -> None:
        """Let other processes take the lease at once; errors are ignored, as it also expires."""
        self._released.set()
        self._thread.join()
        with suppress(OSError):
            self._write(released=True)

    def _beat(self) -> None:
        while not self._released.wait(SECONDS / _BEATS):
            with suppress(OSError):  # the next beat tries again
                self._write(beat=self._document["beat"] + 1)

    def _write(self, **changes: Any) -> None:
        """Write the lease again, unless another process has taken the next one."""
        start = _now()
        if self._is_lost or newest(self._path.parent) != self._path:
            self._is_lost = True
            return
        self._document |= changes
        self._path.write_atomic(json.dumps(self._document))
        self._valid_from = start


def take(directory: ObjectPath, holder: Mapping[str, Any]) -> Lease:
    """Take a lease; wait up to a minute if it is unknown whether its holder still runs.

    Args:
        holder: what names this process in messages.

    Raises:
        HeldError: another process holds it.
    """
    seen, since = None, _now()
    while True:
        path, document = newest(directory), None
        if path and (document := _read(path)) and not _is_void(document):
            waited = _now() - since
            is_running = _is_running(document) and waited > _END
            if is_running or document != (seen or document):  # or it has a beat
                raise HeldError(document)
            if waited < SECONDS:
                seen = document
                time.sleep(_END / 2 if waited < _END else SECONDS / 60)
                continue
        number = int(path.name.removesuffix(".json")) + 1 if path else 1
        document = {
            **{**holder, "id": uuid.uuid4().hex, "pid": os.getpid(), "host": socket.gethostname()},
            **{"process": _process(os.getpid()), "beat": 0, "released": False},
        }
        new, start = directory / f"{number:010}.json", _now()
        if isinstance(new, ObjectPath) and new.write_new(json.dumps(document).encode()):
            with suppress(OSError):  # the next process removes them
                for old in directory.children()[:-_KEPT]:
                    old.delete()
            return Lease(new, document, start)


def inspect(directory: StoragePath) -> tuple[bool, dict[str, Any]]:
    """Return whether a process probably holds a lease, and its content; empty if released."""
    path = newest(directory)
    document = _read(path) if path else None
    if path is None or document is None or document["released"]:
        return False, {}
    info = path.info()
    is_old = info and clock.now_micros() - info.modified_at > 2 * SECONDS * 1_000_000
    return not (_is_void(document) or (is_old and not _is_running(document))), document


@objects.remembering(answers=False)
def newest(directory: StoragePath) -> StoragePath | None:
    """Return the lease that counts, or None if there was none yet."""
    return max(directory.children(), default=None)


@objects.remembering(answers=False)
def _read(path: StoragePath) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read()))
    except FileNotFoundError:  # an old one, removed just now
        return None


def _is_void(document: dict[str, Any]) -> bool:
    """Return True if a lease is released, or its process has ended on this machine."""
    own = _process(os.getpid())  # without a process file system it is empty
    is_here = bool(own) and own[:2] == document["process"][:2]
    return bool(document["released"]) or (is_here and not _is_running(document))


def _is_running(document: dict[str, Any]) -> bool:
    """Return True if the process of a lease runs on this machine."""
    known = document["process"]  # empty without a process file system
    return bool(known) and _process(int(document["pid"])) == known


def _process(pid: int) -> list[str]:
    """Return what identifies a process: its machine, its namespace, its number and its start."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except FileNotFoundError:
        return []
    return [] if state[0] in "ZX" else [boot, namespace, str(pid), state[19]]


def _now() -> float:
    """Return a time that also passes while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)

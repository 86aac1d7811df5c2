"""Permissions for root: tests that close files and directories need a user whom that stops."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HEADER_VERSION = 0x20080522  # of capget and capset, for 64 capabilities
_OVERRIDES = 0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
_DROP_FROM_BOUNDS = 24  # PR_CAPBSET_DROP


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable"))


def obey_permissions() -> None:
    """Give up root's right to pass over permissions, here and in all processes started later.

    Threads that run already keep it, so call this before any thread starts. The user stays root,
    and so can read its own files wherever the project is.
    """
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (1, 2):
        libc.prctl(_DROP_FROM_BOUNDS, capability, 0, 0, 0)
    header, sets = _Header(_HEADER_VERSION, 0), (_Sets * 2)()
    if libc.capget(ctypes.byref(header), ctypes.byref(sets)):
        raise OSError(ctypes.get_errno(), "capget")
    for name in ("effective", "permitted", "inheritable"):
        setattr(sets[0], name, getattr(sets[0], name) & ~_OVERRIDES)
    if libc.capset(ctypes.byref(header), ctypes.byref(sets)):
        raise OSError(ctypes.get_errno(), "capset")


@contextmanager
def closed(path: Path) -> Iterator[None]:
    """Close a file or directory to its user."""
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        yield
    finally:
        path.chmod(mode)

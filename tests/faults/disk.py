"""A small file system of a walk's own, on which nothing can be written for a while."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SIZE = "400m"


def mount(folder: Path) -> bool:
    """Whether the folder could be given a file system of its own, small enough to be filled."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def unmount(folder: Path) -> None:
    """Give it back, whoever still has files of it open."""
    subprocess.run(["umount", "--lazy", str(folder)], check=False)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nothing can be written."""
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """No room is left; only for a small one."""
    ballast = folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            file.write(b"\0" * 65_536)
    try:
        yield
    finally:
        ballast.unlink(missing_ok=True)

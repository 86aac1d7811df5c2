"""A small separate file system whose writes can fail for a while."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SIZE = "400m"


def mount(folder: Path) -> bool:
    """Mount a small file system on the directory; return whether that was possible."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def unmount(folder: Path) -> None:
    """Unmount the file system, even if files are still open."""
    subprocess.run(["umount", "--lazy", str(folder)], check=False)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make the file system read-only."""
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Fill the file system; use this only for a small one."""
    ballast = folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            file.write(b"\0" * 65_536)
    try:
        yield
    finally:
        ballast.unlink(missing_ok=True)

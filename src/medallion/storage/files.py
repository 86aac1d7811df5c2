"""Small files that are there whole or not at all, whenever the process or the power is cut off;
and whether two files are alike."""

from __future__ import annotations

import errno
import filecmp
import os
from pathlib import Path


def write_atomic(file: Path, text: str) -> None:
    """Write a file beside its place, and put it there; one of that name is replaced."""
    unfinished = file.with_name(f".{file.name}.tmp")
    try:
        unfinished.write_text(text, encoding="utf-8")
        # The name must not reach the disk before the bytes do: it would be an empty file's then.
        sync(unfinished)
        unfinished.replace(file)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    sync(file.parent)


def write_if_absent(file: Path, text: str) -> bool:
    """Create a small file atomically; return False, and change nothing, if it exists."""
    unfinished = file.with_name(f".{file.name}.tmp")
    try:
        unfinished.write_text(text, encoding="utf-8")
        sync(unfinished)
        os.link(unfinished, file)
    except FileExistsError:
        return False
    finally:
        unfinished.unlink(missing_ok=True)
    sync(file.parent)
    return True


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, would survive that the power fails."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some disks in a network cannot do that for a folder, which PostgreSQL passes over as well.
        if error.errno not in (errno.EBADF, errno.EINVAL) or not path.is_dir():
            raise
    finally:
        os.close(handle)


def have_same_bytes(one: Path, other: Path) -> bool:
    """Whether two files are alike, whatever their times; raises OSError where that cannot be seen.

    What the library remembers goes by sizes and times, which tell nothing here.
    """
    filecmp.clear_cache()
    return filecmp.cmp(one, other, shallow=False)

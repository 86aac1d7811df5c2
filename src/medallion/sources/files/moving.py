"""Files moved out of a source's folders: as a whole, or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory


def move(path: Path, target: Path) -> None:
    """Move a file or folder to a name that is free; where that fails, all is as it was.

    To another disk, files alone are moved.

    Raises:
        OSError: it stays, or the name is taken.
    """
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(path, target)
        _remove(path, target)


def _copy(path: Path, target: Path) -> None:
    if path.is_dir():  # it could be left half removed
        raise OSError(errno.EXDEV, "it is a directory, and on another disk")
    if not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    before = path.stat()
    # A copy that is cut off must not look like a file that was moved.
    with TemporaryDirectory(prefix=".", dir=target.parent) as hidden:
        copy = Path(hidden) / "copy"
        shutil.copy2(path, copy)
        after = path.stat()
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise OSError(errno.EBUSY, "it changed while it was copied")
        copy.rename(target)


def _remove(path: Path, copy: Path) -> None:
    """Remove what has been copied; where it cannot be, remove the copy."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        if os.path.lexists(path):  # for certain: else the copy may be all that there is
            copy.unlink()
        raise

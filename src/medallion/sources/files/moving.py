"""Files taken out of a source's folders: as a whole, or not at all, and never another one.

Between a look at a file and its move another one may take its place. So a file is first given a
name that nobody else writes to, in a folder `._moving` beside it, and looked at there. Whatever a
run that was cut off has left there is put back before the folders are listed.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from medallion.lakehouse import storage
from medallion.ops.ledger import File
from medallion.sources.files.listing import free_name, look_at

PRIVATE = "._moving"
# Held while a file is in `._moving`, for another thread would take it for one that was left there.
_MOVING = threading.Lock()


class Moves:
    """Files moved or deleted one after the other; used as a context.

    Before the first of them leaves, all that was written is on the disk: its rows may be nowhere
    else by then. At the end their new places are, for the ledger is about to name them, and the
    private folders are gone. For each file by itself that would take as long as to read it.
    """

    def __init__(self) -> None:
        self._targets: set[Path] = set()
        self._private: set[Path] = set()

    def __enter__(self) -> Moves:
        return self

    def __exit__(self, *_: object) -> None:
        for folder in self._targets:
            storage.sync(folder)
        with _MOVING:
            for folder in self._private:
                with suppress(OSError):
                    folder.rmdir()

    def move(self, path: Path, target: Path, expected: File) -> bool:
        """Move a file to a name that is free; where that fails, all is as it was.

        Args:
            expected: the file as it was seen.

        Returns:
            False where another file lies there by now; it stays.

        Raises:
            OSError: it stays, or the name is taken.
        """
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._taken_away(path, expected) as private:
            if private is None:
                return False
            try:
                private.rename(target)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _copy(private, target)
                _remove(private, target)
        self._targets.add(target.parent)
        return True

    def delete(self, path: Path, expected: File) -> bool:
        """Delete a file; False where another one lies there by now, which stays.

        Raises:
            OSError: it stays.
        """
        with self._taken_away(path, expected) as private:
            if private is None:
                return False
            private.unlink()
        return True

    @contextmanager
    def _taken_away(self, path: Path, expected: File) -> Iterator[Path | None]:
        """The private name of a file, None where it is another one; what stays is put back."""
        private = path.parent / PRIVATE / path.name
        if not self._private:
            private.parent.mkdir(exist_ok=True)  # where nothing can leave, nobody waits for a disk
            os.sync()  # of Spark's files nobody knows the names
        self._private.add(private.parent)
        with _MOVING:
            if os.path.lexists(private):
                _give_back(private)
            private.parent.mkdir(exist_ok=True)
            try:
                path.rename(private)
                yield private if look_at(private, expected.path) == expected else None
            finally:
                _give_back(private)


def put_back(private: Path) -> None:
    """Put back what a run that was cut off has left in `._moving`."""
    with _MOVING, suppress(OSError):
        _give_back(private)
        private.parent.rmdir()


def _give_back(private: Path) -> None:
    original = private.parent.parent / private.name
    if os.path.lexists(private):
        try:
            if _is_same(private, original):  # cut off when it had both names
                private.unlink()
            else:
                _rename_to_free(private, original)
        except FileExistsError:  # one more has come meanwhile: each is a file of its own
            _rename_to_free(private, free_name(original))


def _is_same(one: Path, other: Path) -> bool:
    """Whether two names are those of one file."""
    with suppress(FileNotFoundError):
        return os.path.samestat(one.lstat(), other.lstat())
    return False


def _rename_to_free(path: Path, target: Path) -> None:
    """Rename, and raise FileExistsError where the name is taken, at the same moment even."""
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    try:
        os.link(path, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a disk that knows no links
        path.rename(target)
    else:
        path.unlink()


def _copy(path: Path, target: Path) -> None:
    before = path.stat()
    # A copy that is cut off must not look like a file that was moved.
    with TemporaryDirectory(prefix=".", dir=target.parent) as hidden:
        copy = Path(hidden) / "copy"
        shutil.copy2(path, copy)
        after = path.stat()
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise OSError(errno.EBUSY, "it changed while it was copied")
        storage.sync(copy)  # before the only other one is removed
        copy.rename(target)
        storage.sync(target.parent)


def _remove(path: Path, copy: Path) -> None:
    """Remove what has been copied; where it cannot be, remove the copy."""
    try:
        path.unlink()
    except OSError:
        copy.unlink()
        raise

"""Crash-safe file operations: atomic writes, checked moves, file locks."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from itertools import count
from operator import itemgetter
from pathlib import Path
from stat import S_ISREG
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple

from medallion.errors import UsageError
from medallion.storage.text import error_reason

_LONGEST_NAME = 255  # bytes


class FileInfo(NamedTuple):
    """The state of a file at one moment; see `is_same`.

    Attributes:
        size: bytes.
        modified_at: microseconds since 1970, truncated to the millisecond, as Spark reports it.
        tag: identifies the content of an object in a bucket; None for a file on a disk.
    """

    size: int
    modified_at: int
    tag: str | None = None

    def is_same(self, other: FileInfo | None) -> bool:
        """Return True if both are states of the same content: by its tag, or else by its time."""
        if other is None or not (self.tag and other.tag):
            return self == other
        # Some stores quote a tag in answers, but not in listings.
        tags = self.tag.strip('"'), other.tag.strip('"')
        return self.size == other.size and tags[0] == tags[1]


def file_info(path: Path) -> FileInfo | None:
    """Return the state of a regular file, or None if there is none. Links are not followed.

    Raises:
        OSError: the path cannot be inspected.
    """
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return info_from_stat(status) if S_ISREG(status.st_mode) else None


def info_from_stat(status: os.stat_result) -> FileInfo:
    """Return the state that a stat call reported."""
    return FileInfo(status.st_size, status.st_mtime_ns // 1_000_000 * 1000)


class EntryType(Enum):
    """What an entry of a directory is, other than a regular file."""

    DIRECTORY = "directory"
    LINK = "link"
    LINK_TO_DIRECTORY = "link to a directory"
    OTHER = "other"


def entry_state(entry: os.DirEntry[str]) -> FileInfo | EntryType:
    """Return the state of a regular file, or what else an entry is. Links are not followed."""
    if entry.is_symlink():
        is_directory = os.path.isdir(entry)  # noqa: PTH112 - false for a link to itself
        return EntryType.LINK_TO_DIRECTORY if is_directory else EntryType.LINK
    if entry.is_dir(follow_symlinks=False):
        return EntryType.DIRECTORY
    return info_from_stat(entry.stat(follow_symlinks=False)) if entry.is_file() else EntryType.OTHER


Entries = list[tuple[str, Callable[[], FileInfo | EntryType]]]
"""The names of a directory's entries in order, each with a function that returns its state."""
ListDirectory = Callable[[str], Entries]


def list_entries(directory: str) -> Entries:
    """Return the names of a directory's entries in order, each with a function for its state."""
    with os.scandir(directory) as entries:
        states = ((entry.name, partial(entry_state, entry)) for entry in entries)
        return sorted(states, key=itemgetter(0))


def directory_state(directory: str) -> frozenset[Hashable]:
    """Return the identities of the files in a directory, which change if any is written."""
    states = set[Hashable]()
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # a writer has just renamed it
                status = entry.stat()
                states.add((entry.name, status.st_ino, status.st_size, status.st_mtime_ns))
    return frozenset(states)


def list_tree(top: Path) -> list[Path]:
    """Return everything below a directory; nothing if it does not exist.

    Raises:
        OSError: a directory cannot be listed, and what it has would count as missing.
    """

    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise error

    tree = os.walk(top, onerror=fail)
    return [Path(path, name) for path, below, names in tree for name in (*below, *names)]


def write_atomic(file: Path, data: str | bytes) -> None:
    """Write a file so that readers see the complete new content or the old one, even after a crash.

    The file's directory must exist. Strings are encoded as UTF-8.
    """
    with replacing(file) as unfinished:
        unfinished.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """Yield a temporary path, whose content replaces a file when the block ends without an error.

    Readers see the complete new content or the old one, even after a crash.
    """
    end = end_of_name(file.name, len(".tmp."))
    unfinished = file.with_name(f".{end}.tmp")  # Spark and file listing ignore it
    try:
        yield unfinished
        # Without this, a power failure could leave the new name with an empty file.
        sync(unfinished)
        unfinished.replace(file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync(file.parent)


def end_of_name(name: str, room: int = 0) -> str:
    """Return the name of a file; of a long one the end, so that `room` more bytes are allowed."""
    return os.fsdecode(os.fsencode(name)[-(_LONGEST_NAME - room) :])


def sync(path: Path) -> None:
    """Wait until a file's content or a directory's entries are on disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems cannot sync a directory; PostgreSQL ignores that as well.
        if error.errno not in (errno.EBADF, errno.EINVAL) or not path.is_dir():
            raise
    finally:
        os.close(handle)


def sync_all() -> None:
    """Wait until everything that was written is on disk."""
    os.sync()


def path_exists(path: str | os.PathLike[str]) -> bool:
    """Return True if something is stored at a path, or may be: even a broken link."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # such as a disk that does not answer
        return True
    return True


def numbered_names(name: str) -> Iterator[str]:
    """Yield the name itself, then `2~name`, `3~name` and so on without end."""
    yield name
    for number in count(2):
        mark = f"{number}~"
        yield mark + name.encode()[-(_LONGEST_NAME - len(mark)) :].decode(errors="ignore")


def free_path(path: Path) -> Path:
    """Return the first of the numbered paths at which nothing is stored."""
    numbered = map(path.with_name, numbered_names(path.name))
    return next(each for each in numbered if not os.path.lexists(each))


def move_file(path: Path, target: Path, expected: FileInfo) -> bool:
    """Rename a file, then check that the renamed file is the expected one.

    Args:
        target: a path at which nothing is stored; its directory is created.
        expected: the file's state when it was seen last.

    Returns:
        False if another file had replaced it. That one is renamed back, to a numbered name if the
        path is in use again.

    Raises:
        OSError: the file cannot be moved, and stays.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(target):  # a user has put a file there just now
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    try:
        path.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return _move_to_another_disk(path, target, expected)
    if file_info(target) == expected:
        return True
    target.rename(free_path(path))
    return False


def deletion_path(path: Path, expected: FileInfo) -> Path:
    """Return the hidden path to which a file is renamed before it is deleted in a state.

    So a file that replaces it at the last moment is not deleted.
    """
    mark = f"._deleted.{expected.size}.{expected.modified_at}."
    return path.with_name(mark + end_of_name(path.name, len(mark)))


def delete_unchanged(path: Path, expected: FileInfo) -> bool:
    """Delete a file, if it is there; return False if another one had replaced it, which stays.

    A killed process leaves the renamed file, which the next call deletes. If that one had replaced
    the expected file, it is put back.
    """
    renamed = deletion_path(path, expected)
    if file_info(renamed) == expected:
        renamed.unlink()
    elif path_exists(renamed):
        renamed.rename(free_path(path))
    if file_info(path) not in (None, expected):
        return False
    with suppress(FileNotFoundError, NotADirectoryError):
        if not move_file(path, renamed, expected):
            return False
        renamed.unlink()
    return True


def _move_to_another_disk(path: Path, target: Path, expected: FileInfo) -> bool:
    # Hidden, because an interrupted copy must not look like a moved file.
    with TemporaryDirectory(prefix=".", dir=target.parent) as hidden:
        copy = Path(hidden, "copy")
        shutil.copy2(path, copy)
        if file_info(path) != expected or copy.stat().st_size != expected.size:
            return False  # it was written to meanwhile
        sync(copy)  # before the only other copy is removed
        copy.rename(target)
    try:
        path.unlink()
    except OSError:
        target.unlink()
        raise
    return True


def try_flock(file: IO[str], operation: int) -> bool:
    """Return True if the file is locked now, False if another process holds it.

    Raises:
        UsageError: the file system does not support locks, like some network file systems.
    """
    try:
        fcntl.flock(file, operation)
    except BlockingIOError:
        return False
    except OSError as error:
        advice = "concurrent runs could lose rows: put the lakehouse on a disk that supports locks"
        reason = f"{file.name} cannot be locked ({error_reason(error)})"
        raise UsageError(f"{reason}, and {advice}.") from None
    return True


def is_same_file(file: IO[str], path: Path) -> bool:
    """Return True if an open file is still the one at the path.

    It may have been deleted before it was locked, and the next process would lock a new one.
    """
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False

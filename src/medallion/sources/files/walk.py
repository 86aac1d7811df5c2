"""The entries of a folder and of those below it, each with what is wrong about it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from medallion.sources.files.codecs import CODECS

# A folder with such a name is taken for a file that somebody failed to write.
_LIKE_A_FILE = (".json", ".ndjson", ".jsonl", ".csv", ".parquet", ".txt", *CODECS)
_NO_LINK = "a link to something that is not there"


class Problem(NamedTuple):
    """Why an entry is no file to read.

    `is_unseen`: nobody knows what it is, and the next look may find it to be as good as any.
    """

    why: str
    is_unseen: bool = False


def unseen(error: OSError, what: str = "looked at") -> Problem:
    """What is told of an entry that the system does not let us look at."""
    return Problem(f"cannot be {what}: {error.strerror or error}", is_unseen=True)


def fits(name: str, pattern: str) -> bool:
    """Whether a name is one of those to take in, hidden or not."""
    return fnmatchcase(name.lstrip("._"), pattern)


def walk(
    folder: Path | str,
    pattern: str,
    anyway: Sequence[str] = (),
    above: frozenset[tuple[int, int]] = frozenset(),
) -> Iterator[tuple[str, Problem | None]]:
    """Each file whose name fits, and each entry with a problem; folders are gone into.

    Args:
        folder: or a file, which is then the only one.
        pattern: names of no concern are left out, if they are certain not to be folders.
        anyway: real paths of folders that are walked in any case; no link into them is followed.
        above: device and inode of folders not to go into: those that it lies in, and our own.
    """
    try:
        here = os.stat(folder)  # noqa: PTH116
        entries = [] if S_ISREG(here.st_mode) else sorted(os.scandir(folder), key=_by_name)
    except FileNotFoundError:
        return
    except OSError as error:
        yield os.fspath(folder), unseen(error, "listed")
        return
    if S_ISREG(here.st_mode) and fits(Path(folder).name, pattern):
        yield os.fspath(folder), None
    trail = above | {(here.st_dev, here.st_ino)}
    for entry in entries:
        try:
            if entry.is_dir() and not (_is_like_a_file(entry.name) and fits(entry.name, pattern)):
                found = entry.stat()
                is_above = (found.st_dev, found.st_ino) in trail
                if not is_above and not (entry.is_symlink() and _is_in(entry.path, anyway)):
                    yield from walk(entry.path, pattern, anyway, trail)
            elif fits(entry.name, pattern):
                yield entry.path, _problem(entry)
        except OSError as error:
            if error.errno != errno.ELOOP:
                yield entry.path, unseen(error)
            elif fits(entry.name, pattern):
                yield entry.path, Problem(_NO_LINK)


def _is_in(link: str, folders: Sequence[str]) -> bool:
    """Whether a link leads into one of these folders, where its files have names of their own."""
    real = Path(os.path.realpath(link))
    below = [real.relative_to(folder).parts for folder in folders if real.is_relative_to(folder)]
    return any(not any(part[0] in "._" for part in parts) for parts in below)


def _by_name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _problem(entry: os.DirEntry[str]) -> Problem | None:
    if entry.is_file():
        return None
    if entry.is_dir():
        return Problem("a directory that is named like a file")
    if entry.is_symlink():
        return Problem(_NO_LINK)
    return Problem("neither a file nor a directory")


def _is_like_a_file(name: str) -> bool:
    return name.lower().endswith(_LIKE_A_FILE)

"""The entries of a folder and of those below it, each with what is wrong about it."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from operator import attrgetter
from pathlib import Path

from medallion.config.values import matches_pattern
from medallion.state.ledger import Reason, ReasonCode
from medallion.storage.text import error_reason

LINK = Reason(
    ReasonCode.LINK,
    "a symbolic link, which is left where it is and never followed: move or copy the files "
    "themselves here, or name their folder in the source's folders",
)
NO_FILE = Reason(ReasonCode.NOT_A_FILE, "neither a file nor a directory")
MISSING = Reason(
    ReasonCode.FOLDER_MISSING,
    "there is no such folder, or it is a link to one whose disk is not mounted",
)


def unseen(error: OSError) -> Reason:
    """Return the reason for an entry that the system does not let us inspect."""
    return Reason(ReasonCode.INACCESSIBLE, f"cannot be looked at: {error_reason(error)}")


def is_hidden(name: str) -> bool:
    """Whether Spark passes over a file for its name: mostly, it is still being written."""
    return name[0] in "._" or name.endswith("._COPYING_")


def walk(
    folder: Path | str, pattern: str, closed: Container[object] = ()
) -> Iterator[tuple[str, Reason | None]]:
    """Each file whose name fits, and each entry that is none to read, with why; folders are gone
    into.

    Args:
        folder: or a file, which is then the only one. It may be a link: its owner named it.
        pattern: names of no concern are left out, if they are certain not to be folders.
        closed: device and inode of folders not to go into.
    """
    is_file = os.path.isfile(folder)  # noqa: PTH113 - not, where nobody may look: to list it tells
    if is_file and matches_pattern(Path(folder).name, pattern):
        yield os.fspath(folder), None
    # Not by recursion: nobody knows how deep folders lie in one another.
    folders = [] if is_file else [os.fspath(folder)]
    for path in folders:
        try:
            entries = sorted(os.scandir(path), key=attrgetter("name"))
        except FileNotFoundError:  # it has just gone, unless it was never there
            if path == folders[0]:
                yield path, MISSING
            continue
        except OSError as error:
            told = f"cannot be listed: {error_reason(error)}"
            yield path, Reason(ReasonCode.FOLDER_UNREADABLE, told)
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    found = entry.stat()
                    if (found.st_dev, found.st_ino) not in closed:
                        folders.append(entry.path)
                elif (why := _why_unfit(entry, pattern)) or matches_pattern(entry.name, pattern):
                    yield entry.path, why
            except FileNotFoundError:  # a folder that has just gone
                continue
            except OSError as error:
                yield entry.path, unseen(error)


def _why_unfit(entry: os.DirEntry[str], pattern: str) -> Reason | None:
    is_fit = matches_pattern(entry.name, pattern)
    if entry.is_symlink():
        return LINK if is_fit or os.path.isdir(entry) else None  # noqa: PTH112 - to itself, say
    return None if not is_fit or entry.is_file() else NO_FILE

"""The files of a source's folders, as they are now."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from medallion.config.model import SourceConfig
from medallion.ingest.files.walk import is_hidden, unseen, walk
from medallion.state.ledger import File, Reason, ReasonCode
from medallion.storage.files import numbered_paths
from medallion.storage.paths import DirectoryIdentity, Layout, directory_identity, resolved_path

_NO_UTF8 = "its name is not UTF-8, in which tables have theirs: rename it"
_COLON = "its name, or its folder's, has a colon, which Hadoop cannot open: rename it"
_LINE_BREAK = "its name, or its folder's, has a line break: rename it"
NEVER_READ = (
    ReasonCode.LINK,
    ReasonCode.FOLDER_MISSING,
    ReasonCode.NOT_A_FILE,
    ReasonCode.UNSUPPORTED_NAME,
)
"""Why something is never taken in under the name that it has."""
_MARK = re.compile(r"^([0-9]+)~(?=.)")  # of a numbered namesake
# Years that Python has in every zone, in microseconds since 1970; some file systems know more.
_TIMES = range(-62_104_060_800_000_000, 253_370_764_800_000_000)


@dataclass(frozen=True)
class Listing:
    """What lies in some folders, by its path.

    `unfit` is no file to read, and why. It stays where it is: the next look may find a file as good
    as any there, or a folder.
    """

    files: dict[str, File] = field(default_factory=dict)
    hidden: dict[str, File] = field(default_factory=dict)
    unfit: dict[str, Reason] = field(default_factory=dict)

    @property
    def paths(self) -> set[str]:
        """All of it."""
        return {*self.files, *self.hidden, *self.unfit}


def list_files(layout: Layout, source: SourceConfig, starts: Iterable[Path]) -> Listing:
    """List folders, and those below, or single files; nothing is left out without a word."""
    found = Listing()
    # A folder that is asked for may lie above the root.
    closed: set[DirectoryIdentity] = {*map(directory_identity, layout.internal_directories())}
    for folder in _by_one_name(starts):
        # Below landing/ it is made where there is none; who asks for another one tells.
        if not os.path.lexists(folder) and folder not in source.folders_in(layout)[1:]:
            continue
        for path, why in walk(folder, source.pattern, closed):
            if layout.is_reason_file(path):
                continue
            seen = why or _look_in_a_listing(layout, path)
            if isinstance(seen, Reason):  # the ledger spells its name as it can
                key = layout.relative(path).encode(errors="backslashreplace").decode()
                found.unfit[key] = seen
            elif seen is not None:
                kind = found.hidden if _is_hidden(path, folder) else found.files
                kind[seen.path] = seen
        closed.add(directory_identity(folder))  # a later one may lie above it, by another name
    return found


def _by_one_name(folders: Iterable[Path]) -> Iterator[Path]:
    """Folders without those that lie in an earlier one by another name: a link leads to either, or
    a disk is mounted twice."""
    seen: dict[DirectoryIdentity, Path] = {}
    for folder in folders:
        above = map(directory_identity, (folder, *resolved_path(folder).parents))
        if all(folder.is_relative_to(seen[each]) for each in above if each in seen):
            seen.setdefault(directory_identity(folder), folder)
            yield folder


def one_spelling(layout: Layout, source: SourceConfig, path: Path) -> Path:
    """A path without links, but for those on the way to the source's folders or to the root."""
    place = resolved_path(path)
    for folder in (*source.folders_in(layout), layout.root):
        top = resolved_path(folder)
        if place.is_relative_to(top):
            return folder / place.relative_to(top)
    return place


def _look_in_a_listing(layout: Layout, path: str) -> File | Reason | None:
    key = layout.relative(path)
    try:
        return _unspeakable(key) or look(layout, key)
    except OSError as error:
        return unseen(error)


def _is_hidden(path: str, folder: Path) -> bool:
    """Whether Spark passes over a file for its name or for that of a folder below `folder`.

    They are mostly files that are still being written: its own writers have a _temporary.
    """
    name = Path(path).name
    below = Path(path).relative_to(folder).parts
    return is_hidden(name) or any(part[0] in "._" for part in below)


def look(layout: Layout, path: str) -> File | None:
    """A file as it is now; None where there is none.

    Raises:
        OSError: it cannot be looked at.
    """
    return look_at(layout.root / path, path)


def look_at(place: Path, path: str) -> File | None:
    """The file of a place under another path. Spark knows times to the millisecond.

    Raises:
        OSError: it cannot be looked at, or has a time that no table could hold.
    """
    try:
        found = place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not S_ISREG(found.st_mode):  # a link in the place of a file leads to another one
        return None
    modified_at = found.st_mtime_ns // 1_000_000 * 1000
    if modified_at not in _TIMES:
        raise OSError("its modification time is none of the years 2 to 9998: touch it")
    return File(path, found.st_size, modified_at)


def stat(layout: Layout, path: str) -> File | None:
    """A file as it is now; None where it has gone, or cannot be looked at."""
    with suppress(OSError):
        return look(layout, path)
    return None


def is_there(path: Path) -> bool:
    """Whether there is a file, or what may be one; a folder only as long as it cannot be listed."""
    try:
        if not S_ISDIR(path.stat().st_mode):
            return True
        os.scandir(path).close()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return False


def _unspeakable(path: str) -> Reason | None:
    try:
        path.encode()
    except UnicodeEncodeError:
        return Reason(ReasonCode.UNSUPPORTED_NAME, _NO_UTF8)
    if ":" in path:
        return Reason(ReasonCode.UNSUPPORTED_NAME, _COLON)
    has_line_break = "\n" in path or "\r" in path
    return Reason(ReasonCode.UNSUPPORTED_NAME, _LINE_BREAK) if has_line_break else None


def below_folder(layout: Layout, source: SourceConfig, path: Path) -> Path | None:
    """A file's path below the folder of the source that it lies in; None where it lies in none."""
    for folder in source.folders_in(layout):
        if path.is_relative_to(folder):
            return path.relative_to(folder)
    return None


def with_folders(top: Path, below: Path) -> Path:
    """A path below a folder, by numbered namesakes of those folders in whose place a file lies."""
    for part in below.parts[:-1]:
        given = numbered_paths(top / part)
        # Where nobody may look, whoever moves a file there tells.
        top = next(p for p in given if os.path.isdir(p) or not os.path.lexists(p))  # noqa: PTH112
    return top / below.name


def without_number(path: Path) -> Path:
    """What a file may have been called that is one of the numbered namesakes."""
    return path.with_name(_MARK.sub("", path.name))

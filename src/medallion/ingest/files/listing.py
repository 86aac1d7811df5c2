"""The files of a source's directories, and files that no source reads."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from medallion.config.model import Config, SourceConfig
from medallion.config.values import matches_pattern
from medallion.state.ledger import File, Reason, ReasonCode
from medallion.storage.files import numbered_paths
from medallion.storage.paths import DirectoryIdentity, Layout, directory_identity, resolved_path
from medallion.storage.text import counted, error_reason

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
    for folder in _without_aliases(starts):
        # Below landing/ it is made where there is none; who asks for another one tells.
        if not os.path.lexists(folder) and folder not in source.folders_in(layout)[1:]:
            continue
        for path, why in walk_directory(folder, source.pattern, closed):
            if layout.is_reason_file(path):
                continue
            seen = why or _stat_or_reason(layout, path)
            if isinstance(seen, Reason):  # the ledger spells its name as it can
                key = layout.relative(path).encode(errors="backslashreplace").decode()
                found.unfit[key] = seen
            elif seen is not None:
                kind = found.hidden if _is_hidden_below(path, folder) else found.files
                kind[seen.path] = seen
        closed.add(directory_identity(folder))  # a later one may lie above it, by another name
    return found


def _without_aliases(folders: Iterable[Path]) -> Iterator[Path]:
    """Folders without those that lie in an earlier one by another name: a link leads to either, or
    a disk is mounted twice."""
    seen: dict[DirectoryIdentity, Path] = {}
    for folder in folders:
        above = map(directory_identity, (folder, *resolved_path(folder).parents))
        if all(folder.is_relative_to(seen[each]) for each in above if each in seen):
            seen.setdefault(directory_identity(folder), folder)
            yield folder


def canonical_path(layout: Layout, source: SourceConfig, path: Path) -> Path:
    """A path without links, but for those on the way to the source's folders or to the root."""
    place = resolved_path(path)
    for folder in (*source.folders_in(layout), layout.root):
        top = resolved_path(folder)
        if place.is_relative_to(top):
            return folder / place.relative_to(top)
    return place


def _stat_or_reason(layout: Layout, path: str) -> File | Reason | None:
    key = layout.relative(path)
    try:
        return _unsupported_name_reason(key) or stat_file(layout, key)
    except OSError as error:
        return inaccessible_reason(error)


def _is_hidden_below(path: str, folder: Path) -> bool:
    """Whether Spark passes over a file for its name or for that of a folder below `folder`.

    They are mostly files that are still being written: its own writers have a _temporary.
    """
    name = Path(path).name
    below = Path(path).relative_to(folder).parts
    return has_hidden_name(name) or any(part[0] in "._" for part in below)


def stat_file(layout: Layout, path: str) -> File | None:
    """A file as it is now; None where there is none.

    Raises:
        OSError: it cannot be looked at.
    """
    return stat_file_at(layout.root / path, path)


def stat_file_at(place: Path, path: str) -> File | None:
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


def current_file(layout: Layout, path: str) -> File | None:
    """A file as it is now; None where it has gone, or cannot be looked at."""
    with suppress(OSError):
        return stat_file(layout, path)
    return None


def may_exist(path: Path) -> bool:
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


def _unsupported_name_reason(path: str) -> Reason | None:
    try:
        path.encode()
    except UnicodeEncodeError:
        return Reason(ReasonCode.UNSUPPORTED_NAME, _NO_UTF8)
    if ":" in path:
        return Reason(ReasonCode.UNSUPPORTED_NAME, _COLON)
    has_line_break = "\n" in path or "\r" in path
    return Reason(ReasonCode.UNSUPPORTED_NAME, _LINE_BREAK) if has_line_break else None


def path_below_source(layout: Layout, source: SourceConfig, path: Path) -> Path | None:
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


def strip_number(path: Path) -> Path:
    """What a file may have been called that is one of the numbered namesakes."""
    return path.with_name(_MARK.sub("", path.name))


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


def inaccessible_reason(error: OSError) -> Reason:
    """Return the reason for an entry that the system does not let us inspect."""
    return Reason(ReasonCode.INACCESSIBLE, f"cannot be looked at: {error_reason(error)}")


def has_hidden_name(name: str) -> bool:
    """Whether Spark passes over a file for its name: mostly, it is still being written."""
    return name[0] in "._" or name.endswith("._COPYING_")


def walk_directory(
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
                elif (why := _excluded_entry_reason(entry, pattern)) or matches_pattern(
                    entry.name, pattern
                ):
                    yield entry.path, why
            except FileNotFoundError:  # a folder that has just gone
                continue
            except OSError as error:
                yield entry.path, inaccessible_reason(error)


def _excluded_entry_reason(entry: os.DirEntry[str], pattern: str) -> Reason | None:
    is_fit = matches_pattern(entry.name, pattern)
    if entry.is_symlink():
        return LINK if is_fit or os.path.isdir(entry) else None  # noqa: PTH112 - to itself, say
    return None if not is_fit or entry.is_file() else NO_FILE


def unread_file_warnings(config: Config) -> list[str]:
    """A line for each folder of landing/, or of a source, with files that no source takes in, now
    or later.

    A name that begins with a dot is still to be renamed, and one with _ is a writer's mark; so is a
    folder's.
    """
    layout, landing = config.layout, config.layout.landing("")
    sources = (source for source in config.sources.values() if not source.stream)
    read = [
        (resolved_path(place), place, s.pattern) for s in sources for place in s.folders_in(layout)
    ]
    tops: dict[Path, Path] = {resolved_path(landing): landing}
    for actual, place, _ in read:
        tops.setdefault(actual, place)
    found: Counter[tuple[Path, tuple[str, ...]]] = Counter()
    for actual, top in tops.items():
        if any(actual != other and actual.is_relative_to(other) for other in tops):
            continue
        for folder, below, files in _walk_visible(layout, actual):
            here = [each for each in read if folder.is_relative_to(each[0])]
            patterns = tuple(sorted({pattern for _, _, pattern in here}))
            if "*" in patterns:  # all are read, and there may be many
                below.clear()
                continue
            own = max(here, default=None, key=lambda each: len(each[0].parts))
            place = own[1] if own else top.joinpath(*folder.relative_to(actual).parts[:1])
            found[place, patterns] += sum(
                not any(matches_pattern(n, p) for p in patterns) for n in files
            )
    return [
        f"{layout.relative(folder)}: {counted(files, 'file')} that no source of pipeline.yaml reads"
        + (f": not named as {' or '.join(patterns)}" if patterns else "")
        for (folder, patterns), files in sorted(found.items())
        if files
    ]


def count_unmatched_files(layout: Layout, folder: Path, pattern: str) -> int:
    """How many files below a folder have names that do not fit; of no single file."""
    found = _walk_visible(layout, resolved_path(folder))
    return sum(not matches_pattern(name, pattern) for _, _, files in found for name in files)


def _walk_visible(layout: Layout, top: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """As `os.walk` does it from a real path on, without what is hidden, or the lakehouse's own."""
    ours = {resolved_path(folder) for folder in layout.internal_directories()}
    for path, below, files in os.walk(top):
        folder = Path(path)
        below[:] = [n for n in below if n[0] not in "._" and folder / n not in ours]
        yield folder, below, [name for name in files if not has_hidden_name(name)]

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
from typing import NamedTuple

from medallion.config.model import Config, SourceConfig
from medallion.config.values import matches_pattern
from medallion.state.ledger import File, Reason, ReasonCode
from medallion.storage.paths import DirectoryIdentity, Layout, directory_identity, resolved_path
from medallion.storage.text import counted, error_reason

_NO_UTF8 = "its name is not UTF-8: rename it"
_COLON = "its path has a colon, which Hadoop cannot open: rename it"
_LINE_BREAK = "its path has a line break: rename it"
NEVER_READ = (
    ReasonCode.LINK,
    ReasonCode.FOLDER_MISSING,
    ReasonCode.NOT_A_FILE,
    ReasonCode.UNSUPPORTED_NAME,
)
"""Reasons for which an entry is never ingested under its name."""
_MARK = re.compile(r"^([0-9]+)~(?=.)")  # prefix of a numbered file
# Years that Python has in every zone, in microseconds since 1970; some file systems know more.
_TIMES = range(-62_104_060_800_000_000, 253_370_764_800_000_000)


@dataclass(frozen=True)
class Listing:
    """The files of some directories, by path.

    Attributes:
        files: files to ingest.
        hidden: files whose name, or a directory's, Spark ignores.
        invalid: entries that cannot be read, with the reason. They stay where they are: the next
            listing may find a file or a directory there.
    """

    files: dict[str, File] = field(default_factory=dict)
    hidden: dict[str, File] = field(default_factory=dict)
    invalid: dict[str, Reason] = field(default_factory=dict)

    @property
    def paths(self) -> set[str]:
        """The paths of all entries."""
        return {*self.files, *self.hidden, *self.invalid}


def list_files(layout: Layout, source: SourceConfig, starts: Iterable[Path]) -> Listing:
    """List directories with all below them, or single files; every entry is in the result."""
    listing = Listing()
    # A requested directory may lie above the root.
    closed: set[DirectoryIdentity] = {*map(directory_identity, layout.internal_directories())}
    for start in _without_aliases(starts):
        # The landing directory is created when bronze starts; other missing ones are reported.
        if not os.path.lexists(start) and start not in source.folders_in(layout)[1:]:
            continue
        for entry in walk_directory(start, source.pattern, closed):
            if not layout.is_reason_file(entry.path):
                _add_to_listing(listing, layout.relative(entry.path), entry)
        closed.add(directory_identity(start))  # a later start may lie above it, by another name
    return listing


def _add_to_listing(listing: Listing, path: str, entry: WalkedEntry) -> None:
    found: File | Reason | None
    try:
        found = entry.reason or _unsupported_name_reason(path)
        if found is None and entry.status is not None:
            found = _as_file(path, entry.status)
    except OSError as error:
        found = inaccessible_reason(error)
    if isinstance(found, Reason):  # tables store the name as UTF-8
        listing.invalid[path.encode(errors="backslashreplace").decode()] = found
    elif found is not None:
        (listing.hidden if entry.is_hidden else listing.files)[path] = found


def _without_aliases(folders: Iterable[Path]) -> Iterator[Path]:
    """Leave out directories that lie in an earlier one by another name, such as a link."""
    seen: dict[DirectoryIdentity, Path] = {}
    for folder in folders:
        above = map(directory_identity, (folder, *resolved_path(folder).parents))
        if all(folder.is_relative_to(seen[each]) for each in above if each in seen):
            seen.setdefault(directory_identity(folder), folder)
            yield folder


def canonical_path(layout: Layout, source: SourceConfig, path: Path) -> Path:
    """Return a path without links, except those above the root or a directory of the source."""
    place = resolved_path(path)
    for folder in (*source.folders_in(layout), layout.root):
        top = resolved_path(folder)
        if place.is_relative_to(top):
            return folder / place.relative_to(top)
    return place


def stat_file(layout: Layout, path: str) -> File | None:
    """Return a file as it is now; None if it does not exist or is not a regular file.

    Raises:
        OSError: it cannot be inspected, or its modification time does not fit a table.
    """
    try:
        return _as_file(path, (layout.root / path).lstat())
    except (FileNotFoundError, NotADirectoryError):
        return None


def _as_file(path: str, status: os.stat_result) -> File | None:
    if not S_ISREG(status.st_mode):  # a link in the place of a file leads to another file
        return None
    modified_at = status.st_mtime_ns // 1_000_000 * 1000  # Spark knows milliseconds
    if modified_at not in _TIMES:
        raise OSError("its modification time is not in the years 2 to 9998: touch the file")
    return File(path, status.st_size, modified_at)


def current_file(layout: Layout, path: str) -> File | None:
    """Return a file as it is now; None if it does not exist or cannot be inspected."""
    with suppress(OSError):
        return stat_file(layout, path)
    return None


def may_exist(path: Path) -> bool:
    """Return whether a path is a file, or may be one because it cannot be inspected."""
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
    """Return a path relative to the source's directory that it is in; None if it is in none."""
    for folder in source.folders_in(layout):
        if path.is_relative_to(folder):
            return path.relative_to(folder)
    return None


def strip_number(path: Path) -> Path:
    """Return the name that a numbered file may have had before."""
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
    return Reason(ReasonCode.INACCESSIBLE, f"cannot be inspected: {error_reason(error)}")


def has_hidden_name(name: str) -> bool:
    """Return whether Spark ignores a file of this name; mostly it is still being written."""
    return name[0] in "._" or name.endswith("._COPYING_")


class WalkedEntry(NamedTuple):
    """A file that matches the pattern, or an entry that cannot be read.

    Attributes:
        is_hidden: whether Spark ignores its name, or that of a directory below the start.
        status: of a file; None if there is a reason instead.
    """

    path: str
    is_hidden: bool
    status: os.stat_result | None
    reason: Reason | None = None


def walk_directory(
    start: Path | str, pattern: str, closed: Container[object] = ()
) -> Iterator[WalkedEntry]:
    """Yield the files below a directory that match a pattern, and all entries that are unreadable.

    Args:
        start: the directory, which may be a link, or a single file.
        pattern: entries with other names are left out, unless they may be directories.
        closed: device and inode of directories to leave out.
    """
    start = os.fspath(start)
    if os.path.isfile(start):  # noqa: PTH113 - a directory that denies access is reported below
        name = Path(start).name
        if matches_pattern(name, pattern):
            yield WalkedEntry(start, has_hidden_name(name), os.lstat(start))
        return
    directories = [(start, False)]  # no recursion: directories may be nested to any depth
    for directory, is_hidden in directories:
        try:
            entries = sorted(os.scandir(directory), key=attrgetter("name"))
        except FileNotFoundError:
            if directory == start:  # others were deleted just now
                yield WalkedEntry(directory, False, None, MISSING)
            continue
        except OSError as error:
            text = f"cannot be listed: {error_reason(error)}"
            reason = Reason(ReasonCode.FOLDER_UNREADABLE, text)
            yield WalkedEntry(directory, False, None, reason)
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    status = entry.stat()
                    if (status.st_dev, status.st_ino) not in closed:
                        directories.append((entry.path, is_hidden or entry.name[0] in "._"))
                elif found := _inspect_entry(entry, pattern, is_hidden):
                    yield found
            except FileNotFoundError:  # deleted just now
                continue
            except OSError as error:
                yield WalkedEntry(entry.path, False, None, inaccessible_reason(error))


def _inspect_entry(entry: os.DirEntry[str], pattern: str, is_in_hidden: bool) -> WalkedEntry | None:
    is_match = matches_pattern(entry.name, pattern)
    if entry.is_symlink():
        is_reported = is_match or os.path.isdir(entry)  # noqa: PTH112 - false for a link to itself
        return WalkedEntry(entry.path, False, None, LINK) if is_reported else None
    if not is_match:
        return None
    if not entry.is_file():
        return WalkedEntry(entry.path, False, None, NO_FILE)
    is_hidden = is_in_hidden or has_hidden_name(entry.name)
    return WalkedEntry(entry.path, is_hidden, entry.stat(follow_symlinks=False))


def unread_file_warnings(config: Config) -> list[str]:
    """Return a message for each directory with files that no source reads.

    Names that begin with a dot or an underscore are left out: they are temporary, or a marker.
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
    """Return how many files below a directory do not match a pattern."""
    found = _walk_visible(layout, resolved_path(folder))
    return sum(not matches_pattern(name, pattern) for _, _, files in found for name in files)


def _walk_visible(layout: Layout, top: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Walk a directory like `os.walk`, without hidden entries and internal directories."""
    ours = {resolved_path(folder) for folder in layout.internal_directories()}
    for path, below, files in os.walk(top):
        folder = Path(path)
        below[:] = [n for n in below if n[0] not in "._" and folder / n not in ours]
        yield folder, below, [name for name in files if not has_hidden_name(name)]

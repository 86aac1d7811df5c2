"""The files below a source's directories, and files that no source reads."""

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from medallion.config.model import IGNORED_NAMES, Config, SourceConfig
from medallion.config.values import matches_pattern
from medallion.state.ledger import Reason, ReasonCode
from medallion.storage.files import EntryType, FileInfo
from medallion.storage.layout import Layout
from medallion.storage.paths import StoragePath
from medallion.storage.text import counted, error_reason

# Surrogates stand for bytes that are not UTF-8; a member's name follows `.zip#`. In the address of
# another bucket the first colon is not a part of the path.
_UNSUPPORTED = re.compile(r"(?<!\As3):|[\r\n\udc80-\udcff]|\.zip#", re.IGNORECASE)
_UNSUPPORTED_NAME = Reason(
    ReasonCode.UNSUPPORTED_NAME,
    "its path has a colon, a line break, .zip# or bytes that are not UTF-8: rename it, and "
    "repeat the backfill that named it, if one did",
)
_LINK = Reason(
    ReasonCode.LINK,
    "a symbolic link, which is not followed: move or copy the files themselves here, or name their "
    "folder in the source's folders",
)
DELTA_LOG = "_delta_log"
DELTA_TABLE = Reason(
    ReasonCode.FOLDER_UNREADABLE,
    "a Delta table, whose files also have rows that were removed: write its rows to other files",
)
_NOT_A_FILE = Reason(ReasonCode.NOT_A_FILE, "neither a file nor a directory")
_MISSING = Reason(
    ReasonCode.FOLDER_MISSING, "the folder does not exist, or its disk is not mounted"
)


Listing = Mapping[str, FileInfo | Reason]
"""The files of some directories by path, and entries that cannot be read, with the reason.

These stay where they are: the next listing may find a file or a directory there.
"""


def list_files(layout: Layout, source: SourceConfig, starts: Iterable[StoragePath]) -> Listing:
    """List all files below directories; a start may also be a single file.

    Args:
        source: has the patterns of file names.
        starts: the source's own directories, and those of backfills.
    """
    listing = dict[str, FileInfo | Reason]()
    others = source.folders_in(layout)[len(source.landing_names) :]
    for start in starts:
        # The landing directory is created when bronze starts; missing ones of others are reported.
        with suppress(OSError):  # which is reported for the directory
            if start not in others and not start.is_taken():
                continue
        for full_path, result in walk_directory(start, source.pattern, source.ignore):
            path = layout.relative(full_path)
            # Some stores list keys that are not UTF-8 with U+FFFD in place of the bytes.
            is_unknown = "\ufffd" in path and not StoragePath(full_path).is_stored()
            if (is_unknown or _UNSUPPORTED.search(path)) and not isinstance(result, Reason):
                result = _UNSUPPORTED_NAME
            if isinstance(result, Reason):  # tables store the name as UTF-8
                path = path.encode(errors="backslashreplace").decode()
            if not layout.is_reason_file(full_path):
                listing[path] = result
    return listing


def is_ignored(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a file or directory is ignored by its name, such as an unfinished upload.

    Spark never reads names like `_SUCCESS` and `.part-0.crc`, whatever the patterns are.
    """
    is_hidden = name[0] in "._" or name.endswith("._COPYING_")
    return is_hidden or any(fnmatchcase(name, pattern) for pattern in patterns)


def walk_directory(
    start: StoragePath, pattern: str, ignore: Sequence[str]
) -> Iterator[tuple[str, FileInfo | Reason]]:
    """Yield the paths of files below a directory, and of entries that cannot be read.

    Args:
        start: the directory, which may be a link, or a single file.
        pattern: files with other names are skipped.
        ignore: patterns of names of files and directories to skip.
    """
    info = None
    with suppress(OSError):  # a directory that denies access is reported below
        info = start.info()
    if info:
        if matches_pattern(start.name, pattern):
            yield str(start), info
        return
    directories = [str(start)]  # no recursion: directories may be nested to any depth
    list_directory = start.open_tree()
    for directory in directories:
        try:
            entries = list_directory(directory)
        except FileNotFoundError:
            if directory == str(start):  # others were deleted just now
                yield directory, _MISSING
            continue
        except OSError as error:
            text = f"cannot be listed: {error_reason(error)}"
            yield directory, Reason(ReasonCode.FOLDER_UNREADABLE, text)
            continue
        if any(name == DELTA_LOG for name, _ in entries):
            yield directory, DELTA_TABLE
            continue
        for name, get_state in entries:
            if is_ignored(name, ignore):
                continue
            path = posixpath.join(directory, name)
            try:
                state = get_state()
                if state is EntryType.DIRECTORY:
                    directories.append(path)
                elif result := _listed(state, matches_pattern(name, pattern)):
                    yield path, result
            except FileNotFoundError:  # deleted just now
                continue
            except OSError as error:
                text = f"cannot be inspected: {error_reason(error)}"
                yield path, Reason(ReasonCode.INACCESSIBLE, text)


def _listed(state: FileInfo | EntryType, is_match: bool) -> FileInfo | Reason | None:
    """Return the info of a file, or why it cannot be read; None if the pattern excludes it."""
    if state is EntryType.LINK_TO_DIRECTORY or (state is EntryType.LINK and is_match):
        return _LINK
    if not is_match or state is EntryType.LINK:
        return None
    return state if isinstance(state, FileInfo) else _NOT_A_FILE


def canonical_path(layout: Layout, source: SourceConfig, path: StoragePath) -> StoragePath:
    """Resolve the links in a path, except those above the root or a source directory."""
    resolved = path.resolved()
    for folder in (*source.folders_in(layout), layout.root):
        if below := resolved.below(folder.resolved()):
            return folder / below
    return resolved


def current_info(layout: Layout, path: str) -> FileInfo | None:
    """Return the current info of a file; None if it does not exist or cannot be inspected."""
    with suppress(OSError):
        return (layout.root / path).info()
    return None


def path_below_source(layout: Layout, source: SourceConfig, path: str) -> PurePosixPath | None:
    """Return a ledger's path relative to the source directory that contains it, or None."""
    full_path = layout.root / path
    below = (full_path.below(folder) for folder in source.folders_in(layout))
    return next((path for path in below if path is not None), None)


def unread_file_warnings(config: Config) -> list[str]:
    """Return a message for each directory with files that no source reads."""
    layout = config.layout
    sources = [source for source in config.sources.values() if not source.stream]
    patterns = [
        (folder.resolved(), source.pattern)
        for source in sources
        for folder in source.folders_in(layout)
    ]
    configured: dict[StoragePath, StoragePath] = {}
    for folder in (layout.landing(""), *(f for s in sources for f in s.folders_in(layout))):
        configured.setdefault(folder.resolved(), folder)
    counts: Counter[tuple[StoragePath, tuple[str, ...]]] = Counter()
    for resolved, top in configured.items():
        own = tuple(sorted({p for f, p in patterns if resolved.below(f) is not None}))
        if "*" in own:  # all files are read, and there may be many
            continue
        for directory, names in _walk_names(resolved, configured):
            below = PurePosixPath(directory).relative_to(resolved.address)
            reported = top if own else top / "/".join(below.parts[:1])
            unread = sum(not any(matches_pattern(name, p) for p in own) for name in names)
            counts[reported, own] += unread
    unread_by = "that no source of pipeline.yaml reads"
    return [
        f"{layout.relative(folder)}: {counted(number, 'file')} {unread_by}"
        + (f": not named as {' or '.join(own)}" if own else "")
        for (folder, own), number in sorted(counts.items())
        if number
    ]


def count_unmatched_files(folder: StoragePath, pattern: str) -> int:
    """Return how many files below a directory do not match a pattern."""
    directories = _walk_names(folder, ())
    return sum(not matches_pattern(name, pattern) for _, names in directories for name in names)


def _walk_names(top: StoragePath, others: Iterable[StoragePath]) -> Iterator[tuple[str, list[str]]]:
    """Yield each directory below `top`, except ignored ones and `others`, with its file names."""
    excluded = {*map(str, others)}
    for path, names in top.walk(
        lambda path: path in excluded or is_ignored(posixpath.basename(path), IGNORED_NAMES)
    ):
        yield path, [name for name in names if not is_ignored(name, IGNORED_NAMES)]

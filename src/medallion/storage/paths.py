"""The directory layout below the root, and paths with file operations."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from medallion.errors import UsageError
from medallion.storage import files
from medallion.storage.files import FileInfo, ListDirectory

LAYERS = ("bronze", "silver", "gold")
"""The layers in the order of a run; each layer's queries write the tables of its name."""

PUBLISH = "publish"
"""The step that publishes gold tables; `medallion run` starts it like a layer."""

SCHEMAS = ("bronze", "silver", "quarantine", "gold", "ops")
"""The directories of Delta tables, and the schemas of SQL."""

# Hadoop reads the first three as patterns and a colon as the end of a scheme; delta-rs decodes %41
# to A, and reads # and ? as the end of a path.
_UNSUPPORTED = re.compile(r"[\[\]\\:#?\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}")

REASON_SUFFIX = ".reason.txt"
"""Suffix of the file that has the reason of a rejection, beside the rejected file."""

_INTERNAL = ("archive", "rejected", PUBLISH, *SCHEMAS)


@dataclass(frozen=True, order=True, init=False)
class StoragePath(os.PathLike[str]):
    """A file or directory below the root, with few operations.

    It is not a `Path`, so that no other operation can be used by mistake.

    Attributes:
        address: the path as Spark and delta-rs take it.
    """

    address: str

    def __init__(self, path: str | os.PathLike[str]) -> None:
        object.__setattr__(self, "address", str(Path(path)))

    def __str__(self) -> str:
        return self.address

    def __fspath__(self) -> str:
        return self.address

    def __truediv__(self, key: str | os.PathLike[str]) -> StoragePath:
        return StoragePath(self._pure / key)

    @property
    def _pure(self) -> PurePosixPath:
        return PurePosixPath(self.address)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self._pure.name

    @property
    def parent(self) -> StoragePath:
        """The directory that contains this one."""
        return StoragePath(self._pure.parent)

    @property
    def parents(self) -> list[StoragePath]:
        """The directories that contain this one, the nearest first."""
        return [StoragePath(path) for path in self._pure.parents]

    def below(self, directory: StoragePath) -> PurePosixPath | None:
        """Return this path relative to a directory; None if it is not at or below it."""
        is_below = self._pure.is_relative_to(directory._pure)
        return self._pure.relative_to(directory._pure) if is_below else None

    @property
    def local(self) -> Path:
        """This path on a disk."""
        return Path(self.address)

    @contextmanager
    def as_local(self) -> Iterator[Path]:
        """Yield a path on this machine with the name and the content of this file."""
        yield self.local

    def resolved(self) -> StoragePath:
        """Return this path without links, see `resolved_path`."""
        return StoragePath(resolved_path(self))

    def normalized(self) -> StoragePath:
        """Return this path absolute and without `..`, see `without_dotdot`."""
        return StoragePath(without_dotdot(self.local))

    def identity(self) -> Hashable:
        """Return an identity of this directory that is the same through all links and mounts."""
        return directory_identity(self.local)

    @property
    def uri(self) -> str:
        """This path as a URI, in which no character is a pattern."""
        return self.local.absolute().as_uri()

    def children(self) -> list[StoragePath]:
        """Return the files and directories in this directory, in the order of names."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return [self / name for name in sorted(each.name for each in self.local.iterdir())]
        return []

    def open_tree(self) -> ListDirectory:
        """Return a function that lists this directory and those below it by their paths.

        It yields the name of each entry, in the order of names, and a function that returns its
        state. Both functions raise OSError.
        """
        return files.list_entries

    def walk(self, is_skipped: Callable[[str], bool]) -> Iterator[tuple[str, list[str]]]:
        """Yield each directory at and below this one with its file names.

        Args:
            is_skipped: whether to skip the directory at a path.
        """
        return files.walk(self.address, is_skipped)

    def files_below(self) -> Iterator[StoragePath]:
        """Yield the files at any depth below this directory."""
        directories = self.walk(lambda _: False)
        return (self / path / name for path, names in directories for name in names)

    def list_files(self) -> Iterator[tuple[str, FileInfo]]:
        """Yield name and state of the regular files in this directory, in the order of names."""
        with suppress(FileNotFoundError, NotADirectoryError):
            for entry in files.list_directory(self.address):
                # A file can be deleted between the listing and the call of stat.
                with suppress(FileNotFoundError):
                    state = files.entry_state(entry)
                    if isinstance(state, FileInfo):
                        yield entry.name, state

    def state(self) -> Hashable:
        """Return a value that changes if any file in this directory is written or deleted."""
        return files.directory_state(self.address)

    def free_bytes(self) -> int | None:
        """Return the free space for this directory in bytes; None if it is unknown."""
        try:
            return shutil.disk_usage(self).free
        except OSError:
            return None

    def is_writable(self) -> bool:
        """Return whether this process may write here; if absent, whether it may create this."""
        existing = next(path for path in (self.local, *self.local.parents) if os.path.lexists(path))
        return os.access(existing, os.W_OK | os.X_OK, effective_ids=True)

    def is_stored(self) -> bool:
        """Return True if this file exists, or a directory of this name; links are followed."""
        return self.local.exists()

    def is_taken(self) -> bool:
        """Return True if anything is stored here, or may be: even a broken link."""
        return files.path_exists(self)

    def is_directory(self) -> bool:
        """Return True if this is a directory or a link to one; False if it cannot be inspected."""
        return files.is_directory(self)

    def check_readable(self) -> None:
        """Raise OSError if this file cannot be opened."""
        files.check_readable(self)

    def has_same_bytes(self, other: StoragePath) -> bool:
        """Return True if two files have the same content.

        Raises:
            OSError: one of them cannot be read.
        """
        with self.as_local() as one, other.as_local() as another:
            return files.have_same_bytes(one, another)

    def info(self) -> FileInfo | None:
        """Return the state of this regular file, or None if there is none; links are not followed.

        Raises:
            OSError: the path cannot be inspected.
        """
        return files.file_info(self.local)

    def read(self) -> bytes:
        """Return the content of this file.

        Raises:
            FileNotFoundError: there is none.
        """
        return self.local.read_bytes()

    def create_directory(self) -> None:
        """Create this directory and those above it, for users who put files in it."""
        self.local.mkdir(parents=True, exist_ok=True)

    def sync(self) -> None:
        """Wait until this file, or all files at and below this directory, are on disk."""
        for directory, below, names in os.walk(self.local):
            for name in (*names, *below):
                files.sync(Path(directory, name))
        for path in (self.local, *self.local.parents[:2]):  # the names of new directories, too
            files.sync(path)

    def write_atomic(self, data: str | bytes) -> None:
        """Write this file atomically and durably; its directory is created."""
        self.parent.create_directory()
        files.write_atomic(self.local, data)

    def copy_from(self, file: Path) -> None:
        """Copy a file here, atomically and durably; the directory is created."""
        self.parent.create_directory()
        with files.replacing(self.local) as unfinished:
            shutil.copyfile(file, unfinished)

    def delete(self, if_unchanged: FileInfo | None = None) -> bool:
        """Delete this file, if it is there.

        Args:
            if_unchanged: delete it only in this state.

        Returns:
            False if another file had replaced it, which stays.
        """
        path = self.local
        with suppress(FileNotFoundError, NotADirectoryError):
            if if_unchanged is not None:
                if self.info() not in (None, if_unchanged):
                    return False
                path = files.deletion_path(path, if_unchanged)
                if files.path_exists(path):
                    self.parent.complete_deletions()
                if not files.move_file(self.local, path, if_unchanged):
                    return False
            path.unlink()
        return True

    def complete_deletions(self) -> None:
        """Complete the deletions that a killed process began in this directory."""
        files.complete_deletions(self.local)

    def delete_prefix(self) -> None:
        """Delete everything at and below this path; of a link, only the link."""
        path = self.local
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.exists():
            shutil.rmtree(path)

    def move_directory(self, target: StoragePath) -> None:
        """Move a directory of medallion's own, or a file; nothing is moved if it is not there."""
        if self.local.exists():
            target.parent.create_directory()
            self.local.rename(target.local)

    def first_free(self) -> StoragePath:
        """Return the first of the numbered paths (`a`, `2~a`, ...) at which nothing is stored."""
        return StoragePath(files.free_path(self.local))

    def move_to_free(self, target: StoragePath, if_unchanged: FileInfo) -> StoragePath | None:
        """Move this file to the first free one of a path's numbered paths.

        Args:
            target: the path.
            if_unchanged: move it only in this state.

        Returns:
            Its new path, also if an interrupted process has moved it; None if another file had
            replaced it, which stays, or if it is gone.

        Raises:
            OSError: it cannot be moved, and stays; FileExistsError if the target exists.
        """
        info, numbered = self.info(), target.local
        if info is None:
            moved = files.find_moved(numbered, if_unchanged)
            return StoragePath(moved) if moved else None
        free = files.free_path(numbered)
        is_moved = info == if_unchanged and files.move_file(self.local, free, if_unchanged)
        return StoragePath(free) if is_moved else None


def layer_of(name: str) -> str:
    """Return the layer of a table or a query: the first part of its name."""
    return name.partition(".")[0]


def without_dotdot(path: Path) -> Path:
    """Return an absolute path without `..`: Spark removes those from the paths it reports."""
    return resolved_path(path) if ".." in path.parts else path.absolute()


def resolved_path(path: str | os.PathLike[str]) -> Path:
    """Return a path without links. A link to itself stays, while `Path.resolve` would fail."""
    return Path(os.path.realpath(path))


DirectoryIdentity = tuple[int, int] | str  # device and inode, or the path if it does not exist


def directory_identity(directory: Path) -> DirectoryIdentity:
    """Return an identity of a directory that is the same through all links and mounts."""
    try:
        status = directory.stat()
    except OSError:
        return str(resolved_path(directory))
    return status.st_dev, status.st_ino


def unsupported_path_reason(path: str | os.PathLike[str]) -> str | None:
    """Return why no Delta table can be stored at or below a path; None if one can be."""
    if not _UNSUPPORTED.search(str(path)) and not _UNSUPPORTED.search(os.path.realpath(path)):
        return None
    return (
        "Delta tables cannot be stored below a path with [, ], \\, :, #, ?, a control character, "
        "or % and two hexadecimal digits"
    )


@dataclass(frozen=True, init=False)
class Layout:
    """The directories of one lakehouse, `MEDALLION_HOME`."""

    root: StoragePath

    def __init__(self, root: str | os.PathLike[str]) -> None:
        object.__setattr__(self, "root", StoragePath(root))

    def require_root(self) -> None:
        """Raise UsageError if the root does not exist: its name may be misspelled."""
        if not self.root.is_directory():
            raise UsageError(
                f"there is no lakehouse at {self.root}: medallion nightly creates it, and "
                "MEDALLION_HOME names another one."
            )

    def landing(self, source: str) -> StoragePath:
        """Return the directory in which a source's files land."""
        return self.root / "landing" / source

    def archive(self, source: str) -> StoragePath:
        """Return the directory of a source's files whose rows are committed."""
        return self.root / "archive" / source

    def rejected(self, source: str) -> StoragePath:
        """Return the directory of a source's files that cannot be read, with their reasons."""
        return self.root / "rejected" / source

    def is_reason_file(self, path: str) -> bool:
        """Return True if a file has the reason why another one was rejected."""
        return path.endswith(REASON_SUFFIX) and path.startswith(f"{self.rejected('')}/")

    def queue(self, source: str) -> StoragePath:
        """Return the queue of a source: the table of files that bronze's stream reads."""
        return self.root / "_intake" / source

    def schemas(self, source: str) -> StoragePath:
        """Return the directory of the versions of a source's schema."""
        return self.root / "_schemas" / source

    def relative(self, path: str | os.PathLike[str]) -> str:
        """Return a path as tables store it: relative to the root if it is below it."""
        return str(path).removeprefix(f"{self.root}/")

    def normalize(self, name: str) -> str:
        """Normalize a path or glob to root-relative form, even if links lead below the root."""
        path, root = (self.root / name).normalized(), self.root.identity()
        above = next((each for each in path.parents if each.identity() == root), None)
        return str(path.below(above)) if above else name

    def table(self, name: str) -> StoragePath:
        """Return the directory of the Delta table `layer.table`."""
        return self.root / name.replace(".", "/")

    def tables(self) -> dict[str, StoragePath]:
        """Return the directories of the tables that exist, by name `layer.table`."""
        paths = (path for schema in SCHEMAS for path in (self.root / schema).children())
        tables = (path for path in paths if (path / "_delta_log").is_directory())
        return {f"{path.parent.name}.{path.name}": path for path in tables}

    def published(self, table: str) -> StoragePath:
        """Return the directory of a table's published changes, with one directory per batch."""
        return self.root / PUBLISH / table

    def checkpoint(self, query: str, ahead: int = 0) -> StoragePath:
        """Return the checkpoint of a query: the directory of its current generation.

        Without a pointer that is generation 0, the directory of the query itself.

        Args:
            query: its name.
            ahead: 1 for the next generation, which replaces this one when the pointer moves.
        """
        pointer, generation = self.checkpoint_pointer(query), ahead
        with suppress(FileNotFoundError):
            generation += int(json.loads(pointer.read())["generation"])
        directory = pointer.parent / query
        return directory / str(generation) if generation else directory

    def checkpoint_pointer(self, query: str) -> StoragePath:
        """Return the file that has the number of a checkpoint's current generation."""
        return self.root / "_checkpoints" / f"{query}.json"

    def internal_directories(self) -> list[StoragePath]:
        """Return the directories below the root into which only medallion writes."""
        return [path for path in self.root.children() if _is_internal(path.name)]

    def is_table_path(self, path: StoragePath) -> bool:
        """Return True if a path is below a directory of tables or of their metadata."""
        below = path.below(self.root)
        first = below.parts[0] if below and below.parts else ""
        return first in SCHEMAS or first.startswith("_")

    def is_internal(self, directory: str) -> bool:
        """Return True if a directory contains, or is in, one of `internal_directories`."""
        root, path = self.root.resolved(), (self.root / directory).resolved()
        if (below := path.below(root)) is None:
            return root.below(path) is not None
        return not below.parts or _is_internal(below.parts[0])

    @property
    def report(self) -> StoragePath:
        """The page of `medallion report`."""
        return self.root / "_report.html"

    @property
    def journal(self) -> StoragePath:
        """The directory of unfinished commands, see `state.journal`."""
        return self.root / "_journal"

    @property
    def staging(self) -> StoragePath:
        """The directory of the tables that a refresh builds."""
        return self.root / "_refresh"

    def lock(self, layer: str) -> StoragePath:
        """Return the lock file of a layer.

        It is beside the tables that it guards: a separate directory of locks could be deleted
        while they are held, and the next process would lock new ones.
        """
        return self.root / layer / ".lock"


@dataclass(frozen=True)
class StagingLayout(Layout):
    """A layout in which the named tables, and their checkpoints, have staging paths."""

    names: tuple[str, ...] = ()

    def table(self, name: str) -> StoragePath:
        """Return the path of a table, in `_refresh/` if it is being built."""
        return super().table(name) if name not in self.names else self.staging / name

    def checkpoint(self, query: str, ahead: int = 0) -> StoragePath:
        """Return the path of a checkpoint, the next generation if its table is being built."""
        return super().checkpoint(query, ahead + (query in self.names))


def _is_internal(name: str) -> bool:
    return name in _INTERNAL or name.startswith("_")

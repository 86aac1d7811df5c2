"""Paths below the root with file operations, on a disk or in a bucket."""

from __future__ import annotations

import filecmp
import os
import posixpath
import re
import shutil
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from urllib.parse import quote

from medallion.storage import files, objects
from medallion.storage.files import FileInfo, ListDirectory

# Hadoop reads the first three as patterns and a colon as the end of a scheme; delta-rs decodes %41
# to A, and reads # and ? as the end of a path.
_UNSUPPORTED = re.compile(r"[\[\]\\:#?\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}")


@dataclass(frozen=True, order=True, init=False)
class StoragePath(os.PathLike[str]):
    """A file or directory below the root, with few operations.

    It is not a `Path`, so that no other operation can be used by mistake.

    Attributes:
        address: the path as Spark and delta-rs take it.
    """

    address: str

    def __new__(cls, path: str | os.PathLike[str] = "") -> StoragePath:
        """Return an `ObjectPath` if the path is an address in a bucket."""
        is_object = cls is StoragePath and objects.is_address(os.fspath(path))
        return super().__new__(ObjectPath if is_object else cls)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        object.__setattr__(self, "address", str(Path(path)))

    def __str__(self) -> str:
        return self.address

    def __fspath__(self) -> str:
        return self.address

    def __truediv__(self, key: str | os.PathLike[str]) -> StoragePath:
        key = os.fspath(key)
        return StoragePath(key if objects.is_address(key) else self._pure / key)

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
        paths = map(StoragePath, self._pure.parents)
        return [path for path in paths if type(path) is type(self)]  # without the `s3:` of a URL

    def below(self, directory: StoragePath) -> PurePosixPath | None:
        """Return this path relative to a directory; None if it is not at or below it."""
        is_below = self._pure.is_relative_to(directory._pure)
        return self._pure.relative_to(directory._pure) if is_below else None

    @property
    def local(self) -> Path:
        """This path on a disk."""
        return Path(self.address)

    @contextmanager
    def as_local(self, size: int | None = None) -> Iterator[Path]:
        """Yield a path on this machine with the name and the content of this file.

        Args:
            size: the number of bytes at its start that are enough.
        """
        yield self.local

    @property
    def readers(self) -> int:
        """The number of threads that are best for reading many small files below this path."""
        return 1

    def resolved(self) -> StoragePath:
        """Return this path without links. A link to itself stays: `Path.resolve` would fail."""
        return StoragePath(os.path.realpath(self))

    def normalized(self) -> StoragePath:
        """Return the absolute path without `..`: Spark removes those from the paths it reports."""
        return self.resolved() if ".." in self.local.parts else StoragePath(self.local.absolute())

    def identity(self) -> Hashable:
        """Return an identity of this directory that is the same through all links and mounts."""
        try:
            status = self.local.stat()
        except OSError:
            return self.resolved().address
        return status.st_dev, status.st_ino

    def unsupported_reason(self) -> str | None:
        """Return why no Delta table can be stored at or below this path; None if one can be."""
        if not (_UNSUPPORTED.search(self.address) or _UNSUPPORTED.search(str(self.resolved()))):
            return None
        return (
            "Delta tables cannot be stored below a path with [, ], \\, :, #, ?, a control "
            "character, or % and two hexadecimal digits"
        )

    @property
    def uri(self) -> str:
        """This path as a URI, in which no character is a pattern."""
        return self.local.absolute().as_uri()

    def names(self) -> list[str]:
        """Return the names of the files and directories in this directory, in order."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return [name for name, _ in files.list_entries(self.address)]
        return []

    def children(self) -> list[StoragePath]:
        """Return the files and directories in this directory, in the order of names."""
        return [self / name for name in self.names()]

    def open_tree(self) -> ListDirectory:
        """Return a function that lists this directory and those below it by their paths.

        It and the functions that return the states of entries raise OSError.
        """
        return files.list_entries

    def walk(self, is_skipped: Callable[[str], bool]) -> Iterator[tuple[str, list[str]]]:
        """Yield each directory at and below this one with its file names.

        A directory whose path `is_skipped` is left out, with all below it.
        """
        for path, below, names in os.walk(self.address):
            below[:] = [name for name in below if not is_skipped(os.path.join(path, name))]  # noqa: PTH118
            yield path, names

    def files_below(self) -> Iterator[StoragePath]:
        """Yield the files at any depth below this directory."""
        directories = self.walk(lambda _: False)
        return (self / path / name for path, names in directories for name in names)

    def sizes_below(self, names: Iterable[str]) -> dict[str, int]:
        """Return the sizes in bytes of those of the named files below this directory that exist."""
        infos = {name: (self / name).info() for name in names}
        return {name: info.size for name, info in infos.items() if info}

    def list_files(self) -> Iterator[tuple[str, FileInfo]]:
        """Yield name and state of the regular files in this directory, in the order of names."""
        with suppress(FileNotFoundError, NotADirectoryError):
            for name, read_state in files.list_entries(self.address):
                # A file can be deleted between the listing and the call of stat.
                with suppress(FileNotFoundError):
                    if isinstance(state := read_state(), FileInfo):
                        yield name, state

    def state(self) -> frozenset[Hashable]:
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
        mode = os.W_OK | os.X_OK if existing.is_dir() else os.W_OK
        return os.access(existing, mode, effective_ids=True)

    def is_stored(self) -> bool:
        """Return True if this file exists, or a directory of this name; links are followed."""
        return self.local.exists()

    def is_taken(self) -> bool:
        """Return True if anything is stored here, or may be: even a broken link."""
        return files.path_exists(self)

    def is_directory(self) -> bool:
        """Return True if this is a directory or a link to one; False if it cannot be inspected."""
        return os.path.isdir(self)  # noqa: PTH112 - Path.is_dir raises errors of closed folders

    def check_reachable(self) -> None:
        """Raise OSError if the bucket of this path cannot be listed."""

    def check_readable(self) -> None:
        """Raise OSError if this file cannot be opened; wait for no writer."""
        os.close(os.open(self, os.O_RDONLY | os.O_NONBLOCK))

    def has_same_bytes(self, other: StoragePath) -> bool:
        """Return True if two files have the same content.

        Raises:
            OSError: one of them cannot be read.
        """
        with self.as_local() as one, other.as_local() as another:
            filecmp.clear_cache()  # which compares sizes and times only
            return filecmp.cmp(one, another, shallow=False)

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

    @property
    def delta_options(self) -> dict[str, str] | None:
        """Options of delta-rs for a table here."""
        return None

    def error_reason(self, error: Exception) -> str:
        """Return the reason that a library gives for an error in reading or writing here."""
        return next(iter(str(error).strip().splitlines()), "no reason given")

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

    def copy_from(self, file: StoragePath, size: int = 0) -> None:
        """Copy a file here, atomically and durably; the directory is created.

        Args:
            size: its size in bytes, if it may be large: a bucket's own copy has a limit.
        """
        self.parent.create_directory()
        with file.as_local() as local, files.replacing(self.local) as unfinished:
            shutil.copyfile(local, unfinished)

    def delete(self, if_unchanged: FileInfo | None = None) -> bool:
        """Delete this file, if it is there.

        Args:
            if_unchanged: delete it only in this state.

        Returns:
            False if another file had replaced it, which stays.
        """
        if if_unchanged is not None:
            return files.delete_unchanged(self.local, if_unchanged)
        with suppress(FileNotFoundError, NotADirectoryError):
            self.local.unlink()
        return True

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
        return next(path for path in self._numbered() if not path.is_taken())

    def _numbered(self) -> Iterator[StoragePath]:
        return (self.parent / name for name in files.numbered_names(self.name))

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
        if isinstance(self, ObjectPath) or isinstance(target, ObjectPath):
            return self._copy_to_free(target, if_unchanged)
        info = self.info()
        if info is None:
            used = takewhile(StoragePath.is_taken, target._numbered())
            return next((path for path in used if path.info() == if_unchanged), None)
        free = target.first_free()
        is_moved = info == if_unchanged and files.move_file(self.local, free.local, if_unchanged)
        return free if is_moved else None

    def _copy_to_free(self, target: StoragePath, if_unchanged: FileInfo) -> StoragePath | None:
        """Move this file as `move_to_free` does, by copying it and deleting it then."""
        info = self.info()
        if info and not info.is_same(if_unchanged):
            return None
        for path in target._numbered():
            copied = path.info()
            if copied is None:
                if info is None:
                    return None
                path.copy_from(self, info.size)
                break
            # An interrupted process may have copied it, and perhaps deleted it.
            if copied.size == if_unchanged.size and (not info or self.has_same_bytes(path)):
                break
        return path if not info or self.delete(info) else None


class ObjectPath(StoragePath):
    """An object in a bucket, or the prefix of some, which is a directory while it has objects."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        object.__setattr__(self, "address", objects.normalize(os.fspath(path)))

    @property
    def local(self) -> Path:
        raise TypeError(f"{self} is not on a disk")

    @contextmanager
    def as_local(self, size: int | None = None) -> Iterator[Path]:
        with TemporaryDirectory(prefix="medallion-") as directory:
            file = Path(directory, files.end_of_name(self.name))
            objects.download(self.address, file, size)
            yield file

    @property
    def readers(self) -> int:
        return 32  # an answer takes longer than its work

    def resolved(self) -> StoragePath:
        return self

    def normalized(self) -> StoragePath:
        return self

    def identity(self) -> Hashable:
        return self.address

    def unsupported_reason(self) -> str | None:
        if not objects.names_bucket(self.address):
            return (
                "must be s3://bucket, gs://bucket or abfss://container@account.dfs.core.windows.net"
            )
        return StoragePath(f"/{objects.split(self.address)[1]}").unsupported_reason()

    @property
    def uri(self) -> str:
        return quote(self.address, safe=":/")

    def names(self) -> list[str]:
        prefixes, found = objects.list_level(self.address)
        return sorted({*prefixes, *(posixpath.basename(each.key) for each in found)})

    def open_tree(self) -> ListDirectory:
        entries = cache(lambda: objects.tree(self.address))
        return lambda directory: entries().get(directory, [])

    def walk(self, is_skipped: Callable[[str], bool]) -> Iterator[tuple[str, list[str]]]:
        directories = [self.address]
        for directory in directories:
            prefixes, found = objects.list_level(directory)
            below = [f"{directory}/{name}" for name in sorted(prefixes)]
            directories += [path for path in below if not is_skipped(path)]
            yield directory, sorted(posixpath.basename(each.key) for each in found)

    def files_below(self) -> Iterator[StoragePath]:
        for key, _ in objects.list_objects(self.address):
            yield StoragePath(objects.in_bucket_of(self.address, key))

    def sizes_below(self, names: Iterable[str]) -> dict[str, int]:
        """List all objects below: that takes a request for a thousand, not one for each."""
        start = len(objects.split(self.address)[1]) + 1
        return {key[start:]: info.size for key, info in objects.list_objects(self.address)}

    def list_files(self) -> Iterator[tuple[str, FileInfo]]:
        for key, info in sorted(objects.list_level(self.address)[1]):
            yield posixpath.basename(key), info

    def state(self) -> frozenset[Hashable]:
        return frozenset(objects.list_level(self.address)[1])

    def free_bytes(self) -> int | None:
        return None

    def is_writable(self) -> bool:
        return True  # only a write can tell

    def is_stored(self) -> bool:
        return self.info() is not None or self.is_directory()

    def is_taken(self) -> bool:
        return self.is_stored()

    def is_directory(self) -> bool:
        return objects.has_objects(self.address)

    def check_reachable(self) -> None:
        self.is_directory()

    def check_readable(self) -> None:
        """Do nothing: a request for each object would cost more than the error of its reader."""

    def has_same_bytes(self, other: StoragePath) -> bool:
        one, another = self.info(), other.info()
        is_same = one is not None and one.is_same(another)
        return is_same or super().has_same_bytes(other)

    def info(self) -> FileInfo | None:
        return objects.object_info(self.address)

    def read(self) -> bytes:
        return objects.read(self.address)

    def create_directory(self) -> None:
        """Do nothing: a directory is there with its first object."""

    @property
    def delta_options(self) -> dict[str, str] | None:
        return objects.delta_options()

    def error_reason(self, error: Exception) -> str:
        return objects.reason_of(error, self.address) or super().error_reason(error)

    def sync(self) -> None:
        """Do nothing: an object that is visible is durable."""

    def write_atomic(self, data: str | bytes) -> None:
        objects.write(self.address, data.encode() if isinstance(data, str) else data)

    def write_new(self, data: bytes) -> bool:
        """Write this object if there is none; return False if another process wrote it."""
        return objects.create(self.address, data)

    def copy_from(self, file: StoragePath, size: int = 0) -> None:
        is_same = objects.in_bucket_of(file.address, "") == objects.in_bucket_of(self.address, "")
        if is_same and size <= objects.MOST_COPIED:
            objects.copy(file.address, self.address)
        else:
            with file.as_local() as local:
                objects.write(self.address, local)

    def delete(self, if_unchanged: FileInfo | None = None) -> bool:
        if if_unchanged is None:
            objects.delete(self.address)
        elif info := (if_unchanged if if_unchanged.tag else self.info()):
            is_same = info.is_same(if_unchanged)
            return is_same and objects.delete_unchanged(self.address, info.tag)
        return True

    def delete_prefix(self) -> None:
        objects.delete_below(self.address)

    def move_directory(self, target: StoragePath) -> None:
        for file in (self, *self.files_below()):
            with suppress(FileNotFoundError):  # this path itself is rarely an object
                objects.copy(file.address, f"{target}{file.address.removeprefix(self.address)}")
        self.delete_prefix()

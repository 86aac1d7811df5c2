"""The directory layout below the root, and paths with file operations."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PosixPath

from medallion.errors import UsageError
from medallion.storage import files
from medallion.storage.files import FileInfo

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


class StoragePath(PosixPath):
    """A file or directory below the root, with the operations that an object store also offers.

    New code uses only the methods defined here. All paths are local today, so other methods of
    `Path` still work.
    """

    __slots__ = ()

    def list_files(self, after: str = "") -> Iterator[tuple[str, FileInfo]]:
        """Yield name and state of the regular files in this directory, in the order of names.

        Args:
            after: only names that sort after this one.
        """
        with suppress(FileNotFoundError, NotADirectoryError):
            with os.scandir(self) as entries:
                names = sorted((e for e in entries if e.name > after), key=lambda e: e.name)
            for entry in names:
                # A file can be deleted between the listing and the call of stat.
                with suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False):
                        yield entry.name, files.info_from_stat(entry.stat(follow_symlinks=False))

    def free_bytes(self) -> int | None:
        """Return the free space for this directory in bytes; None if it is unknown."""
        try:
            return shutil.disk_usage(self).free
        except OSError:
            return None

    def is_writable(self) -> bool:
        """Return whether this process may write here; if absent, whether it may create this."""
        existing = next(path for path in (self, *self.parents) if os.path.lexists(path))
        return os.access(existing, os.W_OK | os.X_OK, effective_ids=True)

    def write_atomic(self, data: str | bytes) -> None:
        """Write this file atomically and durably; its directory is created."""
        self.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(self, data)

    def delete(self, if_unchanged: FileInfo | None = None) -> bool:
        """Delete this file, if it is there.

        Args:
            if_unchanged: delete it only in this state.

        Returns:
            False if another file had replaced it, which stays.
        """
        if if_unchanged is not None:
            return files.delete_unchanged(self, if_unchanged)
        self.unlink(missing_ok=True)
        return True

    def delete_prefix(self) -> None:
        """Delete everything at and below this path; of a link, only the link."""
        files.delete_tree(self)

    def move_to(self, target: Path, if_unchanged: FileInfo) -> bool:
        """Move this file to a path at which nothing is stored, if it is in this state.

        Returns:
            False if another file had replaced it, which stays.

        Raises:
            OSError: it cannot be moved, and stays; FileExistsError if the target exists.
        """
        return files.move_file(self, target, if_unchanged)


def layer_of(name: str) -> str:
    """Return the layer of a table or a query: the first part of its name."""
    return name.partition(".")[0]


def without_dotdot(path: Path) -> Path:
    """Return an absolute path without `..`: Spark removes those from the paths it reports."""
    return resolved_path(path) if ".." in path.parts else path.absolute()


def resolved_path(path: str | Path) -> Path:
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


def unsupported_path_reason(path: str | Path) -> str | None:
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

    def __init__(self, root: Path) -> None:
        object.__setattr__(self, "root", StoragePath(root))

    def require_root(self) -> None:
        """Raise UsageError if the root does not exist: its name may be misspelled."""
        if not self.root.is_dir():
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

    def is_reason_file(self, path: str | Path) -> bool:
        """Return True if a file has the reason why another one was rejected."""
        return str(path).endswith(REASON_SUFFIX) and Path(path).is_relative_to(self.rejected(""))

    def intake(self, source: str) -> StoragePath:
        """Return the table of paths that bronze's stream of a source reads."""
        return self.root / "_intake" / source

    def requests(self, source: str) -> StoragePath:
        """Return the directory of a source's pending requests of `medallion backfill`."""
        return self.root / "_requests" / source

    def schemas(self, source: str) -> StoragePath:
        """Return the directory of the versions of a source's schema."""
        return self.root / "_schemas" / source

    def relative(self, path: str | Path) -> str:
        """Return a path as tables store it: relative to the root if it is below it."""
        return str(path).removeprefix(f"{self.root}/")

    def normalize(self, name: str) -> str:
        """Normalize a path or glob to root-relative form, even if links lead below the root."""
        path, root = without_dotdot(self.root / name), directory_identity(self.root)
        above = next((each for each in path.parents if directory_identity(each) == root), None)
        return str(path.relative_to(above)) if above else name

    def table(self, name: str) -> StoragePath:
        """Return the directory of the Delta table `layer.table`."""
        return self.root / name.replace(".", "/")

    def tables(self) -> dict[str, StoragePath]:
        """Return the directories of the tables that exist, by name `layer.table`."""
        logs = (log for schema in SCHEMAS for log in self.root.glob(f"{schema}/*/_delta_log"))
        return {f"{log.parts[-3]}.{log.parts[-2]}": log.parent for log in logs}

    def published(self, table: str) -> StoragePath:
        """Return the directory of a table's published changes, with one directory per batch."""
        return self.root / PUBLISH / table

    def checkpoint(self, query: str) -> StoragePath:
        """Return the checkpoint of one streaming query, which no other query shares."""
        return self.root / "_checkpoints" / query

    def internal_directories(self) -> list[StoragePath]:
        """Return the directories below the root into which only medallion writes."""
        return [path for path in self.root.glob("*") if _is_internal(path.name)]

    def is_table_path(self, path: Path) -> bool:
        """Return True if a path is below a directory of tables or of their metadata."""
        below = path.relative_to(self.root).parts if path.is_relative_to(self.root) else ()
        return bool(below) and (below[0] in SCHEMAS or below[0].startswith("_"))

    def is_internal(self, directory: str) -> bool:
        """Return True if a directory contains, or is in, one of `internal_directories`."""
        root, path = (resolved_path(self.root / each) for each in (".", directory))
        if not path.is_relative_to(root):
            return root.is_relative_to(path)
        below = path.relative_to(root).parts
        return not below or _is_internal(below[0])

    @property
    def quality(self) -> StoragePath:
        """Great Expectations' validation results and Data Docs."""
        return self.root / "_quality"

    @property
    def report(self) -> StoragePath:
        """The page of `medallion report`."""
        return self.root / "_report.html"

    @property
    def refresh_plan(self) -> StoragePath:
        """The remaining steps of a refresh; the tables that it builds are beside it."""
        return self.root / "_refresh" / "plan.json"

    @property
    def erasure_plan(self) -> StoragePath:
        """The remaining steps of an erasure, with its condition; deleted when it is complete."""
        return self.root / "_erase" / "plan.json"

    def lock(self, layer: str) -> StoragePath:
        """Return the lock file of a layer.

        It is beside the tables that it guards: a separate directory of locks could be deleted
        while they are held, and the next process would lock new ones.
        """
        return self.root / layer / ".lock"


def _is_internal(name: str) -> bool:
    return name in _INTERNAL or name.startswith("_")

"""The directory layout below the root."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass

from medallion.errors import UsageError
from medallion.storage.objects import is_address
from medallion.storage.paths import StoragePath

LAYERS = ("bronze", "silver", "gold")
"""The layers in the order of a run; each layer's queries write the tables of its name."""

PUBLISH = "publish"
"""The step that publishes gold tables; `medallion run` starts it like a layer."""

SCHEMAS = ("bronze", "silver", "quarantine", "gold", "ops")
"""The directories of Delta tables, and the schemas of SQL."""

REASON_SUFFIX = ".reason.txt"
"""Suffix of the file that has the reason of a rejection, beside the rejected file."""

_INTERNAL = ("archive", "rejected", PUBLISH, *SCHEMAS)


def layer_of(name: str) -> str:
    """Return the layer of a table or a query: `silver` of `silver.orders`."""
    return name.partition(".")[0]


def short_name(name: str) -> str:
    """Return the name of a table or a query without its layer: `orders` of `silver.orders`."""
    return name.partition(".")[2]


def view_name(name: str) -> str:
    """Return the name of a table in SQL of gold, which reads views: `silver_orders`."""
    return name.replace(".", "_")


@dataclass(frozen=True, init=False)
class Layout:
    """The directories of one lakehouse, `MEDALLION_HOME`."""

    root: StoragePath

    def __init__(self, root: str | os.PathLike[str]) -> None:
        object.__setattr__(self, "root", StoragePath(root))

    def require_root(self) -> None:
        """Raise UsageError if the root does not exist: its name may be misspelled."""
        if not self.root.is_directory():
            advice = "medallion nightly creates it, and MEDALLION_HOME names another one"
            raise UsageError(f"there is no lakehouse at {self.root}: {advice}.")

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
        return str(path.below(above) if above else path if is_address(name) else name)

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
    def format(self) -> StoragePath:
        """The file with the version of the lakehouse's format, see `root_format`."""
        return self.root / "_format.json"

    @property
    def journal(self) -> StoragePath:
        """The directory of unfinished commands, see `state.journal`."""
        return self.root / "_journal"

    @property
    def idle_note(self) -> StoragePath:
        """The note of an idle run in a bucket, see `runtime.idle`."""
        return self.root / "_idle.json"

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

"""Where everything lies under one root: the only place that spells a folder's name."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from medallion.errors import UsageError

LAYERS = ("bronze", "silver", "gold")
"""What runs, in this order; each layer's queries write the tables of its name."""

PUBLISH = "publish"
"""What runs after them where tables of gold are published; not a layer, but started like one."""

SCHEMAS = ("bronze", "silver", "quarantine", "gold", "ops")
"""The folders of Delta tables, and the schemas of SQL."""

# Hadoop takes the first three for patterns, and a colon for the end of an address's kind; delta-rs
# decodes %41, so that it would read what lies at A, and takes # and ? for the end of a path.
_UNFIT = re.compile(r"[\[\]\\:#?\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}")

REASON_SUFFIX = ".reason.txt"
"""How the files end that say why another one was rejected; they lie beside it."""

_OWN = ("archive", "rejected", PUBLISH, *SCHEMAS)


def layer_of(name: str) -> str:
    """The layer of a table or of a query: the first part of its name."""
    return name.partition(".")[0]


def without_dotdot(path: Path) -> Path:
    """An absolute path without `..`: Spark takes those out of the names that it tells."""
    return resolved_path(path) if ".." in path.parts else path.absolute()


def resolved_path(path: str | Path) -> Path:
    """A path without links. One that leads back to itself stays: `Path.resolve` would fail."""
    return Path(os.path.realpath(path))


DirectoryIdentity = tuple[int, int] | str  # device and inode; a path, where nothing is there


def directory_identity(folder: Path) -> DirectoryIdentity:
    """What tells a folder from every other one, by whatever links or mounts it is reached."""
    try:
        found = folder.stat()
    except OSError:
        return str(resolved_path(folder))
    return found.st_dev, found.st_ino


def unsupported_path_reason(path: str | Path) -> str | None:
    """Why no Delta table can be read at a path, or below it; None where one can be."""
    # Links are followed; of a path with a NUL there is none to follow.
    if not _UNFIT.search(str(path)) and not _UNFIT.search(os.path.realpath(path)):
        return None
    return (
        "below a path with [, ], \\, :, #, ?, a control character, or % and two hexadecimal digits "
        "no Delta table can be read and written"
    )


@dataclass(frozen=True)
class Layout:
    """The folders of one lakehouse, `MEDALLION_HOME`."""

    root: Path

    def require_root(self) -> None:
        """Raise UsageError where there is no such folder: its name may be misspelled."""
        if not self.root.is_dir():
            raise UsageError(
                f"there is no lakehouse at {self.root}: no such folder; medallion nightly makes "
                "it, and MEDALLION_HOME names another."
            )

    def landing(self, source: str) -> Path:
        """Where the files of a source land."""
        return self.root / "landing" / source

    def archive(self, source: str) -> Path:
        """Where the files of a source lie after their rows are committed."""
        return self.root / "archive" / source

    def rejected(self, source: str) -> Path:
        """Where files lie that cannot be read, each with its reason beside it."""
        return self.root / "rejected" / source

    def is_reason_file(self, path: str | Path) -> bool:
        """Whether a file only says why another one was rejected."""
        return str(path).endswith(REASON_SUFFIX) and Path(path).is_relative_to(self.rejected(""))

    def intake(self, source: str) -> Path:
        """The table of paths that bronze's stream of a source reads."""
        return self.root / "_intake" / source

    def requests(self, source: str) -> Path:
        """What `medallion backfill` asks of whoever runs bronze."""
        return self.root / "_requests" / source

    def schemas(self, source: str) -> Path:
        """The versions of a source's schema."""
        return self.root / "_schemas" / source

    def relative(self, path: str | Path) -> str:
        """A path as tables spell it: from the root on if below it, so that a root may move."""
        text, root = str(path), f"{self.root}/"
        return text.removeprefix(root)

    def normalize(self, name: str) -> str:
        """A path, of a folder or with a pattern, as tables spell it, by whatever name it leads
        below the root: to them a file is its path, and a root may be reached by several."""
        path, root = without_dotdot(self.root / name), directory_identity(self.root)
        above = next((each for each in path.parents if directory_identity(each) == root), None)
        return str(path.relative_to(above)) if above else name

    def table(self, name: str) -> Path:
        """The Delta table `layer.table`."""
        return self.root / name.replace(".", "/")

    def tables(self) -> dict[str, Path]:
        """Where each table lies that is there, by its name `layer.table`."""
        logs = (log for schema in SCHEMAS for log in self.root.glob(f"{schema}/*/_delta_log"))
        return {f"{log.parts[-3]}.{log.parts[-2]}": log.parent for log in logs}

    def published(self, table: str) -> Path:
        """The files of a table's changes, a folder a micro-batch."""
        return self.root / PUBLISH / table

    def checkpoint(self, query: str) -> Path:
        """The checkpoint of one streaming query, never shared."""
        return self.root / "_checkpoints" / query

    def internal_directories(self) -> list[Path]:
        """Those below the root whose files nobody landed."""
        return [path for path in self.root.glob("*") if _is_own(path.name)]

    def is_table_path(self, path: Path) -> bool:
        """Whether it lies among the tables, or what is noted beside them."""
        below = path.relative_to(self.root).parts if path.is_relative_to(self.root) else ()
        return bool(below) and (below[0] in SCHEMAS or below[0].startswith("_"))

    def is_internal(self, folder: str) -> bool:
        """Whether files that nobody landed lie in a folder, or anywhere below it."""
        root, place = (resolved_path(self.root / path) for path in (".", folder))
        if not place.is_relative_to(root):
            return root.is_relative_to(place)
        below = place.relative_to(root).parts
        return not below or _is_own(below[0])

    @property
    def quality(self) -> Path:
        """Great Expectations' validation results and Data Docs."""
        return self.root / "_quality"

    @property
    def report(self) -> Path:
        """The page of `medallion report`."""
        return self.root / "_report.html"

    @property
    def refresh_plan(self) -> Path:
        """What a refresh has left to do; the tables that it builds lie beside it."""
        return self.root / "_refresh" / "plan.json"

    def lock(self, layer: str) -> Path:
        """The lock of a layer, for one writer process a table.

        It lies among the tables that it guards: a lock in a folder of its own could be deleted
        while it is held, and the next process would take a new one.
        """
        return self.root / layer / ".lock"


def _is_own(name: str) -> bool:
    return name in _OWN or name.startswith("_")

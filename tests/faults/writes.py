"""Detection of every write of this process below a directory, before it happens.

Python reports file operations to audit hooks; the commits of Delta and Spark are wrapped. So the
points at which a process can be interrupted between two writes need no marks in the code: every
write is one.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medallion.storage import objects

_PACKAGE = str(Path(__file__).parents[2] / "src/medallion") + os.sep
# The callers of these modules describe a write better than the modules do.
_HELPERS = (
    *(f"storage/{name}.py" for name in ("files", "objects", "paths", "delta_tables", "leases")),
    "spark/delta.py",
)
_FILES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.utime", "os.truncate"}
_KILL = "kill"


@dataclass(frozen=True)
class Strike:
    """The fault to inject before the `nth` write, not counting writes at the sites `but`."""

    how: str  # kill, or the name of an errno
    nth: int
    but: Sequence[str] = ()

    def counts(self, site: str) -> bool:
        """Return whether a write at this site counts."""
        return site not in self.but


@dataclass
class Watch:
    """Records the sites of writes since `begin`, and injects the strike once."""

    root: str | None = None
    strike: Strike | None = None
    note: Path | None = None
    sites: list[str] = field(default_factory=list)
    struck: str | None = None

    def begin(self, root: str | Path, strike: Strike | None, note: Path | None = None) -> None:
        """Watch from now on; a strike that kills writes its site to the file `note`."""
        self.root, self.strike, self.note = str(root) + os.sep, strike, note
        self.sites, self.struck = [], None

    def end(self) -> None:
        """Stop watching."""
        self.root = None

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Handle an audit event; an exception from here replaces the operation."""
        if self.root is None:
            return
        if event == "open":
            _, mode, flags = args
            is_write = (flags or 0) & (os.O_WRONLY | os.O_RDWR) or set(mode or "") & set("wax+")
        else:
            is_write = event in _FILES
        if is_write and self._is_below(args[0]):
            self.before(event)

    def _is_below(self, path: object) -> bool:
        if isinstance(path, (str, bytes, os.PathLike)):
            return os.fsdecode(path).startswith(self.root or "")
        return False

    def before(self, operation: str) -> None:
        """Record a write that is about to happen, and inject the fault if it is due."""
        if self.root is None:
            return
        site = f"{_caller()}: {operation}"
        self.sites.append(site)
        strike = self.strike
        if strike is None or self.struck:
            return
        if strike.counts(site) and sum(map(strike.counts, self.sites)) == strike.nth:
            self.struck = site
            if strike.how == _KILL:
                self._die(site)
            number = getattr(errno, strike.how)
            raise OSError(number, os.strerror(number), "by the fault that was asked for")

    def _die(self, site: str) -> None:
        if self.note:
            self.root = None
            self.note.write_text(site)
        os.killpg(os.getpgid(0), signal.SIGKILL)


def _caller() -> str:
    """Return the innermost function of the package on the stack, except those of `_HELPERS`."""
    frame = sys._getframe(2)
    caller = "elsewhere"
    while frame is not None and frame.f_back is not None:
        file = frame.f_code.co_filename
        if file.startswith(_PACKAGE):
            module = file.removeprefix(_PACKAGE)
            caller = f"{module.removesuffix('.py').replace(os.sep, '.')}.{frame.f_code.co_qualname}"
            if module not in _HELPERS:
                break
        frame = frame.f_back
    return caller


WATCH = Watch()


def install() -> Watch:
    """Install the hooks once per process: audit hooks cannot be removed."""
    if not getattr(install, "done", False):
        install.done = True  # type: ignore[attr-defined]
        sys.addaudithook(WATCH.hook)
        _wrap_commits()
    return WATCH


def _wrap_commits() -> None:
    import deltalake
    import obstore
    from delta.tables import DeltaMergeBuilder
    from deltalake.table import TableMerger, TableOptimizer
    from pyspark.sql.readwriter import DataFrameWriter

    from medallion.spark import delta

    for owner, name, operation in (
        (obstore, "put", "put"),
        (obstore, "copy", "copy"),
        (obstore, "delete", "delete"),
        (objects, "_delete_if_match", "delete if unchanged"),
        (deltalake, "write_deltalake", "append"),
        (deltalake.DeltaTable, "create", "create a table"),
        (deltalake.DeltaTable, "vacuum", "vacuum"),
        (TableMerger, "execute", "merge"),
        (TableOptimizer, "compact", "compact"),
        (DataFrameWriter, "save", "Spark: append or overwrite"),
        (delta, "_is_committed", "Spark: append or overwrite"),  # called before each write
        (DeltaMergeBuilder, "execute", "Spark: merge"),
    ):
        setattr(owner, name, _watched(getattr(owner, name), operation))


def _watched(write: Callable[..., Any], operation: str) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        WATCH.before(operation)
        return write(*args, **kwargs)

    return watched

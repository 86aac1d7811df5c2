"""Every write that this process makes below a folder, seen before it happens.

Python tells of its files through audit hooks; Delta's and Spark's commits are wrapped where they
are asked for. So the points at which a process can be cut off between two writes need no mark in
the code, and none can be forgotten: they are wherever it writes.
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

_PACKAGE = str(Path(__file__).parents[2] / "src/medallion") + os.sep
# Who calls these says more of a write than they do.
_BELOW = ("storage/files.py", "storage/paths.py", "storage/delta_tables.py")
_FILES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.utime", "os.truncate"}
_KILL = "kill"


@dataclass(frozen=True)
class Strike:
    """What is to happen before the `nth` write, without those at some sites."""

    how: str  # kill, or the name of an errno
    nth: int
    but: Sequence[str] = ()

    def means(self, site: str) -> bool:
        """Whether a write at this site counts."""
        return site not in self.but


@dataclass
class Watch:
    """The writes since `begin`, by their sites; strikes once where it was told to."""

    root: str | None = None
    strike: Strike | None = None
    note: Path | None = None
    sites: list[str] = field(default_factory=list)
    struck: str | None = None

    def begin(self, root: Path, strike: Strike | None, note: Path | None = None) -> None:
        """Watch from now on; `note` is a file that tells of a strike that kills."""
        self.root, self.strike, self.note = str(root) + os.sep, strike, note
        self.sites, self.struck = [], None

    def end(self) -> None:
        """Watch no longer."""
        self.root = None

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit hook; exceptions from here take the place of what was to happen."""
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

    def before(self, what: str) -> None:
        """A write is about to happen."""
        if self.root is None:
            return
        site = f"{_caller()}: {what}"
        self.sites.append(site)
        strike = self.strike
        if strike is None or self.struck:
            return
        if strike.means(site) and sum(map(strike.means, self.sites)) == strike.nth:
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
    """The innermost function of the package that is on the stack, but for those that only write."""
    frame = sys._getframe(2)
    found = "elsewhere"
    while frame is not None and frame.f_back is not None:
        file = frame.f_code.co_filename
        if file.startswith(_PACKAGE):
            module = file.removeprefix(_PACKAGE)
            found = f"{module.removesuffix('.py').replace(os.sep, '.')}.{frame.f_code.co_qualname}"
            if module not in _BELOW:
                break
        frame = frame.f_back
    return found


WATCH = Watch()


def install() -> Watch:
    """Hook in, once a process: audit hooks stay for its life."""
    if not getattr(install, "done", False):
        install.done = True  # type: ignore[attr-defined]
        sys.addaudithook(WATCH.hook)
        _wrap_commits()
    return WATCH


def _wrap_commits() -> None:
    import deltalake
    from delta.tables import DeltaMergeBuilder
    from deltalake.table import TableMerger, TableOptimizer
    from pyspark.sql.readwriter import DataFrameWriter

    for owner, name, what in (
        (deltalake, "write_deltalake", "append"),
        (deltalake.DeltaTable, "create", "create a table"),
        (deltalake.DeltaTable, "vacuum", "vacuum"),
        (TableMerger, "execute", "merge"),
        (TableOptimizer, "compact", "compact"),
        (DataFrameWriter, "save", "Spark: append or overwrite"),
        (DeltaMergeBuilder, "execute", "Spark: merge"),
    ):
        setattr(owner, name, _watched(getattr(owner, name), what))


def _watched(write: Callable[..., Any], what: str) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        WATCH.before(what)
        return write(*args, **kwargs)

    return watched

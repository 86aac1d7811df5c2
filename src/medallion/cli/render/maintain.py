"""What maintenance did to the tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from medallion.runtime.maintenance import Maintained
from medallion.storage.text import counted, printable


def as_json(found: Maintained) -> dict[str, Any]:
    """The figures of each table that something was done to, and why more was not."""
    return {
        "tables": {name: asdict(done) for name, done in found.tables.items()},
        "notes": list(found.notes),
    }


def as_text(found: Maintained) -> str:
    """A line for each table that something was done to, and the notes under them."""
    lines = [
        f"{name}: {counted(done.compacted_files, 'file')} put together, "
        f"{counted(done.removed_files, 'file')} and {counted(done.removed_commits, 'commit')} "
        "removed"
        for name, done in found.tables.items()
    ]
    return "\n".join([*lines, *map(printable, found.notes)] or ["nothing to do"])

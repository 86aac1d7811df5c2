"""What became of the files of a backfill."""

from __future__ import annotations

from typing import Any

from medallion.runtime.backfill import Backfilled
from medallion.storage.text import counted, printable


def as_json(found: Backfilled) -> dict[str, Any]:
    """The counts, and each file that was not taken in, with the reason."""
    return {
        "files": found.files,
        "new_files": found.new_files,
        "rows": found.rows,
        "refused": [{"path": entry.path, "why": entry.why} for entry in found.refused],
        "waiting": [{"path": entry.path, "why": entry.why} for entry in found.waiting],
        "topic": found.topic,
        "lost_offsets": found.lost,
    }


def as_text(found: Backfilled) -> str:
    """A sentence, and a line for each file that was not taken in."""
    if found.topic:
        return f"topic {found.topic}: {counted(found.rows, 'row')} taken in"
    known = found.files - found.new_files - len(found.waiting)
    waiting = f", {len(found.waiting):,} waiting" if found.waiting else ""
    summary = (
        f"{counted(found.files, 'file')}: {found.new_files:,} taken in with "
        f"{counted(found.rows, 'row')}, {known:,} known before or refused{waiting}"
    )
    left = (*found.refused, *found.waiting)
    return "\n".join([summary, *(printable(f"  {e.path}: {e.state}: {e.why}") for e in left)])

"""Old files for a backfill."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.lines import event


def old_files(folder: Path) -> None:
    """Write three files from 1990, one in a subdirectory and one not text, with five rows.

    One row is a duplicate.
    """
    (folder / "below").mkdir(parents=True)
    lines = [event(f"10:0{minute}:00", "p0") for minute in range(4)]
    (folder / "a.json").write_text(f"{lines[0]}\n{lines[1]}\n")
    (folder / "below" / "b.json").write_text(f"{lines[2]}\n\n{lines[2]}\n{lines[3]}\n")
    (folder / "c.json").write_bytes(b"\x89PNG\r\n")
    for file in folder.rglob("*.json"):
        os.utime(file, (631152000, 631152000))

"""What a streaming query's checkpoint says of its batches, read as Spark wrote it.

`offsets/N` is written before batch N runs, `commits/N` after it: three lines or more, a version,
the batch's metadata, and one line a source. (Source: OffsetSeqLog and CommitLog of Spark.)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medallion.lakehouse import storage


@dataclass(frozen=True)
class DeltaOffset:
    """How far a query has read a Delta table: all before a version, and part of it if `index`."""

    version: int
    index: int

    @property
    def is_whole(self) -> bool:
        """True where the offset stands between two versions."""
        return self.index < 0


def query_id(checkpoint: Path) -> str:
    """The id of the query, which changes with a new checkpoint."""
    return str(json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"])


def last_committed(checkpoint: Path) -> int:
    """The last batch that was committed; -1 where there is none."""
    return _last(checkpoint / "commits")


def last_begun(checkpoint: Path) -> int:
    """The last batch that was planned, whether it has ended or not; -1 where there is none."""
    return _last(checkpoint / "offsets")


def _last(log: Path) -> int:
    if not log.is_dir():
        return -1
    return max((int(f.name) for f in log.iterdir() if f.name.isdigit()), default=-1)


def watermark(checkpoint: Path, batch: int) -> int | None:
    """The watermark that batch `batch` ran with (milliseconds since 1970), None where unset."""
    lines = _lines(checkpoint, batch)
    value = int(json.loads(lines[1])["batchWatermarkMs"]) if lines else 0
    return value or None


def delta_offset(checkpoint: Path, batch: int) -> DeltaOffset:
    """Up to where batch `batch` had read; version 0 for the batch before the first."""
    lines = _lines(checkpoint, batch)
    return parse_offset(json.loads(lines[2])) if lines else DeltaOffset(0, -1)


def parse_offset(document: dict[str, Any]) -> DeltaOffset:
    """An offset of Delta's streaming source, as in checkpoints and progress records."""
    return DeltaOffset(int(document["reservoirVersion"]), int(document["index"]))


def made_by(checkpoint: Path, definition: dict[str, Any]) -> dict[str, Any]:
    """What a query was defined as when its first batch ran; before that, it is noted.

    Spark compares the types of the state's columns with the query's, and not their meaning.
    """
    then = noted(checkpoint, "definition")
    if then is None or last_committed(checkpoint) < 0:
        note(checkpoint, "definition", definition)
        return definition
    return then


def note(checkpoint: Path, name: str, document: dict[str, Any]) -> None:
    """Keep a document beside what Spark keeps of a query."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    storage.write(checkpoint / f"{name}.json", json.dumps(document, indent=2))


def forget(checkpoint: Path, name: str) -> None:
    """Take such a document away."""
    (checkpoint / f"{name}.json").unlink(missing_ok=True)


def noted(checkpoint: Path, name: str) -> dict[str, Any] | None:
    """Such a document; None where there is none."""
    file = checkpoint / f"{name}.json"
    if not file.is_file():
        return None
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _lines(checkpoint: Path, batch: int) -> list[str]:
    if batch < 0:
        return []
    return (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()

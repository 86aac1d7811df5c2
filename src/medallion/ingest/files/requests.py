"""Backfills asked for: files elsewhere that whoever runs bronze next, or now, takes in.

A request is a small file, so that a stream that is on can be asked by another process. It is taken
away after its files are handed over; one that is met twice finds its files in the ledger.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from medallion.errors import MedallionError
from medallion.storage import files
from medallion.storage.paths import Layout
from medallion.storage.text import printable


@dataclass(frozen=True)
class Request:
    """A file, or a folder with all that lies below it."""

    path: Path
    file: Path

    def done(self) -> None:
        """Forget the request."""
        self.file.unlink(missing_ok=True)

    @property
    def is_open(self) -> bool:
        """Whether nobody has handed its files over yet."""
        return self.file.exists()


def ask(layout: Layout, source: str, path: Path) -> Request:
    """Ask for a path to be taken in as files of a source."""
    folder = layout.requests(source)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{uuid.uuid4().hex}.json"
    files.write_atomic(file, json.dumps({"path": str(path)}))
    return Request(path, file)


def waiting(layout: Layout, source: str) -> list[Request]:
    """The requests for a source that nobody has seen to yet; who asked may have come to the root by
    another path.

    Raises:
        MedallionError: somebody has put something else there.
    """
    found = []
    for file in sorted(layout.requests(source).glob("*.json")):
        with suppress(FileNotFoundError):  # another process has just handed its files over
            place = layout.root / layout.normalize(_path(file))
            found.append(Request(place, file))
    return found


def _path(file: Path) -> str:
    try:
        return str(Path(json.loads(file.read_text(encoding="utf-8"))["path"]))
    except (ValueError, LookupError, TypeError) as error:
        raise MedallionError(
            f"{file}: no request for a backfill ({printable(str(error))}): delete it, and ask for "
            "the backfill again."
        ) from None

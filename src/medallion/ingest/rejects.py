"""Files that cannot be read at all: found out, and put aside with their reason."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from medallion.config import Source
from medallion.ingest.files import CODECS, below_folder, free_name, opened
from medallion.ingest.ledger import Entry, Ledger
from medallion.layout import Layout

REASON = ".reason.txt"
_CHUNK = 1 << 20
# The first bytes of what people land by mistake. (Source: the formats' own specifications.)
_BINARY = {
    b"\x1f\x8b": "gzip data without .gz in its name",
    b"BZh": "bzip2 data without .bz2 in its name",
    b"\x28\xb5\x2f\xfd": "zstandard data without .zst in its name",
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "a Parquet file",
    b"ORC": "an ORC file",
    b"Obj\x01": "an Avro file",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"%PDF": "a PDF document",
    b"\x7fELF": "a program",
    b"\xff\xfe": "UTF-16 or UTF-32 text; write it as UTF-8",
    b"\xfe\xff": "UTF-16 text; write it as UTF-8",
}


def why_not_text(path: Path) -> str | None:
    """Why a file is not text at all, by its first bytes; None where it may be."""
    if path.suffix.lower() in CODECS:
        return None
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except OSError as error:
        return f"cannot be opened: {error.strerror}"
    return next(
        (f"not text: {what}" for magic, what in _BINARY.items() if start.startswith(magic)), None
    )


def why_unreadable(path: Path) -> str | None:
    """Why a file cannot be read to its end; None where it can be."""
    suffix = path.suffix.lower()
    try:
        with opened(path) as file:
            while file.read(_CHUNK):
                pass
    except EOFError:
        return f"torn: its {suffix[1:]} data ends too soon"
    except (OSError, zlib.error) as error:
        return f"cannot be read: {getattr(error, 'strerror', None) or error}"
    return None


def put_aside(layout: Layout, source: Source, ledger: Ledger, rejected: Sequence[Entry]) -> None:
    """Put files on record as rejected, and move them to `rejected/<source>/`, reasons beside them.

    The record comes first, with the place: cut off in between, a file is still where it landed,
    and is met again. A file that cannot be moved stays.
    """
    placed = [replace(entry, moved_to=_place(layout, source, entry.path)) for entry in rejected]
    ledger.write(placed)
    ledger.write([replace(e, moved_to=None) for e in placed if e.moved_to and not _move(layout, e)])


def _place(layout: Layout, source: Source, path: str) -> str | None:
    below = below_folder(layout, source, layout.root / path)
    if below is None:  # a backfill's file is where its owner keeps it
        return None
    return layout.relative(free_name(layout.rejected(source.name) / below))


def _cut(name: str) -> str:
    """As much of a name as leaves room for the reason's ending: 255 bytes are the most."""
    return name.encode()[: 255 - len(REASON)].decode(errors="ignore")


def _move(layout: Layout, entry: Entry) -> bool:
    target = layout.root / (entry.moved_to or "")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(layout.root / entry.path, target)
        reason = free_name(target.with_name(_cut(target.name) + REASON))
        reason.write_text(f"{entry.path}: {entry.why}\n", errors="replace")
    except OSError:
        return False
    return True

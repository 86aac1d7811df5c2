"""Files that cannot be read at all: how they are recognised, and how they are put aside."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from medallion.config.model import SourceConfig
from medallion.lakehouse.layout import REASON, Layout
from medallion.ops.ledger import Entry, Ledger
from medallion.sources.files.codecs import CODECS, FAULTS, REFUSED_CODECS, opened, why_spoilt
from medallion.sources.files.listing import below_folder, free_name, with_folders
from medallion.sources.files.moving import Moves

Problem = Callable[[Path], str | None]  # why a file cannot be taken in; None where it can
_CHUNK = 1 << 20
# The first bytes of what people land by mistake. (Source: the formats' own specifications.)
_BINARY = {
    b"\x1f\x8b": "gzip data without .gz in its name",
    b"\x28\xb5\x2f\xfd": "zstandard data without .zst in its name",
    b"PK\x03\x04": "a zip archive",
    b"Obj\x01": "an Avro file",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"%PDF-": "a PDF document",
    b"\x7fELF": "a program",
    b"\xff\xfe": "UTF-16 or UTF-32 text; write it as UTF-8",
    b"\xfe\xff": "UTF-16 text; write it as UTF-8",
}
# Text may begin with these too (ORCID,name): they count where bytes follow that no text has.
_LETTERS = {
    b"BZh": "bzip2 data without .bz2 in its name",
    b"PAR1": "a Parquet file",
    b"ORC": "an ORC file",
}
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def why_not_text(path: Path) -> str | None:
    """Why a file is not text at all, by its name and first bytes; None where it may be."""
    suffix = path.suffix.lower()
    if suffix in REFUSED_CODECS:
        return f"packed as {suffix}, which is not read here: pack it as .gz or .zst"
    try:
        with opened(path) as file:
            start = file.read(256)
    except FAULTS as error:
        if suffix in CODECS:  # whoever reads all of it tells
            return None
        return f"cannot be opened: {getattr(error, 'strerror', None) or error}"
    signs = {**_BINARY, **_LETTERS} if _NO_TEXT.search(start) else _BINARY
    what = next((what for magic, what in signs.items() if start.startswith(magic)), None)
    if what is None:
        return None
    return f"not text, once it is unpacked: {what}" if suffix in CODECS else f"not text: {what}"


def why_unreadable(path: Path) -> str | None:
    """Why a file cannot be read to its end; None where it can be."""
    try:
        with opened(path) as file:
            while file.read(_CHUNK):
                pass
    except FAULTS as error:
        system = getattr(error, "strerror", None) or error
        return why_spoilt(path, error) or f"cannot be read: {system}"
    return None


def put_aside(
    layout: Layout, source: SourceConfig, ledger: Ledger, rejected: Sequence[Entry]
) -> None:
    """Enter files as rejected, and move them to `rejected/<source>/`, with reasons beside them.

    The ledger comes first, with the place: cut off in between, a file is still where it landed,
    and is met again. A file that cannot be moved stays, and its row says why.
    """
    taken: set[Path] = set()
    placed = [replace(e, moved_to=_place(layout, source, e.path, taken)) for e in rejected]
    ledger.write(placed)
    stuck: list[Entry] = []
    with Moves() as moves:
        for entry in placed:
            if entry.moved_to and (why := _move(layout, entry, entry.moved_to, moves)):
                stuck.append(replace(entry, moved_to=None, why=f"{entry.why}; {why}"))
    ledger.write(stuck)


def _place(layout: Layout, source: SourceConfig, path: str, taken: set[Path]) -> str | None:
    """A free name in `rejected/`; from now on it and that of its reason are `taken`."""
    below = below_folder(layout, source, layout.root / path)
    if below is None:  # a backfill's file is where its owner keeps it
        return None
    target = free_name(with_folders(layout.rejected(source.name), below, taken), taken)
    taken |= {target, _reason(target)}
    return layout.relative(target)


def _reason(target: Path) -> Path:
    """The name of the reason's file; names are no longer than 255 bytes."""
    name = target.name.encode()[: 255 - len(REASON)].decode(errors="ignore")
    return target.with_name(name + REASON)


def _move(layout: Layout, entry: Entry, place: str, moves: Moves) -> str | None:
    """Move a file to its place; None where it has been moved, else why not."""
    target = layout.root / place
    try:
        if not moves.move(layout.root / entry.path, target, entry.file):
            return "another file has come in its place"
    except OSError as error:
        return f"it cannot be moved: {error.strerror or error}"
    with suppress(OSError):  # the ledger has the reason too
        reason = free_name(_reason(target))
        told = f"{entry.path}: {entry.why}\n"
        reason.write_text(told, encoding="utf-8", errors="replace")
    return None

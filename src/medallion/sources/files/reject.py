"""Files that cannot be read at all: how they are recognised."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from medallion.lakehouse.text import reason_of
from medallion.sources.files.codecs import CODECS, READ_ERRORS, REFUSED_CODECS, opened, why_spoilt

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
    except READ_ERRORS as error:
        if suffix in CODECS:  # whoever reads all of it tells
            return None
        return f"cannot be opened: {reason_of(error)}"
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
    except READ_ERRORS as error:
        return why_spoilt(path, error) or f"cannot be read: {reason_of(error)}"
    return None

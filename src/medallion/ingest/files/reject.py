"""Files that cannot be read at all: how they are recognised."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from medallion.ingest.files.codecs import CODECS, READ_ERRORS, opened, why_spoilt
from medallion.storage.text import error_reason

Problem = Callable[[Path], str | None]  # why a file cannot be taken in; None where it can
_CHUNK = 1 << 20
_REPACK = "pack it as .gz or .zst"
_UNPACK = "unpack it, and land its files"
_TAR = f"a tar archive: {_UNPACK}"
# Compression that is not read here. (Spark would read the first two; where one is truncated or not
# what its name says, it finds no rows and says nothing.)
REFUSED_CODECS = (".lz4", ".snappy", ".xz", ".lzma", ".br", ".z", ".lz", ".lzo", ".sz")
REFUSED_ARCHIVES = (".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst", ".7z", ".rar")
# The first bytes of what people land by mistake. (Source: the formats' own specifications.)
_BINARY = {
    b"\x1f\x8b": "gzip data without .gz in its name",
    b"\x28\xb5\x2f\xfd": "zstandard data without .zst in its name",
    b"\xfd7zXZ\x00": f"xz data: {_REPACK}",
    b"\x1f\x9d": f"data of compress (.Z): {_REPACK}",
    b"\x04\x22\x4d\x18": f"lz4 data: {_REPACK}",
    b"\xff\x06\x00\x00sNaPpY": f"snappy data: {_REPACK}",
    b"PK\x03\x04": f"a zip archive: {_UNPACK}",
    b"7z\xbc\xaf\x27\x1c": f"a 7z archive: {_UNPACK}",
    b"Rar!\x1a\x07": f"a rar archive: {_UNPACK}",
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
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def why_not_text(path: Path) -> str | None:
    """Return why a file is not text, by its name and first bytes; None if it may be text."""
    suffix = path.suffix.lower()
    is_tar = Path(path.stem).suffix.lower() == ".tar" and suffix in (*CODECS, *REFUSED_CODECS)
    if is_tar or suffix in REFUSED_ARCHIVES:
        return f"an archive by its name, which is not read here: {_UNPACK}"
    if suffix in REFUSED_CODECS:
        return f"packed as {suffix}, which is not read here: {_REPACK}"
    try:
        with opened(path) as file:
            start = file.read(512)
    except READ_ERRORS as error:
        if suffix in CODECS:  # whoever reads all of it tells
            return None
        return f"cannot be opened: {error_reason(error)}"
    signs = {**_BINARY, **_LETTERS} if _NO_TEXT.search(start) else _BINARY
    what = next((what for magic, what in signs.items() if start.startswith(magic)), None)
    if signs is not _BINARY and start.startswith(_TAR_MAGIC, _TAR_MAGIC_AT):
        what = _TAR
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
        return why_spoilt(path, error) or f"cannot be read: {error_reason(error)}"
    return None

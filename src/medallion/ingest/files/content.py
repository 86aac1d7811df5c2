"""Checks of a file's bytes: compression, long lines, and files that are not text."""

from __future__ import annotations

import bz2
import csv
import io
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from medallion.config.model import SourceConfig
from medallion.config.values import BYTES
from medallion.storage.text import error_reason

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


CODECS = (".gz", ".bz2", ".deflate", ".zst")
# What a packed byte may be at most. (Source: zlib's technical details; of the others none is told.)
MOST_UNPACKED = {".gz": 1032, ".deflate": 1032}
_TRUNCATED = "its data ends too soon"
_USUAL = 8  # times that JSON becomes smaller, or a little more
_GZIP, _ZLIB = 31, 15  # what zlib calls its formats
CHUNK_BYTES = 1 << 20
_PACKED = 1 << 16  # of which a rest is copied for each member that ends in it


# Errors of a file that cannot be read or unpacked.
READ_ERRORS = (OSError, EOFError, zlib.error)


def open_unpacked(path: Path) -> IO[bytes]:
    """Open a file for reading without its compression.

    Raises:
        OSError, EOFError, zlib.error: here or in a later read: the file is unreadable, truncated or
            in another format.
    """
    suffix = path.suffix.lower() if path.stat().st_size else ""
    if suffix in _PIECES:
        return io.BufferedReader(_Unpacked(path, _PIECES[suffix]))
    return path.open("rb")


def corrupt_reason(path: Path, error: Exception) -> str | None:
    """Return why a file cannot be unpacked; None if its bytes are not the cause."""
    suffix = path.suffix.lower()
    if suffix not in CODECS or getattr(error, "errno", None) is not None:
        return None
    if isinstance(error, EOFError):
        return f"truncated: its {suffix[1:]} data ends too soon"
    return f"cannot be read: its bytes are not all {suffix[1:]} data ({error}): compress it again"


def estimate_unpacked_size(path: Path, size: int) -> int:
    """Estimate the unpacked size of a file of `size` bytes, without unpacking it."""
    suffix = path.suffix.lower()
    if suffix not in CODECS:
        return size
    if suffix == ".gz":
        with suppress(OSError), path.open("rb") as file:
            file.seek(-min(size, 4), os.SEEK_END)
            told = int.from_bytes(file.read(), "little")  # of its last part, if it has several
            if size <= told <= MOST_UNPACKED[suffix] * size:
                return told
    return _USUAL * size


class _Unpacked(io.RawIOBase):
    """The bytes of a file that is unpacked piece by piece."""

    def __init__(self, path: Path, pieces: Callable[[IO[bytes]], Iterator[bytes]]) -> None:
        self._file = path.open("rb")
        self._pieces, self._left = pieces(self._file), memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        room = memoryview(buffer)
        taken = min(len(room), len(self._left))
        room[:taken] = self._left[:taken]
        self._left = self._left[taken:]
        return taken

    def close(self) -> None:
        self._file.close()
        super().close()


def _decompress_streams(file: IO[bytes], new: Callable[[], Any], most: int) -> Iterator[bytes]:
    """The bytes of zlib's formats or of bzip2, one stream after the other.

    Python's own reader of bzip2 takes what follows the first one for nothing.

    Args:
        most: what one piece may be unpacked into at once; 0 where that is bounded by itself.
    """
    stream, given = new(), file.read(_PACKED)
    while given or not stream.eof:
        yield stream.decompress(given, most)
        if stream.eof:
            given = stream.unused_data or file.read(_PACKED)
            stream = new() if given else stream
        elif getattr(stream, "needs_input", True):
            given = file.read(_PACKED)
            if not given:
                raise EOFError(_TRUNCATED)
        else:  # of what it holds already, some is still to come
            given = b""


def _decompress_zstandard(file: IO[bytes]) -> Iterator[bytes]:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    try:
        with zstd.open(file, "rb") as frames:
            while found := frames.read(CHUNK_BYTES):
                yield found
    except zstd.ZstdError as error:
        raise OSError(str(error)) from error


_PIECES: dict[str, Callable[[IO[bytes]], Iterator[bytes]]] = {
    ".gz": partial(_decompress_streams, new=partial(zlib.decompressobj, _GZIP), most=0),
    ".deflate": partial(_decompress_streams, new=partial(zlib.decompressobj, _ZLIB), most=0),
    ".bz2": partial(_decompress_streams, new=bz2.BZ2Decompressor, most=CHUNK_BYTES),
    ".zst": _decompress_zstandard,
}


def too_long_reason(path: Path, source: SourceConfig) -> str | None:
    """Return which line is longer than `max_line_bytes`; None if none is.

    Also return why a bzip2 or zstandard file cannot be unpacked: Spark reads parts of a corrupt one
    without an error.
    """
    limit, suffix = source.max_line_bytes, path.suffix.lower()
    try:
        if _cannot_be_long(path.stat().st_size, suffix, limit):
            return None
        found = _find_too_long(path, source)
    except READ_ERRORS as error:  # other errors are reported by the next reader
        return corrupt_reason(path, error)
    if found is None:
        return None
    return (
        f"{found} is longer than {_format_bytes(limit)}, the max_line_bytes of this source: break "
        "it up, or raise the setting"
    )


def _cannot_be_long(size: int, suffix: str, limit: int) -> bool:
    """Whether all of a file is shorter than a line may be; of some codecs there is no telling."""
    if suffix not in CODECS:
        return size <= limit
    return suffix in MOST_UNPACKED and size * MOST_UNPACKED[suffix] <= limit


def _find_too_long(path: Path, source: SourceConfig) -> str | None:
    limit = source.max_line_bytes
    if source.multi_line:
        with open_unpacked(path) as file:
            return "the document" if len(file.read(limit + 1)) > limit else None
    # A row of CSV has several lines where one of its fields is in quotes.
    has_rows = source.format == "csv" and _has_quotes(path)
    number = _first_long_line(path, limit, source.options.delimiter if has_rows else None)
    return f"line {number:,}" if number else None


def _has_quotes(path: Path) -> bool:
    with open_unpacked(path) as file:
        return any(b'"' in chunk for chunk in iter(lambda: file.read(CHUNK_BYTES), b""))


def _first_long_line(path: Path, limit: int, delimiter: str | None) -> int | None:
    """Return the number of the line in which the first line begins that is too long.

    Args:
        delimiter: for rows of CSV in place of lines.
    """
    begins, read, length, is_long = 1, 0, 0, False

    def lines(text: IO[str]) -> Iterator[str]:
        nonlocal read, length, is_long
        while not is_long and (line := text.readline(limit + len("\r\n"))):
            is_long = length + len(line.rstrip("\r\n")) > limit
            read, length = read + 1, length + len(line)
            yield line

    with io.TextIOWrapper(open_unpacked(path), "latin-1", newline="") as text:
        rows = csv.reader(lines(text), delimiter=delimiter) if delimiter else lines(text)
        for _ in rows:
            if is_long:
                return begins
            begins, length = read + 1, 0
    return None


def _format_bytes(size: int) -> str:
    """Bytes as the configuration has them."""
    units = ((unit, name) for name, unit in reversed(BYTES.items()) if size % unit == 0)
    unit, name = next(units, (1, "bytes"))
    return f"{size // unit} {name}"


Problem = Callable[[Path], str | None]  # why a file is invalid; None if it is valid
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


def not_text_reason(path: Path) -> str | None:
    """Return why a file is not text, by its name and first bytes; None if it may be text."""
    suffix = path.suffix.lower()
    is_tar = Path(path.stem).suffix.lower() == ".tar" and suffix in (*CODECS, *REFUSED_CODECS)
    if is_tar or suffix in REFUSED_ARCHIVES:
        return f"an archive by its name, which is not read here: {_UNPACK}"
    if suffix in REFUSED_CODECS:
        return f"packed as {suffix}, which is not read here: {_REPACK}"
    try:
        with open_unpacked(path) as file:
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


def unreadable_reason(path: Path) -> str | None:
    """Return why a file cannot be read to its end; None if it can."""
    try:
        with open_unpacked(path) as file:
            while file.read(CHUNK_BYTES):
                pass
    except READ_ERRORS as error:
        return corrupt_reason(path, error) or f"cannot be read: {error_reason(error)}"
    return None

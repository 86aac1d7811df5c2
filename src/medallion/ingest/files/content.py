"""A file's bytes: compression, zip archives, long lines, and files that are not text."""

from __future__ import annotations

import bz2
import codecs
import io
import lzma
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from medallion.config.values import BYTES
from medallion.storage.text import error_reason

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Item = TypeVar("Item")
CODECS = (".gz", ".bz2", ".deflate", ".zst", ".xz")
ZIP = ".zip"
PYTHON_CODECS = (".xz", ZIP)
"""Suffixes of files that Spark cannot unpack."""
_USUAL_RATIO = 8  # of JSON
_GZIP, _ZLIB = 31, 15  # window sizes by which zlib tells its formats apart
CHUNK_BYTES = 1 << 20
_START_BYTES = 1 << 12  # by which other formats are detected
_PACKED_BYTES = 1 << 16  # read at once; what follows the end of a stream is copied
_MEMBER = re.compile(r"(\.zip)#.*", re.IGNORECASE | re.DOTALL)
_OFFICE_MEMBERS = ("[Content_Types].xml", "content.xml")  # of Microsoft's and of Open Document

# Errors of a file that cannot be read or unpacked.
READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


class ContentError(ValueError):
    """The bytes of a file can be read, but its content is invalid; the message is the reason."""


def format_bytes(size: int) -> str:
    """Format a number of bytes as the configuration spells it."""
    units = ((unit, name) for name, unit in reversed(BYTES.items()) if size % unit == 0)
    unit, name = next(units, (1, "bytes"))
    return f"{size // unit} {name}"


def bounded_batches(
    items: Iterable[Item], size_of: Callable[[Item], int], max_size: int, max_count: int
) -> Iterator[list[Item]]:
    """Yield items in lists within two limits, or of one larger item."""
    batch: list[Item] = []
    size = 0
    for item in items:
        item_size = size_of(item)
        if batch and (size + item_size > max_size or len(batch) == max_count):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item_size
    if batch:
        yield batch


def open_unpacked(path: Path, codec: str | None = None) -> IO[bytes]:
    """Open a file for reading without its compression.

    Args:
        codec: the suffix of its compression, or ""; by default the suffix of its name.

    Raises:
        OSError, EOFError, zlib.error: here or in a later read: the file is unreadable, truncated or
            in another format.
    """
    codec = path.suffix.lower() if codec is None else codec
    if codec in _DECOMPRESSORS and path.stat().st_size:
        return io.BufferedReader(_UnpackedFile(path, _DECOMPRESSORS[codec]))
    return path.open("rb")


def open_members(
    path: Path, codec: str | None = None
) -> Generator[tuple[str, IO[bytes]], None, None]:
    """Open the members of a zip archive one after the other, or a file that is not one.

    Args:
        codec: the suffix of its compression, or ""; by default the suffix of its name.

    Yields:
        The member's name, "" if the file is not an archive, and its unpacked bytes.

    Raises:
        ContentError: the archive is not supported.
        OSError, EOFError, zlib.error, BadZipFile: as in `open_unpacked`.
    """
    codec = path.suffix.lower() if codec is None else codec
    if codec != ZIP:
        yield "", open_unpacked(path, codec)
        return
    with zipfile.ZipFile(path) as archive:
        if reason := _unsupported_zip_reason(archive):
            raise ContentError(reason)
        for member in _file_members(archive):
            try:
                data = archive.open(member)
            except RuntimeError:  # also NotImplementedError
                problem = "a zip archive with a password or an unknown compression"
                raise ContentError(f"{problem} ({member.filename})") from None
            yield member.filename, data


def strip_member(source_file: str) -> str:
    """Return the path of the file in `_source_file`, without the member of a zip archive."""
    return _MEMBER.sub(r"\1", source_file)


def _file_members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the members that are files of the user."""
    return [
        member
        for member in archive.infolist()
        if not member.is_dir()
        and not member.filename.startswith("__MACOSX/")
        and Path(member.filename).name != ".DS_Store"
    ]


def _unsupported_zip_reason(archive: zipfile.ZipFile) -> str | None:
    """Return why a zip archive is not supported; None if it is."""
    members = _file_members(archive)
    if any(member.filename in _OFFICE_MEMBERS for member in members):
        return f"a document of Office, such as a workbook of Excel: {_AS_CSV}"
    for member in members:
        name = member.filename
        if Path(name).suffix.lower() in (*CODECS, ZIP, *REFUSED_CODECS, *REFUSED_ARCHIVES):
            return f"a zip archive with a packed file in it ({name}): unpack it, and land its files"
    return None


def corrupt_reason(path: Path, error: Exception) -> str | None:
    """Return why a file cannot be unpacked; None if its bytes are not the cause."""
    suffix = path.suffix.lower()
    if suffix not in (*CODECS, ZIP) or getattr(error, "errno", None) is not None:
        return None
    if isinstance(error, EOFError):
        return f"truncated: its {suffix[1:]} data ends too soon"
    return f"cannot be read: its bytes are not all {suffix[1:]} data ({error}): compress it again"


def estimate_unpacked_size(path: str, size: int) -> int:
    """Estimate the unpacked size of a file of `size` bytes by its name."""
    return _USUAL_RATIO * size if Path(path).suffix.lower() in (*CODECS, ZIP) else size


class _UnpackedFile(io.RawIOBase):
    """The unpacked bytes of a file, as a stream."""

    def __init__(self, path: Path, decompress: Callable[[IO[bytes]], Iterator[bytes]]) -> None:
        self._file = path.open("rb")
        self._pieces, self._rest = decompress(self._file), memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        target = memoryview(buffer)
        count = min(len(target), len(self._rest))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _decompress_streams(
    file: IO[bytes], new: Callable[[], Any], max_length: int
) -> Iterator[bytes]:
    """Decompress streams that follow one another.

    Python's own bzip2 reader ignores invalid data after the first one.

    Args:
        file: the packed file.
        new: returns a decompressor for the next stream.
        max_length: the most bytes to unpack at once; 0 if the format limits that.
    """
    stream, data = new(), file.read(_PACKED_BYTES)
    while data or not stream.eof:
        yield stream.decompress(data, max_length)
        if stream.eof:
            data = stream.unused_data or file.read(_PACKED_BYTES)
            stream = new() if data else stream
        elif getattr(stream, "needs_input", True):
            data = file.read(_PACKED_BYTES)
            if not data:
                raise EOFError("its data ends too soon")
        else:  # the decompressor has more output for its input
            data = b""


def _decompress_zstandard(file: IO[bytes]) -> Iterator[bytes]:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    try:
        with zstd.open(file, "rb") as frames:
            while data := frames.read(CHUNK_BYTES):
                yield data
    except zstd.ZstdError as error:
        raise OSError(str(error)) from error


_DECOMPRESSORS: dict[str, Callable[[IO[bytes]], Iterator[bytes]]] = {
    ".gz": partial(_decompress_streams, new=partial(zlib.decompressobj, _GZIP), max_length=0),
    ".deflate": partial(_decompress_streams, new=partial(zlib.decompressobj, _ZLIB), max_length=0),
    ".bz2": partial(_decompress_streams, new=bz2.BZ2Decompressor, max_length=CHUNK_BYTES),
    ".xz": partial(_decompress_streams, new=lzma.LZMADecompressor, max_length=CHUNK_BYTES),
    ".zst": _decompress_zstandard,
}


Problem = Callable[[Path], str | None]  # why a file is invalid; None if it is valid
_REPACK = "pack it as .gz or .zst"
_UNPACK = "unpack it, and land its files"
_AS_CSV = "save each sheet as CSV"
# Compression that is not supported. Spark supports the first two, but returns no rows and no error
# if such a file is truncated or in another format.
REFUSED_CODECS = (".lz4", ".snappy", ".lzma", ".br", ".z", ".lz", ".lzo", ".sz")
_CODEC_NAMES = {".br": "Brotli", ".lz4": "LZ4", ".snappy": "Snappy", ".lzma": "LZMA"}
_OFFICE = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
REFUSED_ARCHIVES = (".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst", ".7z", ".rar")
# The first bytes of other formats (source: their specifications).
_FIRST_BYTES = {
    b"\x1f\x8b": "gzip data without .gz in its name",
    b"\x28\xb5\x2f\xfd": "zstandard data without .zst in its name",
    b"\xfd7zXZ\x00": "xz data without .xz in its name",
    b"\x1f\x9d": f"data of compress (.Z): {_REPACK}",
    b"\x04\x22\x4d\x18": f"lz4 data: {_REPACK}",
    b"\xff\x06\x00\x00sNaPpY": f"snappy data: {_REPACK}",
    b"PK\x03\x04": "a zip archive without .zip in its name",
    b"7z\xbc\xaf\x27\x1c": f"a 7z archive: {_UNPACK}",
    b"Rar!\x1a\x07": f"a rar archive: {_UNPACK}",
    b"Obj\x01": "an Avro file",
    b"SQLite format 3\0": "a database of SQLite: export its tables as CSV",
    b"\xd0\xcf\x11\xe0": f"a document of Office: {_AS_CSV}",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"%PDF-": "a PDF document",
    b"\x7fELF": "a program",
}
_UTF_16 = dict.fromkeys(
    (b"\xff\xfe", b"\xfe\xff"),
    "UTF-16 text: set options.encoding to utf-16 on the source, or write it as UTF-8",
)
# Text may start with these too (ORCID,name): they count only if bytes follow that are not text.
_FIRST_LETTERS = {
    b"BZh": "bzip2 data without .bz2 in its name",
    b"PAR1": "a Parquet file",
    b"ORC": "an ORC file",
}
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
_NOT_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def not_text_reason(path: Path, encoding: str = "utf-8") -> str | None:
    """Return why a file is not text, by its name, first bytes and encoding; None if it may be."""
    suffix = path.suffix.lower()
    is_packed = suffix in (*CODECS, *REFUSED_CODECS)
    if suffix in REFUSED_ARCHIVES or (is_packed and Path(path.stem).suffix.lower() == ".tar"):
        return f"an archive by its name, which is not supported: {_UNPACK}"
    if suffix in _OFFICE:
        return f"{suffix} is not supported: {_AS_CSV}"
    if suffix in REFUSED_CODECS:
        return f"{_CODEC_NAMES.get(suffix, suffix)} is not supported: {_REPACK}"
    try:
        for member, file in open_members(path):
            with file:
                if found_format := other_format(file.read(_START_BYTES), encoding):
                    name = f" ({member})" if member else ""
                    is_unpacked = suffix in (*CODECS, ZIP)
                    return f"not text{', once it is unpacked' * is_unpacked}: {found_format}{name}"
    except ContentError as error:
        return str(error)
    except READ_ERRORS as error:
        if suffix in (*CODECS, ZIP):  # the next reader reports it
            return None
        return f"cannot be opened: {error_reason(error)}"
    return None


def other_format(start: bytes, encoding: str) -> str | None:
    """Return the format of a file that starts with these bytes; None if it may be text."""
    if encoding.startswith(("utf-16", "utf-32")):
        # Commas, quotes and ends of lines have zero bytes; an empty file may have its mark alone.
        is_wide = b"\0" in start or len(start) <= len(codecs.BOM_UTF32)
        return None if is_wide else f"no {encoding}, as it has no zero byte: set options.encoding"
    is_binary = bool(_NOT_TEXT.search(start))
    if is_binary and start.startswith(_TAR_MAGIC, _TAR_MAGIC_AT):
        return f"a tar archive: {_UNPACK}"
    formats = {**_FIRST_BYTES, **_UTF_16, **(_FIRST_LETTERS if is_binary else {})}
    return next((name for magic, name in formats.items() if start.startswith(magic)), None)

"""Compressed files as bytes, by Python's libraries: how they are packed is told by their names."""

from __future__ import annotations

import bz2
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CODECS = (".gz", ".bz2", ".deflate", ".zst")
# What a packed byte may be at most. (Source: zlib's technical details; of the others none is told.)
MOST_UNPACKED = {".gz": 1032, ".deflate": 1032}
_TORN = "its data ends too soon"
_USUAL = 8  # times that JSON becomes smaller, or a little more
_GZIP, _ZLIB = 31, 15  # what zlib calls its formats
_CHUNK = 1 << 20
_PACKED = 1 << 16  # of which a rest is copied for each member that ends in it


# What fails where a file cannot be read or unpacked.
READ_ERRORS = (OSError, EOFError, zlib.error)


def opened(path: Path) -> IO[bytes]:
    """A file's bytes without its compression.

    Raises:
        OSError, EOFError, zlib.error: here or where it is read: it cannot be, ends too soon, or
            holds something else.
    """
    suffix = path.suffix.lower() if path.stat().st_size else ""
    if suffix in _PIECES:
        return io.BufferedReader(_Unpacked(path, _PIECES[suffix]))
    return path.open("rb")


def why_spoilt(path: Path, error: Exception) -> str | None:
    """What is wrong with a file that could not be unpacked; None where it is not for its bytes."""
    suffix = path.suffix.lower()
    if suffix not in CODECS or getattr(error, "errno", None) is not None:
        return None
    if isinstance(error, EOFError):
        return f"torn: its {suffix[1:]} data ends too soon"
    return f"cannot be read: its bytes are not all {suffix[1:]} data ({error}): pack it anew"


def unpacked_size(path: Path, size: int) -> int:
    """About how many bytes a file of so many has without its compression; it is not unpacked."""
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
    """A file's bytes, which come in pieces."""

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


def _streams(file: IO[bytes], new: Callable[[], Any], most: int) -> Iterator[bytes]:
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
                raise EOFError(_TORN)
        else:  # of what it holds already, some is still to come
            given = b""


def _zstandard(file: IO[bytes]) -> Iterator[bytes]:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    try:
        with zstd.open(file, "rb") as frames:
            while found := frames.read(_CHUNK):
                yield found
    except zstd.ZstdError as error:
        raise OSError(str(error)) from error


_PIECES: dict[str, Callable[[IO[bytes]], Iterator[bytes]]] = {
    ".gz": partial(_streams, new=partial(zlib.decompressobj, _GZIP), most=0),
    ".deflate": partial(_streams, new=partial(zlib.decompressobj, _ZLIB), most=0),
    ".bz2": partial(_streams, new=bz2.BZ2Decompressor, most=_CHUNK),
    ".zst": _zstandard,
}

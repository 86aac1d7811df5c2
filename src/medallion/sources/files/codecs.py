"""Compressed files as bytes, by Python's libraries: how they are packed is told by their names."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CODECS = (".gz", ".bz2", ".deflate", ".zst")
# Spark would unpack these as well; where one is torn or of another kind, it finds no rows and says
# nothing.
REFUSED_CODECS = (".lz4", ".snappy")
# What a packed byte may be at most. (Source: zlib's technical details; of the others none is told.)
MOST_UNPACKED = {".gz": 1032, ".deflate": 1032}
_USUAL = 8  # times that JSON becomes smaller, or a little more
_CHUNK = 1 << 20


# What fails where a file cannot be read or unpacked.
FAULTS = (OSError, EOFError, zlib.error)


class Undecodable(OSError):
    """Bytes that are not what the file's name says."""


def opened(path: Path) -> IO[bytes]:
    """A file's bytes without its compression.

    Raises:
        OSError, EOFError, zlib.error: here or where it is read: it cannot be, ends too soon, or
            holds something else.
    """
    suffix = path.suffix.lower() if path.stat().st_size else ""
    if suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if suffix == ".bz2":
        return cast(IO[bytes], bz2.open(path, "rb"))
    if suffix in _PIECES:
        return io.BufferedReader(_Unpacked(path, _PIECES[suffix]))
    return path.open("rb")


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


def _deflate(file: IO[bytes]) -> Iterator[bytes]:
    """zlib's format, one stream after the other."""
    stream, given = zlib.decompressobj(), file.read(_CHUNK)
    if not given:
        return
    while given or not stream.eof:
        found = stream.decompress(given, _CHUNK)
        yield found
        if stream.eof:
            given = stream.unused_data or file.read(_CHUNK)
            stream = zlib.decompressobj() if given else stream
        else:
            given = stream.unconsumed_tail or file.read(_CHUNK)
            if not (given or found):  # of what it holds already, some may be still to come
                raise EOFError("its deflate data ends too soon")


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
        raise Undecodable(str(error)) from error


_PIECES: dict[str, Callable[[IO[bytes]], Iterator[bytes]]] = {
    ".deflate": _deflate,
    ".zst": _zstandard,
}

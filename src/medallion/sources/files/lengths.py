"""Lines that are longer than a source allows, found on the bytes: Spark would hold one as a whole.

A file that cannot have such a line is not read. One that is not packed is read in a few places: a
line ends somewhere in each stretch of the greatest length. A packed one is read to its end, once.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from medallion.config.model import SourceConfig
from medallion.sources.files.codecs import CODECS, FAULTS, MOST_UNPACKED, opened, why_spoilt

_CHUNK = 1 << 20
_PIECE = 1 << 16
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def why_unfit(path: Path, source: SourceConfig) -> str | None:
    """Which line of a file is longer than `max_line_bytes`; None where none is.

    Where that takes unpacking it, as it does for bzip2 and zstandard, also why it cannot be
    unpacked: of those, Spark reads what comes before a spoilt place or after it, without failing.
    """
    limit, suffix = source.max_line_bytes, path.suffix.lower()
    try:
        size = path.stat().st_size
        if _cannot_be_long(size, suffix, limit):
            return None
        found = _what_is_too_long(path, source, size)
    except FAULTS as error:  # what is not for its bytes, whoever reads it next tells
        return why_spoilt(path, error)
    if found is None:
        return None
    return (
        f"{found} is longer than {_spelled(limit)}, the max_line_bytes of this source: break it "
        "up, or raise the setting"
    )


def _cannot_be_long(size: int, suffix: str, limit: int) -> bool:
    """Whether all of a file is shorter than a line may be; of some codecs there is no telling."""
    if suffix not in CODECS:
        return size <= limit
    return suffix in MOST_UNPACKED and size * MOST_UNPACKED[suffix] <= limit


def _what_is_too_long(path: Path, source: SourceConfig, size: int) -> str | None:
    limit, is_packed = source.max_line_bytes, path.suffix.lower() in CODECS
    is_csv = source.format == "csv"
    with opened(path) as file:
        if source.multi_line:
            is_long = _is_longer(file, limit) if is_packed else size > limit
            return "the document" if is_long else None
        if not is_packed:
            # A row of CSV has several lines where one of its fields is in quotes.
            if not (_may_be_long(file, size, limit) or (is_csv and _has_quotes(file))):
                return None
            file.seek(0)
        number = _long_row(file, limit) if is_csv else _long_line(file, limit)
    return f"line {number:,}" if number else None


def _is_longer(file: IO[bytes], limit: int) -> bool:
    """Whether a packed file has more bytes; read no further than that takes."""
    count = 0
    while count <= limit and (chunk := file.read(_CHUNK)):
        count += len(chunk)
    return count > limit


def _may_be_long(file: IO[bytes], size: int, limit: int) -> bool:
    """Whether a stretch of a file that is not packed has no end of a line."""
    start = 0
    while size - start > limit:
        end = _last_end(file, start, start + limit + 1)
        if end is None:
            return True
        start = end + 1
    return False


def _last_end(file: IO[bytes], start: int, stop: int) -> int | None:
    """Where the last line ends between two places; looked for from behind."""
    while stop > start:
        at = max(start, stop - _PIECE)
        file.seek(at)
        piece = file.read(stop - at)
        found = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
        if found >= 0:
            return at + found
        stop = at
    return None


def _has_quotes(file: IO[bytes]) -> bool:
    file.seek(0)
    return any(b'"' in chunk for chunk in iter(lambda: file.read(_CHUNK), b""))


def _long_line(file: IO[bytes], limit: int) -> int | None:
    """The number of the first line that is too long."""
    number, length, ends_in_return = 1, 0, False
    while chunk := file.read(min(_CHUNK, limit)):
        rest = chunk[1:] if ends_in_return and chunk[:1] == b"\n" else chunk
        ends_in_return = chunk[-1:] == b"\r"
        ends = rest.count(b"\n") + rest.count(b"\r") - rest.count(b"\r\n")
        first = min(
            (at for at in (rest.find(b"\n"), rest.find(b"\r")) if at >= 0), default=len(rest)
        )
        if length + first > limit:
            return number
        number += ends
        last = max(rest.rfind(b"\n"), rest.rfind(b"\r"))
        length = len(rest) - last - 1 if ends else length + len(rest)
    return None


def _long_row(file: IO[bytes], limit: int) -> int | None:
    """The number of the line in which the first row of CSV begins that is too long."""
    number, length = 1, 0
    text = io.TextIOWrapper(file, "latin-1", newline="")

    def lines() -> Iterator[str]:
        nonlocal length
        while line := text.readline(limit + 1):
            length += len(line)
            if length > limit:
                return
            yield line

    rows = csv.reader(lines())
    for _ in rows:
        if length > limit:
            break
        number, length = rows.line_num + 1, 0
    text.detach()  # the file is closed by whoever opened it
    return number if length > limit else None


def _spelled(size: int) -> str:
    """Bytes as the configuration has them."""
    unit, name = next(((u, n) for u, n in _UNITS if size % u == 0), (1, "bytes"))
    return f"{size // unit} {name}"

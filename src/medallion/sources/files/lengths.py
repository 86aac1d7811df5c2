"""Lines that are longer than a source allows, found on the bytes: Spark would hold one as a whole.

A file that cannot have such a line is not read.
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
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def why_unfit(path: Path, source: SourceConfig) -> str | None:
    """Which line of a file is longer than `max_line_bytes`; None where none is.

    Where that takes unpacking it, as it does for bzip2 and zstandard, also why it cannot be
    unpacked: of those, Spark reads what comes before a spoilt place or after it, without failing.
    """
    limit, suffix = source.max_line_bytes, path.suffix.lower()
    try:
        if _cannot_be_long(path.stat().st_size, suffix, limit):
            return None
        found = _what_is_too_long(path, source)
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


def _what_is_too_long(path: Path, source: SourceConfig) -> str | None:
    limit = source.max_line_bytes
    # A row of CSV has several lines where one of its fields is in quotes.
    has_rows = source.format == "csv" and _has_quotes(path)
    with opened(path) as file:
        if source.multi_line:
            return "the document" if _is_longer(file, limit) else None
        number = _long_row(file, limit) if has_rows else _long_line(file, limit)
    return f"line {number:,}" if number else None


def _is_longer(file: IO[bytes], limit: int) -> bool:
    """Whether a file has more bytes; read no further than that takes."""
    count = 0
    while count <= limit and (chunk := file.read(_CHUNK)):
        count += len(chunk)
    return count > limit


def _has_quotes(path: Path) -> bool:
    with opened(path) as file:
        return any(b'"' in chunk for chunk in iter(lambda: file.read(_CHUNK), b""))


def _long_line(file: IO[bytes], limit: int) -> int | None:
    """The number of the first line that is too long."""
    number, length, ends_in_return = 1, 0, False
    while chunk := file.read(min(_CHUNK, limit)):
        rest = chunk[1:] if ends_in_return and chunk[:1] == b"\n" else chunk
        ends_in_return = chunk[-1:] == b"\r"
        ends = rest.count(b"\n")
        if b"\r" in rest:  # mostly there is none, and to count takes longer than to look
            ends += rest.count(b"\r") - rest.count(b"\r\n")
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

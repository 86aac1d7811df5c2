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
from medallion.config.values import BYTES
from medallion.ingest.files.codecs import CODECS, MOST_UNPACKED, READ_ERRORS, opened, why_spoilt

_CHUNK = 1 << 20


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
    except READ_ERRORS as error:  # what is not for its bytes, whoever reads it next tells
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
    if source.multi_line:
        with opened(path) as file:
            return "the document" if len(file.read(limit + 1)) > limit else None
    # A row of CSV has several lines where one of its fields is in quotes.
    has_rows = source.format == "csv" and _has_quotes(path)
    number = _first_long(path, limit, source.options.delimiter if has_rows else None)
    return f"line {number:,}" if number else None


def _has_quotes(path: Path) -> bool:
    with opened(path) as file:
        return any(b'"' in chunk for chunk in iter(lambda: file.read(_CHUNK), b""))


def _first_long(path: Path, limit: int, delimiter: str | None) -> int | None:
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

    with io.TextIOWrapper(opened(path), "latin-1", newline="") as text:
        rows = csv.reader(lines(text), delimiter=delimiter) if delimiter else lines(text)
        for _ in rows:
            if is_long:
                return begins
            begins, length = read + 1, 0
    return None


def _spelled(size: int) -> str:
    """Bytes as the configuration has them."""
    units = ((unit, name) for name, unit in reversed(BYTES.items()) if size % unit == 0)
    unit, name = next(units, (1, "bytes"))
    return f"{size // unit} {name}"

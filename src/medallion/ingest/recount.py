"""Rows of a file counted by plain Python: a second way, which shares nothing with Spark's."""

from __future__ import annotations

import csv
import io
import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from medallion.config import Source
from medallion.ingest.files import opened

# What a line may consist of and still be blank; Python's own idea of it is wider.
_BLANK = " \t\r\n\v\f"
_BOM = "\ufeff"
csv.field_size_limit(sys.maxsize)
_UNKNOWN = (".zst", ".lz4", ".snappy")


def rows_of(path: Path, source: Source) -> int | None:
    """Rows that bronze should have of a file; None where Python cannot read such files.

    Raises:
        OSError: the file is not there, or cannot be read.
    """
    if source.format == "parquet" or path.suffix.lower() in _UNKNOWN:
        return None
    try:
        return _counted(path, source)
    except (EOFError, zlib.error) as error:  # torn, or spoilt
        raise OSError(str(error)) from error


def _counted(path: Path, source: Source) -> int:
    # Latin-1 gives a text for any bytes, and only \n, \r\n and \r end a line, as they do for Spark.
    with io.TextIOWrapper(opened(path), "latin-1") as lines:
        if source.multi_line:
            return _items(lines.read())
        if source.format == "csv":
            rows = (row for row in csv.reader(lines) if row)
            return max(sum(1 for _ in rows) - 1, 0)
        return sum(1 for line in _without_bom(lines) if line.strip(_BLANK))


def _without_bom(lines: Iterator[str]) -> Iterator[str]:
    bom = _BOM.encode().decode("latin-1")
    for number, line in enumerate(lines):
        yield line.removeprefix(bom) if number == 0 else line


def _items(text: str) -> int:
    if not text.strip(_BLANK):
        return 0
    try:
        decoded = text.encode("latin-1").decode("utf-8-sig")
        document = json.loads(decoded, parse_constant=_refuse)
    except ValueError:
        return 1  # kept whole, as one line that is not JSON
    return len(document) if isinstance(document, list) else 1


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")  # but Python's parser takes NaN and Infinity

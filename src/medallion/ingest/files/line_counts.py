"""The rows of a file counted without Spark: a second way, by which the audit checks the first."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from medallion.config.model import TYPED_FORMATS, SourceConfig
from medallion.ingest.files import typed
from medallion.ingest.files.codecs import opened
from medallion.ingest.parsing.json_text import MAX_SPLIT_LEVELS
from medallion.storage.text import reject_nan

# A line of these alone is blank, as in `reader`; Python's `strip` takes away more.
_BLANK = " \t\r\n\v\f"
_BOM = "\ufeff".encode().decode("latin-1")
csv.field_size_limit(sys.maxsize)
_MOST_LEVELS = 999  # Spark's parser goes into no more of them
_SIGNS = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{\]}"]', re.DOTALL)
_NEXT_IN_LINE, _NEXT_IN_DOCUMENT = re.compile(r" ?\{"), re.compile(r"[ \t\r\n]*\{")


def rows_of(path: Path, source: SourceConfig) -> int:
    """Rows that bronze should have of a file.

    Raises:
        OSError, EOFError, zlib.error: the file is not there, torn, or spoilt.
    """
    if source.format in TYPED_FORMATS:
        return typed.count(path, source.format)
    if source.format == "csv" and not source.multi_line:
        return _csv_rows(path, source)
    # Latin-1 gives a text for any bytes, and only \n, \r\n and \r end a line, as they do for Spark.
    with io.TextIOWrapper(opened(path), "latin-1") as lines:
        if source.multi_line:
            return _items(lines.read())
        rows = (line for line in _without_bom(lines) if line.strip(_BLANK))
        return sum(
            _objects(line, _NEXT_IN_LINE)
            if source.format == "json" and ("}{" in line or "} {" in line)
            else 1
            for line in rows
        )


def _csv_rows(path: Path, source: SourceConfig) -> int:
    """Return the number of rows without the header.

    They end with \\r if the first one does, else with \\n, \\r\\n or \\r\\r\\n.
    """
    options = source.options
    with io.TextIOWrapper(opened(path), "latin-1", newline="") as lines:
        last = [""]

        def read(line: str) -> str:
            last[0] = line
            return line

        # Up to the first row.
        found = any(csv.reader(map(read, _without_bom(lines)), delimiter=options.delimiter))
        is_cr = found and last[0].endswith("\r") and lines.readline() != "\r\n"
        end = "\r" if is_cr else "\n"
    with io.TextIOWrapper(opened(path), "latin-1", newline=end) as lines:
        read_rows = csv.reader(_one_end(_without_bom(lines), end), delimiter=options.delimiter)
        return max(sum(1 for row in read_rows if row) - (options.header is not False), 0)


def _one_end(lines: Iterator[str], end: str) -> Iterator[str]:
    """Lines in which only their ends are line ends to the csv module."""
    for line in lines:
        if end == "\n":
            text = line.removesuffix("\n").removesuffix("\r").removesuffix("\r")
            yield text.replace("\r", " ") + "\n"
        else:
            yield line.replace("\n", " ")


def _without_bom(lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield line.removeprefix(_BOM) if number == 0 else line


def _objects(text: str, is_next: re.Pattern[str]) -> int:
    """Return how many rows a text has: its objects, of which a broken one takes all the rest.

    Args:
        text: a line or document, decoded as Latin-1.
        is_next: what has to follow an object for the next one to be a row of its own.
    """
    rows, at = 1, 0
    while (start := is_next.match(text, at)) and (end := _end_of_object(text, start.end() - 1)):
        if not is_next.match(text, end):
            break
        rows, at = rows + 1, end
    return rows if rows == 1 or _is_utf8(text) else 1


def _end_of_object(text: str, at: int) -> int | None:
    """Return where the object that starts here ends; None if its brackets or quotes do not match"""
    level = 0
    for sign in _SIGNS.finditer(text, at):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(sign[0], 0)
        if sign[0] == '"' or level > MAX_SPLIT_LEVELS:
            return None
        if level == 0:
            return sign.end() if sign[0] == "}" else None
    return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode("latin-1").decode()
    except UnicodeDecodeError:
        return False
    return True


def _items(text: str) -> int:
    text = text.removeprefix(_BOM)
    if not text.strip(_BLANK):
        return 0
    if (levels := _levels(text)) > _MOST_LEVELS:
        return _objects(text, _NEXT_IN_DOCUMENT)  # an array is kept as one line that is not JSON
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _MOST_LEVELS)
    try:
        decoded = text.encode("latin-1").decode()
        # A number stays text: Python reads none of more than 4,300 digits.
        document = json.loads(decoded, parse_int=str, parse_float=str, parse_constant=reject_nan)
    except ValueError:
        return _objects(text, _NEXT_IN_DOCUMENT)
    finally:
        sys.setrecursionlimit(limit)
    # The array itself is one level more.
    is_split = isinstance(document, list) and levels <= MAX_SPLIT_LEVELS + 1
    return len(document) if is_split else 1


def _levels(text: str) -> int:
    """How deep the lists and objects of a document lie in one another."""
    level = most = 0
    for sign in _SIGNS.finditer(text):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(sign[0], 0)
        most = max(most, level)
    return most

"""The dialect of a CSV file, found by reading all of it in Python: Spark has to be told, or would
read some files wrong; others it cannot read as they are, whatever it is told.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from medallion.sources.files.codecs import FAULTS, opened

LATIN_1, UTF_8 = "ISO-8859-1", "UTF-8"
_BOM = "\ufeff".encode().decode(LATIN_1)
_MOST_RETURNS = 2  # \r\r\n is what Python writes on Windows without newline=""
# Of 3,000, Spark plans each batch for minutes; a table has room for a quarter of these as columns.
_MOST_FIELDS = 2_000
_CACHED = 1 << 14  # files; a few numbers each
csv.field_size_limit(sys.maxsize)  # a header may be long


class Dialect(NamedTuple):
    """What Spark is told, once for all files that are read together.

    `returns` is the most \\r's that a row has before its \\n, where `line_end` is \\n.
    """

    header: tuple[str, ...]
    line_end: str
    returns: int
    encoding: str


class _Start(NamedTuple):
    """What a file has up to the end of its header."""

    header: tuple[str, ...]
    ends_in_return: bool  # the header's line ends with \r alone, and so do the rows
    blank: str  # the blank lines before it
    encoding: str


class _Ends(NamedTuple):
    """How the rows of a file end."""

    fewest: int  # \r's that a row has before its \n
    most: int
    never_closed: int | None  # the first line of a row whose quote is never closed
    return_in_quotes: int | None  # the last line of a row that ends with \r and a quote


def dialect_of(file: Path) -> Dialect | None:
    """The dialect of a CSV file; None where it has no header.

    Raises:
        OSError, EOFError, zlib.error: the file cannot be read.
    """
    start = _start(file)
    if start is None:
        return None
    ends = _ends(file, start)
    line_end = _line_end(start, ends)
    returns = ends.most if line_end == "\n" else 0
    return Dialect(start.header, line_end, returns, start.encoding)


def why_unfit(file: Path) -> str | None:
    """Why Spark would not read a CSV file as it is; None where it would, or the file is torn."""
    try:
        start = _start(file)
        if start is None:
            return None
        if len(start.header) > _MOST_FIELDS:
            return (
                f"its header has {len(start.header):,} fields, and {_MOST_FIELDS:,} is the most: "
                "part it into files of fewer columns, or write it as lines of JSON"
            )
        ends = _ends(file, start)
        spoilt = _not_utf8(file) if start.encoding == UTF_8 else None
    except FAULTS:  # whoever reads it next tells
        return None
    if spoilt:
        return (
            f"line {spoilt:,}: not UTF-8, and its byte-order mark says that it is: write it as "
            "UTF-8, or take the mark out"
        )
    if ends.never_closed:
        return (
            f"line {ends.never_closed:,}: its quote is never closed, so the rows after it would be "
            "one field: close it, or double the quotes within a text"
        )
    line_end = _line_end(start, ends)
    if {"\n": "\r\n", "\r": "\n\r"}.get(line_end, "no") in start.blank:
        return "a blank line before its header does not end as the rows do: take it out"
    if line_end == "\n" and ends.most and (line := ends.return_in_quotes):
        return (
            f"line {line:,}: its last field ends with a \\r in quotes, which cannot be told "
            "from those before a \\n: end all rows alike, with \\n or \\r\\n"
        )
    return None


def _line_end(start: _Start, ends: _Ends) -> str:
    """What Spark is to take for the end of a row."""
    if start.ends_in_return:
        return "\r"
    # Where all rows end with \r\n, a \r before that belongs to a field. Else a \n ends a row,
    # whether there is a \r before it or not.
    return "\r\n" if ends.fewest == ends.most == 1 else "\n"


def _start(file: Path) -> _Start | None:
    with io.TextIOWrapper(opened(file), LATIN_1, newline="") as text:
        first = text.readline()
        lines = _Lines(first.removeprefix(_BOM), text)
        blank = ""
        for header in csv.reader(lines):
            if header:
                break
            blank += lines.end
        else:
            return None
        end, is_one_line = lines.end, lines.number == 1
        # A \r alone, and not the first one of \r\r\n.
        ends_in_return = end == "\r" and text.readline() != "\r\n"
    # In Latin-1 Spark knows no byte-order mark, and so no blank line or quote behind it: what
    # follows of the header would be a row.
    encoding = LATIN_1 if is_one_line or not first.startswith(_BOM) else UTF_8
    return _Start(tuple(map(_as_utf8, header)), ends_in_return, blank, encoding)


class _Lines:
    """Lines of a file, which remember of the last one how it ended, and its number."""

    def __init__(self, first: str, others: Iterator[str]) -> None:
        self._first, self._others = first, others
        self.end, self.number = "", 0

    def __iter__(self) -> Iterator[str]:
        for line in chain([self._first], self._others):
            self.end, self.number = line[len(line.rstrip("\r\n")) :], self.number + 1
            yield line


def _as_utf8(text: str) -> str:
    try:
        return text.encode(LATIN_1).decode()
    except UnicodeDecodeError:
        return text


def _not_utf8(file: Path) -> int | None:
    """The first line with bytes that are not UTF-8, which Spark would replace."""
    with opened(file) as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return None


def _ends(file: Path, start: _Start) -> _Ends:
    """How the rows end; a file is read once for all who ask, as long as it stays as it is."""
    found = file.stat()
    line_end = "\r" if start.ends_in_return else "\n"
    return _ends_of(file, found.st_size, found.st_mtime_ns, line_end)


@lru_cache(_CACHED)
def _ends_of(file: Path, size: int, modified: int, line_end: str) -> _Ends:
    with io.TextIOWrapper(opened(file), LATIN_1, newline=line_end) as text:
        quoted = _Quoted(text, line_end)
        for _ in csv.reader(quoted):
            quoted.end_row()
    return _Ends(quoted.fewest, quoted.most, quoted.never_closed, quoted.return_in_quotes)


class _Quoted:
    """The lines of those rows that have quotes, for the csv module: where there is none, a row is a
    line. How each row ends is counted on the way.

    Whoever reads rows of it calls `end_row` after each. If it asks for a line after the last one
    when a row has begun, that row's quote is never closed.
    """

    def __init__(self, lines: Iterable[str], line_end: str) -> None:
        self._lines, self._line, self._number = lines, "", 0
        # Part of a field in this file, and the end of a row to the csv module.
        self._other_end = "\n" if line_end == "\r" else "\r"
        self.fewest, self.most = _MOST_RETURNS, 0
        self._began: int | None = None
        self.never_closed: int | None = None
        self.return_in_quotes: int | None = None

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(self._lines, 1):
            if self._began is None:
                if '"' not in line:
                    self._count(line)
                    continue
                self._began = number
            self._line, self._number = line, number
            text = line.removeprefix(_BOM) if number == 1 else line
            yield text.replace(self._other_end, " ")
        self.never_closed = self._began

    def end_row(self) -> None:
        self._count(self._line)
        if self._line.rstrip("\r\n").endswith('\r"'):
            self.return_in_quotes = self.return_in_quotes or self._number
        self._began = None

    def _count(self, line: str) -> None:
        if line.endswith("\r\n"):
            returns = len(line) - len(line.rstrip("\r\n")) - 1
            self.fewest = min(self.fewest, returns)
            self.most = max(self.most, min(returns, _MOST_RETURNS))
        elif line.endswith(("\n", "\r")):
            self.fewest = 0
            if line == "\r":  # a blank line, and the last one
                self.most = max(self.most, 1)

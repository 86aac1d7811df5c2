"""The dialect and header of CSV files, found in Python.

Spark needs the dialect to read some files right; others it cannot read as they are. A file whose
first row is not the header that its source needs waits in its directory: reading it would lose its
first record, or make one column of all.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import NamedTuple

from medallion.config.model import SourceConfig
from medallion.config.values import fold_case
from medallion.ingest.files import content
from medallion.ingest.files.content import READ_ERRORS, open_unpacked
from medallion.ingest.schema import registry
from medallion.storage.paths import Layout
from medallion.storage.text import counted

LATIN_1, UTF_8 = "ISO-8859-1", "UTF-8"
BOM = "\ufeff".encode().decode(LATIN_1)
_MOST_RETURNS = 2  # \r\r\n is what Python writes on Windows without newline=""
# Of 3,000, Spark plans each batch for minutes; a table has room for a quarter of these as columns.
_MOST_FIELDS = 2_000
_CACHED = 1 << 14  # files; a few numbers each
csv.field_size_limit(sys.maxsize)  # a header may be long


class Dialect(NamedTuple):
    """What Spark is told, once for all files that are read together.

    Attributes:
        header: the names of the columns, which are in the file itself if it `has_header`.
        returns: the most \\r's that a row has before its \\n, where `line_end` is \\n.
        ends_with_delimiter: each row after the header has one field more than that, an empty one.
    """

    header: tuple[str, ...]
    line_end: str
    returns: int
    encoding: str
    delimiter: str
    has_header: bool
    ends_with_delimiter: bool


class _Start(NamedTuple):
    """What a file has up to the end of its header."""

    header: tuple[str, ...]
    ends_in_return: bool  # the header's line ends with \r alone, and so do the rows
    blank: str  # the blank lines before it
    encoding: str


@dataclass
class _Ends:
    """How the rows of a file end.

    Attributes:
        fewest: \\r's that a row has before its \\n; `most` likewise.
        never_closed: the first line of a row whose quote is never closed.
        return_in_quotes: the last line of the first row that ends with \\r and a quote.
        ends_with_delimiter: each row after the header has one field more, an empty one.
    """

    fewest: int = _MOST_RETURNS
    most: int = 0
    never_closed: int | None = None
    return_in_quotes: int | None = None
    ends_with_delimiter: bool = False

    def count(self, line: str) -> None:
        """Take notice of the last line of a row."""
        if line.endswith("\r\n"):
            returns = len(line) - len(line.rstrip("\r\n")) - 1
            self.fewest = min(self.fewest, returns)
            self.most = max(self.most, min(returns, _MOST_RETURNS))
        elif line.endswith(("\n", "\r")):
            self.fewest = 0
            if line == "\r":  # a blank line, and the last one
                self.most = max(self.most, 1)


class _Shape(NamedTuple):
    """What is known of a file's rows before all of them are read."""

    line_end: str
    delimiter: str
    fields: int
    has_header: bool


class _ExtraField:
    """Whether each row after the header ends with a delimiter that the header does not have.

    Attributes:
        is_possible: whether all rows until now did.
        rows: how many those were, without the header.
    """

    def __init__(self, shape: _Shape) -> None:
        self._shape, self._is_header = shape, shape.has_header
        self.is_possible, self.rows = True, 0

    def check(self, line: str, fields: int) -> None:
        """Take the next row into account: its last line, and the number of its fields."""
        text = line.rstrip("\r\n")
        if not text:
            return
        if self._is_header:
            self._is_header = False
            return
        self.rows += 1
        self.is_possible &= fields == self._shape.fields + 1 and text.endswith(
            self._shape.delimiter
        )


def detect_dialect(file: Path, source: SourceConfig) -> Dialect | None:
    """Return the dialect of a CSV file; None if it has no row.

    Raises:
        OSError, EOFError, zlib.error: the file cannot be read.
    """
    start = _start(file, source)
    if start is None:
        return None
    ends = _ends(file, start, source)
    line_end = _line_end(start, ends)
    returns = ends.most if line_end == "\n" else 0
    return Dialect(
        start.header,
        line_end,
        returns,
        start.encoding,
        source.options.delimiter,
        has_header(source),
        ends.ends_with_delimiter,
    )


def has_header(source: SourceConfig) -> bool:
    """Return whether the first row of each of a source's files is its header."""
    return source.options.header is not False


def unreadable_csv_reason(file: Path, source: SourceConfig) -> str | None:
    """Why Spark would not read a CSV file as it is; None where it would, or the file is torn."""
    try:
        start = _start(file, source)
        if start is None:
            return None
        if len(start.header) > _MOST_FIELDS:
            return (
                f"its header has {len(start.header):,} fields, and {_MOST_FIELDS:,} is the most: "
                "part it into files of fewer columns, or write it as lines of JSON"
            )
        ends = _ends(file, start, source)
        spoilt = _not_utf8(file) if start.encoding == UTF_8 else None
    except READ_ERRORS:  # whoever reads it next tells
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


def _start(file: Path, source: SourceConfig) -> _Start | None:
    read: list[str] = []  # the lines up to the end of the header

    def lines(first: str, others: Iterable[str]) -> Iterator[str]:
        for line in chain([first], others):
            read.append(line)
            yield line

    with io.TextIOWrapper(open_unpacked(file), LATIN_1, newline="") as text:
        first = text.readline()
        rows = csv.reader(lines(first.removeprefix(BOM), text), delimiter=source.options.delimiter)
        header = next(filter(None, rows), None)
        if header is None:
            return None
        # A \r alone, and not the first one of \r\r\n.
        ends_in_return = read[-1].endswith("\r") and text.readline() != "\r\n"
    blank = "".join(takewhile(lambda line: not line.strip("\r\n"), read))
    # In Latin-1 Spark knows no byte-order mark, and so no blank line or quote behind it: what
    # follows of the header would be a row.
    is_header = has_header(source)
    encoding = UTF_8 if first.startswith(BOM) and (len(read) > 1 or not is_header) else LATIN_1
    names = map(as_utf8, header) if is_header else source.schema or ()
    return _Start(tuple(names), ends_in_return, blank, encoding)


def as_utf8(text: str) -> str:
    try:
        return text.encode(LATIN_1).decode()
    except UnicodeDecodeError:
        return text


def _not_utf8(file: Path) -> int | None:
    """The first line with bytes that are not UTF-8, which Spark would replace."""
    with open_unpacked(file) as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return None


def _ends(file: Path, start: _Start, source: SourceConfig) -> _Ends:
    """How the rows end; a file is read once for all who ask, as long as it stays as it is."""
    found = file.stat()
    line_end = "\r" if start.ends_in_return else "\n"
    shape = _Shape(line_end, source.options.delimiter, len(start.header), has_header(source))
    return _ends_of(file, found.st_size, found.st_mtime_ns, shape)


@lru_cache(_CACHED)
def _ends_of(file: Path, size: int, modified: int, shape: _Shape) -> _Ends:
    ends, number, last, line_end = _Ends(), 0, "", shape.line_end
    extra = _ExtraField(shape)
    began: int | None = None  # the line in which a row began that has a quote
    # Part of a field in this file, and the end of a row to the csv module.
    other_end = "\n" if line_end == "\r" else "\r"

    def with_quotes(lines: Iterable[str]) -> Iterator[str]:
        """The lines of those rows that have quotes: where there is none, a row is a line."""
        nonlocal number, last, began
        for number, line in enumerate(lines, 1):
            if began is None and '"' not in line:
                ends.count(line)
                if extra.is_possible:
                    extra.check(line, line.count(shape.delimiter) + 1)
                continue
            began, last = began or number, line
            text = line.removeprefix(BOM) if number == 1 else line
            yield text.replace(other_end, " ")
        ends.never_closed = began  # else the reader would not have asked for more of its row

    with io.TextIOWrapper(open_unpacked(file), LATIN_1, newline=line_end) as text:
        for row in csv.reader(with_quotes(text), delimiter=shape.delimiter):
            ends.count(last)
            extra.check(last, len(row))
            if last.rstrip("\r\n").endswith('\r"'):
                ends.return_in_quotes = ends.return_in_quotes or number
            began = None
    ends.ends_with_delimiter = extra.is_possible and extra.rows > 0
    return ends


_BYTES, _ROWS = 1 << 16, 20  # of each file
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
# A number, a date or a time: digits, and what stands between them.
_DATA = re.compile(r"[-+.$€£]? ?\d[\d .,:/+\-%TZtzeE]*")
_STRING = re.compile("'[^']*'|\"[^\"]*\"")
_NAME = re.compile(r"`([^`]+)`|([^\W\d]\w*)")


def known_header_names(layout: Layout, source: SourceConfig) -> set[str]:
    """Return the names that a header may have, folded: columns, and what silver's SQL names."""
    versions = registry.read_versions(layout.schemas(source.name))
    names = {*(versions[-1].columns if versions else ()), *(source.schema or ()), *source.hints}
    for expression in source.silver.values():
        for in_backticks, plain in _NAME.findall(_STRING.sub("", expression)):
            names.add(in_backticks or plain)
    return set(map(fold_case, names))


def csv_header_reason(path: Path, source: SourceConfig, known: Collection[str]) -> str | None:
    """Return why a CSV file has to wait; None if it need not, or cannot be read at all.

    A file waits if none of its header's names is known, and the header is separated by another
    delimiter or looks like data. The option `header: true` turns these checks off.

    Args:
        path: the file.
        source: its source.
        known: the names that `known_names` returns.
    """
    if source.options.header is True or content.not_text_reason(path):
        return None
    try:
        with open_unpacked(path) as file:
            head = file.read(_BYTES)
    except READ_ERRORS:
        return None
    delimiter = source.options.delimiter
    rows = _rows(head, delimiter)
    if not rows:
        return None
    if source.options.header is False:
        names = tuple(source.schema or ())
        if tuple(map(_folded, rows[0])) == tuple(map(fold_case, names)):
            return (
                "its first row has the names of the columns, and the source has options: {header: "
                "false}: remove that row, or the option"
            )
        is_misread = len(rows[0]) == 1 < len(names)
        other = _other_delimiter(head, delimiter, rows, ()) if is_misread else None
        return _wrong_delimiter(rows[0], delimiter, other) if other else None
    if any(_folded(name) in known for name in rows[0]):
        return None
    if other := _other_delimiter(head, delimiter, rows, known):
        return _wrong_delimiter(rows[0], delimiter, other)
    data = next((name for name in rows[0] if not name or _DATA.fullmatch(name.strip())), None)
    if data is None:
        return None
    return (
        f"its header looks like data ({data!r}), and has no known column: add the header to the "
        "file; or set on the source options: {header: false} and schema, if its files have none, "
        "or options: {header: true} if this is one"
    )


def _folded(name: str) -> str:
    return fold_case(name.strip())


def _rows(head: bytes, delimiter: str) -> list[list[str]]:
    """Return the first rows of a file that are not blank, of one that is longer without the last"""
    text = head.decode(LATIN_1).removeprefix(BOM)
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        found = [list(map(as_utf8, row)) for row in islice(filter(None, rows), _ROWS + 1)]
    except csv.Error:
        return []
    return found[:-1] if len(head) == _BYTES and len(found) <= _ROWS else found[:_ROWS]


def _other_delimiter(
    head: bytes, delimiter: str, rows: list[list[str]], known: Collection[str]
) -> str | None:
    """Return a delimiter that separates the first row into known names, or where the row is one
    field, all rows into as many fields."""
    for other in _DELIMITERS:
        header, *data = _rows(head, other) if other != delimiter else [[]]
        if len(header) < 2:
            continue
        if any(_folded(name) in known for name in header):
            return other
        # Rows may end with a delimiter that the header does not have.
        if len(rows[0]) == 1 and data and all(len(r) - len(header) in (0, 1) for r in data):
            return other
    return None


def _wrong_delimiter(header: list[str], delimiter: str, other: str) -> str:
    found = sum(field.count(other) for field in header)
    spelled = "\\t" if other == "\t" else other
    by = f"{_DELIMITERS.get(delimiter, repr(delimiter))}s"
    return (
        f"{counted(len(header), 'column')} by {by}, and {counted(found, _DELIMITERS[other])} in "
        f'the header: set options: {{delimiter: "{spelled}"}} on the source, or write the file '
        f"with {by}"
    )

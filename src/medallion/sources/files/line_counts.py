"""The rows of a file counted without Spark: a second way, by which the audit checks the first."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from medallion.config.model import TYPED, SourceConfig
from medallion.lakehouse.text import refuse_constant
from medallion.sources.files import typed
from medallion.sources.files.codecs import opened

# A line of these alone is blank, as in `reader`; Python's `strip` takes away more.
_BLANK = " \t\r\n\v\f"
_BOM = "\ufeff".encode().decode("latin-1")
csv.field_size_limit(sys.maxsize)
_MOST_LEVELS = 999  # Spark's parser goes into no more of them
_SIGNS = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{\]}]')


def rows_of(path: Path, source: SourceConfig) -> int:
    """Rows that bronze should have of a file.

    Raises:
        OSError, EOFError, zlib.error: the file is not there, torn, or spoilt.
    """
    if source.format in TYPED:
        return typed.count(path, source.format)
    if source.format == "csv" and not source.multi_line:
        return _csv_rows(path)
    # Latin-1 gives a text for any bytes, and only \n, \r\n and \r end a line, as they do for Spark.
    with io.TextIOWrapper(opened(path), "latin-1") as lines:
        if source.multi_line:
            return _items(lines.read())
        return sum(1 for line in _without_bom(lines) if line.strip(_BLANK))


def _csv_rows(path: Path) -> int:
    """Rows after the header. They end with \r if that does, else with \n, \r\n or \r\r\n."""
    with io.TextIOWrapper(opened(path), "latin-1", newline="") as lines:
        last = [""]

        def read(line: str) -> str:
            last[0] = line
            return line

        found = any(csv.reader(map(read, _without_bom(lines))))  # up to the first row
        is_cr = found and last[0].endswith("\r") and lines.readline() != "\r\n"
        end = "\r" if is_cr else "\n"
    with io.TextIOWrapper(opened(path), "latin-1", newline=end) as lines:
        rows = (row for row in csv.reader(_one_end(_without_bom(lines), end)) if row)
        return max(sum(1 for _ in rows) - 1, 0)


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


def _items(text: str) -> int:
    text = text.removeprefix(_BOM)
    if not text.strip(_BLANK):
        return 0
    if _levels(text) > _MOST_LEVELS:
        return 1  # kept whole, as one line that is not JSON
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _MOST_LEVELS)
    try:
        decoded = text.encode("latin-1").decode()
        # A number stays text: Python reads none of more than 4,300 digits.
        document = json.loads(
            decoded, parse_int=str, parse_float=str, parse_constant=refuse_constant
        )
    except ValueError:
        return 1
    finally:
        sys.setrecursionlimit(limit)
    return len(document) if isinstance(document, list) else 1


def _levels(text: str) -> int:
    """How deep the lists and objects of a document lie in one another."""
    level = most = 0
    for sign in _SIGNS.finditer(text):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(sign[0], 0)
        most = max(most, level)
    return most

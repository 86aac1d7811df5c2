"""CSV files that wait because their first row is not the header that their source needs.

Such a file would lose its first record, or all of its columns would be one. It stays where it
landed, and is read once it or the source's `options` are changed.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection
from itertools import islice
from pathlib import Path

from medallion.config.model import SourceConfig
from medallion.config.values import fold_case
from medallion.ingest.files import reject
from medallion.ingest.files.codecs import READ_ERRORS, opened
from medallion.ingest.files.csv_dialect import BOM, LATIN_1, as_utf8
from medallion.ingest.schema import registry
from medallion.storage.paths import Layout
from medallion.storage.text import counted

_BYTES, _ROWS = 1 << 16, 20  # of each file
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
# A number, a date or a time: digits, and what stands between them.
_DATA = re.compile(r"[-+.$€£]? ?\d[\d .,:/+\-%TZtzeE]*")
_STRING = re.compile("'[^']*'|\"[^\"]*\"")
_NAME = re.compile(r"`([^`]+)`|([^\W\d]\w*)")


def known_names(layout: Layout, source: SourceConfig) -> set[str]:
    """Return the names that a header may have, folded: columns, and what silver's SQL names."""
    versions = registry.read_versions(layout.schemas(source.name))
    names = {*(versions[-1].columns if versions else ()), *(source.schema or ()), *source.hints}
    for expression in source.silver.values():
        for in_backticks, plain in _NAME.findall(_STRING.sub("", expression)):
            names.add(in_backticks or plain)
    return set(map(fold_case, names))


def waiting_reason(path: Path, source: SourceConfig, known: Collection[str]) -> str | None:
    """Return why a CSV file has to wait; None if it need not, or cannot be read at all.

    A file waits if none of its header's names is known, and the header is separated by another
    delimiter or looks like data. The option `header: true` turns these checks off.

    Args:
        path: the file.
        source: its source.
        known: the names that `known_names` returns.
    """
    if source.options.header is True or reject.why_not_text(path):
        return None
    try:
        with opened(path) as file:
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

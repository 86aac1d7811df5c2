"""Checks of the first rows of a text file: files that would be misread are deferred."""

import re
from collections.abc import Callable, Collection
from dataclasses import replace

from medallion.config.expressions import column_names
from medallion.config.model import ReaderOptions, SourceConfig
from medallion.config.values import fold_case
from medallion.ingest.files import content
from medallion.ingest.files.decode import first_records, has_documents
from medallion.ingest.files.lines import BOM
from medallion.ingest.schema import registry
from medallion.state.ledger import Reason, ReasonCode
from medallion.storage.layout import Layout
from medallion.storage.paths import StoragePath
from medallion.storage.text import counted

_BYTES, _ROWS = 1 << 16, 20  # read of each file
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
# A number, a date or a time: digits and their separators.
_DATA = re.compile(r"[-+.$€£]? ?\d[\d .,:/+\-%TZtzeE]*")
# JSON whose first object or array continues in the next line.
_PRETTY_PRINTED = re.compile(r'\s*(\{[ \t]*\r?\n\s*"|\[[ \t]*\r?\n\s*[\[{"])')


def known_header_names(layout: Layout, source: SourceConfig) -> set[str]:
    """Return the case-folded names that a header may have: columns, and names in silver's SQL."""
    last = registry.newest_version(layout.schemas(source.name))
    names = {*(source.schema or ()), *source.hints, *last.columns, *last.names.values()}
    for expression in source.silver.values():
        names.update(column_names(expression) or ())
    return set(map(fold_case, names))


def misread_reason(
    path: StoragePath, source: SourceConfig, known: Collection[str]
) -> Reason | None:
    """Return why a text file is deferred until it is repaired or its source has other options.

    An unreadable file is not deferred: it is rejected later.

    Args:
        source: its source.
        known: the names that `known_header_names` returns.
    """
    is_csv = source.format == "csv" and source.options.header is not True
    is_lines = source.format == "json" and not has_documents(source)
    if not (is_csv or is_lines):
        return None
    encoding = source.options.encoding
    try:
        is_archive = path.name.lower().endswith(content.ZIP)  # its directory is at the end
        with path.as_local(None if is_archive else 2 * _BYTES) as local:
            if is_csv and content.not_text_reason(local, encoding):
                return None
            with next(content.open_members(local))[1] as file:
                data = file.read(_BYTES)
    except (*content.READ_ERRORS, content.ContentError, StopIteration):
        return None
    text, is_complete = data.decode(encoding, "replace").lstrip(BOM), len(data) < _BYTES
    if is_lines:
        return Reason(ReasonCode.MULTI_LINE, _MULTI_LINE) if _PRETTY_PRINTED.match(text) else None
    reason = _csv_header_reason(_first_rows(text, is_complete, source.options), source, known)
    return Reason(ReasonCode.CSV_HEADER, reason) if reason else None


_MULTI_LINE = (
    "its first JSON object continues in the next line, and each line would be a row: set "
    "multi_line: true on the source (or record_path, if the rows are an array in it)"
)


_Head = Callable[[str], list[list[str]]]
"""Returns the first rows of a CSV file, split by a delimiter."""


def _first_rows(text: str, is_complete: bool, options: ReaderOptions) -> _Head:
    def rows(delimiter: str) -> list[list[str]]:
        split = replace(options, delimiter=delimiter)
        records = first_records(text, split, is_complete, _ROWS)
        return [record.fields for record in records if record.fields]

    return rows


def _other_delimiter(
    rows: _Head, first: list[str], options: ReaderOptions, known: Collection[str]
) -> str | None:
    """Return a delimiter that separates the first row into known names.

    If the first row is one field, return one that separates all rows into as many fields.
    """
    for other in (sign for sign in _DELIMITERS if sign not in (options.delimiter, options.quote)):
        header, *data = rows(other) or [[]]
        if len(header) < 2:
            continue
        if any(_folded(name) in known for name in header):
            return other
        # Rows may end with a delimiter that the header does not have.
        if len(first) == 1 and data and all(len(r) - len(header) in (0, 1) for r in data):
            return other
    return None


def _csv_header_reason(rows_by: _Head, source: SourceConfig, known: Collection[str]) -> str | None:
    """Return why a CSV file is deferred, or None.

    It is deferred if no name in its header is known, and the header has another delimiter, is in a
    later row or looks like data.
    """
    options = source.options
    rows = rows_by(options.delimiter)
    if not rows:
        return None
    first, *others = rows
    if options.header is False:
        names = source.headerless_columns
        if tuple(map(_folded, first)) == tuple(map(fold_case, names)):
            return (
                "its first row has the names of the columns, and the source has options: {header: "
                "false}: remove that row, or the option"
            )
        is_one = len(first) == 1 < len(names)
        other = _other_delimiter(rows_by, first, options, ()) if is_one else None
        return _wrong_delimiter(first, options.delimiter, other) if other else None
    if any(_folded(name) in known for name in first):
        return None
    if other := _other_delimiter(rows_by, first, options, known):
        return _wrong_delimiter(first, options.delimiter, other)
    for number, row in enumerate(others, 2):
        if len(row) > len(first) and any(_folded(name) in known for name in row):
            return (
                f"row {number} looks like its header ({row[0]!r}, ...), and {first[0]!r} comes "
                "before it: set options.skipRows to the number of lines before the header "
                "(options.comment if they start with a character of their own), or remove them"
            )
    data = next((name for name in first if not name or _DATA.fullmatch(name.strip())), None)
    if data is None:
        return None
    return (
        f"its header looks like data ({data!r}), and has no known column: add a header to the "
        "file. Or set on the source options: {header: true} if this is the header, or schema and "
        "options: {header: false} if its files have none"
    )


def _folded(name: str) -> str:
    return fold_case(name.strip())


def _wrong_delimiter(header: list[str], delimiter: str, other: str) -> str:
    count = sum(field.count(other) for field in header)
    spelled = "\\t" if other == "\t" else other
    by = f"{_DELIMITERS.get(delimiter, repr(delimiter))}s"
    return (
        f"{counted(len(header), 'column')} by {by}, and {counted(count, _DELIMITERS[other])} in "
        f'the header: set options: {{delimiter: "{spelled}"}} on the source, or write the file '
        f"with {by}"
    )

"""Text files decoded in Python: CSV, and what Spark cannot read as it is.

A file is read once, by one task, as batches of rows. An invalid record is kept as raw text.
This module has no PySpark: commands without a JVM and Spark's Python workers import it.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice
from json.encoder import encode_basestring
from pathlib import Path
from typing import IO, NamedTuple

from medallion.config.model import ReaderOptions, SourceConfig
from medallion.config.values import fold_case
from medallion.ingest.files import content
from medallion.ingest.files.content import ContentError
from medallion.ingest.files.lines import BOM, INVALID, Lines
from medallion.ingest.files.record_path import DECODER, RecordPaths, document_rows, last_level
from medallion.storage.text import error_reason

# A number would be seconds, a year, or rounded.
STRING_TYPES = ("string", "timestamp", "date", "decimal")
_ROWS, _CHARACTERS = 2_000, 1 << 20  # the limits of one batch
_MAX_FIELDS = 2_000  # the most columns of a table
# The most bytes that one packed byte can become (source: zlib's technical details).
_MAX_RATIO = {".gz": 1032, ".deflate": 1032}
_NESTED_TYPES = ("struct<", "array<", "map<")
_BLANK = " \t\r\n\v\f"
# JSON writes these without quotes.
PLAIN = re.compile(r" *(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false) *")
# A line that is neither empty nor a number.
_NO_NUMBER = re.compile(r"^(?!(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?)?$)", re.MULTILINE)
_NESTED = re.compile(r"[ \t\r\n]*[\[{]")
csv.field_size_limit(sys.maxsize)  # `max_line_bytes` is the limit


class Rows(NamedTuple):
    """Some rows of a file.

    Attributes:
        values: The valid rows, as JSON.
        corrupt: The raw text of the others.
        lines: The number of the first line of each row in `values`, then of each in `corrupt`. The
            elements of a document have the number of the element.
        member: The file's member in a zip archive; empty for other files.
    """

    values: list[str]
    corrupt: list[str]
    lines: list[int]
    member: str = ""


def decode_file(
    path: Path, source: SourceConfig, columns: Mapping[str, str] | None = None
) -> Iterator[Rows]:
    """Yield the rows of a text file.

    Args:
        path: The file.
        source: Its source.
        columns: The known columns with their types. A CSV field that looks like a number is
            written as one if its column has such a type.

    Raises:
        ContentError: The file is invalid: it has a line that is too long, a quote that is never
            closed, or bytes that are not valid in its encoding.
        OSError, EOFError, zlib.error: The file is unreadable, truncated or in another format.
    """
    decode = _decode_csv if source.format == "csv" else _decode_texts
    for member, data in content.open_members(path):
        with data:
            lines = _lines(data, source)
            try:
                lines.skip_rows()
                for rows in decode(lines, source, columns or {}):
                    yield rows._replace(member=member)
            except (ContentError, UnicodeError) as error:
                position = f"{member}: line" if member else "line"
                problem: object = error
                if isinstance(error, UnicodeError):
                    name, why = source.options.encoding, getattr(error, "reason", error)
                    problem = f"not {name} text ({why}): set options.encoding"
                raise ContentError(f"{position} {lines.first:,}: {problem}") from None


def _lines(data: IO[bytes], source: SourceConfig) -> Lines:
    return Lines(data, source.options, source.max_line_bytes, source.format == "csv")


def unreadable_reason(path: Path, source: SourceConfig) -> str | None:
    """Return why a text file cannot be read to its end; None if it can."""
    try:
        deque(decode_file(path, source), maxlen=0)
    except ContentError as error:
        return str(error)
    except content.READ_ERRORS as error:
        return content.corrupt_reason(path, error) or f"cannot be read: {error_reason(error)}"
    return None


def too_long_reason(path: Path, source: SourceConfig) -> str | None:
    """Return which line of a file is longer than `max_line_bytes`; None if none is.

    Also return why a bzip2 or zstandard file cannot be unpacked: Spark reads parts of a corrupt one
    without an error.
    """
    limit, suffix = source.max_line_bytes, path.suffix.lower()
    try:
        # For gzip and deflate the largest possible unpacked size is known.
        size = path.stat().st_size * _MAX_RATIO.get(suffix, 1)
        if size <= limit and (suffix not in content.CODECS or suffix in _MAX_RATIO):
            return None
        with content.open_unpacked(path) as file:
            # One byte is one character.
            lines = Lines(file, ReaderOptions(encoding="latin-1"), limit, is_csv=False)
            try:
                for _ in lines:
                    lines.record.clear()
            except ContentError as error:
                return f"line {lines.number:,}: {error}"
    except content.READ_ERRORS as error:  # other errors are reported by the next reader
        return content.corrupt_reason(path, error)
    return None


def is_decoded(path: Path | str, source: SourceConfig) -> bool:
    """Return whether Python decodes a text file, and not Spark."""
    return (
        source.format == "csv"
        or has_documents(source)
        or source.options.encoding != "utf-8"
        or Path(path).suffix.lower() in content.PYTHON_CODECS
    )


def has_documents(source: SourceConfig) -> bool:
    """Return whether the rows of a source are within JSON documents."""
    return source.multi_line or bool(source.record_path)


def header_names(fields: Iterable[str]) -> list[str]:
    """Return the names of a CSV header; those that are empty or repeated get their positions."""
    names: list[str] = []
    for number, field in enumerate(fields):
        name = field.strip()
        names.append(f"{name}_{number}" if not name or name in names else name)
    return names


class Record(NamedTuple):
    """A record of CSV, or another row as text.

    Attributes:
        fields: Those of CSV; empty for other rows; None if the record is invalid.
        text: Its text.
        line: The number of its first line, or of the element.
    """

    fields: list[str] | None
    text: str
    line: int


def _decode_csv(lines: Lines, source: SourceConfig, columns: Mapping[str, str]) -> Iterator[Rows]:
    """Yield the rows of CSV; see `decode_file`."""
    options = source.options
    records = csv_records(lines, options)
    header, names = None, list(source.headerless_columns)
    if options.header is not False:
        header, raw, _ = next(records, (None, "", 0))
        if header is None:
            if raw:
                raise ContentError("its header is not valid CSV: check its quotes")
            return
        names = header_names([lines.raw_text(name) for name in header])
    if len(names) > _MAX_FIELDS:
        raise ContentError(
            f"its header has {len(names):,} fields, and the limit is {_MAX_FIELDS:,}: split it "
            "into files of fewer columns, or write it as lines of JSON"
        )
    writers = _field_writers(names, columns)
    for batch in _in_batches(records):
        rows, numbers = list[list[str]](), list[int]()
        corrupt, corrupt_numbers = list[str](), list[int]()
        text = "".join([record.text for record in batch])
        is_valid = text.isascii() or not INVALID.search(text)
        for row, raw, number in batch:
            if row is None or not (is_valid or not INVALID.search(raw)):
                corrupt.append(lines.raw_text(raw.rstrip("\r\n")))
                corrupt_numbers.append(number)
            elif len(row) == len(names):
                if header is None or row[0] not in header or not _is_header(row, header):
                    rows.append(row)
                    numbers.append(number)
                # Concatenated files have a header each, whose columns may have another order.
                elif row != header:
                    yield Rows(_json_rows(rows, writers, options.null_value), [], numbers)
                    rows, numbers, header = [], [], row
                    writers = _field_writers(header_names(row), columns)
            elif (
                len(row) == len(names) + 1
                and raw.rstrip("\r\n").endswith(options.delimiter)
                and not row[-1]
            ):
                rows.append(row[:-1])  # each row ends with a delimiter
                numbers.append(number)
            else:
                corrupt.append(raw.rstrip("\r\n"))
                corrupt_numbers.append(number)
        values = _json_rows(rows, writers, options.null_value)
        yield Rows(values, corrupt, numbers + corrupt_numbers)


def _is_header(row: Sequence[str], header: Sequence[str]) -> bool:
    return len(row) > 1 and sorted(row) == sorted(header)  # one value may be the name of its column


def _field_writers(names: Sequence[str], columns: Mapping[str, str]) -> list[FieldWriter]:
    return [_field_writer(name, columns) for name in _spelled(names, columns)]


def _spelled(fields: Sequence[str], columns: Iterable[str]) -> list[str]:
    """Return the names of a header, spelled like the columns.

    A field keeps its name if the header has another one that differs only in case.
    """
    spelled = {fold_case(column): column for column in columns}
    count = Counter(map(fold_case, fields))
    return [
        spelled.get(fold_case(name), name) if count[fold_case(name)] == 1 else name
        for name in fields
    ]


def csv_records(lines: Lines, options: ReaderOptions) -> Iterator[Record]:
    """Yield each record; its fields are None if they are not valid CSV."""
    reader = csv.reader(  # it raises `csv.Error` for an invalid record, then continues
        lines,
        delimiter=options.delimiter,
        quotechar=options.quote or None,
        quoting=csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE,
        escapechar=options.escape if options.escape != options.quote else None,
        strict=True,
    )
    while True:
        try:
            row: list[str] | None = next(reader)
        except StopIteration:
            return
        except csv.Error:
            if lines.is_at_end:
                raise ContentError(
                    "its quote is never closed, so the rows after it would be one field: close it, "
                    "double the quotes within a field, or set options.quote"
                ) from None
            row = None
        raw = lines.next_record()
        if row != []:  # a blank line
            yield Record(row, raw, lines.first)


def first_records(text: str, options: ReaderOptions, is_complete: bool, most: int) -> list[Record]:
    """Return the first records of CSV; see `csv_records`.

    Args:
        text: The start of a file.
        options: The reader options.
        is_complete: False if the last record may be incomplete.
        most: The most records to return.
    """
    options = replace(options, encoding="utf-8")
    records, lines = list[Record](), Lines(io.BytesIO(text.encode()), options, len(text))
    try:
        lines.skip_rows()
        records += islice(csv_records(lines, options), most + 1)
    except ContentError:  # the quote of the last one is not closed
        records.append(Record(None, "", lines.first))
    return records[:most] if is_complete or len(records) > most else records[:-1]


def _in_batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Return records, whose second item is their text, in lists of a bounded size."""
    return content.bounded_batches(records, lambda record: len(record.text), _CHARACTERS, _ROWS)


FieldWriter = Callable[[Sequence[str]], list[str]]


def _field_writer(name: str, columns: Mapping[str, str]) -> FieldWriter:
    """Return a function that writes the values of a column as members of JSON objects.

    An empty field is left out. A valid JSON number, boolean, object or array is written as it is if
    its column has such a type. The word `null` is written as a string: a JSON null would be the
    same as an empty field.
    """
    start = f"{encode_basestring(name)}:"
    type_name = columns.get(name, "string")
    if type_name.startswith(STRING_TYPES):
        return partial(_string_members, start)
    if type_name.startswith(_NESTED_TYPES):
        return partial(_json_members, start, _is_nested)
    return partial(_number_members, start)


def _string_members(start: str, values: Sequence[str]) -> list[str]:
    text = "".join(values)
    if text.isprintable() and '"' not in text and "\\" not in text:  # nothing to escape
        return [value and f'{start}"{value}"' for value in values]
    return [value and start + encode_basestring(value) for value in values]


def _number_members(start: str, values: Sequence[str]) -> list[str]:
    text = "\n".join(values)  # one search for all is several times faster
    if text.count("\n") == len(values) - 1 and not _NO_NUMBER.search(text):
        return [value and start + value for value in values]
    return _json_members(start, PLAIN.fullmatch, values)


def _json_members(start: str, is_json: Callable[[str], object], values: Sequence[str]) -> list[str]:
    return [
        value and start + (value.strip(" ") if is_json(value) else encode_basestring(value))
        for value in values
    ]


def _is_nested(value: str) -> bool:
    """Return whether a string is one object or array of JSON."""
    try:
        return bool(_NESTED.match(value)) and bool(DECODER.decode(value) is not None)
    except (ValueError, RecursionError):
        return False


def _json_rows(
    rows: Sequence[Sequence[str]], writers: Sequence[FieldWriter], null_value: str | None
) -> list[str]:
    """Return CSV rows as JSON objects."""
    columns: Iterable[Sequence[str]] = zip(*rows, strict=True)
    if null_value:
        columns = (["" if value == null_value else value for value in column] for column in columns)
    members = [write(column) for write, column in zip(writers, columns, strict=False)]
    return [f"{{{','.join(filter(None, row))}}}" for row in zip(*members, strict=True)]


def _decode_texts(lines: Lines, source: SourceConfig, columns: Mapping[str, str]) -> Iterator[Rows]:
    """Yield the rows of text or JSON; see `decode_file`."""
    for batch in _in_batches(_text_records(lines, source)):
        valid, corrupt = list[Record](), list[Record]()
        for record in batch:
            is_corrupt = record.fields is None or INVALID.search(record.text)
            (corrupt if is_corrupt else valid).append(record)
        values = [record.text for record in valid]
        if source.format == "text":
            values = [f'{{"value":{encode_basestring(line)}}}' for line in values]
        numbers = [record.line for record in (*valid, *corrupt)]
        yield Rows(values, [lines.raw_text(record.text) for record in corrupt], numbers)


def _text_records(lines: Lines, source: SourceConfig) -> Iterator[Record]:
    """Yield what is a row each: an element at `record_path`, a document, or a line."""
    if source.record_path:
        yield from _elements(lines, source)
    elif source.multi_line:
        for _ in lines:
            pass
        text = lines.next_record().lstrip(BOM)
        if INVALID.search(text):
            yield Record(None, text, 1)
        elif text.strip(_BLANK):
            rows = enumerate(document_rows(text), 1)
            yield from (Record([], row, number) for number, row in rows)
    else:
        for line in lines:
            lines.record.clear()
            if line.strip(_BLANK):
                yield Record([], line.removesuffix("\n"), lines.number)


def _elements(lines: Lines, source: SourceConfig) -> Iterator[Record]:
    """Yield the elements of the arrays at `record_path`; a document without it is one record.

    A document ends with its line, or where its brackets match.
    """
    paths = RecordPaths(
        (source.record_path or "").split("."),
        {name: name.split(".") for name in source.record_fields},
    )
    numbers = count(1)

    def records(document: str) -> Iterator[Record]:
        text = document.lstrip(BOM)
        elements = paths.elements(text)
        if elements is None:
            yield Record(None, text.rstrip("\n"), next(numbers))
        for element in elements or ():
            yield Record([], element, next(numbers))

    level = 0
    for line in lines:
        is_alone = len(lines.record) == 1
        if is_alone and not line.strip(_BLANK):
            lines.record.clear()
            continue
        # A document in one line also ends a truncated one before it.
        if not is_alone and line.startswith("{") and paths.elements(line) is not None:
            del lines.record[-1]
            yield from records(lines.next_record())
            yield from records(line)
            level = 0
            continue
        level += last_level(line)
        if level <= 0:
            yield from records(lines.next_record())
            level = 0
    if lines.record:
        yield from records(lines.next_record())

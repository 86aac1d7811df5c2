"""Printing to standard output and standard error, and the formats of values.

File names and values come from the writers of files. Control characters in them could move the
cursor, change colours or forge a line, so they are escaped here. All output goes through here.
"""

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from io import TextIOWrapper
from shutil import get_terminal_size
from types import NoneType
from typing import Any, TextIO

from medallion.errors import MedallionError, StatementError, UsageError
from medallion.storage.text import error_reason, printable

_NUMBERS = {int, float, Decimal, NoneType}


def print_result(text: str, file: TextIO | None = None) -> None:
    """Print lines; do nothing if the reader has closed the pipe (`| head`).

    Raises:
        UsageError: the text cannot be written, for example because the disk is full.
    """
    file = file or sys.stdout
    if file is None:  # closed by the caller (>&-)
        return
    text = _encodable(printable_lines(text), file.encoding or "utf-8")
    try:
        with _translate_write_errors():
            print(text, file=file, flush=True)
    except BrokenPipeError:
        _redirect_to_null(file)


def print_message(text: str, file: TextIO | None = None) -> None:
    """Print one line of progress; work continues if it cannot be written."""
    with suppress(UsageError):
        print_result(printable(text), file)


def print_error(error: MedallionError) -> None:
    """Print the messages of an error, and point at the wrong part of a SQL statement."""
    for message in error.args:
        print_message(f"medallion: {message}", sys.stderr)
    for line in error.pointer if isinstance(error, StatementError) else ():
        print_message(line, sys.stderr)


def write_lines(lines: Iterable[str]) -> None:
    """Write lines that end with their own line breaks to standard output.

    A terminal gets them escaped; a file gets the exact bytes in UTF-8, whatever the locale.

    Raises:
        UsageError: the lines cannot be written.
        BrokenPipeError: the reader has closed the pipe.
    """
    if sys.stdout is None:
        return
    if sys.stdout.isatty():
        encoding = sys.stdout.encoding
        plain = (printable_lines(line.rstrip("\r\n")) for line in lines)
        lines = (_encodable(line, encoding) + "\n" for line in plain)
    elif isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    with _translate_write_errors():
        sys.stdout.writelines(lines)
        sys.stdout.flush()


def flush_output() -> None:
    """Flush both outputs, and discard unwritable output, on which Python would fail at exit."""
    for file in filter(None, (sys.stdout, sys.stderr)):
        try:
            file.flush()
        except OSError:
            _redirect_to_null(file)


def printable_lines(text: str) -> str:
    """Return a string with the control characters of each line escaped."""
    return "\n".join(map(printable, text.split("\n")))


def to_json(value: Any) -> str:
    """Return strict JSON on one line; if a character is unprintable, all but ASCII is escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if text.isprintable() else json.dumps(value, allow_nan=False)


def json_value(value: Any) -> Any:
    """Return a value of a row as a JSON value; times without a zone are UTC."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            utc = value.astimezone(UTC) if value.tzinfo else value
            return f"{utc.replace(tzinfo=None).isoformat()}Z"
        case Decimal():
            return format(value, "f")  # a string, with every digit
        case bytes():
            return value.hex()
        case dict():
            return {str(key): json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
    return str(value)  # dates, times, durations


def cell_text(value: Any) -> str:
    """Return a value of a row as the string of a table's cell, with every digit."""
    simple = value if isinstance(value, str) else json_value(value)
    return simple if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False)


def shown_text(value: Any) -> str:
    """Return a value of a row for reading: as `cell_text`, but NULL, and 15 digits of a double."""
    if value is None:
        return "NULL"
    is_double = isinstance(value, float) and math.isfinite(value)
    return cell_text(float(f"{value:.15g}") if is_double else value)


def iso_utc(micros: int | None) -> str | None:
    """Return microseconds since 1970 in ISO 8601, UTC."""
    return None if micros is None else str(json_value(datetime.fromtimestamp(micros / 1e6, UTC)))


def aligned_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return the lines of an aligned table, one for each row; numbers are right-aligned."""
    listed = list(rows)
    cells = [list(map(shown_text, row)) for row in listed]
    padded = []
    for at, name in enumerate(columns):
        column = [printable(text) for text in (name, *(row[at] for row in cells))]
        is_number = bool(listed) and {type(row[at]) for row in listed} <= _NUMBERS
        width = max(map(len, column))
        name, *values = (cell.rjust(width) if is_number else cell.ljust(width) for cell in column)
        padded.append([name, "-" * width, *values])
    lines = enumerate(zip(*padded, strict=True))
    return [("-+-" if at == 1 else " | ").join(line).rstrip() for at, line in lines]


def fitted_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return an aligned table or, if the terminal is too narrow for it, each row as a list."""
    table = aligned_table(columns, rows)
    if max(map(len, table)) <= get_terminal_size().columns:
        return table
    texts = (zip(columns, map(shown_text, row), strict=True) for row in rows)
    lists = (aligned_table(("", ""), each)[2:] for each in texts)
    return [line for at, each in enumerate(lists, 1) for line in (f"--- row {at:,}", *each)]


def _encodable(text: str, encoding: str) -> str:
    """Return a string with JSON escapes for characters that the encoding lacks."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(c if c.encode(encoding, "ignore") else json.dumps(c)[1:-1] for c in text)
    return text


@contextmanager
def _translate_write_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"the output cannot be written: {error_reason(error)}.") from None


def _redirect_to_null(file: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())

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
from types import NoneType
from typing import Any, TextIO

from medallion.errors import MedallionError, StatementError, UsageError
from medallion.storage.text import error_reason, printable

_NARROW = 14  # characters: a table whose columns would be narrower is printed as records
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
    """Return a value of a row for reading: as `cell_text`, with 15 digits of a double."""
    is_double = isinstance(value, float) and math.isfinite(value)
    return cell_text(float(f"{value:.15g}") if is_double else value)


def iso_utc(micros: int | None) -> str | None:
    """Return microseconds since 1970 in ISO 8601, UTC."""
    return None if micros is None else str(json_value(datetime.fromtimestamp(micros / 1e6, UTC)))


def aligned_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return the lines of an aligned table, one for each row; numbers are right-aligned."""
    names, cells, numbers = _printable_table(columns, list(rows))
    padded = []
    for is_number, column in zip(numbers, zip(names, *cells, strict=True), strict=True):
        width = max(map(len, column))
        name, *values = (cell.rjust(width) if is_number else cell.ljust(width) for cell in column)
        padded.append([name, "-" * width, *values])
    lines = enumerate(zip(*padded, strict=True))
    return [("-+-" if at == 1 else " | ").join(line).rstrip() for at, line in lines]


def _printable_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> tuple[list[str], list[list[str]], list[bool]]:
    """Return printable names and cells, and for each column if all its values are numbers."""
    cells = [["NULL" if value is None else shown_text(value) for value in row] for row in rows]
    types = [{type(row[at]) for row in rows} for at in range(len(columns))]
    numbers = [bool(rows) and each <= _NUMBERS for each in types]
    return [*map(printable, columns)], [[*map(printable, row)] for row in cells], numbers


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows to a terminal, in its width; rows with too many columns as a list of values."""
    from rich import box  # late: commands that print no table start faster
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console, (names, cells, numbers) = Console(), _printable_table(columns, rows)
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    if sum(min(width, _NARROW) + 3 for width in widths) > console.width:
        longest = max(map(len, names))
        for number, row in enumerate(cells, 1):
            values = (f"{name:<{longest}}  {c}" for name, c in zip(names, row, strict=True))
            print_result("\n".join([f"--- row {number:,}", *values]))
        return
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, is_number in zip(names, numbers, strict=True):
        grid.add_column(Text(name), justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        grid.add_row(*map(Text, row))
    with _translate_write_errors():
        console.print(grid)


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

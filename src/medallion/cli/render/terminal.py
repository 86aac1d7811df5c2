"""The one way to standard output and standard error.

Names of files and values of rows come from whoever lands files. Printed as they are, they could
move a terminal's cursor, colour it, or end a line where none ends: here they are made visible.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import Any, TextIO

from medallion.errors import UsageError
from medallion.storage.text import error_reason, printable


def visible_lines(text: str) -> str:
    """Text of several lines, a stack trace or a table: each line visible, their ends stay."""
    return "\n".join(map(printable, text.split("\n")))


def document(value: Any) -> str:
    """A value as strict JSON in one line; what a terminal could obey is an escape there."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _spelled(c) for c in text)


def show(text: str, file: TextIO | None = None) -> None:
    """Print; where nobody reads any more (`| head`), the work still goes on to its end.

    Raises:
        UsageError: it cannot be written; the disk is full, say.
    """
    file = file or sys.stdout
    if file is None:  # closed by whoever called (>&-)
        return
    text = _encodable(visible_lines(text), file.encoding or "utf-8")
    try:
        with _written():
            print(text, file=file, flush=True)
    except BrokenPipeError:
        _to_nobody(file)


def tell(text: str, file: TextIO | None = None) -> None:
    """Print a line about work that goes on, whether it can be written or not."""
    with suppress(UsageError):
        show(printable(text), file)


def _encodable(text: str, encoding: str) -> str:
    """The same, with what a terminal's encoding does not have as JSON would escape it."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(c if c.encode(encoding, "ignore") else _spelled(c) for c in text)
    return text


def _spelled(character: str) -> str:
    return json.dumps(character)[1:-1]


@contextmanager
def _written() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(
            f"what there is to show cannot be written: {error_reason(error)}."
        ) from None


def leave() -> None:
    """Before Python ends, which would try once more to write what could not be written."""
    for file in filter(None, (sys.stdout, sys.stderr)):
        try:
            file.flush()
        except OSError:
            _to_nobody(file)


def _to_nobody(file: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())


def pour(lines: Iterable[str]) -> None:
    """Write lines that bring their ends: to a file byte for byte, as UTF-8 whatever the language of
    the shell, to a terminal made visible.

    Raises:
        UsageError: they cannot be written.
        BrokenPipeError: nobody reads any more.
    """
    if sys.stdout is None:
        return
    if sys.stdout.isatty():
        code = sys.stdout.encoding
        lines = (_encodable(visible_lines(line.rstrip("\r\n")), code) + "\n" for line in lines)
    elif isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    with _written():
        sys.stdout.writelines(lines)
        sys.stdout.flush()

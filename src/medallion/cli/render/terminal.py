"""The one way to standard output and standard error.

Names of files and values of rows come from whoever lands files. Printed as they are, they could
move a terminal's cursor, colour it, or end a line where none ends: here they are made visible.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from medallion.lakehouse.text import visible


def visible_lines(text: str) -> str:
    """Text of several lines, a stack trace or a table: each line visible, their ends stay."""
    return "\n".join(map(visible, text.split("\n")))


def document(value: Any) -> str:
    """A value as strict JSON in one line; what a terminal could obey is an escape there."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def show(text: str, file: TextIO | None = None) -> None:
    """Print; where nobody reads any more (`| head`), the work still goes on to its end."""
    file = file or sys.stdout
    try:
        print(visible_lines(text), file=file, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())


def pour(lines: Iterable[str]) -> None:
    """Write lines that bring their ends: to a file byte for byte, to a terminal made visible."""
    if sys.stdout.isatty():
        lines = (visible_lines(line.rstrip("\r\n")) + "\n" for line in lines)
    sys.stdout.writelines(lines)

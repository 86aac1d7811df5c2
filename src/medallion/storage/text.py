"""Strings for the user (counts, printable lines, reasons of errors), and JSON of one object."""

import json
from collections.abc import Callable
from typing import Any

Reporter = Callable[[str], None]
"""Prints one line of progress."""


def counted(number: int, what: str) -> str:
    """Return a number with its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def error_reason(error: Exception) -> str:
    """Return an error's message; that of an OSError has no errno and path."""
    return getattr(error, "strerror", None) or str(error)


def printable(text: str) -> str:
    """Return text in one line, with control characters and line breaks as escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def json_object(text: str) -> dict[str, Any] | None:
    """Return the object that a string of JSON is; None if it is not JSON, or another value."""
    try:
        value = json.loads(text, parse_constant=reject_nan)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def reject_nan(name: str) -> None:
    """Raise ValueError: as `parse_constant`, it makes json.loads reject NaN and Infinity."""
    raise ValueError(f"{name} is not JSON")

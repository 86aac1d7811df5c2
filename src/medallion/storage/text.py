"""Text as people write and read it."""

from __future__ import annotations

from collections.abc import Callable

Reporter = Callable[[str], None]
"""Tells people of progress, a line at a time."""


def counted(number: int, what: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def error_reason(error: Exception) -> str:
    """What an error says, without the number and the path of what the system refused."""
    return getattr(error, "strerror", None) or str(error)


def printable(text: str) -> str:
    """One line of text, with control characters, escapes and line breaks spelled out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def reject_nan(name: str) -> None:
    """Raise ValueError for NaN and Infinity: for Python's parser, which takes them for JSON."""
    raise ValueError(f"{name} is not JSON")

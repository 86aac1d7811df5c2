"""Counts as people write them."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"

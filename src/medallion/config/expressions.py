"""Checks of Spark SQL in the configuration, without Spark."""

from __future__ import annotations

import re

from medallion.storage.table_specs import INGESTED_AT, SOURCE_MODIFIED_AT

# A string in either quotes; after r, backslashes are literal. It works with any flags.
STRING = r"""(?:\b[rR]'[^']*'|\b[rR]"[^"]*"|'(?:[^'\\]|\\[\s\S])*'|"(?:[^"\\]|\\[\s\S])*")"""
COMMENT = r"(?:--[^\n]*|/\*[\s\S]*?\*/)"
_QUOTED_NAME = r"`[^`]*`"
_QUOTED = re.compile(f"{STRING}|{_QUOTED_NAME}")
# Spark's parser replaces such a literal by the current time.
_NOW = rf"\b(?:date|timestamp\w*)(?:\s|{COMMENT})*r?['\"]\s*(?:now|today|tomorrow|yesterday)\b"
_CURRENT_TIME = re.compile(f"(?P<now>{_NOW})|{STRING}|{_QUOTED_NAME}|{COMMENT}", re.IGNORECASE)
_ARRIVAL = re.compile(
    rf"{STRING}|{COMMENT}|(?<![.\w])`?(?P<column>{INGESTED_AT}|{SOURCE_MODIFIED_AT})\b",
    re.IGNORECASE,
)


def without_strings(sql: str) -> str:
    """Return SQL with an empty string in place of each string and each quoted name."""
    return _QUOTED.sub("''", sql)


def has_current_time(sql: str) -> bool:
    """Return True if SQL has a literal such as timestamp'now' or date 'today'."""
    return any(match["now"] for match in _CURRENT_TIME.finditer(sql))


def arrival_column(sql: str) -> str | None:
    """Return the first column of SQL whose value changes if the same row arrives again."""
    return next((match["column"] for match in _ARRIVAL.finditer(sql) if match["column"]), None)

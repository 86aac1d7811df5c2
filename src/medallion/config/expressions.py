"""Spark SQL as the configuration has it, read without Spark."""

from __future__ import annotations

import re

from medallion.storage.table_specs import INGESTED_AT, SOURCE_MODIFIED_AT

# A text in either kind of quotes; after r no backslash escapes. For patterns of any flags.
TEXT = r"""(?:\b[rR]'[^']*'|\b[rR]"[^"]*"|'(?:[^'\\]|\\[\s\S])*'|"(?:[^"\\]|\\[\s\S])*")"""
COMMENT = r"(?:--[^\n]*|/\*[\s\S]*?\*/)"
_NAME = r"`[^`]*`"
_QUOTED = re.compile(f"{TEXT}|{_NAME}")
# Spark's parser makes a constant of it, by its clock.
_NOW = rf"\b(?:date|timestamp\w*)(?:\s|{COMMENT})*r?['\"]\s*(?:now|today|tomorrow|yesterday)\b"
_MOVING = re.compile(
    rf"{TEXT}|{COMMENT}|(?<![.\w])`?(?P<column>{INGESTED_AT}|{SOURCE_MODIFIED_AT})\b",
    re.IGNORECASE,
)
_MOMENT = re.compile(f"(?P<now>{_NOW})|{TEXT}|{_NAME}|{COMMENT}", re.IGNORECASE)


def without_strings(sql: str) -> str:
    """SQL with an empty text in place of each text and each name in quotes."""
    return _QUOTED.sub("''", sql)


def has_current_time(sql: str) -> bool:
    """Whether SQL has a literal such as timestamp'now' or date 'today'."""
    return any(match["now"] for match in _MOMENT.finditer(sql))


def arrival_column(sql: str) -> str | None:
    """The first column of those that are others when the same row comes in again; None without."""
    return next((match["column"] for match in _MOVING.finditer(sql) if match["column"]), None)

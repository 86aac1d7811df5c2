"""Patterns of file names, such as `*.json`."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

_WILDCARD = re.compile(r"[*?\[\]]")


def fits(name: str, pattern: str) -> bool:
    """Return True if a name, hidden or not, fits the pattern."""
    return fnmatchcase(name.lstrip("._"), pattern)


def may_overlap(one: str, other: str) -> bool:
    """Return False if no name fits both patterns, as far as their starts and ends show.

    Character classes are not compared: `[a-m]*` and `[n-z]*` may overlap.
    """
    for name, pattern in ((one, other), (other, one)):
        if not _WILDCARD.search(name):
            return fnmatchcase(name, pattern)
    (start, end), (start_2, end_2) = ((p[0], p[-1]) for p in map(_WILDCARD.split, (one, other)))
    return (start.startswith(start_2) or start_2.startswith(start)) and (
        end.endswith(end_2) or end_2.endswith(end)
    )

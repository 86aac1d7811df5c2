"""Patterns of names, such as `*.json`: what fits one, and what two of them have in common."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

# As fnmatch reads a pattern: a [ that is never closed is a character, and so is a ] that comes
# first. Not by one try after another: `[!]` would become a class after all.
_TOKEN = re.compile(r"\[!?+\]?+[^\]]*+\]|.", re.DOTALL)


def fits(name: str, pattern: str) -> bool:
    """Whether a name is one of those to take in, hidden or not."""
    return fnmatchcase(name.lstrip("._"), pattern)


def share_a_name(one: str, other: str) -> bool:
    """Whether there is a name that fits both patterns.

    Both are walked along together, a token of each to a character; a star may also be passed by.
    """
    a, b = ([*_TOKEN.findall(pattern), ""] for pattern in (one, other))  # "" is the end
    places = [(0, 0)]
    seen = set(places)
    for i, j in places:
        found = [(i + 1, j)] if a[i] == "*" else []
        found += [(i, j + 1)] if b[j] == "*" else []
        if _share_a_character(a[i], b[j]):
            found.append((i + (a[i] != "*"), j + (b[j] != "*")))
        places += [place for place in found if place not in seen]
        seen.update(found)
    return (len(a) - 1, len(b) - 1) in seen


def _share_a_character(one: str, other: str) -> bool:
    """Whether there is a character for which both tokens stand.

    A class is made of ranges: where it has any in common with another one, then also one that is
    named in either or is next to that.
    """
    near = {ord(named) + step for named in one + other for step in (-1, 0, 1)}
    return any(
        fnmatchcase(chr(code), one) and fnmatchcase(chr(code), other)
        for code in near
        if 0 <= code <= 0x10FFFF
    )

"""Overlap of file patterns, compared with fnmatch on every short name."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import product

import pytest

from medallion.config.values import may_overlap

NAMES = ["".join(name) for length in range(5) for name in product("ab-[]!", repeat=length)]
PARTS = ("a", "b", "?", "*", "[ab]", "[!a]", "[]a]", "[!]]", "[", "[!]")


def test_may_overlap_never_misses_an_overlap() -> None:
    patterns = ["".join(parts) for length in range(3) for parts in product(PARTS, repeat=length)]
    matches = {p: {name for name in NAMES if fnmatchcase(name, p)} for p in patterns}
    overlapping = [(a, b) for a, b in product(patterns, repeat=2) if matches[a] & matches[b]]
    assert [pair for pair in overlapping if not may_overlap(*pair)] == []


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("*.csv", "*.json", False),
        ("event*", "day*", False),
        ("event-1.json", "event-[2-9].json", False),
        ("a.json", "a.json.gz", False),
        ("event*", "*.json", True),
        ("log-[a-m]*.json", "log-[n-z]*.json", True),
    ],
)
def test_may_overlap(one: str, other: str, expected: bool) -> None:
    assert may_overlap(one, other) == may_overlap(other, one) == expected

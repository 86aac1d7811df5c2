"""Whether two patterns share a name: as fnmatch says of every short name there is."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import combinations_with_replacement, product

import pytest

from medallion.config.patterns import share_a_name

NAMES = ["".join(name) for length in range(5) for name in product("ab-[]!", repeat=length)]
PARTS = ("a", "b", "?", "*", "[ab]", "[!a]", "[a-b]", "[b-a]", "[!b-a]", "[]a]", "[!]]", "[", "[!]")


def test_as_fnmatch_says_of_every_short_name() -> None:
    patterns = ["".join(parts) for length in range(3) for parts in product(PARTS, repeat=length)]
    fitting = {p: {name for name in NAMES if fnmatchcase(name, p)} for p in patterns}
    told = {(a, b): share_a_name(a, b) for a, b in combinations_with_replacement(patterns, 2)}
    assert [
        pair for pair, is_told in told.items() if is_told and not share_a_name(*pair[::-1])
    ] == []
    assert {pair for pair, is_told in told.items() if is_told} == {
        (a, b) for a, b in told if fitting[a] & fitting[b]
    }


@pytest.mark.parametrize(
    ("one", "other", "is_shared"),
    [
        ("log-[a-m]*.json", "log-[n-z]*.json", False),
        ("log-[a-n]*.json", "log-[n-z]*.json", True),
        ("part-?.json", "part-??.json", False),
        ("event-[0-9].json", "event-[a-z].json", False),
        ("event-[0-9].json", "event-[!a-z].json", True),
        ("[!a-y]", "[!z]", True),
        ("*a*b*c*", "*c*b*a*", True),
        ("*a" * 60, "b*" * 60, True),
        ("*a" * 999, "*b", False),
    ],
)
def test_names_of_two_patterns(one: str, other: str, is_shared: bool) -> None:
    assert share_a_name(one, other) == share_a_name(other, one) == is_shared

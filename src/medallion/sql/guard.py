"""What a statement is: cut into words, read-only or refused, and the tables that it names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from medallion.errors import UsageError
from medallion.lakehouse.layout import SCHEMAS


@dataclass(frozen=True)
class Statement:
    """One statement that only reads: `sql` for the engine, and what it is about.

    `tables` are spelled as they are there; an alias's columns may be among them.
    """

    sql: str
    tables: frozenset[str]
    lists_tables: bool
    asks_about_tables: bool


def read_only(statement: str) -> Statement:
    """The statement, for the engine.

    Raises:
        UsageError: it is empty, several in one, could write, or is too deep for the engine.
    """
    tokens = _tokens(statement)
    sql = _read_only(statement, tokens)
    _refuse_deep(tokens)
    words = [token.name.lower() for token in tokens]
    return Statement(
        sql,
        frozenset(_mentioned(tokens)),
        lists_tables=words == ["show", "tables"],
        asks_about_tables=words[0] == "show" or "information_schema" in words,
    )


class _Token(NamedTuple):
    text: str
    name: str  # the identifier that it spells, or nothing
    start: int


_TOKEN = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)
    |[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|(?P<tag>\$\w*\$).*?(?P=tag)
    |(?P<quoted>"(?:[^"]|"")*"|`[^`]*`)
    |(?P<odd>[nN]?[qQ]')
    |(?P<word>(?:[^\W\d]|[@\#])[\w$@\#]*)
    |.""",
    re.VERBOSE | re.DOTALL,
)
# Else the engine may take it for a part of the name before it.
_BEFORE_TAG = re.compile(r"(?:^|[\s(,=<>|+*/-])\Z")
_READS = {"SELECT", "WITH", "VALUES"}
_DESCRIBES = {"DESCRIBE", "DESC"}
_OPTIONS = {"ANALYZE", "VERBOSE", "FORMAT"}  # of EXPLAIN
_WRITES = {"INSERT", "UPDATE", "DELETE", "MERGE", "COPY"}
_JOINING, _MOST_JOINING = frozenset(("AND", "OR", "UNION", "EXCEPT", "INTERSECT")), 600
_OPERATORS = frozenset(
    (*"+-*/%|&^#~:<>=!", "IS", "IN", "LIKE", "ILIKE", "RLIKE", "SIMILAR", "BETWEEN", "XOR")
)
_MOST_OPERATORS, _APART = 2000, frozenset((",", "WHEN", "THEN", "ELSE"))
"""The engine goes down a chain of these part by part, and one that is too long for its stack ends
the process: 1,250 of UNION ALL, 1,500 of AND, 4,000 of +. (Brackets it counts by itself, and NOT
and signs before a number.)"""


def _tokens(statement: str) -> list[_Token]:
    """Cut a statement into words, names, literals and signs, without comments and blanks."""
    tokens = []
    for match in _TOKEN.finditer(statement):
        if match["odd"]:  # q'[it's]', Oracle's way, which the engine takes for a text as well
            raise UsageError(f"a text is written 'so', not {match['odd']}...: take plain quotes")
        if match["tag"] and not _BEFORE_TAG.search(statement[: match.start()]):
            raise UsageError(f"a text in {match['tag']} begins after a blank or a sign")
        if not match["blank"]:
            name = match["word"] or (match["quoted"] or "")[1:-1].replace('""', '"')
            tokens.append(_Token(match[0], name, match.start()))
    return tokens


def _read_only(statement: str, tokens: list[_Token]) -> str:
    """The statement from its first word on, which says what it is; what could write is refused.

    The engine takes one statement a call. (COPY would write files, behind EXPLAIN ANALYZE too.)
    """
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    if not tokens:
        raise UsageError('the statement is empty: try "SHOW TABLES"')
    words = [token.text.upper() for token in tokens]
    if ";" in words:
        raise UsageError("one statement at a time: there is a ; between two of them")
    at = _after_explain(words)
    if refused := _writing(words, at):
        raise UsageError(f"only SELECT, SHOW, DESCRIBE and EXPLAIN are taken, not {refused}")
    body = statement[tokens[at].start : tokens[-1].start + len(tokens[-1].text)]
    return " ".join([*words[:at], body])


def _after_explain(words: list[str]) -> int:
    """Where what is explained begins, after EXPLAIN and its options; 0 without one."""
    at = int(words[0] == "EXPLAIN")
    while 0 < at < len(words) and words[at] in _OPTIONS:
        at += 2 if words[at] == "FORMAT" else 1
    return at


def _writing(words: list[str], at: int) -> str | None:
    """What is not sure to read alone, in a statement from there on; None if all of it is."""
    first = words[at] if at < len(words) else "EXPLAIN of nothing"
    if first not in _READS and (at > 0 or first not in {"(", "SHOW", *_DESCRIBES}):
        return first
    if first in _DESCRIBES and {*words[1:2]} & {*_OPTIONS, *_WRITES}:
        return " ".join(words[:2])  # it is an EXPLAIN then, which may run what follows
    for before, word in pairwise(words[at:]):  # WITH ... INSERT, a CTE that deletes, SELECT INTO
        if (word in _WRITES and before in {"(", ")"}) or (word == "INTO" and before != "."):
            return word
    return None


def _refuse_deep(tokens: list[_Token]) -> None:
    """Raise UsageError for more than the engine's stack bears. AND and the like are counted in all
    of the statement: filters of queries within each other become one."""
    texts = [token.text.upper() for token in tokens]
    joined = sum(text in _JOINING for text in texts) - texts.count("BETWEEN")  # which has an AND
    for what, count, most in (
        ("AND, OR, UNION, EXCEPT and INTERSECT", joined, _MOST_JOINING),
        ("operators such as + and = in a row", _longest_chain(texts), _MOST_OPERATORS),
    ):
        if count > most:
            raise UsageError(
                f"the statement has {count:,} of {what}, and more than {most:,} may end the "
                "engine: write x IN (a, b) in place of many ORs, or ask in parts"
            )


def _longest_chain(texts: list[str]) -> int:
    """The most operators within one expression, less those in brackets within it."""
    longest, open_ones = 0, [0]
    for before, text in pairwise(["(", *texts]):
        if text in {"(", "["}:
            open_ones.append(0)
        elif text in {")", "]"}:
            open_ones = open_ones[:-1] or [0]
        elif text in _APART:
            open_ones[-1] = 0
        elif text in _OPERATORS and before not in _OPERATORS | {"(", "[", ","}:
            open_ones[-1] += 1
            longest = max(longest, open_ones[-1])
    return longest


def _mentioned(tokens: list[_Token]) -> set[str]:
    """Every `layer.name` of a statement as spelled there; an alias's columns may be among them."""
    triples = zip(tokens, tokens[1:], tokens[2:], strict=False)
    return {
        f"{layer.name}.{table.name}"
        for layer, dot, table in triples
        if dot.text == "." and table.name and layer.name.lower() in SCHEMAS
    }

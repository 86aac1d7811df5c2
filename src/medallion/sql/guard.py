"""Check that a statement only reads, and find the tables that it names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from medallion.errors import UsageError
from medallion.storage.paths import SCHEMAS


@dataclass(frozen=True)
class Statement:
    """One read-only statement.

    Attributes:
        sql: the statement for the engine.
        tables: every `layer.name` in it, as it is spelled; `alias.column` may be among them.
        lists_tables: whether it is SHOW TABLES.
        asks_about_tables: whether it is another SHOW, or reads the information schema.
    """

    sql: str
    tables: frozenset[str]
    lists_tables: bool
    asks_about_tables: bool


def parse_read_only(statement: str) -> Statement:
    """Parse a statement.

    Raises:
        UsageError: it is empty, has several statements, could write, or is too long.
    """
    tokens = _tokens(statement)
    sql = _read_only(statement, tokens)
    _refuse_long(tokens)
    words = [token.name.lower() for token in tokens]
    return Statement(
        sql,
        frozenset(_mentioned(tokens)),
        lists_tables=words == ["show", "tables"],
        asks_about_tables=words[0] == "show" or "information_schema" in words,
    )


class _Token(NamedTuple):
    text: str
    name: str  # the identifier, without quotes, or nothing
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
# Otherwise the engine may read it as a part of the name before it.
_BEFORE_TAG = re.compile(r"(?:^|[\s(,=<>|+*/-])\Z")
_READS = {"SELECT", "WITH", "VALUES"}
_DESCRIBES = {"DESCRIBE", "DESC"}
_OPTIONS = {"ANALYZE", "VERBOSE", "FORMAT"}  # of EXPLAIN
_WRITES = {"INSERT", "UPDATE", "DELETE", "MERGE", "COPY"}
# The engine recurses over a chain of these: 1,250 of UNION ALL, or 4,000 of +, overflow its stack
# and end the process. It limits brackets itself.
_CHAINING = frozenset(("AND", "OR", "UNION", "EXCEPT", "INTERSECT", *"+-*/%|"))
_MOST_CHAINING = 1000


def _tokens(statement: str) -> list[_Token]:
    """Split a statement into words, names, literals and signs, without comments and blanks."""
    tokens = []
    for match in _TOKEN.finditer(statement):
        if match["odd"]:  # Oracle's q'[it's]', a string for the engine too
            raise UsageError(
                f"strings such as {match['odd']}... are not supported: use plain quotes"
            )
        if match["tag"] and not _BEFORE_TAG.search(statement[: match.start()]):
            raise UsageError(f"a string in {match['tag']} must start after a blank or a sign")
        if not match["blank"]:
            name = match["word"] or (match["quoted"] or "")[1:-1].replace('""', '"')
            tokens.append(_Token(match[0], name, match.start()))
    return tokens


def _read_only(statement: str, tokens: list[_Token]) -> str:
    """Return the statement without a final `;`; refuse one that could write.

    The engine runs one statement per call. COPY writes files, also behind EXPLAIN ANALYZE.
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
        raise UsageError(f"only SELECT, SHOW, DESCRIBE and EXPLAIN are supported, not {refused}")
    body = statement[tokens[at].start : tokens[-1].start + len(tokens[-1].text)]
    return " ".join([*words[:at], body])


def _after_explain(words: list[str]) -> int:
    """Return the index of the word after EXPLAIN and its options; 0 without EXPLAIN."""
    at = int(words[0] == "EXPLAIN")
    while 0 < at < len(words) and words[at] in _OPTIONS:
        at += 2 if words[at] == "FORMAT" else 1
    return at


def _writing(words: list[str], at: int) -> str | None:
    """Return the words of a statement that may write, or None if it only reads."""
    first = words[at] if at < len(words) else "EXPLAIN of nothing"
    if first not in _READS and (at > 0 or first not in {"(", "SHOW", *_DESCRIBES}):
        return first
    if first in _DESCRIBES and {*words[1:2]} & {*_OPTIONS, *_WRITES}:
        return " ".join(words[:2])  # an EXPLAIN, which may run the statement
    for before, word in pairwise(words[at:]):  # WITH ... INSERT, a CTE that deletes, SELECT INTO
        if (word in _WRITES and before in {"(", ")"}) or (word == "INTO" and before != "."):
            return word
    return None


def _refuse_long(tokens: list[_Token]) -> None:
    """Raise UsageError for a statement that may overflow the engine's stack."""
    words = [token.text.upper() for token in tokens]
    chaining = (word in _CHAINING and before not in "(," for before, word in pairwise(words))
    count = sum(chaining) - words.count("BETWEEN")  # which has an AND
    if count > _MOST_CHAINING:
        raise UsageError(
            f"the statement has {count:,} operators such as AND, OR, UNION and +, and more than "
            f"{_MOST_CHAINING:,} may crash the engine: write x IN (a, b) for many ORs, or split it"
        )


def _mentioned(tokens: list[_Token]) -> set[str]:
    """Return every `layer.name` of a statement as spelled there, also `alias.column`."""
    triples = zip(tokens, tokens[1:], tokens[2:], strict=False)
    return {
        f"{layer.name}.{table.name}"
        for layer, dot, table in triples
        if dot.text == "." and table.name and layer.name.lower() in SCHEMAS
    }

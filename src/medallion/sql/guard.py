"""Check that a statement only reads, and find the tables that it names.

This module splits statements as DataFusion does. sqlglot, which reads Spark's SQL elsewhere, has no
such dialect: it would take `{# INSERT #}` for a comment, and a quote in backticks for a string.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from medallion.errors import UsageError
from medallion.storage.layout import SCHEMAS


@dataclass(frozen=True)
class Statement:
    """One read-only statement.

    Attributes:
        sql: the statement for the engine.
        tables: every `layer.name` in it, as it is spelled; `alias.column` may be among them.
        names: every identifier and keyword in it.
        lists_tables: True for SHOW TABLES.
        asks_about_tables: True for any SHOW, and if it reads the information schema.
    """

    sql: str
    tables: frozenset[str]
    names: frozenset[str]
    lists_tables: bool
    asks_about_tables: bool


def parse_read_only(statement: str) -> Statement:
    """Parse a statement.

    Raises:
        UsageError: it is empty, has several statements, could write, or is too long.
    """
    tokens = _tokenize(statement)
    sql = _require_read_only(statement, tokens)
    words = [token.name.lower() for token in tokens]
    return Statement(
        sql,
        frozenset(_table_names(tokens)),
        frozenset(token.name for token in tokens),
        lists_tables=words == ["show", "tables"],
        asks_about_tables=words[0] == "show" or "information_schema" in words,
    )


def split_statements(text: str) -> list[str]:
    """Return the statements of a script, without the `;` between them."""
    ends = [token.start for token in _tokenize(text) if token.text == ";"]
    starts = [0, *(end + 1 for end in ends)]
    parts = (text[start:end] for start, end in zip(starts, [*ends, len(text)], strict=True))
    return [part.strip() for part in parts if _tokenize(part)]


class _Token(NamedTuple):
    text: str
    name: str  # the identifier without quotes, or ""
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
# Before $tag$: after other characters the engine may read it as part of a name.
_BEFORE_TAG = re.compile(r"(?:^|[\s(,=<>|+*/-])\Z")
_READS = {"SELECT", "WITH", "VALUES"}
_DESCRIBES = {"DESCRIBE", "DESC"}
_OPTIONS = {"ANALYZE", "VERBOSE", "FORMAT"}  # of EXPLAIN, which are refused
SUM_OVERFLOW = "a sum does not fit its type"
_WIDE = " * arrow_cast(1, 'Decimal256(1, 0)')"
_WRITES = {"INSERT", "UPDATE", "DELETE", "MERGE", "COPY"}


def _tokenize(statement: str) -> list[_Token]:
    """Split a statement into words, names, literals and signs, without comments and blanks."""
    tokens = []
    for match in _TOKEN.finditer(statement):
        if match["odd"]:  # Oracle's q'[it's]', a string for the engine too
            raise UsageError(f"strings such as {match['odd']}... are refused: use plain quotes")
        if match["tag"] and not _BEFORE_TAG.search(statement[: match.start()]):
            raise UsageError(f"a string in {match['tag']} must start after a blank or a sign")
        if not match["blank"]:
            name = match["word"] or (match["quoted"] or "")[1:-1].replace('""', '"')
            tokens.append(_Token(match[0], name, match.start()))
    return tokens


def _require_read_only(statement: str, tokens: list[_Token]) -> str:
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
    at = int(words[0] == "EXPLAIN")
    if refused := _writing_words(words, at):
        raise UsageError(f"only SELECT, SHOW, DESCRIBE and EXPLAIN are supported, not {refused}")
    body = statement[tokens[at].start : tokens[-1].start + len(tokens[-1].text)]
    return " ".join([*words[:at], body])


def _writing_words(words: list[str], at: int) -> str | None:
    """Return the words of a statement that may write, or None if it only reads."""
    first = words[at] if at < len(words) else "EXPLAIN without a statement"
    if first not in _READS and (at > 0 or first not in {"(", "SHOW", *_DESCRIBES}):
        return first
    if first in _DESCRIBES and {*words[1:2]} & {*_OPTIONS, *_WRITES}:
        return " ".join(words[:2])  # an EXPLAIN, which may run the statement
    following = [*words[at + 2 :], ""]  # `max(update)` reads a column
    # WITH ... INSERT, a CTE that deletes, SELECT INTO
    for (before, word), after in zip(pairwise(words[at:]), following, strict=True):
        is_column = before == "." or after in {")", ","}
        if not is_column and (word == "INTO" or (word in _WRITES and before in {"(", ")"})):
            return word
    return None


def with_checked_sums(statement: str) -> str:
    """Return a query that fails with SUM_OVERFLOW where the engine would wrap a sum.

    Such a sum differs from the sum of the same values as decimals of 256 bits.
    """
    tokens = _tokenize(statement)
    if tokens[0].text.upper() not in {"(", *_READS}:
        return statement
    for at in reversed(range(len(tokens) - 1)):
        name, bracket = tokens[at : at + 2]
        if name.text.lower() != "sum" or bracket.text != "(":
            continue
        end = after = _closing(tokens, at + 1)
        while tokens[after + 1 :] and tokens[after + 1].text.upper() in ("FILTER", "OVER"):
            after = _closing(tokens, after + 2)  # the name of a window closes itself
        values = statement[bracket.start + 1 : tokens[end].start]
        stop = tokens[after].start + len(tokens[after].text)
        more, distinct = statement[tokens[end].start + 1 : stop], ""
        if tokens[at + 2].text.upper() == "DISTINCT":
            distinct, values = "DISTINCT ", values.lstrip()[len("DISTINCT") :]
        total, exact = (f"sum({distinct}({values}\n){wide}){more}" for wide in ("", _WIDE))
        outcome = f"CASE WHEN {exact} IS DISTINCT FROM {total} THEN '{SUM_OVERFLOW}' ELSE '1' END"
        checked = f"CASE WHEN CAST({outcome} AS BIGINT) = 1 THEN {total} END"
        statement = statement[: name.start] + checked + statement[stop:]
        tokens = _tokenize(statement)
    return statement


def _closing(tokens: list[_Token], at: int) -> int:
    """Return the index of the bracket that closes the one at an index."""
    depth = 0
    for index in range(at, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[index].text, 0)
        if not depth:
            return index
    return len(tokens) - 1


def _table_names(tokens: list[_Token]) -> set[str]:
    """Return every `layer.name` of a statement as spelled there, also `alias.column`."""
    return {
        f"{layer.name}.{table.name}"
        for layer, dot, table in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if dot.text == "." and table.name and layer.name.lower() in SCHEMAS
    }

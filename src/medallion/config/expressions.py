"""Checks of Spark SQL in the configuration, without Spark."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from medallion.storage.table_specs import INGESTED_AT, SOURCE_MODIFIED_AT

# A string in either quotes; after r, backslashes are literal. Regex flags do not matter.
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


_TOKEN = re.compile(
    rf"(?P<skip>{COMMENT}|\s+)|(?P<string>{STRING})|`(?P<quoted>[^`]*)`|(?P<word>[A-Za-z_]\w*)"
    r"|\d[\w.]*|->|.",
    re.DOTALL,
)
# Words that are not columns; a column of such a name is not checked.
_KEYWORD_LIST = """
all and any array as asc between both by case cast current_date current_time current_timestamp
current_user day days desc distinct div else end escape except exists extract false filter first
following for from hour hours ignore ilike in interval is last leading like microsecond
microseconds millisecond milliseconds minute minutes month months not null nulls or order over
overlay partition placing position preceding quarter range regexp respect rlike row rows second
seconds similar some struct substring then timestamp_ltz timestamp_ntz to trailing trim true
unbounded week weeks when where within year years
"""
_KEYWORDS = frozenset(_KEYWORD_LIST.split())


def column_names(sql: str) -> list[str]:
    """Return the names in a SQL expression that must be columns, each once, as they are spelled.

    Functions, keywords, types, struct fields and lambda variables are left out. Of a qualified name
    such as `event.device`, the first part is returned.
    """
    return list(dict.fromkeys(_columns(sql)))


def unknown_columns(
    sql: str, tables: Mapping[str, Collection[str] | None]
) -> Iterator[tuple[str, str]]:
    """Yield a table and a name for each `alias.name` of a query that is no column of its table.

    Names without an alias, and aliases that also name something else, are left to Spark.

    Args:
        sql: the query.
        tables: the columns of its tables by name; None if they are not known.
    """
    tokens = [m["word"] or m["quoted"] or m[0] for m in _TOKEN.finditer(sql) if not m["skip"]]
    words = ["", *(token.lower() for token in tokens), "", ""]
    triples = [*zip(words, words[1:], words[2:], strict=False)]
    bare = Counter(word for before, word, after in triples if "." not in (before, after))
    named = {table: {table} for table in tables}
    for index, (before, word, after) in enumerate(triples):
        if word in tables and before != ".":
            alias = words[index + 3] if after == "as" else after
            named.setdefault(alias, set()).add(word)
            bare -= Counter((word, alias))
    for index, (alias, dot, name) in enumerate(triples):
        for table in named.get(alias, ()) if dot == "." and name.isidentifier() else ():
            is_certain = not bare[alias] and len(named[alias]) == 1 and words[index - 1] != "."
            columns = tables[table]
            if is_certain and columns and name not in map(str.lower, columns):
                yield table, tokens[index + 1]


def _columns(sql: str) -> list[str]:
    """Return the columns of a SQL expression."""
    tokens = [match for match in _TOKEN.finditer(sql) if not match["skip"]]
    signs = [match[0] for match in tokens] + [""]
    columns = list[str]()
    variables: set[str] = set()
    type_depth, depth = None, 0  # type_depth is set after AS, until the bracket around it ends
    for index, match in enumerate(tokens):
        sign, name = match[0], match["word"] or match["quoted"]
        depth += (sign in "([") - (sign in ")]")
        if type_depth is not None:
            type_depth = None if depth < type_depth else type_depth
            continue
        if match["word"] and sign.lower() == "as":
            type_depth = depth
        elif name and index and signs[index - 1] == ".":
            continue
        elif match["quoted"] or (match["word"] and _is_column(sign, signs[index + 1])):
            columns.append(str(name))
        elif sign == "->":
            variables |= _lambda_variables(signs[:index])
    return [name for name in columns if name not in variables]


def _is_column(word: str, following: str) -> bool:
    """Return True if a word is a column, judging by the token that follows it."""
    is_literal = following[:1] in ("'", '"')  # date'2026-05-01'
    return following != "(" and not is_literal and word.lower() not in _KEYWORDS


def _lambda_variables(before: list[str]) -> set[str]:
    """Return the variables of a lambda, `x ->` or `(x, y) ->`, from the signs before its arrow."""
    if before[-1] != ")":
        return {before[-1]}
    start = len(before) - 1 - before[::-1].index("(")
    return set(before[start + 1 : -1]) - {","}


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is most like a misspelled one, or None if none is similar."""
    by_case = {each.lower(): each for each in names}
    matches = difflib.get_close_matches(name.lower(), by_case, n=1, cutoff=0.7)
    return by_case[matches[0]] if matches else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return ` (did you mean device?)` for a misspelled name, or an empty string."""
    nearest = nearest_name(name, names)
    return f" (did you mean {nearest}?)" if nearest else ""

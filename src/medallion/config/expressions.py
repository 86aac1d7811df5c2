"""Checks of Spark SQL in the configuration by sqlglot, where Spark does not run.

sqlglot takes 0.1 s to import, so this module imports it when there is SQL to read.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Collection, Iterable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from medallion.errors import UsageError
from medallion.storage.table_specs import INGESTED_AT, SOURCE_MODIFIED_AT

if TYPE_CHECKING:
    from sqlglot import Token
    from sqlglot.expressions import Expr

_NOW = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)


def tokenize(sql: str) -> list[Token]:
    """Return the tokens of Spark SQL; none if it has no end, which Spark reports."""
    import sqlglot

    try:
        return sqlglot.tokenize(sql, dialect="spark")
    except sqlglot.TokenError:  # such as a string without its closing quote
        return []


def has_current_time(sql: str) -> bool:
    """Return True if SQL has a literal such as timestamp'now' or date 'today'.

    Spark's parser replaces it by the current time.
    """
    return any(
        type_.text.lower().startswith(("date", "timestamp"))
        and value.token_type.name in ("STRING", "RAW_STRING")
        and _NOW.match(value.text)
        for type_, value in pairwise(tokenize(sql))
    )


def arrival_column(sql: str) -> str | None:
    """Return the first column of SQL whose value changes if the same row arrives again."""
    arrival = (INGESTED_AT, SOURCE_MODIFIED_AT)
    if not any(column in sql.lower() for column in arrival):
        return None
    return next((name for name in column_names(sql) or () if name.lower() in arrival), None)


def column_names(sql: str) -> list[str] | None:
    """Return the names in a SQL expression or query that must be columns, as they are spelled.

    Each is returned once; of a qualified name such as `event.device`, the first part. None is
    returned if sqlglot cannot parse it: Spark has more syntax, and reports errors.
    """
    from sqlglot import exp

    tree = _parsed(sql)
    if tree is None:
        return None
    variables = {v.name.lower() for each in tree.find_all(exp.Lambda) for v in each.expressions}
    # sqlglot takes the unit in timediff(HOUR, a, b), and the collation of a type, for columns.
    names = (
        column.parts[0].name
        for column in tree.find_all(exp.Column, bfs=False)
        if column.parent and column.parent.name.lower() != "timediff"
        if not column.find_ancestor(exp.DataType)
    )
    return list(dict.fromkeys(name for name in names if name.lower() not in variables))


def sql_problem(sql: str) -> str | None:
    """Return what is wrong with SQL whatever its columns are; None if only Spark can say.

    A bracket or a string has no end, or a function is none of Spark's (`functions.txt`).
    """
    from sqlglot import exp

    brackets = "".join(token.text for token in tokenize(sql) if token.text in ("(", ")"))
    while "()" in brackets:
        brackets = brackets.replace("()", "")
    if brackets or (sql.strip() and not tokenize(sql)):
        missing = {"(": "a ( without its )", ")": "a ) without its ("}
        return f"has {missing.get(brackets[:1], 'a string or a comment without its end')}"
    known = (Path(__file__).parent / "functions.txt").read_text(encoding="ascii").split()
    tree = _parsed(sql)
    for call in tree.find_all(exp.Anonymous) if tree else ():
        if call.name.lower() not in known and not isinstance(call.parent, exp.Dot):
            hint = did_you_mean(call.name, known)
            return f"calls {call.name}, which is not a function of Spark{hint}"
    return None


def unknown_names(sql: str, columns: Collection[str], table: str) -> dict[str, str]:
    """Return the names in SQL that are no columns of a table, each with what is wrong."""
    known = {column.lower() for column in columns}
    return {
        name: f"reads {name}, which is not a column of {table}"
        + (did_you_mean(name, columns) or f"; there are {', '.join(columns)}")
        for name in column_names(sql) or ()
        if name.lower() not in known
    }


def refuse_wrong_condition(name: str, sql: str, columns: Collection[str], table: str) -> None:
    """Raise UsageError if a condition is wrong, or reads what is no column of its table.

    Args:
        name: the option with the condition.
    """
    unknown = unknown_names(sql, sorted(columns), table).values()
    if problem := sql_problem(sql) or next(iter(unknown), None):
        raise UsageError(f"{name} {problem}.")


def _parsed(sql: str) -> Expr | None:
    """Return the syntax tree of an expression or a query; None if sqlglot cannot parse it."""
    import sqlglot

    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # it would warn on stderr
    try:
        # Within a SELECT, desc is a column; alone, it is a command.
        return sqlglot.parse_one(f"SELECT ({sql}\n)", dialect="spark")
    except Exception:  # also RecursionError, and IndexError for map(a)
        return None


def nearest_name(name: str, names: Iterable[str], cutoff: float = 0.7) -> str | None:
    """Return the name that is most like a misspelled one, or None if none is similar.

    Args:
        cutoff: the least similarity of names, from 0 to 1; transposed letters always count.
    """
    by_case = {each.lower(): each for each in names}
    matches = difflib.get_close_matches(name.lower(), by_case, n=1, cutoff=cutoff)
    matches += [each for each in by_case if sorted(each) == sorted(name.lower())]  # `ulr` for `url`
    return by_case[matches[0]] if matches else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return ` (did you mean device?)` for a misspelled name, or an empty string."""
    nearest = nearest_name(name, names)
    return f" (did you mean {nearest}?)" if nearest else ""

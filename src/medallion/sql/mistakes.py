"""Messages for mistakes in statements: which word is wrong, and the nearest name.

The engine has no error codes, so this module reads its messages.
"""

import re
from collections.abc import Sequence

from medallion.config.expressions import nearest_name
from medallion.sql.guard import SUM_OVERFLOW
from medallion.storage.layout import short_name

Span = tuple[int, int]

_TABLE = re.compile(r"table '(?:datafusion\.)?(?:public\.)?(.+?)' not found")
_COLUMN = re.compile(r"No field named (.+?)\.(?= |$)(?:.*?Valid fields are (.*)\.)?")
_FUNCTION = re.compile(r"Invalid function '(.+?)'\.(?: Did you mean '(.+?)'\?)?")
_POSITION = re.compile(r" at Line: (\d+), Column: (\d+)")
_GROUP = re.compile(r'column "(.+?)" must appear in the GROUP BY')
_ARGUMENTS = re.compile(r"argument types '(\w+)\((.*?)\)'")
_PREFIX = re.compile(r"^(?:Error during planning|Execution error|Arrow error): ")
_TYPES = {
    r"(?:Large)?Utf8(?:View)?": "string", r"(?:Large)?Binary(?:View)?": "binary",
    "Int64": "bigint", "Int32": "int", "Int16": "smallint", "Int8": "tinyint",
    "Float64": "double", "Float32": "float", "Boolean": "boolean", "Date32": "date",
    r"Timestamp\([^,()]+, \"UTC\"\)": "timestamp", r"Timestamp\([^,()]+\)": "timestamp_ntz",
    "Decimal128": "decimal",
}  # fmt: skip
_PARSER = re.compile(r'^SQL error: \w+\("(.*)"\)$')
_WORD = re.compile(r"\w+|'[^'\n]*'?|\"[^\"\n]*\"?|\S")
_MOST_COLUMNS = 30


def describe(text: str, sql: str, root: str, tables: Sequence[str]) -> tuple[str, Span | None]:
    """Return the message for an error of the engine, and the wrong part of the statement.

    Args:
        text: the engine's message in one line.
        sql: the statement.
        root: the lakehouse.
        tables: its tables.
    """
    if match := _TABLE.search(text):
        return _missing_table(match[1], root, tables), _find(match[1], sql)
    if match := _COLUMN.search(text):
        name = match[1].replace('"', "")
        columns = [column.replace('"', "") for column in (match[2] or "").split(", ") if column]
        return _missing_column(name, columns), _find(name, sql)
    if match := _FUNCTION.search(text):
        nearest = nearest_name(match[1], [match[2] or ""])
        advice = f": did you mean {nearest}?" if nearest else ""
        return f"there is no function {match[1]}{advice}", _find(match[1], sql)
    if match := _GROUP.search(text):
        short = match[1].rpartition(".")[2]
        advice = f"{short} must be in GROUP BY, or in an aggregate such as max({short})"
        return advice, _find(match[1], sql)
    if match := _ARGUMENTS.search(text):
        advice = "convert the argument, as in try_cast(... as double)"
        return f"{match[1]} does not take {sql_types(match[2])}: {advice}", _find(match[1], sql)
    if SUM_OVERFLOW in text:
        return f"{SUM_OVERFLOW}: convert the values, as in sum(cast(... as double))", None
    if match := _PARSER.search(text):
        message = _POSITION.sub("", match[1])
        return f"{message[:1].lower()}{message[1:]}", _at_position(text, sql)
    return sql_types(_PREFIX.sub("", text)), None


def sql_types(text: str) -> str:
    """Return a text with the names of SQL in place of Arrow's names of types."""
    for pattern, name in _TYPES.items():
        text = re.sub(rf"(?<!\w){pattern}(?!\w)", name, text)
    return text


def table_alone(sql: str, tables: Sequence[str]) -> tuple[str, Span] | None:
    """Return the message for a statement that starts with a table, and where; else None."""
    if first := re.match(r"\s*([\w.]+)", sql):
        names = [t for t in tables if first[1].lower() in (t, short_name(t))]
        for table in names[-1:]:  # silver's
            message = f"{first[1]} is no statement: did you mean SELECT * FROM {table}?"
            return message, first.span(1)
    return None


def _missing_table(name: str, root: str, tables: Sequence[str]) -> str:
    if not tables:
        return f"there is no table {name} under {root}; no nightly run yet: medallion nightly"
    of_name = {short_name(table): table for table in tables}  # silver's is the last one
    short = name.lower().rpartition(".")[2]
    nearest = nearest_name(name, tables, cutoff=0.8) or of_name.get(short)
    if nearest := nearest or of_name.get(nearest_name(short, of_name) or ""):
        return f"there is no table {name} under {root}: did you mean {nearest}?"
    return f"there is no table {name} under {root}; the tables are {', '.join(tables)}"


def _missing_column(name: str, columns: Sequence[str]) -> str:
    """Return the message for a column, which may have the name or alias of its table."""
    prefix, _, short = name.rpartition(".")
    by_name = {column.rpartition(".")[2]: column for column in columns}
    if nearest := nearest_name(short, list(by_name)):
        return f"there is no column {name}: did you mean {f'{prefix}.' * bool(prefix)}{nearest}?"
    if not columns:
        return f"there is no column {name}; a string is written in single quotes"
    shown = ", ".join(list(by_name)[:_MOST_COLUMNS])
    return f"there is no column {name}; the columns are {shown}"


def _find(name: str, sql: str) -> Span | None:
    """Return where a name is in a statement: as it is, or in quotes, or its last part."""
    for text in (name, name.rpartition(".")[2]):
        if match := re.search(rf"(?<!\w){re.escape(text)}(?!\w)", sql):
            return match.span()
    return None


def _at_position(text: str, sql: str) -> Span | None:
    """Return the word at the engine's line and column, which count from 1."""
    if not (match := _POSITION.search(text)):
        return (len(sql.rstrip()), len(sql.rstrip()) + 1)  # at the end
    line, column = int(match[1]), int(match[2])
    start = sum(len(each) + 1 for each in sql.split("\n")[: line - 1]) + column - 1
    word = _WORD.match(sql, start)
    return word.span() if word else (start, start + 1)

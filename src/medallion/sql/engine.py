"""SQL over the lakehouse for people: no JVM, read-only, answered in well under a second.

The engine is DataFusion, from inside the `deltalake` package. Statements are not rewritten: tables
are registered under real schemas, so quotes, aliases, comments and strings mean what they say.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain, pairwise
from pathlib import Path
from types import NoneType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from medallion.errors import UsageError

if TYPE_CHECKING:
    from arro3.core import Array
    from deltalake import QueryBuilder

LAYERS = ("bronze", "silver", "quarantine", "gold", "ops")
Names = tuple[str, ...]
Rows = Iterator[tuple[Any, ...]]
Options = dict[str, str] | None


@dataclass(frozen=True)
class Result:
    """The answer to one statement: names of columns, and rows of plain Python values."""

    columns: Names
    rows: list[tuple[Any, ...]]


def query(root: str, statement: str, storage_options: Options = None) -> Result:
    """Answer one read-only statement over the tables under `root`, named `layer.table`."""
    columns, rows = stream(root, statement, storage_options)
    return Result(columns, list(rows))


def stream(root: str, statement: str, storage_options: Options = None) -> tuple[Names, Rows]:
    """Like `query`, but rows come as they are found: the result need not fit in memory."""
    tokens = _tokens(statement)
    sql = _read_only(statement, tokens)
    words = [token.name.lower() for token in tokens]
    mentioned = _mentioned(tokens)
    tables = _tables(root, mentioned)
    if words == ["show", "tables"]:
        return ("layer", "table"), iter([tuple(name.split(".", 1)) for name in sorted(tables)])
    # Whoever asks about tables in general sees them all; otherwise only those named are opened.
    about_all = words[0] == "show" or "information_schema" in words
    engine = _engine(set(tables) if about_all else mentioned, tables, storage_options)
    listed = "" if "://" in root else f"; the tables are {', '.join(sorted(tables))}"
    rows = _rows(
        engine,
        sql,
        f"under {root}{listed if tables else '; no nightly has run yet: run medallion nightly'}",
    )
    return next(rows), rows


def _rows(engine: QueryBuilder, sql: str, hint: str) -> Rows:
    """The names of the columns, then the rows; the engine's complaints as one sentence."""
    try:
        reader = engine.execute(sql)
        yield tuple(reader.schema.names)
        for batch in reader:
            yield from zip(*(_values(column) for column in batch.columns), strict=True)
    except Exception as error:  # also in mid-result, as a cast or a division can fail
        line = _BREAKS.sub(" ", str(error))
        if missing := re.search(r"table '(?:datafusion\.)?(?:public\.)?(.+?)' not found", line):
            line = f"there is no table {missing[1]} {hint}"
        # A piece of advice that is followed already: names are taken as they are written.
        raise UsageError(_ADVICE.sub("", line)) from error


def _values(column: Array) -> list[Any]:
    """A column as Python values, or as text where Python has no such value."""
    from arro3.core import DataType  # here: --help need not pay for it

    if not DataType.is_interval(column.type):
        with suppress(ValueError, OverflowError):  # a time beyond the year 9999
            return list(column.to_pylist())
    return list(column.cast(DataType.utf8()).to_pylist())


class _Token(NamedTuple):
    text: str
    name: str  # the identifier that it spells, or nothing
    start: int


_TOKEN = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)
    |[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|(?P<tag>\$\w*\$).*?(?P=tag)
    |(?P<quoted>"(?:[^"]|"")*"|`[^`]*`)
    |(?P<word>[^\W\d]\w*)
    |.""",
    re.VERBOSE | re.DOTALL,
)
_SETTINGS = {
    "datafusion.catalog.information_schema": "true",
    # Bronze has names like Recorded_At: taken as written, they need no quotes.
    "datafusion.sql_parser.enable_ident_normalization": "false",
}
_BREAKS = re.compile(r"(?:\s|\x1b\[\d*m)+")  # object stores' errors come in colour
_ADVICE = re.compile(r"\s*You can use double quotes .*?enable_ident_normalization\S* configuration")
_READS = {"SELECT", "WITH", "VALUES"}
_WRITES = {"INSERT", "UPDATE", "DELETE", "MERGE", "COPY"}


def _tokens(statement: str) -> list[_Token]:
    """Cut a statement into words, names, literals and signs, without comments and blanks."""
    tokens = []
    for match in _TOKEN.finditer(statement):
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
    at = int(words[0] == "EXPLAIN")
    while 0 < at < len(words) and words[at] in {"ANALYZE", "VERBOSE", "FORMAT"}:
        at += 2 if words[at] == "FORMAT" else 1
    first = words[at] if at < len(words) else "EXPLAIN of nothing"
    reads = first in _READS or (at == 0 and first in {"(", "SHOW", "DESCRIBE", "DESC"})
    refused = [] if reads else [first]
    for before, word in pairwise(words[at:]):  # WITH ... INSERT, a CTE that deletes, SELECT INTO
        if (word in _WRITES and before in {"(", ")"}) or (word == "INTO" and before != "."):
            refused.append(word)
    if refused:
        raise UsageError(f"only SELECT, SHOW, DESCRIBE and EXPLAIN are taken, not {refused[0]}")
    body = statement[tokens[at].start : tokens[-1].start + len(tokens[-1].text)]
    return " ".join([*words[:at], body])


def _mentioned(tokens: list[_Token]) -> set[str]:
    """Every `layer.name` of a statement as spelled there; an alias's columns may be among them."""
    triples = zip(tokens, tokens[1:], tokens[2:], strict=False)
    return {
        f"{layer.name}.{table.name}"
        for layer, dot, table in triples
        if dot.text == "." and table.name and layer.name.lower() in LAYERS
    }


def _tables(root: str, mentioned: set[str]) -> dict[str, str]:
    """Where each `layer.table` lies; an object store is not listed, but asked for those named."""
    if "://" in root and not mentioned:
        raise UsageError(f"{root} is an object store, not listed from here: name a table")
    if "://" in root:
        return {name: f"{root.rstrip('/')}/{name.replace('.', '/', 1)}" for name in mentioned}
    if not Path(root).is_dir():
        raise UsageError(f"there is no lakehouse at {root}: no such folder")
    logs = chain.from_iterable(Path(root).glob(f"{layer}/*/_delta_log") for layer in LAYERS)
    return {f"{log.parts[-3]}.{log.parts[-2]}": str(log.parent) for log in logs}


def _engine(names: set[str], tables: dict[str, str], storage_options: Options) -> QueryBuilder:
    """An engine that knows those tables of `names` that exist; it complains about the rest."""
    from deltalake import DeltaTable, QueryBuilder
    from deltalake.exceptions import TableNotFoundError

    engine = QueryBuilder(_SETTINGS)
    paths = {name.lower(): path for name, path in tables.items()}
    for name in sorted(name for name in names if name.lower() in paths):
        try:
            opened = DeltaTable(paths[name.lower()], storage_options=storage_options)
        except TableNotFoundError:  # its folder is there, its first commit is not yet
            continue
        except Exception as error:
            raise UsageError(f"{name} cannot be read: {_BREAKS.sub(' ', str(error))}") from error
        schema, table = ('"' + part.replace('"', '""') + '"' for part in name.split(".", 1))
        engine.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}").read_all()
        engine.register(f"{schema}.{table}", opened)
    return engine


def as_json(result: Result) -> str:
    """`{"columns": [...], "rows": [[...], ...]}`, strict JSON: NaN and the infinities are text."""
    return json.dumps(_plain(vars(result)), ensure_ascii=False, allow_nan=False)


def as_csv(result: Result) -> str:
    """RFC 4180 with a header; NULL is an empty field."""
    return "".join(csv_lines(result.columns, result.rows))


def csv_lines(columns: Names, rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """CSV line by line, for results that do not fit in memory."""
    line: Any = SimpleNamespace(write=str)  # what is written comes back from writerow
    write = csv.writer(line).writerow
    for row in chain([columns], rows):
        yield write(["" if value is None else _text(value) for value in row])


def as_table(result: Result) -> str:
    """An aligned text table, numbers to the right; the closing line is the caller's."""
    padded = []
    for at, name in enumerate(result.columns):
        values = [row[at] for row in result.rows]
        cells = [name, *("NULL" if value is None else _text(value) for value in values)]
        cells = ["".join(c if c.isprintable() else repr(c)[1:-1] for c in cell) for cell in cells]
        width = max(map(len, cells))
        numbers = values and all(type(value) in {int, float, Decimal, NoneType} for value in values)
        cells = [cell.rjust(width) if numbers else cell.ljust(width) for cell in cells]
        padded.append([cells[0], "-" * width, *cells[1:]])
    lines = enumerate(zip(*padded, strict=True))
    return "\n".join(("-+-" if at == 1 else " | ").join(line).rstrip() for at, line in lines)


def _text(value: Any) -> str:
    plain = value if isinstance(value, str) else _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """A value as strict JSON has it; the engine's times without a zone are UTC as well."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            utc = value.astimezone(UTC) if value.tzinfo else value
            return f"{utc.replace(tzinfo=None).isoformat()}Z"
        case Decimal():
            return format(value, "f")  # as text, with every digit
        case bytes():
            return value.hex()
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    return str(value)  # dates, times, durations

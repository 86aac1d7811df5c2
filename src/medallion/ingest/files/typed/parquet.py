"""Parquet without Spark: its rows, its columns, and what Spark would not read as it is.

Spark notes in each file that it writes which columns it has, and reads by that note. Others keep it
when they write the file anew with other columns: Spark would leave columns out, or cut numbers to
the size that was noted, and say nothing. It also cuts timestamps of nanoseconds, after which two
rows may be the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from medallion.storage.table_specs import quote_identifier

if TYPE_CHECKING:
    from deltalake import QueryBuilder

_NOTE = b"org.apache.spark.sql.parquet.row.metadata"
_NUMBERS = {"byte": "Int8", "short": "Int16", "integer": "Int32", "long": "Int64"}
# Arrow's names of types that Spark may not read.
_NO_TYPE = re.compile(r"\b(Time32|Time64|Interval|FixedSizeBinary)\(")


def count(path: Path) -> int:
    """By the footer, as DataFusion reads it."""
    with _opened(path) as (engine, _):
        return _number(engine, "select count(*) from exact")


def columns(path: Path) -> str:
    """Their names and types, and Spark's note, by which a number may be an interval."""
    with _opened(path) as (engine, _):
        fields, note = _fields(engine)
    return repr([[field.name for field in fields], [str(field.type) for field in fields], note])


def why_not_as_it_is(path: Path) -> str | None:
    """Why Spark would read a file otherwise than it is, and say nothing of it."""
    with _opened(path) as (engine, file):
        fields, note = _fields(engine)
        if other := _unlike(note, fields):
            return (
                f"its {other} is not as Spark noted it in the file, by which it would be read: "
                "write the file without the metadata of the one that it was made of"
            )
        if cut := _cut(engine, fields, file):
            return (
                f"its column {cut} has timestamps of nanoseconds, and microseconds is what is kept "
                "of them: write it as microseconds, or as text"
            )
    return None


def columns_without_type(path: Path) -> str:
    """The columns that Spark may have no type for."""
    with _opened(path) as (engine, _):
        fields, _note = _fields(engine)
    return ", ".join(field.name for field in fields if _NO_TYPE.search(str(field.type)))


def _fields(engine: QueryBuilder) -> tuple[list[Any], bytes | None]:
    """The columns of the table `exact`, as Arrow has them, and Spark's note of them, if any."""
    schema = engine.execute("select * from exact limit 0").read_all().schema
    fields = [schema.field(number) for number in range(len(schema.names))]
    return fields, schema.metadata.get(_NOTE)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[QueryBuilder, BinaryIO]]:
    """A Parquet file as the table `exact`."""
    from deltalake import QueryBuilder

    with path.open("rb") as file:
        size = file.seek(0, SEEK_END)
        file.seek(-min(size, 8), SEEK_END)
        end = file.read()
        # DataFusion does not survive a footer that would begin before the file.
        if end[4:] != b"PAR1" or int.from_bytes(end[:4], "little") > size - 12:
            raise EOFError("its footer is torn")
        engine = QueryBuilder()
        _add_table(engine, "exact", file, "skip_metadata 'false'")
        yield engine, file


def _add_table(engine: QueryBuilder, name: str, file: BinaryIO, option: str) -> None:
    """Make a Parquet file a table to DataFusion for as long as it is open, with an option of its
    reader.

    Not by its name: `a.parquet (1)` or one with a tab is none to DataFusion.
    """
    engine.execute(
        f"create external table {name} stored as parquet"
        f" location 'file:///proc/self/fd/{file.fileno()}' options ({option})"
    )


def _number(engine: QueryBuilder, query: str) -> int:
    return int(engine.execute(query).read_all().column(0)[0].as_py() or 0)


def _unlike(note: bytes | None, fields: Iterable[Any]) -> str | None:
    """The first column or field that is not as the note has it; None where all are, or there is no
    note that Spark could read.

    Args:
        note: the text of it.
        fields: the file's columns, as Arrow has them.
    """
    try:
        noted: Any = json.loads(note or b"null")
        return _in_struct(noted, fields) if noted else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _in_struct(noted: Any, fields: Iterable[Any]) -> str | None:
    there: dict[str, Any] = {field.name: field.type for field in fields}
    known: dict[str, Any] = {field["name"]: field["type"] for field in noted["fields"]}
    if more := sorted(there.keys() - known.keys()):  # what is noted and not there is null
        return more[0]
    found = ((name, _within(known[name], kind)) for name, kind in there.items())
    return next((f"{name}{within}" for name, within in found if within is not None), None)


def _within(noted: Any, kind: Any) -> str | None:
    """Where within a type they differ: "" is all of it."""
    if isinstance(noted, str):
        wanted = _NUMBERS.get(noted) or noted.replace("decimal", "Decimal128").replace(",", ", ")
        is_number = noted in _NUMBERS or noted.startswith("decimal")
        return "" if is_number and f"<{wanted}>" not in str(kind) else None
    if noted["type"] == "udt":
        return _within(noted["sqlType"], kind)
    if noted["type"] == "struct" and kind.is_struct(kind):
        within = _in_struct(noted, kind.fields)
        return f".{within}" if within else None
    if noted["type"] == "array" and kind.is_list(kind):
        return _within(noted["elementType"], kind.value_type)
    return None


def _cut(engine: QueryBuilder, fields: Iterable[Any], file: BinaryIO) -> str | None:
    """Return the first column of INT96 timestamps whose nanoseconds Spark would truncate: others of
    nanoseconds it refuses itself. Within structs, arrays and maps they are truncated.

    Years before 1677 or after 2262 wrap around in 64 bits, and so do their microseconds times a
    thousand: the sums of both still differ.

    Args:
        engine: with the file as table `exact`.
        fields: its columns, as Arrow has them.
    """
    columns = [field.name for field in fields if _is_of_nanoseconds(field.type)]
    if columns:
        _add_table(engine, "cut", file, "coerce_int96 'us'")
    for column in columns:
        exact, cut = (_sum(engine, column, table) for table in ("exact", "cut"))
        if (exact - 1000 * cut) % 2**64:
            return str(column)
    return None


def _is_of_nanoseconds(kind: Any) -> bool:
    return bool(kind.is_timestamp(kind)) and kind.time_unit == "ns"


def _sum(engine: QueryBuilder, column: str, table: str) -> int:
    return _number(
        engine, f"select sum(arrow_cast({quote_identifier(column)}, 'Int64')) from {table}"
    )

"""Checks of Parquet, ORC and Avro files without Spark: rows, columns, and what Spark misreads.

Spark writes its schema into each Parquet file and reads the file by it. Other tools keep this
metadata when they rewrite a file with other columns: Spark then drops columns or truncates numbers
without an error. It also truncates INT96 timestamps to microseconds. Avro is parsed by the
specification of its object container files; ORC by pyorc, as Spark takes an empty file for valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from os import SEEK_CUR, SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from medallion.storage.table_specs import quote_identifier
from medallion.storage.text import error_reason

if TYPE_CHECKING:
    from deltalake import QueryBuilder


_NAMES = {"parquet": "Parquet", "orc": "ORC", "avro": "Avro"}


def count_typed_rows(path: Path, kind: str) -> int:
    """The rows of a file, by its footer or block by block.

    Args:
        kind: one of `config.model.TYPED_FORMATS`.

    Raises:
        OSError: it is not there, torn, or not of that kind.
    """
    with _in_words(kind):
        return _COUNTERS[kind](path)


@contextmanager
def _in_words(kind: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ImportError, KeyboardInterrupt, SystemExit):
        raise
    # Hostile bytes end the libraries with errors of a dozen classes, and DataFusion with panics.
    except BaseException as error:
        why = str(error) or type(error).__name__
        raise OSError(f"torn, or no {_NAMES[kind]} file: {why}") from error


def unreadable_typed_reason(path: Path, kind: str) -> str | None:
    """Why Spark would not read all of a file, or not as it is, and say nothing of it."""
    try:
        count_typed_rows(path, kind)
        if kind != "parquet":
            return None
        with _in_words(kind):
            return _misread_parquet_reason(path)
    except FileNotFoundError:  # it has gone: whoever reads it tells
        return None
    except OSError as error:
        return f"cannot be read: {error_reason(error)}"


def column_signature(path: Path, kind: str) -> str:
    """What tells the columns of a file to Spark; raises as `count` does."""
    with _in_words(kind):
        return _SIGNATURES[kind](path)


def unsupported_columns(path: Path) -> str:
    """The columns of a Parquet file that Spark may have no type for; a UUID is bytes to others."""
    try:
        with _in_words("parquet"):
            return _unsupported_parquet_columns(path)
    except OSError:  # it has gone
        return ""


_NOTE = b"org.apache.spark.sql.parquet.row.metadata"
_NUMBERS = {"byte": "Int8", "short": "Int16", "integer": "Int32", "long": "Int64"}
# Arrow's names of types that Spark may not read.
_NO_TYPE = re.compile(r"\b(Time32|Time64|Interval|FixedSizeBinary)\(")


def _count_parquet_rows(path: Path) -> int:
    """By the footer, as DataFusion reads it."""
    with _opened(path) as (engine, _):
        return _query_number(engine, "select count(*) from exact")


def _parquet_signature(path: Path) -> str:
    """Their names and types, and Spark's note, by which a number may be an interval."""
    with _opened(path) as (engine, _):
        fields, note = _fields(engine)
    return repr([[field.name for field in fields], [str(field.type) for field in fields], note])


def _misread_parquet_reason(path: Path) -> str | None:
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


def _unsupported_parquet_columns(path: Path) -> str:
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


def _query_number(engine: QueryBuilder, query: str) -> int:
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
    _parquet_signature = [field.name for field in fields if _is_of_nanoseconds(field.type)]
    if _parquet_signature:
        _add_table(engine, "cut", file, "coerce_int96 'us'")
    for column in _parquet_signature:
        exact, cut = (_sum(engine, column, table) for table in ("exact", "cut"))
        if (exact - 1000 * cut) % 2**64:
            return str(column)
    return None


def _is_of_nanoseconds(kind: Any) -> bool:
    return bool(kind.is_timestamp(kind)) and kind.time_unit == "ns"


def _sum(engine: QueryBuilder, column: str, table: str) -> int:
    return _query_number(
        engine, f"select sum(arrow_cast({quote_identifier(column)}, 'Int64')) from {table}"
    )


def _count_orc_rows(path: Path) -> int:
    """By the footer."""
    import pyorc

    with path.open("rb") as file:
        return len(pyorc.Reader(file))


def _orc_signature(path: Path) -> str:
    """Their names and types, and which library wrote the file, for that decides on its calendar."""
    import pyorc

    with path.open("rb") as file:
        read = pyorc.Reader(file)
        return f"{read.writer_id} {read.schema}"


def _count_avro_rows(path: Path) -> int:
    """By the blocks, whose number of rows stands before each.

    Spark takes two blocks without rows for the end of a file (Source: its AvroUtils.RowReader), and
    any reader the end of the file within such a number.
    """
    rows, before = 0, 1
    with path.open("rb") as file:
        size = file.seek(0, SEEK_END)
        file.seek(0)
        _header(file)
        sync = _exactly(file, 16)
        while file.tell() < size:
            there, length = _read_number(file), _read_number(file)
            if there < 0 or not 0 <= length <= size - file.tell() - 16:
                raise EOFError("a block ends too soon")
            if not (there or before):
                raise ValueError("two blocks without rows follow each other, where Spark stops")
            file.seek(length, SEEK_CUR)
            if _exactly(file, 16) != sync:
                raise ValueError("a block does not end where it says")
            rows, before = rows + there, there
    return rows


def _avro_signature(path: Path) -> str:
    """Its schema, as it stands."""
    with path.open("rb") as file:
        return repr(_header(file)["avro.schema"])


def _header(file: BinaryIO) -> dict[str, bytes]:
    """The values of the header, by name."""
    if _exactly(file, 4) != b"Obj\x01":
        raise ValueError("it does not begin as one")
    found = {}
    while entries := _read_number(file):
        if entries < 0:  # then its length stands before it
            entries = -entries
            _read_number(file)
        for _ in range(entries):
            name = _exactly(file, _read_number(file)).decode(errors="replace")
            found[name] = _exactly(file, _read_number(file))
    return found


def _read_number(file: BinaryIO) -> int:
    """A whole number: seven bits a byte, the lowest first, and the sign in the last bit."""
    found = 0
    for shift in range(0, 70, 7):
        (byte,) = _exactly(file, 1)
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1)
    raise ValueError("a number does not end")


def _exactly(file: BinaryIO, length: int) -> bytes:
    found = file.read(length) if length >= 0 else b""
    if len(found) != length:
        raise EOFError("it ends too soon")
    return found


_COUNTERS: dict[str, Callable[[Path], int]] = {
    "parquet": _count_parquet_rows,
    "orc": _count_orc_rows,
    "avro": _count_avro_rows,
}
_SIGNATURES: dict[str, Callable[[Path], str]] = {
    "parquet": _parquet_signature,
    "orc": _orc_signature,
    "avro": _avro_signature,
}

"""Parquet, ORC and Avro files by ways that share nothing with Spark: their rows, counted, their
columns, and what Spark would not read as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import SEEK_CUR, SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from medallion.sources.files import parquet_notes, typed_times

if TYPE_CHECKING:
    from deltalake import QueryBuilder


def count(path: Path, kind: str) -> int:
    """The rows of a file, by its footer or block by block.

    Args:
        kind: one of `config.model.TYPED`.

    Raises:
        OSError: it is not there, torn, or not of that kind.
    """
    with _in_words(kind):
        return _COUNTS[kind](path)


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


def why_unreadable(path: Path, kind: str) -> str | None:
    """Why Spark would not read all of a file, or not as it is, and say nothing of it."""
    try:
        count(path, kind)
        if kind != "parquet":
            return None
        with _in_words(kind):
            return _why_not_as_it_is(path)
    except FileNotFoundError:  # it has gone: whoever reads it tells
        return None
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"


def _why_not_as_it_is(path: Path) -> str | None:
    engine = _opened(path)
    fields, note = _fields(engine)
    if other := parquet_notes.unlike(note, fields):
        return (
            f"its {other} is not as Spark noted it in the file, by which it would be read: write "
            "the file without the metadata of the one that it was made of"
        )
    if cut := typed_times.in_parquet(engine, fields, path):
        return (
            f"its column {cut} has timestamps of nanoseconds, and microseconds is what is kept of "
            "them: write it as microseconds, or as text"
        )
    return None


def columns(path: Path, kind: str) -> str:
    """What tells the columns of a file to Spark; raises as `count` does."""
    with _in_words(kind):
        return _COLUMNS[kind](path)


def _parquet_columns(path: Path) -> str:
    """With what Spark itself put down: an interval is a number to others."""
    fields, note = _fields(_opened(path))
    return repr([[field.name for field in fields], [str(field.type) for field in fields], note])


def _fields(engine: QueryBuilder) -> tuple[list[Any], bytes | None]:
    """The columns of the table `exact`, as Arrow has them, and Spark's note of them, if any."""
    schema = engine.execute("select * from exact limit 0").read_all().schema
    fields = [schema.field(number) for number in range(len(schema.names))]
    return fields, schema.metadata.get(parquet_notes.NOTE)


def _orc_columns(path: Path) -> str:
    import pyorc

    with path.open("rb") as file:
        read = pyorc.Reader(file)
        return f"{read.writer_id} {read.schema}"


def _avro_columns(path: Path) -> str:
    with path.open("rb") as file:
        return repr(_avro_header(file)["avro.schema"])


def _parquet(path: Path) -> int:
    """As DataFusion reads the footer."""
    found = _opened(path).execute("select count(*) from exact").read_all()
    return int(found.column(0)[0].as_py())


def _opened(path: Path) -> QueryBuilder:
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
    typed_times.add_table(engine, "exact", path, "skip_metadata 'false'")
    return engine


def _orc(path: Path) -> int:
    """As ORC's own library reads the footer; Spark takes an empty file for one without rows."""
    import pyorc

    with path.open("rb") as file:
        return len(pyorc.Reader(file))


def _avro(path: Path) -> int:
    """By the blocks, whose number of rows stands before each. (Source: Avro's specification of
    object container files.)

    Spark takes two blocks without rows for the end of a file (Source: its AvroUtils.RowReader), and
    any reader the end of the file within such a number.
    """
    rows, before = 0, 1
    with path.open("rb") as file:
        size = file.seek(0, SEEK_END)
        file.seek(0)
        _avro_header(file)
        sync = _exactly(file, 16)
        while file.tell() < size:
            there, length = _number(file), _number(file)
            if there < 0 or not 0 <= length <= size - file.tell() - 16:
                raise EOFError("a block ends too soon")
            if not (there or before):
                raise ValueError("two blocks without rows follow each other, where Spark stops")
            file.seek(length, SEEK_CUR)
            if _exactly(file, 16) != sync:
                raise ValueError("a block does not end where it says")
            rows, before = rows + there, there
    return rows


def _avro_header(file: BinaryIO) -> dict[str, bytes]:
    """The values of the header, by name."""
    if _exactly(file, 4) != b"Obj\x01":
        raise ValueError("it does not begin as one")
    found = {}
    while entries := _number(file):
        if entries < 0:  # then its length stands before it
            entries = -entries
            _number(file)
        for _ in range(entries):
            name = _exactly(file, _number(file)).decode(errors="replace")
            found[name] = _exactly(file, _number(file))
    return found


def _number(file: BinaryIO) -> int:
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


_COUNTS: Mapping[str, Callable[[Path], int]] = {"parquet": _parquet, "orc": _orc, "avro": _avro}
_NAMES = {"parquet": "Parquet", "orc": "ORC", "avro": "Avro"}
_COLUMNS: Mapping[str, Callable[[Path], str]] = {
    "parquet": _parquet_columns,
    "orc": _orc_columns,
    "avro": _avro_columns,
}

"""Avro without Spark: its rows, block by block, and its columns.

(Source: Avro's specification of object container files.)
"""

from __future__ import annotations

from os import SEEK_CUR, SEEK_END
from pathlib import Path
from typing import BinaryIO


def count(path: Path) -> int:
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


def columns(path: Path) -> str:
    """Its schema, as it stands."""
    with path.open("rb") as file:
        return repr(_header(file)["avro.schema"])


def _header(file: BinaryIO) -> dict[str, bytes]:
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

"""ORC and Avro files of a test's own, by libraries that share nothing with Spark."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import fastavro
import pyorc
from pyorc.converters import TimestampConverter

Columns = Mapping[str, str]  # by their types in ORC
Rows = Iterable[Mapping[str, Any]]

INDEX: Columns = {"Index": "bigint"}
_IN_AVRO: Mapping[str, Any] = {
    "bigint": "long",
    "string": "string",
    "timestamp with local time zone": {"type": "long", "logicalType": "timestamp-micros"},
    "struct<lat:double>": {
        "type": "record",
        "name": "place",
        "fields": [{"name": "lat", "type": "double"}],
    },
}


class _Nanoseconds(TimestampConverter):
    """A timestamp of ORC also as seconds and nanoseconds: Python's own has microseconds."""

    @staticmethod
    def to_orc(at: Any, zone: Any) -> tuple[int, int]:
        return at if isinstance(at, tuple) else TimestampConverter.to_orc(at, zone)


def _orc(columns: Columns, rows: Rows) -> bytes:
    file = io.BytesIO()
    schema = f"struct<{','.join(f'{name}:{kind}' for name, kind in columns.items())}>"
    made: Any = {pyorc.TypeKind.TIMESTAMP: _Nanoseconds}
    by_name = pyorc.StructRepr.DICT
    with pyorc.Writer(file, schema, struct_repr=by_name, converters=made) as writer:
        for row in rows:
            writer.write({name: row.get(name) for name in columns})
    return file.getvalue()


def _avro(columns: Columns, rows: Rows) -> bytes:
    """In many blocks, packed as Spark packs them."""
    file = io.BytesIO()
    fields = [{"name": n, "type": ["null", _IN_AVRO[kind]]} for n, kind in columns.items()]
    schema = {"type": "record", "name": "row", "fields": fields}
    fastavro.writer(file, schema, map(dict, rows), codec="snappy", sync_interval=20)
    return file.getvalue()


MAKE: Mapping[str, Callable[[Columns, Rows], bytes]] = {"orc": _orc, "avro": _avro}

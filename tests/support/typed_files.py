"""ORC, Avro and Parquet files of a test's own, by libraries that share nothing with Spark."""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
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
    "double": "double",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "map<string,bigint>": {"type": "map", "values": "long"},
    "struct<lat:double>": {
        "type": "record",
        "name": "place",
        "fields": [{"name": "lat", "type": "double"}],
    },
    "struct<lat:double,lon:double>": {
        "type": "record",
        "name": "place",
        "fields": [{"name": name, "type": ["null", "double"]} for name in ("lat", "lon")],
    },
}
# How DuckDB calls types of ORC that it has by other names.
_IN_DUCKDB = {
    "binary": "blob",
    "string": "varchar",
    "timestamp with local time zone": "timestamptz",
    "map<string,bigint>": "map(varchar, bigint)",
    "struct<lat:double>": "struct(lat double)",
    "struct<lat:double,lon:double>": "struct(lat double, lon double)",
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
    fields = [{"name": n, "type": ["null", _in_avro(kind)]} for n, kind in columns.items()]
    schema = {"type": "record", "name": "row", "fields": fields}
    fastavro.writer(file, schema, map(dict, rows), codec="snappy", sync_interval=20)
    return file.getvalue()


def _in_avro(kind: str) -> Any:
    if found := re.fullmatch(r"decimal\((\d+),(\d+)\)", kind):
        size = {"precision": int(found[1]), "scale": int(found[2])}
        return {"type": "bytes", "logicalType": "decimal", **size}
    return _IN_AVRO[kind]


def _parquet(columns: Columns, rows: Rows) -> bytes:
    """By DuckDB."""
    with duckdb.connect() as base, tempfile.TemporaryDirectory() as folder:
        kinds = {name: _IN_DUCKDB.get(kind, kind) for name, kind in columns.items()}
        base.execute(f"create table made ({', '.join(map(_declared, kinds.items()))})")
        given = ", ".join(
            f"map_from_entries(?)::{kind}" if kind.startswith("map") else f"?::{kind}"
            for kind in kinds.values()
        )
        for row in rows:
            values = [row.get(name) for name in kinds]
            base.execute(f"insert into made values ({given})", list(map(_with_entries, values)))
        file = Path(folder) / "made.parquet"
        base.execute(f"copy made to '{file}' (format parquet)")
        return file.read_bytes()


def _declared(column: tuple[str, str]) -> str:
    return f'"{column[0]}" {column[1]}'


def _with_entries(value: Any) -> Any:
    """A map of one entry or more as a list of entries: to DuckDB a dictionary is a struct."""
    if isinstance(value, dict) and "lat" not in value:
        return [{"k": key, "v": item} for key, item in value.items()]
    return value


MAKE: Mapping[str, Callable[[Columns, Rows], bytes]] = {
    "orc": _orc,
    "avro": _avro,
    "parquet": _parquet,
}

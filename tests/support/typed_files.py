"""ORC, Avro and Parquet files, written by libraries that are independent of Spark."""

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

Columns = Mapping[str, str]  # column names and ORC types
Rows = Iterable[Mapping[str, Any]]

INDEX: Columns = {"Index": "bigint"}
_AVRO_TYPES: Mapping[str, Any] = {
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
# DuckDB's names of ORC types, if different.
_DUCKDB_TYPES = {
    "binary": "blob",
    "string": "varchar",
    "timestamp with local time zone": "timestamptz",
    "map<string,bigint>": "map(varchar, bigint)",
    "struct<lat:double>": "struct(lat double)",
    "struct<lat:double,lon:double>": "struct(lat double, lon double)",
}


class _Nanoseconds(TimestampConverter):
    """Also accepts seconds and nanoseconds, because Python's own times have microseconds."""

    @staticmethod
    def to_orc(at: Any, zone: Any) -> tuple[int, int]:
        return at if isinstance(at, tuple) else TimestampConverter.to_orc(at, zone)


def _orc(columns: Columns, rows: Rows) -> bytes:
    file = io.BytesIO()
    schema = f"struct<{','.join(f'{name}:{type_}' for name, type_ in columns.items())}>"
    converters: Any = {pyorc.TypeKind.TIMESTAMP: _Nanoseconds}
    as_dicts = pyorc.StructRepr.DICT
    with pyorc.Writer(file, schema, struct_repr=as_dicts, converters=converters) as writer:
        for row in rows:
            writer.write({name: row.get(name) for name in columns})
    return file.getvalue()


def _avro(columns: Columns, rows: Rows) -> bytes:
    """Return an Avro file of many blocks, compressed as Spark does."""
    file = io.BytesIO()
    fields = [{"name": n, "type": ["null", _avro_type(type_)]} for n, type_ in columns.items()]
    schema = {"type": "record", "name": "row", "fields": fields}
    fastavro.writer(file, schema, map(dict, rows), codec="snappy", sync_interval=20)
    return file.getvalue()


def _avro_type(type_: str) -> Any:
    if decimal := re.fullmatch(r"decimal\((\d+),(\d+)\)", type_):
        size = {"precision": int(decimal[1]), "scale": int(decimal[2])}
        return {"type": "bytes", "logicalType": "decimal", **size}
    return _AVRO_TYPES[type_]


def _parquet(columns: Columns, rows: Rows) -> bytes:
    """Return a Parquet file, written by DuckDB."""
    with duckdb.connect() as base, tempfile.TemporaryDirectory() as folder:
        types = {name: _DUCKDB_TYPES.get(type_, type_) for name, type_ in columns.items()}
        base.execute(f"create table made ({', '.join(map(_column_sql, types.items()))})")
        placeholders = ", ".join(
            f"map_from_entries(?)::{type_}" if type_.startswith("map") else f"?::{type_}"
            for type_ in types.values()
        )
        for row in rows:
            values = [row.get(name) for name in types]
            base.execute(
                f"insert into made values ({placeholders})", list(map(_with_entries, values))
            )
        file = Path(folder) / "made.parquet"
        base.execute(f"copy made to '{file}' (format parquet)")
        return file.read_bytes()


def _column_sql(column: tuple[str, str]) -> str:
    return f'"{column[0]}" {column[1]}'


def _with_entries(value: Any) -> Any:
    """Convert a map to a list of entries, because DuckDB takes a dictionary for a struct."""
    if isinstance(value, dict) and "lat" not in value:
        return [{"k": key, "v": item} for key, item in value.items()]
    return value


MAKE: Mapping[str, Callable[[Columns, Rows], bytes]] = {
    "orc": _orc,
    "avro": _avro,
    "parquet": _parquet,
}

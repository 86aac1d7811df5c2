"""Checks of Parquet, ORC and Avro files without Spark: rows, columns, and what Spark misreads.

Spark writes its schema into each Parquet file and reads the file by it. Other tools keep this
metadata when they rewrite a file with other columns: Spark then drops columns or truncates numbers
without an error. It also truncates INT96 timestamps to microseconds. ORC is read by pyorc, as Spark
takes an empty file for valid.
"""

import json
import re
from ast import literal_eval
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import SEEK_CUR
from pathlib import Path
from typing import Any, NamedTuple, cast

from medallion.storage.text import error_reason

_NAMES = {"parquet": "Parquet", "orc": "ORC", "avro": "Avro"}
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
# Spark's numbers by Arrow's names.
_NUMBERS = {"byte": "int8", "short": "int16", "integer": "int32", "long": "int64"}
# Parquet's names of types that Spark does not read.
_UNSUPPORTED = re.compile(r"Time\(|Interval|UUID|Float16")


class TypedFile(NamedTuple):
    """What the metadata of a file says.

    Attributes:
        rows: the number of its rows.
        signature: a string that files share if Spark can read them together. That of ORC starts
            with the library that wrote the file, which decides on its calendar.
    """

    rows: int
    signature: str


def inspect_typed(path: Path, file_format: str) -> TypedFile:
    """Read the metadata of a file, or walk its blocks.

    Args:
        path: The file.
        file_format: One of `config.model.TYPED_FORMATS`.

    Raises:
        OSError: The file is missing, truncated or in another format.
    """
    with _as_os_error(file_format):
        return _INSPECTORS[file_format](path)


@contextmanager
def _as_os_error(file_format: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise
    except Exception as error:  # corrupt bytes make the libraries raise errors of many classes
        if getattr(error, "errno", None) is not None:
            raise
        reason = str(error).strip() or type(error).__name__
        raise OSError(f"truncated, or not {_NAMES[file_format]}: {reason}") from error


def unreadable_typed_reason(path: Path, file_format: str) -> str | None:
    """Return why Spark cannot read a file, or misreads it; None if it reads it correctly."""
    try:
        inspect_typed(path, file_format)
        if file_format != "parquet":
            return None
        with _as_os_error(file_format):
            return _misread_parquet_reason(path)
    except FileNotFoundError:  # the next reader reports it
        return None
    except OSError as error:
        return f"cannot be read: {error_reason(error)}"


def untyped_columns(signature: str, file_format: str) -> set[str]:
    """Return the columns of Parquet files that have no type, as all values are null.

    Spark reads them as integers.
    """
    if file_format != "parquet":
        return set()
    names, types, _ = literal_eval(signature)
    return {name for name, type_ in zip(names, types, strict=True) if type_ == "null"}


def unsupported_columns(path: Path) -> str:
    """Return the columns of a Parquet file that Spark has no type for."""
    try:
        with _as_os_error("parquet"), _open_parquet(path) as file:
            columns = [file.schema.column(number) for number in range(len(file.schema))]
    except OSError:  # it is gone
        return ""
    return ", ".join(c.path for c in columns if _UNSUPPORTED.match(str(c.logical_type)))


def _open_parquet(path: Path, **options: Any) -> Any:
    from pyarrow import parquet

    return parquet.ParquetFile(path, **options)


def _inspect_parquet(path: Path) -> TypedFile:
    """Sign names, types and Spark's own schema, in which a number may be an interval."""
    with _open_parquet(path) as file:
        fields, spark_schema = file.schema_arrow, (file.metadata.metadata or {}).get(_SPARK_SCHEMA)
        signature = repr([fields.names, list(map(str, fields.types)), spark_schema])
        return TypedFile(int(file.metadata.num_rows), signature)


def _misread_parquet_reason(path: Path) -> str | None:
    """Return why Spark misreads a file without an error; None if it does not."""
    with _open_parquet(path) as file:
        fields, spark_schema = file.schema_arrow, (file.metadata.metadata or {}).get(_SPARK_SCHEMA)
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    if any(g.column(n).compression == "BROTLI" for g in groups for n in range(g.num_columns)):
        return "its compression, Brotli, is not supported: write it with zstd or snappy"
    if field := _differing_field(spark_schema, fields):
        return (
            f"its {field} is not as in the Spark schema in its metadata, by which Spark reads it: "
            "write the file without this metadata"
        )
    for field in fields:
        if str(field.type) == "timestamp[ns]" and _has_nanoseconds(path, field.name):
            return (
                f"its column {field.name} has timestamps of nanoseconds, which Spark truncates to "
                "microseconds: write it as microseconds (coerce_timestamps of pandas), or as text"
            )
    return None


def _differing_field(spark_schema: bytes | None, fields: Iterable[Any]) -> str | None:
    """Return the first column or field that differs from Spark's schema, if the file has one."""
    try:
        schema: Any = json.loads(spark_schema or b"null")
        return _differing_member(schema, fields) if schema else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _differing_member(spark_schema: Any, fields: Iterable[Any]) -> str | None:
    known: dict[str, Any] = {field["name"]: field["type"] for field in spark_schema["fields"]}
    for field in fields:  # a column that is missing is null
        if field.name not in known:
            return str(field.name)
        within = _difference(known[field.name], field.type)
        if within is not None:
            return f"{field.name}{within}"
    return None


def _difference(spark_type: Any, arrow_type: Any) -> str | None:
    """Return the differing part of a type: "" for the type itself, None if none differs."""
    from pyarrow import types

    if isinstance(spark_type, str):
        decimal = spark_type.replace("decimal", "decimal128").replace(",", ", ")
        wanted = _NUMBERS.get(spark_type) or decimal
        is_number = spark_type in _NUMBERS or spark_type.startswith("decimal")
        return "" if is_number and wanted != str(arrow_type) else None
    if spark_type["type"] == "struct" and types.is_struct(arrow_type):
        within = _differing_member(spark_type, arrow_type)
        return f".{within}" if within else None
    if spark_type["type"] == "array" and types.is_list(arrow_type):
        return _difference(spark_type["elementType"], arrow_type.value_type)
    return None


def _has_nanoseconds(path: Path, column: str) -> bool:
    """Return whether INT96 timestamps of a column have digits that Spark truncates.

    Spark refuses other timestamps of nanoseconds itself.
    """
    from pyarrow import compute

    micros = _open_parquet(path, coerce_int96_timestamp_unit="us")
    with _open_parquet(path) as exact, micros:
        for group in range(exact.num_row_groups):
            one, other = (
                file.read_row_group(group, [column]).column(0).cast("int64")
                for file in (exact, micros)
            )
            # Both overflow alike, beyond the years of 64 bits of nanoseconds.
            if compute.any(compute.not_equal(one, compute.multiply(other, 1000))).as_py():
                return True
    return False


def _inspect_orc(path: Path) -> TypedFile:
    import pyorc

    with path.open("rb") as file:
        reader = pyorc.Reader(file)
        return TypedFile(len(reader), f"{reader.writer_id} {reader.schema}")


def _inspect_avro(path: Path) -> TypedFile:
    """Count the rows by the number that starts each block, and sign the schema as it is written.

    Spark takes two empty blocks for the end of a file (source: its AvroUtils.RowReader). Readers
    accept a file that is truncated within such a number.
    """
    from fastavro.read import HEADER_SCHEMA, MAGIC, schemaless_reader

    rows, previous, size = 0, 1, path.stat().st_size
    with path.open("rb") as file:
        header: Any = schemaless_reader(file, HEADER_SCHEMA, None)
        if header["magic"] != MAGIC:
            raise ValueError("its first bytes are different")
        while file.tell() < size:
            count, length = (cast(int, schemaless_reader(file, "long", None)) for _ in range(2))
            if count < 0 or length < 0:
                raise ValueError("a block has a negative size")
            if not (count or previous):
                raise ValueError("Spark stops at two consecutive empty blocks")
            file.seek(length, SEEK_CUR)
            if file.read(len(header["sync"])) != header["sync"]:
                raise ValueError("a block does not end where it says")
            rows, previous = rows + count, count
    return TypedFile(rows, repr(header["meta"]["avro.schema"]))


_INSPECTORS = {"parquet": _inspect_parquet, "orc": _inspect_orc, "avro": _inspect_avro}

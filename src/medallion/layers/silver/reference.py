"""A reference read: a CSV file or a Delta table, with one row a key and values of their types."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.errors import MedallionError
from medallion.ingest.files.codecs import READ_ERRORS, opened
from medallion.ingest.parsing.times import is_time
from medallion.spark.plans import KINDS
from medallion.storage import delta_tables
from medallion.storage.paths import why_no_place

_LONG = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_DAY = re.compile(r"[0-9]+-[0-9]+-[0-9]+")


@dataclass(frozen=True)
class Reference:
    """A reference as it was looked at: another one has another `version`.

    `rows` gives its rows, those without a key left out. It raises MedallionError where a column is
    missing, a value is not of its column's type, or a key is there twice.
    """

    version: str
    rows: Callable[[], DataFrame]


def look(spark: SparkSession, file: Path, name: str, kinds: Mapping[str, str]) -> Reference:
    """Look at a reference, whose rows are read later on.

    Args:
        file: the CSV file, or the folder of the Delta table.
        name: what people are told that it is called.
        kinds: the columns that are taken, with their kinds; the first one is the key.

    Raises:
        MedallionError: it is not there, or cannot be read.
    """
    if file.is_dir():
        return _delta(spark, file, name, kinds)
    try:
        with opened(file) as packed:
            data = packed.read()
    except FileNotFoundError:
        raise MedallionError(f"{name}: no such file, and no Delta table.") from None
    except READ_ERRORS as error:
        raise MedallionError(f"{name}: cannot be read ({error}).") from None

    def rows() -> DataFrame:
        texts = ", ".join(f"`{column}` string" for column in kinds)
        return _checked(spark.createDataFrame(list(_fields(data, name, kinds)), texts), name, kinds)

    return Reference(hashlib.sha256(data).hexdigest(), rows)


def _delta(spark: SparkSession, folder: Path, name: str, kinds: Mapping[str, str]) -> Reference:
    if not delta_tables.table_exists(folder):
        raise MedallionError(f"{name}: no Delta table, and no CSV file.")
    if why := why_no_place(folder):
        raise MedallionError(f"{name}: {why}.")
    table = delta_tables.open_table(folder)
    version = table.version()

    def rows() -> DataFrame:
        then = spark.read.format("delta").option("versionAsOf", str(version)).load(str(folder))
        types = dict(then.dtypes)
        _places(list(types), name, kinds)
        for column, kind in kinds.items():
            if KINDS.get(types[column]) != kind:
                raise MedallionError(f"{name}: {column} is {types[column]} there, and not {kind}.")
        return _checked(then, name, kinds)

    return Reference(f"{table.metadata().id} {version}", rows)


def _checked(rows: DataFrame, name: str, kinds: Mapping[str, str]) -> DataFrame:
    """The rows that have a key, typed; refused where two have the same one."""
    key = next(iter(kinds))
    typed = rows.select(*(F.col(f"`{c}`").cast(kind).alias(c) for c, kind in kinds.items()))
    known = typed.where(F.col(key).isNotNull())
    several = known.groupBy(F.col(key).alias("_key")).agg(F.count("*").alias("_rows"))
    if twice := several.where("_rows > 1").selectExpr("string(_key)", "_rows").limit(1).collect():
        value, times = twice[0]
        raise MedallionError(
            f"{name}: {key} {value!r} is there {times:,} times, which would multiply rows: a "
            "reference has one row a key."
        )
    return known


def _fields(data: bytes, name: str, kinds: Mapping[str, str]) -> Iterator[tuple[str | None, ...]]:
    """The fields of each row that are taken, as texts that can be cast; an empty one is null."""
    try:
        reader = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        header = next((fields for fields in reader if fields), [])
        places = _places(header, name, kinds)
        for fields in reader:
            where = f"{name} line {reader.line_num}"
            if fields and len(fields) != len(header):
                many = f"{len(fields)} fields, where the header has {len(header)}"
                raise MedallionError(f"{where}: {many}.")
            if fields:
                yield tuple(_field(where, c, kinds[c], fields[at]) for c, at in places.items())
    except UnicodeDecodeError:
        raise MedallionError(f"{name}: cannot be read, for it is not UTF-8.") from None
    except csv.Error as error:
        raise MedallionError(f"{name}: cannot be read as CSV ({error}).") from None


def _places(header: Sequence[str], name: str, kinds: Mapping[str, str]) -> dict[str, int]:
    for column in kinds:
        if column not in header:
            has = f"it has {', '.join(header)}" if header else "it has none"
            raise MedallionError(f"{name}: has no column {column}; {has}.")
        if header.count(column) > 1:
            raise MedallionError(f"{name}: has the column {column} twice.")
    return {column: header.index(column) for column in kinds}


def _field(where: str, column: str, kind: str, text: str) -> str | None:
    if text and not _FITS[kind](text):
        raise MedallionError(f"{where}: {column} {text!r} is no {kind}.")
    return text or None


# As bronze takes a field of CSV: what is a number, a truth or a time only in part is none.
def _is_long(text: str) -> bool:
    return bool(_LONG.fullmatch(text)) and -(2**63) <= int(text) < 2**63


def _is_double(text: str) -> bool:
    try:
        value = json.loads(text)
        return type(value) in (int, float) and isfinite(float(value))
    except (ValueError, OverflowError):
        return False


_FITS: Mapping[str, Callable[[str], bool]] = {
    "string": lambda text: True,
    "long": _is_long,
    "double": _is_double,
    "boolean": lambda text: text in ("true", "false"),
    "date": lambda text: bool(_DAY.fullmatch(text)) and is_time(text),
    "timestamp": is_time,
}

"""The rows of files that bring their columns' types, Parquet, ORC and Avro, by Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.ingest.files import typed
from medallion.ingest.parsing.typed import typed_column_name
from medallion.spark.plans import type_ddl
from medallion.storage.table_specs import quote_identifier

# Spark 4.2 has the format, but its short name comes with a jar of which nothing else is needed.
_FORMATS = {"avro": "org.apache.spark.sql.avro.AvroFileFormat"}
# By which calendar Spark takes ORC's days before 1582 where the file does not say. Files of the C++
# library never say, and are written by today's calendar.
_IS_GREGORIAN = "orc.proleptic.gregorian.default"
# Types in the JSON of a schema; a column's name never stands under such a key.
_TIMES = r'"(\w*[tT]ype)":"timestamp(_ntz)?"'


def read(spark: SparkSession, kind: str, files: Mapping[str, str]) -> DataFrame:
    """Return the rows of some files: their columns by `parsing.typed.column_name`, and `_file`,
    `_modified`.

    Args:
        kind: one of `config.model.TYPED_FORMATS`.
        files: paths, and how Spark takes them.

    Raises:
        OSError: a file is truncated.
    """
    # Read together, all files would be taken to have the columns of one: those of Avro altogether,
    # those of Parquet in how names are spelled, and those of ORC without names by their places.
    groups: dict[str, list[str]] = {}
    for file, path in files.items():
        groups.setdefault(typed.columns(Path(file), kind), []).append(path)
    names: dict[tuple[str, str], str] = {}
    parts = [_load(spark, kind, columns, some, names) for columns, some in groups.items()]
    return together(parts)


def _load(
    spark: SparkSession,
    kind: str,
    columns: str,
    files: Sequence[str],
    names: dict[tuple[str, str], str],
) -> DataFrame:
    """Return the rows of files of the same columns.

    Args:
        names: of each column's name and type the name that it gets; is added to.
    """
    loader = spark.read.format(_FORMATS.get(kind, kind))
    if kind == "orc":
        is_gregorian = str(columns.startswith("ORC_CPP_WRITER")).lower()
        loader = loader.option(_IS_GREGORIAN, is_gregorian)
    rows = loader.load(list(files))
    # Not by `rows.schema`: Python would import the modules that a file's own types name.
    found = rows._jdf.schema().json()
    own = json.dumps(_without_own_types(json.loads(found)), separators=(",", ":"))
    # As strings timestamps of ORC have all their nanoseconds, and any year.
    wanted = re.sub(_TIMES, r'"\1":"string"', own) if kind == "orc" else own
    if json.loads(wanted) != json.loads(found):
        rows = loader.schema(_struct(wanted)).load(list(files))
    selected = []
    for field in _struct(own):
        key = (field.name, type_ddl(field.dataType))
        name = names.setdefault(key, typed_column_name(len(names), field.name, field.dataType))
        selected.append(F.col(quote_identifier(field.name)).alias(name))
    return located(rows, *selected)


def _struct(schema: str) -> T.StructType:
    return T.StructType.fromJson(json.loads(schema))


def _without_own_types(schema: Any) -> Any:
    """Put the types that they are made of in the places of user-defined ones."""
    if isinstance(schema, list):
        return [_without_own_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "udt":
        return _without_own_types(schema["sqlType"])
    return {key: _without_own_types(value) for key, value in schema.items()}


def together(parts: Sequence[DataFrame]) -> DataFrame:
    """Return all rows of at least one DataFrame; columns that only some have are null in others."""
    while len(parts) > 1:  # in pairs, for a chain of a thousand is deeper than Spark can plan
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [
            *(a.unionByName(b, allowMissingColumns=True) for a, b in pairs),
            *parts[len(parts) // 2 * 2 :],
        ]
    return parts[0]


def located(read: DataFrame, *values: Column) -> DataFrame:
    """Return some values of each row, with the file that it is from."""
    # A file may have a column of this name, which F.col would take.
    file = read.metadataColumn("_metadata")
    return read.select(
        *values,
        file.getField("file_path").alias("_file"),
        file.getField("file_modification_time").alias("_modified"),
    )

"""Files that bring their columns' types, Parquet, ORC and Avro, as rows of JSON text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from medallion.lakehouse.columns import quoted
from medallion.sources.files import typed

# By itself Spark writes milliseconds.
_LOCAL = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]"
_MICROSECONDS = {"timestampFormat": f"{_LOCAL}[XXX]", "timestampNTZFormat": _LOCAL}
# Spark 4.2 has the format, but its short name comes with a jar of which nothing else is needed.
_FORMATS = {"avro": "org.apache.spark.sql.avro.AvroFileFormat"}
# By which calendar Spark takes ORC's days before 1582 where the file does not say. Files of the C++
# library never say, and are written by today's calendar.
_IS_GREGORIAN = "orc.proleptic.gregorian.default"
# Types in the JSON of a schema; a column's name never stands under such a key.
_TIMES = r'"(\w*[tT]ype)":"timestamp(_ntz)?"'
# Maps become objects. Keys of other types than these would be written as addresses in memory, or as
# a number of days.
_UNSAYABLE = re.compile(r"\bmap<(?!string|tinyint|smallint|int|bigint|boolean|decimal)(\w+)")
_NO_UTF8 = "\ufffd"


def read(spark: SparkSession, kind: str, files: Mapping[str, str]) -> DataFrame:
    """The rows of some files: `value` (JSON text), `_file`, `_modified`.

    Args:
        kind: one of `config.model.TYPED`.
        files: paths, and how Spark takes them.

    Raises:
        OSError: a file is torn, or has keys of maps that are no text.
    """
    # Read together, all files would be taken to have the columns of one: those of Avro altogether,
    # those of Parquet in how names are spelled, and those of ORC without names by their places.
    groups: dict[str, list[str]] = {}
    for file, path in files.items():
        groups.setdefault(typed.columns(Path(file), kind), []).append(path)
    return together([_as_json(_load(spark, kind, cols, some)) for cols, some in groups.items()])


def _load(spark: SparkSession, kind: str, columns: str, files: Sequence[str]) -> DataFrame:
    """The rows of files of the same columns."""
    if kind != "orc":
        return spark.read.format(_FORMATS.get(kind, kind)).load(list(files))
    is_gregorian = str(columns.startswith("ORC_CPP_WRITER")).lower()
    loader = spark.read.format(kind).option(_IS_GREGORIAN, is_gregorian)
    # As text timestamps have all their nanoseconds, and any year: the parser sees what fits.
    found = re.sub(_TIMES, r'"\1":"string"', loader.load(list(files)).schema.json())
    return loader.schema(StructType.fromJson(json.loads(found))).load(list(files))


def _as_json(read: DataFrame) -> DataFrame:
    # Not by `read.schema`: Python would import the modules that a file's own types name.
    if found := _UNSAYABLE.search(read._jdf.schema().catalogString()):
        raise OSError(f"has a map whose keys are {found[1]}, which JSON cannot say")
    # It writes bytes as Base64, and numbers of 32 bits in no more digits than tell them apart: 0.1,
    # and not 0.10000000149011612.
    row = F.struct("*")
    said = F.to_json(row, _MICROSECONDS)
    # Text that is not UTF-8 would lose bytes there, and two texts could become one. Such a row is
    # passed on as it stands: that is no JSON, and so kept as a corrupt record.
    as_it_is = F.struct(*_bytes_as_base64(read)).cast("string")
    is_lossy = said.contains(_NO_UTF8) & ~F.is_valid_utf8(as_it_is)
    return located(read, F.when(is_lossy, as_it_is).otherwise(said))


def _bytes_as_base64(read: DataFrame) -> Iterator[Column]:
    """All columns, those of bytes as Base64: they need not be UTF-8."""
    for field in read._jdf.schema().fields():
        column = F.col(quoted(field.name()))
        is_bytes = field.dataType().catalogString() == "binary"
        yield F.base64(column).alias(field.name()) if is_bytes else column


def together(parts: Sequence[DataFrame]) -> DataFrame:
    """All rows of at least one DataFrame, of the same columns."""
    while len(parts) > 1:  # in pairs, for a chain of a thousand is deeper than Spark can plan
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [*(a.unionByName(b) for a, b in pairs), *parts[len(parts) // 2 * 2 :]]
    return parts[0]


def located(read: DataFrame, value: Column) -> DataFrame:
    """A value of each row, with the file that it is of."""
    # A file may have a column of this name, which F.col would take.
    file = read.metadataColumn("_metadata")
    return read.select(
        value.alias("value"),
        file.getField("file_path").alias("_file"),
        file.getField("file_modification_time").alias("_modified"),
    )

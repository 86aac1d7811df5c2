"""Files that bring their columns' types, Parquet, ORC and Avro, as rows of JSON text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.spark.errors import SPARK_ERRORS

# By itself, Spark writes milliseconds.
_LOCAL = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]"
_MICROSECONDS = {"timestampFormat": f"{_LOCAL}[XXX]", "timestampNTZFormat": _LOCAL}
# Spark 4.2 has the format, but its short name comes with a jar of which nothing else is needed.
_AVRO = "org.apache.spark.sql.avro.AvroFileFormat"


def read(spark: SparkSession, kind: str, files: Mapping[str, str]) -> DataFrame:
    """The rows of some files: `value` (JSON text), `_file`, `_modified`.

    Args:
        kind: one of `config.model.TYPED`.
        files: paths, and how Spark takes them.
    """
    if kind == "avro":  # Spark takes the columns of one file for all
        return _in_parts(spark, _AVRO, _by_columns(files))
    try:
        together = spark.read.format(kind).option("mergeSchema", "true")
        return _as_json(together.load(list(files.values())))
    except SPARK_ERRORS:  # their types differ: each by its own
        return _in_parts(spark, kind, [[file] for file in files.values()])


def _by_columns(files: Mapping[str, str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for file, path in files.items():
        groups.setdefault(_schema_of(file), []).append(path)
    return list(groups.values())


def _schema_of(file: str) -> str:
    """The schema that an Avro file was written by, as its header has it."""
    import fastavro

    try:
        with Path(file).open("rb") as opened:
            return str(fastavro.reader(opened).metadata["avro.schema"])
    except Exception as error:  # it was whole when it was looked at
        raise OSError(f"{file}: has no header of Avro: {error}") from error


def _in_parts(spark: SparkSession, kind: str, parts: Sequence[list[str]]) -> DataFrame:
    rows = (_as_json(spark.read.format(kind).load(some)) for some in parts)
    return reduce(DataFrame.unionByName, rows)


def _as_json(read: DataFrame) -> DataFrame:
    fields = (F.col("`{}`".format(name.replace("`", "``"))).alias(name) for name in read.columns)
    return located(read, F.to_json(F.struct(*fields), _MICROSECONDS))


def located(read: DataFrame, value: Column) -> DataFrame:
    """A value of each row, with the file that it is of."""
    # A file may have a column of this name, which F.col would take.
    file = read.metadataColumn("_metadata")
    return read.select(
        value.alias("value"),
        file.getField("file_path").alias("_file"),
        file.getField("file_modification_time").alias("_modified"),
    )

"""Files as rows for the parser.

JSON, text and CSV become JSON; Parquet, ORC and Avro keep their typed columns.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.model import TYPED_FORMATS, Config, SourceConfig
from medallion.ingest.files import typed_files
from medallion.ingest.files.decode import Rows, decode_file, has_documents, is_decoded
from medallion.ingest.files.lines import BOM
from medallion.ingest.parsing.json_text import split_objects
from medallion.ingest.parsing.parse import NOT_JSON
from medallion.ingest.parsing.typed import typed_column_name
from medallion.spark.delta import escape_path
from medallion.spark.plans import type_ddl
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import (
    SOURCE_FILE,
    SOURCE_MODIFIED_AT,
    SOURCE_POSITION,
    quote_identifier,
)

# A line without any of these is blank: it is not a row.
_NOT_BLANK = r"[^ \t\r\n\x0B\f]"
# Several objects on one line, with one blank between them at most: a cheap test.
_HAS_OBJECTS = "(contains(value, '}{') or contains(value, '} {')) and is_valid_utf8(value)"
_OBJECTS = split_objects("value")
# Paths that are the same in a file's URI and in the ledger.
_PLAIN_PATH = re.compile(r"(?!/)[A-Za-z0-9_./=-]*")
_TASKS_PER_CORE = 4


def read_rows(
    spark: SparkSession,
    config: Config,
    source: SourceConfig,
    paths: Sequence[str],
    columns: Mapping[str, str],
) -> DataFrame:
    """Return the rows of some files.

    Args:
        spark: The session.
        config: The configuration.
        source: The source of the files.
        paths: At least one file, as the ledger spells it.
        columns: The known columns with their types; a CSV field that looks like a number is
            written as one if its column has such a type.

    Returns:
        `value` (JSON), `_source_file`, `_source_modified_at` and `_source_position`. Files that
        Python decodes also have `_no_json` (the text of corrupt rows). Parquet, ORC and Avro have
        their columns in place of `value` (`parsing.typed`).
    """
    root, parts = config.layout.root, []
    is_text = source.format not in TYPED_FORMATS
    decoded = [path for path in paths if is_text and is_decoded(path, source)]
    if decoded:
        rows = _decoded_rows(spark, root, source, columns, decoded)
        parts.append(_split_json(rows, source))
    if plain := [path for path in paths if path not in set(decoded)]:
        # Spark reads a [ in a path as a glob. Its option to disable globs makes it read the files
        # without one twice.
        files = {file: escape_path(file) for path in plain if (file := str(root / path))}
        rows = _spark_rows(spark, source, files)
        parts.append(
            rows.select(
                *(quote_identifier(name) for name in rows.columns if name not in _ORIGIN),
                _relative_path(F.col("_file"), root, plain).alias(SOURCE_FILE),
                F.col("_modified").alias(SOURCE_MODIFIED_AT),
                SOURCE_POSITION,
            )
        )
    return _union_all(parts)


def _relative_path(uri: Column, root: StoragePath, paths: Sequence[str]) -> Column:
    """Return the root-relative path of a file from its percent-encoded URI."""
    start = f"{root.uri}/".replace("///", "/", 1)  # as Hadoop writes it
    rest = F.substr(uri, F.lit(len(start) + 1))
    if all(map(_PLAIN_PATH.fullmatch, (str(root)[1:], *paths))):
        return rest
    # Spark has no decoder that leaves a + alone.
    path = F.url_decode(F.replace(uri, F.lit("+"), F.lit("%2B")))
    path = F.regexp_replace(path, "^file:/+", "/")
    decoded = F.regexp_replace(path, f"^\\Q{root}/\\E", "")
    # Decoding costs as much as parsing, so only paths that need it are decoded. `decoded` is used
    # only once: Spark would compute a repeated expression for every row.
    return F.when(uri.startswith(start) & ~rest.contains("%"), rest).otherwise(decoded)


def _decode_files(
    root: StoragePath,
    source: SourceConfig,
    columns: Mapping[str, str],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files in Spark's Python workers.

    Args:
        root: The root of the paths.
        source: The source of the files.
        columns: The known columns with their types.
        batches: The paths, in the only column.
    """
    for path in (path for batch in batches for path in batch.column(0).to_pylist()):
        file = root / path
        modified_at = getattr(file.info(), "modified_at", 0)
        with file.as_local() as local:
            for rows in decode_file(local, source, columns):
                yield _record_batch(path, modified_at, rows)


def _record_batch(path: str, modified_at: int, rows: Rows) -> pa.RecordBatch:
    values = [*rows.values, *[""] * len(rows.corrupt)]
    corrupt = [*[None] * len(rows.values), *rows.corrupt]
    name = f"{path}#{rows.member}" if rows.member else path
    time = pa.timestamp("us", "UTC")
    columns = {
        "value": pa.array(values, pa.string()),
        NOT_JSON: pa.array(corrupt, pa.string()),
        SOURCE_FILE: pa.repeat(pa.scalar(name), len(values)),
        SOURCE_MODIFIED_AT: pa.repeat(pa.scalar(modified_at, time), len(values)),
        SOURCE_POSITION: pa.array(rows.lines, pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _decoded_rows(
    spark: SparkSession,
    root: StoragePath,
    source: SourceConfig,
    columns: Mapping[str, str],
    paths: Sequence[str],
) -> DataFrame:
    """Return the rows of files that Python decodes, each file in one task."""
    tasks = min(len(paths), _TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    files = spark.createDataFrame([(path,) for path in paths], "path string")
    schema = (
        f"value string, {NOT_JSON} string, {SOURCE_FILE} string, {SOURCE_MODIFIED_AT} timestamp, "
        f"{SOURCE_POSITION} long"
    )
    decode = partial(_decode_files, root, source, dict(columns))
    return files.repartition(tasks).mapInArrow(decode, schema)


def _spark_rows(spark: SparkSession, source: SourceConfig, files: Mapping[str, str]) -> DataFrame:
    """Return the rows of files that Spark reads, each path with the glob that matches only it."""
    if source.format in TYPED_FORMATS:
        return _typed(spark, source.format, files)
    value = F.col("value")
    texts = _with_origin(spark.read.text([*files.values()]), value)
    # Concatenated files repeat their byte-order mark.
    without_bom = F.when(value.startswith(BOM), F.ltrim(value, F.lit(BOM))).otherwise(value)
    # Most lines start with {, and need no regular expression.
    is_row = value.startswith("{") | value.rlike(_NOT_BLANK)
    rows = texts.withColumn("value", without_bom).where(is_row)
    if source.format == "text":  # a line that is not UTF-8 is kept as it is, and is corrupt
        as_json = F.when(F.is_valid_utf8(value), F.to_json(F.struct(value))).otherwise(value)
        return rows.withColumn("value", as_json)
    return _split_json(rows, source)


def _split_json(rows: DataFrame, source: SourceConfig) -> DataFrame:
    """Return a row for each of the JSON objects of a line."""
    if source.format != "json" or has_documents(source):
        return rows
    # The array of null is a constant: lines with one object are not copied into arrays.
    parts = f"case when {_HAS_OBJECTS} then {_OBJECTS} else array(cast(null as string)) end"
    others = [name for name in rows.columns if name != "value"]
    split = rows.select("*", F.explode(F.expr(parts)).alias("_part"))
    return split.select(F.coalesce("_part", "value").alias("value"), *others)


_ORIGIN = ("_file", "_modified", SOURCE_POSITION)
# A block of a file starts at a multiple of megabytes, and has fewer rows than this times its bytes.
_POSITIONS_PER_BYTE = 1 << 12
_ROW_OF_TASK = (1 << 33) - 1  # the lower bits of monotonically_increasing_id


# Spark 4.2 includes Avro; only the short name of the format needs the spark-avro jar.
_FORMATS = {"avro": "org.apache.spark.sql.avro.AvroFileFormat"}
# The calendar of ORC's dates before 1582 if the file does not name it. Files of the C++ library do
# not, and use the proleptic Gregorian calendar.
_IS_GREGORIAN = "orc.proleptic.gregorian.default"
# Timestamp types in the JSON of a schema; a column's name is never the value of such a key.
_TIMES = r'"(\w*[tT]ype)":"timestamp(_ntz)?"'


def _typed(spark: SparkSession, file_format: str, files: Mapping[str, str]) -> DataFrame:
    """Return the rows of typed files.

    Their columns have the names of `typed_column_name`; `_file` and `_modified` follow.

    Raises:
        OSError: a file is truncated.
    """
    # Spark would apply the schema of one file to all that it reads together: Avro's columns, the
    # spelling of Parquet's names, and the positions of ORC's columns without names.
    groups: dict[str, list[str]] = {}
    for file, path in files.items():
        with StoragePath(file).as_local() as local:
            signature = typed_files.inspect_typed(local, file_format).signature
        groups.setdefault(signature, []).append(path)
    names: dict[tuple[str, str], str] = {}
    return _union_all([_load(spark, file_format, *group, names) for group in groups.items()])


def _load(
    spark: SparkSession,
    file_format: str,
    signature: str,
    files: Sequence[str],
    names: dict[tuple[str, str], str],
) -> DataFrame:
    """Return the rows of files with the same columns.

    Args:
        file_format: the format of the source.
        signature: the signature of the files (`typed_files.TypedFile`).
        files: the paths.
        names: the new name of each column by its name and type; new ones are added.
    """
    loader = spark.read.format(_FORMATS.get(file_format, file_format))
    if file_format == "orc":
        is_gregorian = str(signature.startswith("ORC_CPP_WRITER")).lower()
        loader = loader.option(_IS_GREGORIAN, is_gregorian)
    rows = loader.load(list(files))
    # Not by `rows.schema`: Python would import the modules of user-defined types in the file.
    inferred = rows._jdf.schema().json()
    native = json.dumps(_without_udts(json.loads(inferred)), separators=(",", ":"))
    # Read as strings, timestamps of ORC keep their nanoseconds and any year.
    requested = re.sub(_TIMES, r'"\1":"string"', native) if file_format == "orc" else native
    if json.loads(requested) != json.loads(inferred):
        rows = loader.schema(_struct_type(requested)).load(list(files))
    selected, untyped = [], typed_files.untyped_columns(signature, file_format)
    for field in _struct_type(native):
        value, dtype = F.col(quote_identifier(field.name)), field.dataType
        if field.name in untyped:
            value, dtype = F.lit(None), T.NullType()
        key = (field.name, type_ddl(dtype))
        name = names.setdefault(key, typed_column_name(len(names), field.name, dtype))
        selected.append(value.alias(name))
    return _with_origin(rows, *selected)


def _struct_type(schema: str) -> T.StructType:
    return T.StructType.fromJson(json.loads(schema))


def _without_udts(schema: Any) -> Any:
    """Replace user-defined types in the JSON of a schema by their SQL types."""
    if isinstance(schema, list):
        return [_without_udts(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "udt":
        return _without_udts(schema["sqlType"])
    return {key: _without_udts(value) for key, value in schema.items()}


def _union_all(parts: Sequence[DataFrame]) -> DataFrame:
    """Return all rows of at least one DataFrame; columns that only some have are null in others."""
    while len(parts) > 1:  # in pairs: Spark cannot plan a chain of a thousand unions
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [
            *(a.unionByName(b, allowMissingColumns=True) for a, b in pairs),
            *parts[len(parts) // 2 * 2 :],
        ]
    return parts[0]


def _with_origin(rows: DataFrame, *values: Column) -> DataFrame:
    """Return some values of each row, with its file, the file's modification time, and a position.

    Positions increase within a file, also if several tasks read its blocks.
    """
    # F.col would take a column of this name that the file has.
    file = rows.metadataColumn("_metadata")
    row = F.monotonically_increasing_id().bitwiseAND(F.lit(_ROW_OF_TASK))
    start = file.getField("file_block_start") * F.lit(_POSITIONS_PER_BYTE)
    return rows.select(
        *values,
        file.getField("file_path").alias("_file"),
        file.getField("file_modification_time").alias("_modified"),
        (start + row).alias(SOURCE_POSITION),
    )

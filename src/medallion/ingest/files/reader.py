"""Files as rows for the parser: lines of JSON, or the columns of files that bring their types."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import TYPED_FORMATS, Config, SourceConfig
from medallion.ingest.files import csv, csv_dialect
from medallion.ingest.files.typed import rows as typed_rows
from medallion.ingest.files.typed.rows import located
from medallion.ingest.parsing.json_text import array_items, is_one_value, split_objects
from medallion.ingest.parsing.parse import NOT_JSON
from medallion.ingest.parsing.typed import TYPED_COLUMN
from medallion.spark.delta_reads import escaped
from medallion.storage.table_specs import SOURCE_FILE, SOURCE_MODIFIED_AT, quote_identifier

# What Python's bytes.strip takes away: a line of nothing else is blank, and no row.
_NOT_BLANK = r"[^ \t\r\n\x0B\f]"
# Two objects on one line; a blank between them at most, as these tests cost little.
_HAS_OBJECTS = "(contains(value, '}{') or contains(value, '} {')) and is_valid_utf8(value)"
_OBJECTS = split_objects("value", " ?+")
# Below the root, and in an address as in the ledger.
_AS_IT_STANDS = re.compile(r"(?!/)[A-Za-z0-9_./=-]*")


class _Read(NamedTuple):
    """Files to be read: their paths, each with the pattern that is this path to Spark."""

    spark: SparkSession
    source: SourceConfig
    files: Mapping[str, str]
    schema: Mapping[str, str]


def rows(
    spark: SparkSession,
    config: Config,
    source: SourceConfig,
    paths: Sequence[str],
    schema: Mapping[str, str],
) -> DataFrame:
    """Return the rows of some files: `value` (JSON text), `_source_file`, `_source_modified_at`; of
    CSV `_no_json` as well; of Parquet, ORC and Avro their columns in place of `value`
    (`parsing.typed`).

    Args:
        paths: files as the ledger spells them.
        schema: the columns that are known; a CSV field of such a column that looks like a number
            is one, unless the column is a string.
    """
    # A [ in a name would be a pattern to Spark. (Without patterns, by its own option for that, it
    # reads the other files twice.)
    plain = [str(config.layout.root / path) for path in paths]
    files = {file: escaped(file) for file in plain}
    reader = _documents if source.multi_line else READERS[source.format]
    read = reader(_Read(spark, source, files, schema))
    name = _relative(F.col("_file"), config.layout.root, paths)
    return read.select(
        *(
            quote_identifier(c)
            for c in read.columns
            if c in ("value", NOT_JSON) or c.startswith(TYPED_COLUMN)
        ),
        name.alias(SOURCE_FILE),
        F.col("_modified").alias(SOURCE_MODIFIED_AT),
    )


def _relative(address: Column, root: Path, paths: Sequence[str]) -> Column:
    """The path of a file below the root, from its address, where a blank is %20."""
    start = f"{root.as_uri()}/".replace("///", "/", 1)  # as Hadoop writes it
    rest = F.substr(address, F.lit(len(start) + 1))
    if all(map(_AS_IT_STANDS.fullmatch, (str(root)[1:], *paths))):
        return rest
    # Spark knows no decoder that leaves a + alone.
    path = F.url_decode(F.replace(address, F.lit("+"), F.lit("%2B")))
    path = F.regexp_replace(path, "^file:/+", "/")
    decoded = F.regexp_replace(path, f"^\\Q{root}/\\E", "")
    # Decoding costs as much as parsing, so only names that need it pay for it: `path` is there just
    # once, as Spark would compute ahead what is there twice.
    return F.when(address.startswith(start) & ~rest.contains("%"), rest).otherwise(decoded)


def _lines(read: _Read) -> DataFrame:
    lines = located(read.spark.read.text(list(read.files.values())), F.col("value"))
    # Most lines need no pattern.
    return lines.where(F.col("value").startswith("{") | F.col("value").rlike(_NOT_BLANK))


def _json_lines(read: _Read) -> DataFrame:
    """Return a row for each line, or for each object of a line that has several."""
    # The array of null is a constant: ordinary lines are not copied into arrays.
    objects = f"case when {_HAS_OBJECTS} then {_OBJECTS} else array(cast(null as string)) end"
    lines = _lines(read).select("*", F.explode(F.expr(objects)).alias("_object"))
    return lines.select(F.coalesce("_object", "value").alias("value"), "_file", "_modified")


def _documents(read: _Read) -> DataFrame:
    """Return a row for each item of an array, or for each object of a file that has several.

    A file that is anything else is one row, and so is an array whose items have more than
    `MAX_SPLIT_LEVELS` levels.
    """
    # Of lines Spark takes the byte-order mark away, of whole files it does not.
    mark, value = "\ufeff", F.col("value")
    value = F.when(value.startswith(mark), F.substr(value, F.lit(2))).otherwise(value)
    whole = located(
        read.spark.read.text(list(read.files.values()), wholetext=True), value.alias("value")
    )
    whole = whole.where(F.col("value").rlike(_NOT_BLANK))
    items, blanks = array_items("value"), r"[ \t\r\n]*+"
    is_array = (
        r"is_valid_utf8(value) and value rlike r'\A[ \t\r\n]*\['"
        f" and {is_one_value('value')} and json_array_length(value) = size({items})"
    )
    several = split_objects("value", blanks)
    objects = f"case when is_valid_utf8(value) then {several} else array(value) end"
    parts = F.expr(f"case when {is_array} then {items} else {objects} end")
    return whole.select(F.explode(parts).alias("value"), "_file", "_modified")


def _text(read: _Read) -> DataFrame:
    lines = _lines(read)
    # What is not UTF-8 would be replaced: as it stands it is no JSON, and so kept.
    value = F.when(F.is_valid_utf8("value"), F.to_json(F.struct("value"))).otherwise(F.col("value"))
    return lines.withColumn("value", value)


def _csv(read: _Read) -> DataFrame:
    """Files of one dialect are read together: Spark would take the first one's header for all."""
    by_dialect: dict[csv_dialect.Dialect, list[str]] = {}
    for file, path in read.files.items():
        if dialect := csv_dialect.dialect_of(Path(file), read.source):
            by_dialect.setdefault(dialect, []).append(path)
    parts = [
        csv.read(read.spark, dialect, some, read.schema) for dialect, some in by_dialect.items()
    ]
    if not parts:
        return _lines(read).limit(0)
    return typed_rows.together(parts)


def _typed(read: _Read) -> DataFrame:
    return typed_rows.read(read.spark, read.source.format, read.files)


READERS: dict[str, Callable[[_Read], DataFrame]] = {
    "json": _json_lines,
    "csv": _csv,
    "text": _text,
    **dict.fromkeys(TYPED_FORMATS, _typed),
}

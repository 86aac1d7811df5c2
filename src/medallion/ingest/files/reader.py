"""Files as rows for the parser, read by Spark.

JSON, text and CSV become JSON text; Parquet, ORC and Avro keep their typed columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.model import TYPED_FORMATS, Config, SourceConfig
from medallion.ingest.files import csv_dialect, typed
from medallion.ingest.files.csv_dialect import LATIN_1, Dialect
from medallion.ingest.parsing.json_text import array_items, is_one_value, split_objects
from medallion.ingest.parsing.nested import is_nested_type
from medallion.ingest.parsing.parse import NOT_JSON
from medallion.ingest.parsing.times import TIME_TYPES
from medallion.ingest.parsing.typed import TYPED_COLUMN, typed_column_name
from medallion.ingest.schema.columns import spell_as_columns
from medallion.spark.delta_reads import escaped
from medallion.spark.plans import type_ddl
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


def read_rows(
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
    lines = with_origin(read.spark.read.text(list(read.files.values())), F.col("value"))
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
    whole = with_origin(
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
        if dialect := csv_dialect.detect_dialect(Path(file), read.source):
            by_dialect.setdefault(dialect, []).append(path)
    parts = [
        read_csv(read.spark, dialect, some, read.schema) for dialect, some in by_dialect.items()
    ]
    if not parts:
        return _lines(read).limit(0)
    return union_all(parts)


def _typed(read: _Read) -> DataFrame:
    return read_typed(read.spark, read.source.format, read.files)


READERS: dict[str, Callable[[_Read], DataFrame]] = {
    "json": _json_lines,
    "csv": _csv,
    "text": _text,
    **dict.fromkeys(TYPED_FORMATS, _typed),
}


_BROKEN = "_broken_csv"
# Options for Spark to write CSV by which every text can be read back: by itself it takes away the
# blanks around a text, and puts a backslash before a quote.
EXACT_CSV_OPTIONS = {
    "escape": '"',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
# What JSON writes without quotes. Spark's parser of VARIANT would take 1 out of `1 000` as well.
_PLAIN = r"\A *(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false) *\z"
_NESTED = r"\A[ \t\r\n]*[\[{]"
_TO_ESCAPE = r'["\\\x00-\x1F]'


def read_csv(
    spark: SparkSession, dialect: Dialect, escaped: list[str], schema: Mapping[str, str]
) -> DataFrame:
    """The rows of files of one dialect: `value` (JSON text), `_no_json`, `_file`, `_modified`.

    A row of more or fewer fields than the header has is in `_no_json` as it stands, even if it
    looks like an object. One that is not UTF-8 is there as Latin-1, with the quotes that it needs.
    """
    # A header may have a name twice.
    names = [f"_{i}" for i in range(len(dialect.header) + dialect.ends_with_delimiter)]
    declared = ", ".join(f"{name} string" for name in (*names, _BROKEN))
    found = (
        spark.read.schema(declared)
        .option("header", str(dialect.has_header).lower())
        .option("sep", dialect.delimiter)
        .option("multiLine", "true")
        .option("escape", '"')
        # By itself Spark takes NUL for this, and leaves out each NUL that stands in quotes.
        .option("charToEscapeQuoteEscaping", '"')
        .option("encoding", dialect.encoding)
        .option("lineSep", dialect.line_end)  # found by Spark itself, \r\n in quotes becomes \n
        .option("columnNameOfCorruptRecord", _BROKEN)
        .csv(escaped)
    )
    if dialect.returns:
        found = found.where(~_is_blank(names))
        found = found.withColumn(names[-1], _without_returns(F.col(names[-1]), dialect))
    fields = found.select(
        *(_utf8(F.col(name), dialect).alias(name) for name in names),
        F.col(_BROKEN),
        F.col("_metadata.file_path").alias("_file"),
        F.col("_metadata.file_modification_time").alias("_modified"),
    )
    told = fields.withColumn(NOT_JSON, _unfit(names, dialect))
    value = F.when(F.col(NOT_JSON).isNull(), _value(names, dialect, schema)).otherwise("")
    return told.select(value.alias("value"), NOT_JSON, "_file", "_modified")


def _is_blank(names: list[str]) -> Column:
    """Whether a line is nothing but a \\r, or two."""
    # Not a chain of `and`, which for a thousand columns is deeper than Spark can plan.
    is_alone = F.coalesce(*names[1:], F.lit(None)).isNull()
    # The line as it stands tells a \r before a comma, or in quotes, from one that ends the line.
    whole = F.col(_BROKEN)
    is_alone &= whole.isin("", "\r", "\r\r") if len(names) > 1 else whole.isNull()
    return F.coalesce(is_alone & F.col(names[0]).isin("\r", "\r\r"), F.lit(False))


def _utf8(text: Column, dialect: Dialect) -> Column:
    """Text that was read as Latin-1, which loses no byte, as the UTF-8 that its bytes are."""
    return F.encode(text, LATIN_1).cast("string") if dialect.encoding == LATIN_1 else text


def _latin_1(text: Column) -> Column:
    return F.decode(text.cast("binary"), LATIN_1)


def _without_returns(text: Column, dialect: Dialect) -> Column:
    """The last field without the \\r's that belong to the end of its line; an empty one is null."""
    rest = F.regexp_replace(text, rf"\r{{1,{dialect.returns}}}\z", "")
    return F.when(text.endswith("\r"), F.nullif(rest, F.lit(""))).otherwise(text)


def _value(names: list[str], dialect: Dialect, schema: Mapping[str, str]) -> Column:
    members = [
        F.concat(
            F.lit(f"{json.dumps(title or name, ensure_ascii=False)}:"),
            _json(name, schema.get(title, "string")),
        )
        # The names are fewer if each row ends with a delimiter: the empty field is left out.
        for name, title in zip(names, spell_as_columns(dialect.header, schema), strict=False)
    ]
    return F.concat(F.lit("{"), F.concat_ws(",", *members), F.lit("}"))  # which leaves out nulls


def _unfit(names: list[str], dialect: Dialect) -> Column:
    """The text of a row whose fields are not those of the header, or not UTF-8; null of others."""
    as_read = F.col(_BROKEN)  # Spark has taken \r\n from its end, or of \r\r\n all but one \r
    if dialect.returns > 1:
        as_read = F.regexp_replace(as_read, r"\r\z", "")
    broken = _utf8(as_read, dialect)
    is_valid = F.forall(
        F.array(*names), lambda text: F.coalesce(F.is_valid_utf8(text), F.lit(True))
    )
    latin_1 = F.struct(*(_latin_1(F.col(n)).alias(n) for n in names))
    again = F.to_csv(latin_1, {**EXACT_CSV_OPTIONS, "sep": dialect.delimiter})
    return F.when(F.is_valid_utf8(broken), broken).otherwise(
        F.coalesce(as_read, F.when(~is_valid, again))
    )


def _json(name: str, kind: str) -> Column:
    """A field as JSON: a number, true, false, an object or a list if all of it is one, else text.

    The word `null` is text: as a null of JSON, nothing would tell it from an empty field. A time is
    text: in JSON a number of it counts seconds, and in CSV it may be a year.
    """
    field = F.col(name)
    text = f"to_json(array({name}))"
    quoted = F.when(
        field.rlike(_TO_ESCAPE), F.expr(f"substr({text}, 2, length({text}) - 2)")
    ).otherwise(F.concat(F.lit('"'), field, F.lit('"')))
    if kind == "string" or kind in TIME_TYPES:
        return quoted
    if is_nested_type(kind):
        is_whole = F.expr(is_one_value(name))
        return F.when(field.rlike(_NESTED) & is_whole, field).otherwise(quoted)
    return F.when(field.rlike(_PLAIN), F.trim(field)).otherwise(quoted)


# Spark 4.2 has the format, but its short name comes with a jar of which nothing else is needed.
_FORMATS = {"avro": "org.apache.spark.sql.avro.AvroFileFormat"}
# By which calendar Spark takes ORC's days before 1582 where the file does not say. Files of the C++
# library never say, and are written by today's calendar.
_IS_GREGORIAN = "orc.proleptic.gregorian.default"
# Types in the JSON of a schema; a column's name never stands under such a key.
_TIMES = r'"(\w*[tT]ype)":"timestamp(_ntz)?"'


def read_typed(spark: SparkSession, kind: str, files: Mapping[str, str]) -> DataFrame:
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
        groups.setdefault(typed.column_signature(Path(file), kind), []).append(path)
    names: dict[tuple[str, str], str] = {}
    parts = [_load(spark, kind, columns, some, names) for columns, some in groups.items()]
    return union_all(parts)


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
    return with_origin(rows, *selected)


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


def union_all(parts: Sequence[DataFrame]) -> DataFrame:
    """Return all rows of at least one DataFrame; columns that only some have are null in others."""
    while len(parts) > 1:  # in pairs, for a chain of a thousand is deeper than Spark can plan
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [
            *(a.unionByName(b, allowMissingColumns=True) for a, b in pairs),
            *parts[len(parts) // 2 * 2 :],
        ]
    return parts[0]


def with_origin(rows: DataFrame, *values: Column) -> DataFrame:
    """Return some values of each row, with the file that it is from."""
    # A file may have a column of this name, which F.col would take.
    file = rows.metadataColumn("_metadata")
    return rows.select(
        *values,
        file.getField("file_path").alias("_file"),
        file.getField("file_modification_time").alias("_modified"),
    )

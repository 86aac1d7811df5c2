"""CSV files as rows of JSON text: each field as the text that it is, or as a JSON value."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.ingest.files.csv_dialect import LATIN_1, Dialect
from medallion.ingest.parsing.json_text import is_one_value
from medallion.ingest.parsing.nested import is_nested_type
from medallion.ingest.parsing.parse import NOT_JSON
from medallion.ingest.parsing.times import TIME_TYPES
from medallion.ingest.schema.columns import spell_as_columns

_BROKEN = "_broken_csv"
# Options for Spark to write CSV by which every text can be read back: by itself it takes away the
# blanks around a text, and puts a backslash before a quote.
AS_IT_IS = {
    "escape": '"',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
# What JSON writes without quotes. Spark's parser of VARIANT would take 1 out of `1 000` as well.
_PLAIN = r"\A *(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false) *\z"
_NESTED = r"\A[ \t\r\n]*[\[{]"
_TO_ESCAPE = r'["\\\x00-\x1F]'


def read(
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
    again = F.to_csv(latin_1, {**AS_IT_IS, "sep": dialect.delimiter})
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

"""CSV files as rows of JSON text: each field as the text that it is, or as a JSON value."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.parsing.json_text import is_one_value
from medallion.parsing.nested import is_nested
from medallion.parsing.parse import NO_JSON
from medallion.parsing.times import TIMES
from medallion.sources.files.csv_form import LATIN_1, Form

_BROKEN = "_broken_csv"
# For Spark's writer, which takes away the blanks around a text, and has a backslash before a quote.
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
    spark: SparkSession, form: Form, escaped: list[str], schema: Mapping[str, str]
) -> DataFrame:
    """The rows of files of one form: `value` (JSON text), `_no_json`, `_file`, `_modified`.

    A row of more or fewer fields than the header has is in `_no_json` as it stands, even if it
    looks like an object. One that is not UTF-8 is there as Latin-1, with the quotes that it needs.
    """
    names = [f"_{i}" for i in range(len(form.header))]  # as they stand: a name may be there twice
    declared = ", ".join(f"{name} string" for name in (*names, _BROKEN))
    found = (
        spark.read.schema(declared)
        .option("header", "true")
        .option("multiLine", "true")
        .option("escape", '"')
        # Or else NUL escapes the escape, and within quotes there would be none.
        .option("charToEscapeQuoteEscaping", '"')
        .option("encoding", form.encoding)
        .option("lineSep", form.line_end)  # or within quotes \r\n would become \n
        .option("columnNameOfCorruptRecord", _BROKEN)
        .csv(escaped)
    )
    if form.returns:
        found = found.where(~_is_blank(names))
        found = found.withColumn(names[-1], _without_returns(F.col(names[-1]), form))
    fields = found.select(
        *(_utf8(F.col(name), form).alias(name) for name in names),
        F.col(_BROKEN),
        F.col("_metadata.file_path").alias("_file"),
        F.col("_metadata.file_modification_time").alias("_modified"),
    )
    told = fields.withColumn(NO_JSON, _unfit(names, form))
    value = F.when(F.col(NO_JSON).isNull(), _value(names, form, schema)).otherwise("")
    return told.select(value.alias("value"), NO_JSON, "_file", "_modified")


def _is_blank(names: list[str]) -> Column:
    """Whether a line is nothing but a \\r, or two."""
    # Not one `and` within the other: of a thousand, Spark's own calls would lie as deep.
    is_alone = F.coalesce(*names[1:], F.lit(None)).isNull()
    # As it stands, with or without the end of its line: a \r before a comma, or in quotes, is none.
    whole = F.col(_BROKEN)
    is_alone &= whole.isin("", "\r", "\r\r") if len(names) > 1 else whole.isNull()
    return F.coalesce(is_alone & F.col(names[0]).isin("\r", "\r\r"), F.lit(False))


def _utf8(text: Column, form: Form) -> Column:
    """Read as Latin-1, no byte was lost: they are UTF-8 again, or at least what they were."""
    return F.encode(text, LATIN_1).cast("string") if form.encoding == LATIN_1 else text


def _latin_1(text: Column) -> Column:
    return F.decode(text.cast("binary"), LATIN_1)


def _without_returns(text: Column, form: Form) -> Column:
    """The last field without what belongs to the end of its line; nothing is null, as elsewhere."""
    rest = F.regexp_replace(text, rf"\r{{1,{form.returns}}}\z", "")
    return F.when(text.endswith("\r"), F.nullif(rest, F.lit(""))).otherwise(text)


def _value(names: list[str], form: Form, schema: Mapping[str, str]) -> Column:
    members = [
        F.concat(
            F.lit(f"{json.dumps(title or name, ensure_ascii=False)}:"),
            _json(name, schema.get(title, "string")),
        )
        for name, title in zip(names, form.header, strict=True)
    ]
    return F.concat(F.lit("{"), F.concat_ws(",", *members), F.lit("}"))  # without the null ones


def _unfit(names: list[str], form: Form) -> Column:
    """The text of a row that is no row of the table; null of one that is."""
    as_read = F.col(_BROKEN)  # without a \r\n, but of \r\r\n with a \r
    if form.returns > 1:
        as_read = F.regexp_replace(as_read, r"\r\z", "")
    broken = _utf8(as_read, form)
    is_valid = F.forall(
        F.array(*names), lambda text: F.coalesce(F.is_valid_utf8(text), F.lit(True))
    )
    again = F.to_csv(F.struct(*(_latin_1(F.col(n)).alias(n) for n in names)), AS_IT_IS)
    return F.when(F.is_valid_utf8(broken), broken).otherwise(
        F.coalesce(as_read, F.when(~is_valid, again))
    )


def _json(name: str, kind: str) -> Column:
    """A field as JSON: a number, true, false, an object or a list if all of it is one, else text.

    A `null` is text, or nothing would tell that it was there. A time is text, for in JSON a number
    counts seconds, and here it may be a year.
    """
    field = F.col(name)
    text = f"to_json(array({name}))"
    quoted = F.when(
        field.rlike(_TO_ESCAPE), F.expr(f"substr({text}, 2, length({text}) - 2)")
    ).otherwise(F.concat(F.lit('"'), field, F.lit('"')))
    if kind == "string" or kind in TIMES:
        return quoted
    if is_nested(kind):
        is_whole = F.expr(is_one_value(name))
        return F.when(field.rlike(_NESTED) & is_whole, field).otherwise(quoted)
    return F.when(field.rlike(_PLAIN), F.trim(field)).otherwise(quoted)

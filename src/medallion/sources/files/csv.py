"""CSV files as rows of JSON text: each field as the text that it is, or as a JSON value."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.parsing.json_text import is_one_value
from medallion.parsing.nested import is_nested
from medallion.parsing.times import TIMES
from medallion.sources.files.codecs import opened

LATIN_1, UTF_8 = "ISO-8859-1", "UTF-8"
_BROKEN = "_broken_csv"
_BOM = "\ufeff".encode().decode(LATIN_1)
# What JSON writes without quotes. Spark's parser of VARIANT would take 1 out of `1 000` as well.
_PLAIN = r"\A *(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false) *\z"
_NESTED = r"\A[ \t\r\n]*[\[{]"
_TO_ESCAPE = r'["\\\x00-\x1F]'
csv.field_size_limit(sys.maxsize)  # a header may be long


class Form(NamedTuple):
    """What Spark has to know of a file, and is told once for all files that are read together."""

    header: tuple[str, ...]
    line_end: str
    has_returns: bool  # rows end with \r\n, though line_end is \n
    encoding: str


def form(file: Path) -> Form | None:
    """The form of a CSV file; None where it has no header.

    Raises:
        OSError, EOFError, zlib.error: the file cannot be read.
    """
    with io.TextIOWrapper(opened(file), LATIN_1, newline="") as text:
        first = text.readline()
        lines = _Lines(first.removeprefix(_BOM), text)
        rows = (row for row in csv.reader(lines) if row)
        header = next(rows, None)
        if header is None:
            return None
        end, is_one_line = lines.end, lines.number == 1
        next(rows, None)
    # A \n ends a row, whether there is a \r before it or not, and whichever the other rows have.
    # But a blank line before the header has to be blank to Spark as well.
    starts_blank = not first.removeprefix(_BOM).strip("\r\n")
    line_end = end if end == "\r" or starts_blank else "\n"
    has_returns = line_end == "\n" and "\r\n" in (end, lines.end)
    # In Latin-1 Spark knows no byte-order mark, and so no blank line or quote behind it. Then what
    # is not UTF-8 is replaced, but no row is taken for the header.
    encoding = LATIN_1 if is_one_line or not first.startswith(_BOM) else UTF_8
    return Form(tuple(map(_as_utf8, header)), line_end or "\n", has_returns, encoding)


class _Lines:
    """Lines of a file; `end` is how the last one ended that was asked for, `number` which it is."""

    def __init__(self, first: str, others: Iterator[str]) -> None:
        self._first, self._others = first, others
        self.end, self.number = "", 0

    def __iter__(self) -> Iterator[str]:
        for line in chain([self._first], self._others):
            self.end, self.number = line[len(line.rstrip("\r\n")) :], self.number + 1
            yield line


def _as_utf8(text: str) -> str:
    try:
        return text.encode(LATIN_1).decode()
    except UnicodeDecodeError:
        return text


def read(
    spark: SparkSession, form: Form, escaped: list[str], schema: Mapping[str, str]
) -> DataFrame:
    """The rows of files of one form: `value` (JSON text), `_file`, `_modified`.

    A row of more or fewer fields than the header has is in `value` as it stands. One that is not
    UTF-8 is there as Latin-1, with the quotes that it needs.
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
    if form.line_end == "\n":
        found = found.where(~_is_blank(names))
    if form.has_returns:
        found = found.withColumn(names[-1], _without_return(F.col(names[-1])))
    return found.select(
        *(_utf8(F.col(name), form).alias(name) for name in names),
        F.col(_BROKEN),
        F.col("_metadata.file_path").alias("_file"),
        F.col("_metadata.file_modification_time").alias("_modified"),
    ).select(_value(names, form, schema).alias("value"), "_file", "_modified")


def _is_blank(names: list[str]) -> Column:
    """Whether a line is nothing but a \\r."""
    # Not one `and` within the other: of a thousand, Spark's own calls would lie as deep.
    is_alone = F.coalesce(*names[1:], F.lit(None)).isNull()
    return F.coalesce(is_alone & (F.col(names[0]) == "\r"), F.lit(False))


def _utf8(text: Column, form: Form) -> Column:
    """Read as Latin-1, no byte was lost: they are UTF-8 again, or at least what they were."""
    return F.encode(text, LATIN_1).cast("string") if form.encoding == LATIN_1 else text


def _latin_1(text: Column) -> Column:
    return F.decode(text.cast("binary"), LATIN_1)


def _without_return(text: Column) -> Column:
    rest = F.left(text, F.length(text) - 1)
    return F.when(text.endswith("\r"), F.nullif(rest, F.lit(""))).otherwise(text)


def _value(names: list[str], form: Form, schema: Mapping[str, str]) -> Column:
    members = [
        F.concat(
            F.lit(f"{json.dumps(title or name, ensure_ascii=False)}:"),
            _json(name, schema.get(title, "string")),
        )
        for name, title in zip(names, form.header, strict=True)
    ]
    whole = F.concat(F.lit("{"), F.concat_ws(",", *members), F.lit("}"))  # without the null ones
    broken = _utf8(F.col(_BROKEN), form)
    is_valid = F.forall(
        F.array(*names), lambda text: F.coalesce(F.is_valid_utf8(text), F.lit(True))
    )
    again = F.to_csv(F.struct(*(_latin_1(F.col(n)).alias(n) for n in names)), {"escape": '"'})
    return (
        F.when(F.is_valid_utf8(broken), broken)
        .when(F.col(_BROKEN).isNotNull(), F.col(_BROKEN))
        .when(~is_valid, again)
        .otherwise(whole)
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

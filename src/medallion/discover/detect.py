"""The format, reader options and rows of a file."""

import codecs
import re
from collections import Counter
from collections.abc import Set
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from medallion.config.model import ReaderOptions
from medallion.discover.columns import Row, is_value
from medallion.discover.files import Sample, read_samples
from medallion.discover.json_rows import MAX_ROWS, Description, describe_documents, describe_lines
from medallion.errors import UsageError
from medallion.ingest.files.content import other_format
from medallion.ingest.files.decode import Record, first_records, header_names
from medallion.ingest.files.typed_files import unreadable_typed_reason
from medallion.storage.text import counted

_TYPED = {b"PAR1": "parquet", b"ORC": "orc", b"Obj\x01": "avro"}
_DOCUMENT_BYTES = 64 << 20  # a JSON document can only be parsed as one
_DIALECT_CHARACTERS = 30_000  # clevercsv's time grows fast with the length
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes"}
_MAX_MEMBERS = 20  # of an archive
_NULLS = ("NULL", "null", "\\N", "N/A", "NA", "None")
_COMMENTS = re.compile(r"\A(#.*(\r\n?|\n))+")
_NULL_LINE = re.compile(r"(?:\A|(?<=\}\n)|(?<=\}\r\n))(?:null(?:\r?\n|\Z))+")
_NON_ASCII = re.compile(rb"[\x80-\xff]+")
_PAGE = "a page in HTML, such as a login or an error in place of the data"
# The starts of text, in lower case, that has no rows for a table.
_REFUSED = {
    "<?xml": "XML: convert it to JSON or CSV",
    "<!doctype html": _PAGE,
    "<html": _PAGE,
    "\x1e": "a JSON text sequence: remove the character U+001E before each line",
    "version https://git-lfs": "a pointer of Git LFS, not the data: fetch it with git lfs pull",
}


def describe_file(path: Path) -> Description:
    """Return the format, settings and first rows of a file; it may have no rows.

    Raises:
        UsageError: the file has no format that can be ingested.
    """
    samples = read_samples(path)
    sample = next(samples, Sample(b"", "", True))  # an archive may be empty
    file_format = next((f for magic, f in _TYPED.items() if sample.data.startswith(magic)), None)
    if file_format:
        reasons = [f"its first bytes are those of {file_format}"]
        description = Description(file_format, _typed_rows(path, file_format), reasons=reasons)
    else:
        description = _describe_text(sample, path)
    if sample.codec:
        description.reasons.append(f"compressed as {sample.codec[1:]}, by its first bytes")
        if path.suffix.lower() != sample.codec:
            advice = f"rename files to end with {sample.codec}, as compressed files must"
            description.choices.append(f"{advice}, or use --land, which does")
    names = set().union(*description.rows)
    for other in islice(samples, _MAX_MEMBERS):
        if has_other_fields(names, set().union(*_describe_text(other, path).rows)):
            member = f"{other.member} in {path.name}"
            choice = f"one table, or two: {member} has other fields than the first"
            return replace(description, choices=[*description.choices, choice])
    return description


def has_other_fields(names: Set[str], others: Set[str]) -> bool:
    """Return whether rows with these names of fields have mostly other fields than others."""
    return 2 * len(names & others) <= min(len(names), len(others))


def _describe_text(sample: Sample, path: Path) -> Description:
    text, encoding, is_guess = _decode(sample.data, path)
    description = None
    start = text[:200].lstrip(" \t\r\n").lower()
    if reason := next((r for words, r in _REFUSED.items() if start.startswith(words)), None):
        raise UsageError(f"{path}: {reason}.")
    objects = _NULL_LINE.sub("", text)  # a message without a value is a line of Debezium's
    if objects.lstrip()[:1] in ("{", "["):
        description = describe_lines(objects, sample.is_complete, path)
        if description is None:
            if not sample.is_complete:
                members = read_samples(path, _DOCUMENT_BYTES)
                sample = next(each for each in members if each.member == sample.member)
                objects = _NULL_LINE.sub("", _decode(sample.data, path)[0])
            description = describe_documents(objects, sample.is_complete, path)
    description = description or _describe_csv(text, sample.is_complete, path)
    if description is None:
        rows: list[Row] = [{"value": line} for line in text.splitlines() if line.strip()]
        reason = (
            "its lines are neither JSON nor CSV: one column, value, from which regexp_extract in "
            "silver takes fields"
        )
        description = Description("text", rows[:MAX_ROWS], reasons=[reason])
    if encoding != "utf-8":
        description.settings.setdefault("options", {})["encoding"] = encoding
        description.reasons.append(f"its bytes are not UTF-8; they fit {encoding}")
        if is_guess:
            choice = f"options.encoding: {encoding} is a guess, by how the letters look"
            description.choices.append(choice)
    return description


def _decode(data: bytes, path: Path) -> tuple[str, str, bool]:
    """Return a sample's text and encoding, and whether that is a guess.

    The last character may be incomplete.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "ignore"), "utf-16", False
    for name, zeros, letters in (("le", data[1::2], data[::2]), ("be", data[::2], data[1::2])):
        if zeros.count(0) * 2 > len(zeros) and 0 not in letters:  # no mark, but mostly ASCII
            return data.decode(f"utf-16-{name}", "ignore"), f"utf-16-{name}", False
    if b"\0" in data:
        reason = other_format(data[:512], "utf-8") or "neither text nor Parquet, ORC or Avro"
        raise UsageError(f"{path}: {reason}.")
    try:
        text, _ = codecs.utf_8_decode(data)
        return text.removeprefix("\ufeff"), "utf-8", False
    except UnicodeDecodeError:
        from charset_normalizer import from_bytes

        best = from_bytes(data[: 1 << 16]).best()
        fitting = best.could_be_from_charset if best else ["cp1252"]
        # Western text fits several encodings: prefer the usual one. Most of its letters are ASCII,
        # with others one at a time.
        others = _NON_ASCII.findall(data)
        is_western = sum(map(len, others)) < 1.5 * len(others)
        if "cp1252" in fitting or is_western:
            is_guess = "cp1252" not in fitting
            return data.decode("cp1252", "replace"), "windows-1252", is_guess
        return data.decode(fitting[0], "replace"), fitting[0], True


def _describe_csv(text: str, is_complete: bool, path: Path) -> Description | None:
    """Return the description of CSV; None if no delimiter gives rows of one length."""
    from clevercsv import Error, Sniffer  # right on decimal commas without header, unlike csv's

    options: dict[str, Any] = {"comment": "#"} if text.startswith("#") else {}
    is_named = any(suffix.lower() in (".csv", ".tsv") for suffix in path.suffixes)
    try:
        dialect = Sniffer().sniff(_COMMENTS.sub("", text)[:_DIALECT_CHARACTERS])
    except Error:
        dialect = None
    delimiter = dialect.delimiter if dialect else None
    if delimiter not in _DELIMITERS and not is_named:
        return None
    if delimiter in _DELIMITERS and delimiter != ",":
        options["delimiter"] = delimiter
    if dialect and dialect.quotechar not in ("", '"'):
        options["quote"] = dialect.quotechar
    if dialect and dialect.escapechar:
        options["escape"] = dialect.escapechar
    rows, width = _split_csv(text, options, is_complete)
    if any(row.fields is None for row in rows) and dialect and not dialect.quotechar:
        plain, plain_width = _split_csv(text, {**options, "quote": ""}, is_complete)
        if all(row.fields and len(row.fields) == plain_width for row in plain):
            rows, width, options = plain, plain_width, {**options, "quote": ""}
    valid = [(row.line, row.fields) for row in rows if row.fields and len(row.fields) == width]
    first = rows[0].fields if rows else None
    if first and len(first) == width - 1 and not any(row[-1] for _, row in valid):
        # Each row but the header ends with a delimiter.
        width -= 1
        valid = [(1, first), *((line, row[:-1]) for line, row in valid)]
    # A file that is named CSV may have more invalid rows.
    few = len(valid) * 10 < len(rows) * (5 if is_named else 9)
    if not valid or few or width < (1 if is_named else 2):
        return None
    if width > 2:  # spreadsheets write a title with empty fields beside it
        named = (n for n, (_, row) in enumerate(valid) if sum(map(bool, row)) > 1)
        valid = valid[next(named, 0) :]
    by = _DELIMITERS[options.get("delimiter", ",")]
    reason = f"{len(valid)} of {len(rows)} lines have {counted(width, 'field')} between {by}"
    if valid[0][1] is not first and "comment" not in options:
        options["skipRows"] = valid[0][0] - 1
        reason += f"; {counted(options['skipRows'], 'line')} before them"
    return _describe_csv_rows([row for _, row in valid], options, reason)


def _split_csv(text: str, options: dict[str, Any], is_complete: bool) -> tuple[list[Record], int]:
    """Return the first records, and their usual width; see `first_records`."""
    names = {k: options[k] for k in ("delimiter", "quote", "escape", "comment") if k in options}
    records = first_records(text, ReaderOptions(**names), is_complete, MAX_ROWS + 1)
    widths = Counter(len(record.fields) for record in records if record.fields)
    return records, widths.most_common(1)[0][0] if widths else 0


def _describe_csv_rows(rows: list[list[str]], options: dict[str, Any], reason: str) -> Description:
    """Return the description of CSV rows, with their header and word for null.

    Args:
        rows: rows of equal length; the first may be the header.
        options: reader options, to which `header` and `nullValue` are added.
        reason: the reason for the delimiter.
    """
    names = header_names(rows[0])
    settings: dict[str, Any] = {"options": options} if options else {}
    reasons, choices, data = [reason], [], rows[1:]
    # A name that is empty or there twice is no name, unless a column's values show that it is one.
    are_names = names == [name.strip() for name in rows[0]] or any(
        name and data and all(row[number] and is_value(row[number]) for row in data)
        for number, name in enumerate(rows[0])
    )
    is_dms = all(row[0] in ("I", "U", "D") for row in rows)  # AWS DMS, whose `Op` is first
    if is_dms or not are_names or any(map(is_value, rows[0])):
        data, names = rows, [f"column_{number}" for number in range(1, len(names) + 1)]
        names[0] = "Op" if is_dms else names[0]
        reasons.append("no header: the first row looks like data")
        choices.append("the names of the columns in schema: the files have no header")
        options["header"] = False
        settings = {"options": options, "schema": dict.fromkeys(names, "string")}
    words = Counter(value for row in data for value in row if value in _NULLS)
    for word, _ in words.most_common(1):
        columns = [set(column) - {"", word} for column in zip(*data, strict=True) if word in column]
        # These two may be values, such as a region, unless the others are numbers or times.
        if word in ("NA", "None") and not all(map(is_value, set().union(*columns))):
            choices.append(f"{word} as a value, or as null by options.nullValue: {word}")
            continue
        options["nullValue"] = word
        settings["options"] = options
    null = ("", options.get("nullValue"))
    records = [{n: None if v in null else v for n, v in zip(names, r, strict=True)} for r in data]
    return Description("csv", records, settings, reasons, choices)


def _typed_rows(path: Path, file_format: str) -> list[Row]:
    """Return the first rows of a Parquet, ORC or Avro file.

    Raises:
        UsageError: the file is corrupt, or Spark cannot read it.
    """
    if reason := unreadable_typed_reason(path, file_format):
        raise UsageError(f"{path}: {reason}.")
    with path.open("rb") as file:
        if file_format == "parquet":
            from pyarrow.parquet import ParquetFile

            batches = islice(ParquetFile(file).iter_batches(MAX_ROWS), 1)
            return [row for batch in batches for row in batch.to_pylist()]
        if file_format == "orc":
            import pyorc

            return list(islice(pyorc.Reader(file, struct_repr=pyorc.StructRepr.DICT), MAX_ROWS))
        import fastavro

        return [dict(row) for row in islice(fastavro.reader(file), MAX_ROWS)]  # type: ignore[arg-type]

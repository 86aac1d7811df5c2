"""Detected formats, reader options and sampled rows of files."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import duckdb
import fastavro
import pyorc
import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from medallion.config.document import Node
from medallion.config.sources import parse_source
from medallion.discover.detect import describe_file
from medallion.discover.json_rows import describe_lines
from medallion.errors import UsageError
from medallion.ingest.files.decode import decode_file
from medallion.storage.layout import Layout

ROWS = range(40)
NUMBERED = [f"2026-05-01 10:00:{n:02}" for n in ROWS]
CSV: dict[str, tuple[str, dict[str, Any]]] = {
    "tabs": (
        "id\tat\tnote\n" + "".join(f"{n}\t{at}\ta, b; {n}\n" for n, at in enumerate(NUMBERED)),
        {"delimiter": "\t"},
    ),
    "pipes": (
        "id|at|note\n" + "".join(f"{n}|{at}|a, b; {n}\n" for n, at in enumerate(NUMBERED)),
        {"delimiter": "|"},
    ),
    "decimal commas": (
        "id;at;n\n" + "".join(f"{n};{at};{n},50\n" for n, at in enumerate(NUMBERED)),
        {"delimiter": ";"},
    ),
    "line breaks": (
        "id,at,n\n" + "".join(f'{n},{at},"a;\n""b"", {n}"\n' for n, at in enumerate(NUMBERED)),
        {},
    ),
    "single quotes": (
        "id;at;n\n" + "".join(f"{n};{at};'a;b {n}'\n" for n, at in enumerate(NUMBERED)),
        {"delimiter": ";", "quote": "'"},
    ),
    "comments": (
        "# made by x\nid,at,n\n" + "".join(f"{n},{at},c{n}\n" for n, at in enumerate(NUMBERED)),
        {"comment": "#"},
    ),
    "numbers that are not available": (
        "id,at,n\n" + "".join(f"{n},{at},{n or 'NA'}\n" for n, at in enumerate(NUMBERED)),
        {"nullValue": "NA"},
    ),
    "nulls": (
        "id,at,n\n" + "".join(f"{n},{at},NULL\n" for n, at in enumerate(NUMBERED)),
        {"nullValue": "NULL"},
    ),
    "raw quotes": (
        "id\tat\tn\n" + "".join(f'{n}\t{at}\t"a {n}" b\n' for n, at in enumerate(NUMBERED)),
        {"delimiter": "\t", "quote": ""},
    ),
    "backslashes": (
        "id,at,n\n" + "".join(f'{n},{at},"a \\"b\\", {n}"\n' for n, at in enumerate(NUMBERED)),
        {"escape": "\\"},
    ),
    "lines before the header": (
        'Report, by x\n"May, 2026"\n\nid,at,n\n'
        + "".join(f"{n},{at},x\n" for n, at in enumerate(NUMBERED)),
        {"skipRows": 3},
    ),
    "a title of a sheet": (
        "Report;;\nMay, 2026;;\n;;\nid;at;n\n"
        + "".join(f"{n};{at};x\n" for n, at in enumerate(NUMBERED)),
        {"delimiter": ";", "skipRows": 3},
    ),
    "names that are empty or repeated": (
        ",at,n,n\n" + "".join(f"{n},{at},x,y\n" for n, at in enumerate(NUMBERED)),
        {},
    ),
    "rows that end with a delimiter": (
        "id,at,n\n" + "".join(f"{n},{at},x,\n" for n, at in enumerate(NUMBERED)),
        {},
    ),
    "malformed rows": (
        "id,at,n\n" + "".join(f"{n},{at},x\n{'n,' * (n % 2)}\n" for n, at in enumerate(NUMBERED)),
        {},
    ),
    "no header": (
        "".join(f"{n};{at};n{n};{n},5\n" for n, at in enumerate(NUMBERED)),
        {"delimiter": ";", "header": False},
    ),
}


@pytest.mark.parametrize("name", CSV)
def test_csv_options(name: str, tmp_path: Path) -> None:
    text, options = CSV[name]
    (tmp_path / "a.csv").write_text(text)
    description = describe_file(tmp_path / "a.csv")
    assert (description.format, len(description.rows)) == ("csv", 40)
    assert description.settings.get("options", {}) == options
    assert [row.get("at", row.get("column_2")) for row in description.rows] == NUMBERED
    assert bool(description.choices) == (name == "no header")


@pytest.mark.parametrize("encoding", ["windows-1252", "utf-16", "utf-16-le", "utf-16-be"])
def test_encoding_is_detected(encoding: str, tmp_path: Path) -> None:
    text = "Straße;Größe\n" + "".join(f"Käfer \u2013 {n};{n},5\n" for n in ROWS)
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    description = describe_file(tmp_path / "a.csv")
    assert description.settings["options"] == {"delimiter": ";", "encoding": encoding}
    assert description.rows[1] == {"Straße": "Käfer \u2013 1", "Größe": "1,5"}


def test_ambiguous_encoding(tmp_path: Path) -> None:
    """By its letters alone, charset_normalizer detects cp1257."""
    text = "".join(f"{n};Café déjà vu, naïve Müller;{n}\n" for n in ROWS)
    (tmp_path / "a.csv").write_bytes(text.encode("cp1252"))
    description = describe_file(tmp_path / "a.csv")
    assert description.rows[0]["column_2"] == "Café déjà vu, naïve Müller"
    guess = "options.encoding: {} is a guess, by how the letters look"
    assert description.choices[-1] == guess.format("windows-1252")
    text = "".join(f"{n};Привет, мир, это обычный текст на русском;{n}\n" for n in ROWS)
    (tmp_path / "a.csv").write_bytes(text.encode("cp1251"))
    description = describe_file(tmp_path / "a.csv")
    assert description.choices[-1] == guess.format("cp1251")


NOTES = st.text("ab \"';|,\\#é\n", max_size=5)


@settings(max_examples=60)
@given(
    notes=st.lists(NOTES, min_size=3, max_size=9),
    delimiter=st.sampled_from(",;|\t"),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    escape=st.sampled_from([None, "\\"]),
    start=st.sampled_from(["", "", "Report\n\n", "# by x\n"]),
    encoding=st.sampled_from(["utf-8", "windows-1252", "utf-16"]),
)
def test_sampled_rows_equal_decoded_rows(
    tmp_path_factory: pytest.TempPathFactory,
    notes: list[str],
    delimiter: str,
    quoting: Literal[0, 1],
    escape: str | None,
    start: str,
    encoding: str,
) -> None:
    """With the detected options, bronze reads the rows that the user was shown."""
    text = io.StringIO()
    text.write(start)
    writer = csv.writer(
        text, delimiter=delimiter, quoting=quoting, doublequote=not escape, escapechar=escape
    )
    writer.writerows([("id", "at", "note"), *zip(ROWS, NUMBERED, notes, strict=False)])
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(text.getvalue().encode(encoding))
    description = describe_file(path)
    if description.format == "text":
        return
    node = Node(
        {"silver": {"at": "at"}, "event_time": "at", "keys": ["at"], "format": "csv"}
        | description.settings,
        path,
    )
    source = parse_source("a", node, Layout(path.parent))
    batches = list(decode_file(path, source))
    rows = [json.loads(row) for batch in batches for row in batch.values]
    assert rows == [{k: v for k, v in row.items() if v is not None} for row in description.rows]


JSON: dict[str, tuple[str, dict[str, Any], int]] = {
    "lines": ('{"a": 1}\n\n{"a": 2}\n', {}, 2),
    "one line": ('{"a": 1}\n', {}, 1),
    "array": ('[\n {"a": 1},\n {"a": 2}\n]\n', {"multi_line": True}, 2),
    "pretty document": ('{\n "a": {"b": 1}\n}\n', {"multi_line": True}, 1),
    "several on a line": ('{"a": 1}{"a": 2}\n{"a": 3}{"a": 4}\n', {"multi_line": True}, 4),
    "records": ('{"n": 2, "b": {"c": [{"a": 1}, {"a": 2}]}}', {"record_path": "b.c"}, 2),
    "lines with arrays": ('{"a": [{"b": 1}]}\n{"a": []}\n', {}, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", JSON)
def test_json_shapes(name: str, tmp_path: Path) -> None:
    text, settings, rows = JSON[name]
    (tmp_path / "a").write_text(text)
    description = describe_file(tmp_path / "a")
    assert (description.format, description.settings, len(description.rows)) == (
        "json",
        settings,
        rows,
    )
    assert description.choices == []


def test_two_arrays_are_a_choice(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"x": [{"a": 1}], "y": [{"b": 1}, {"b": 2}]}')
    description = describe_file(tmp_path / "a")
    assert description.settings == {"record_path": "y"}
    assert description.choices == ["record_path: y or x, both arrays of objects"]


def test_lines_of_text(tmp_path: Path) -> None:
    line = '127.0.0.1 - - [01/May/2026:10:00:0{} +0000] "GET /, HTTP/1.1" 200 5\n'
    (tmp_path / "a.log").write_text("".join(line.format(n) for n in range(9)))
    description = describe_file(tmp_path / "a.log")
    assert (description.format, len(description.rows)) == ("text", 9)


def test_long_file_is_sampled(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("".join(f'{{"a": {n}}}\n' for n in range(200_000)))
    assert len(describe_file(tmp_path / "a.json").rows) == 2000


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
    ".zip": lambda data: _zip(data),
}


def _zip(data: bytes) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("a.json", data)
    return archive.getvalue()


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_compressed_files(suffix: str, tmp_path: Path) -> None:
    data = COMPRESSED[suffix](b'{"a": 1}\n{"a": 2}\n')
    for name, choices in ((f"a.json{suffix}", 0), ("a.json", 1)):
        (tmp_path / name).write_bytes(data)
        description = describe_file(tmp_path / name)
        assert [row["a"] for row in description.rows] == [1, 2]
        assert len(description.choices) == choices


def test_typed_formats(tmp_path: Path) -> None:
    at = "2026-05-01 10:00:00"
    duckdb.sql(
        f"copy (select 7 as id, timestamp '{at}' as at) to '{tmp_path / 'a'}' (format parquet)"
    )
    with (tmp_path / "b").open("wb") as file, pyorc.Writer(file, "struct<id:int,at:string>") as orc:
        orc.write((7, at))
    fields = [{"name": "id", "type": "int"}, {"name": "at", "type": "string"}]
    with (tmp_path / "c").open("wb") as file:
        schema = {"type": "record", "name": "r", "fields": fields}
        fastavro.writer(file, schema, [{"id": 7, "at": at}])
    for name, expected in (("a", "parquet"), ("b", "orc"), ("c", "avro")):
        description = describe_file(tmp_path / name)
        assert description.format == expected
        assert [{key: str(value) for key, value in row.items()} for row in description.rows] == [
            {"id": "7", "at": at}
        ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0", "a PNG picture"),
        (b"PAR1....", "cannot be read: truncated, or not Parquet"),
        (b"\x01\0\0\0abc\0", "neither text nor Parquet, ORC or Avro"),
        (b"SQLite format 3\0", "a database of SQLite"),
        (gzip.compress(b"a".ljust(257, b"\0") + b"ustar\0", mtime=0), "a tar archive: unpack it"),
        (b'<?xml version="1.0"?>\n<rows/>', "XML: convert it to JSON or CSV"),
        (b"<!DOCTYPE html>\n<html>, </html>", "a page in HTML"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
        (gzip.compress(b'{"a": 1}\n' * 99, mtime=0)[:-9], "cannot be read"),
    ],
)
def test_unreadable_files_are_rejected(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(UsageError, match=message):
        describe_file(tmp_path / "a")


@pytest.mark.parametrize("is_complete", [True, False])
def test_last_line_of_a_sample_may_be_incomplete(is_complete: bool) -> None:
    text = '{"a": 1}\n{"a": 2}\n{"a'
    description = describe_lines(text, is_complete, Path("a.json"))
    rows = description.rows if description else None
    assert rows == (None if is_complete else [{"a": 1}, {"a": 2}])

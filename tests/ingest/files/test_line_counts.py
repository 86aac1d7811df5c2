"""Rows of a file counted by plain Python, as bronze should have them."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from medallion.ingest.files import reader
from medallion.ingest.files.verify import count_file_rows
from tests.support.any_lines import objects, objects_in
from tests.support.lakehouse import Lakehouse, activity_source
from tests.support.typed_files import INDEX, MAKE

BOM = b"\xef\xbb\xbf"


def count(file: Path, data: bytes, **settings: Any) -> int | None:
    file.write_bytes(data)
    return count_file_rows(file, activity_source(**settings))


LINES: dict[str, tuple[bytes, int]] = {
    "none": (b"", 0),
    "one": (b"{}\n", 1),
    "without a last line end": (b"{}\n{}", 2),
    "blank lines": (b"\n{}\n\n \t\n{}\n\n", 2),
    "only blank lines": (b" \n\n\t\n", 0),
    "vertical blanks": (b"\v\n\f\n{}\n", 1),
    "CRLF": (b"{}\r\n\r\n{}\r\n", 2),
    "CR alone": (b"{}\r{}\r", 2),
    "mixed line ends": (b"{}\r{}\r\n{}\n", 3),
    "a BOM": (BOM + b"{}\n{}\n", 2),
    "only a BOM": (BOM, 0),
    "a BOM and a line end": (BOM + b"\n{}\n", 1),
    "a BOM in the second line": (b"{}\n" + BOM + b"\n" + BOM + b"{}", 2),
    "not UTF-8": (b"\xff\n\xe4\xf6\n", 2),
    "Unicode separators within a line": ("{}\u2028{}\u0085\x1c\x1d{}\n".encode(), 1),
    "a next-line byte": (b"a\x85b\n", 1),
    "a no-break space is not blank": ("\u00a0\n{}\n".encode(), 2),
    "a NUL": (b"\x00\n", 1),
    "invalid and other JSON": (b"{broken\n[]\nnull\n", 3),
}


OBJECTS: dict[str, tuple[str, int]] = {
    "no separator": ('{"a":1}{"b":2}{}', 3),
    "a space between": ('{"a":1} {"b":2}', 2),
    "two spaces between": ('{"a":1}  {"b":2}', 1),
    "spaces around": (' {"a":1}{"b":2} ', 2),
    "braces in a string": (r'{"a":"}{\"}{"}{"b":"} {"}', 2),
    "nested": ('{"a":{"b":[{},{}]}}{"a":[]}', 2),
    "a comma between": ('{"a":1},{"b":2}', 1),
    "a truncated object": ('{"a":1}{"b":2}{"c":', 3),
    "an unclosed object, and more": ('{"a":1}{"b":{"c":2}{"d":3}{"e":4}', 2),
    "within an array": ('[{"a":1}{"b":2}{"c":3}]', 1),
    "within an object": ('{"a":{"b":1}{"c":2}{"d":3}}', 1),
    "an unclosed quote": ('{"a":1}{"b":"2}{"c":3}', 2),
    "a value that is not an object": ('{"a":1}{"b":2} 3{"c":3}{"d":4}', 2),
    "nested to the limit": ('{"a":' + "[" * 99 + "]" * 99 + "}{}", 2),
    "nested beyond the limit": ('{"a":' + "[" * 100 + "]" * 100 + "}{}", 1),
    "many": ('{"a":{"b":"}{"}}' * 50_000, 50_000),
    "a long object": ('{"a":"' + "x" * 5_000_000 + '"}{"b":[' + '"{",' * 500_000 + "1]}{}", 3),
}


@pytest.fixture(scope="module")
def split_lines(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, list[str]]]:
    """Return the file of each case, and its rows as Spark reads them; one job reads all files."""
    root = tmp_path_factory.mktemp("objects")
    files = {f"{number}.json": name for number, name in enumerate(OBJECTS)}
    for file, name in files.items():
        (root / file).write_text(f"{OBJECTS[name][0]}\n\n{{}}\n", encoding="utf-8")
    config = Lakehouse(None, root).config
    rows = reader.read_rows(spark, config, activity_source(), list(files), {})
    values = dict[str, list[str]]()
    for file, value in rows.select("_source_file", "value").collect():
        values.setdefault(file, []).append(value)
    return {name: (root / file, values[file]) for file, name in files.items()}


@pytest.mark.parametrize("name", OBJECTS)
def test_several_objects_on_a_line(
    split_lines: dict[str, tuple[Path, list[str]]], name: str
) -> None:
    """Spark splits a line into the same objects as Python and loses no character."""
    text, rows = OBJECTS[name]
    file, (*values, last) = split_lines[name]
    assert count_file_rows(file, activity_source()) == rows + 1
    assert objects_in(text.encode()) == rows
    assert last == "{}"
    assert len(values) == rows
    assert "".join(values) == text


@settings(max_examples=200)
@given(
    values=st.lists(objects(), min_size=1, max_size=4),
    blank=st.sampled_from([b"", b" "]),
    cut=st.integers(0, 9),
)
def test_objects_in_agrees_with_json_decoder(values: list[bytes], blank: bytes, cut: int) -> None:
    """Python's parser counts the same valid objects; a truncated last one is one row."""
    line, count_, at = blank.join(values).decode(), 0, 0
    while at < len(line):
        at = json.JSONDecoder().raw_decode(line, at)[1] + len(blank)
        count_ += 1
    assert count_ == len(values) == objects_in(line.encode())
    truncated = values[-1].decode()[: -1 - cut].encode() or b"{"
    assert objects_in(blank.join([*values[:-1], truncated])) == len(values)


@pytest.mark.parametrize("file_format", ["json", "text"])
@pytest.mark.parametrize("name", LINES)
def test_lines(tmp_path: Path, name: str, file_format: str) -> None:
    data, rows = LINES[name]
    assert count(tmp_path / "a.json", data, format=file_format) == rows


@pytest.mark.parametrize(
    ("name", "compress"), [("a.json.gz", gzip.compress), ("a.json.bz2", bz2.compress)]
)
def test_compressed_lines(tmp_path: Path, name: str, compress: Callable[[bytes], bytes]) -> None:
    assert count(tmp_path / name, compress(b"{}\n\n{}\n{}")) == 3
    assert count(tmp_path / name.upper(), compress(b"{}\n")) == 1
    assert count(tmp_path / name, compress(b"{}\n") + compress(b"{}\n")) == 2  # as `cat a b` writes
    assert count(tmp_path / name, compress(b"")) == 0


@pytest.mark.parametrize("size", [200_000, 1_000_000])
def test_csv_field_of_any_length(tmp_path: Path, size: int) -> None:
    data = b"a,b\n1," + b"x" * size + b"\n"
    assert count(tmp_path / "a.csv", data, format="csv") == 1


DOCUMENTS: dict[str, tuple[bytes, int]] = {
    "none": (b"", 0),
    "blanks": (b" \n\t\n", 0),
    "an array": (b'[\n {"a": 1},\n {"a": 2}\n]\n', 2),
    "an empty array": (b"[]", 0),
    "an object": (b'{\n "a": [1, 2, 3]\n}\n', 1),
    "another value": (b"null", 1),
    "truncated": (b'[{"a": 1}, {"a":', 1),
    "NaN, which Python's parser accepts": (b'[{"a": NaN}, {"a": -Infinity}]', 1),
    "two documents": (b'{"a": 1}\n{"a": 2}\n', 2),
    "documents without a separator": (b'{"a": "}{"}{\n"a": [{}]}\t\r\n {"a": 3', 3),
    "documents that are not UTF-8": (b'{"a": 1}\n{"a": "\xff"}\n', 1),
    "a BOM": (BOM + b"[1, 2, 3]", 3),
    "only a BOM": (BOM, 0),
    "a BOM and a line end": (BOM + b"\n", 0),
    "two BOMs": (BOM + BOM + b"[1, 2, 3]", 3),
    "not UTF-8": (b'["\xff", 2]', 1),
    "deep": (b"[" * 100_000 + b"]" * 100_000, 1),
    "nested": (b'[1, "[", ' + b"[" * 200 + b"]" * 200 + b"]", 3),
    "objects nested beyond the limit": (b'{"a": %b}{}' % (b"[" * 100 + b"]" * 100), 1),
    "blanks before an array": (b"\n\t\r [1, 2]\n", 2),
    "a vertical tab, not JSON whitespace": (b"\x0b[1, 2]", 1),
    "numbers longer than Python's limit": (b"[1, %b, 0.%b]" % (b"7" * 5_000, b"7" * 5_000), 3),
    "items of all types": (b'[1, null, "a", [1, 2], {}]', 5),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents(tmp_path: Path, name: str) -> None:
    data, rows = DOCUMENTS[name]
    assert count(tmp_path / "a.json", data, multi_line=True) == rows
    assert count(tmp_path / "a.json.gz", gzip.compress(data), multi_line=True) == rows


@pytest.mark.parametrize("name", ["a.parquet", "a [1].parquet", "it's {b} 100%.parquet"])
def test_parquet(tmp_path: Path, name: str) -> None:
    written = tmp_path / "written"
    sql = "select unnest(range(70000)) as i, [1, 2] as list"
    duckdb.execute(f"copy ({sql}) to '{written}' (format parquet, row_group_size 10000)")
    assert count(tmp_path / name, written.read_bytes(), format="parquet") == 70_000


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"PAR1" + b"x" * 99 + b"PAR1", b"PAR1" + bytes(99) + b"PAR1", b"{}\n"]
)
def test_invalid_parquet(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(OSError, match="truncated, or not Parquet"):
        count(tmp_path / "a.parquet", data, format="parquet")


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_orc_and_avro(tmp_path: Path, file_format: str) -> None:
    complete = MAKE[file_format](INDEX, ({"Index": i} for i in range(70_000)))
    assert count(tmp_path / "a", complete, format=file_format) == 70_000
    invalid = (b"", b"{}\n", complete[:-9], complete[:-30])
    for number, data in enumerate(invalid):
        with pytest.raises(OSError, match=r"truncated, or not (ORC|Avro)"):
            count(tmp_path / str(number), data, format=file_format)


def test_avro_with_blocks_that_spark_would_skip(tmp_path: Path) -> None:
    header = MAKE["avro"](INDEX, [])  # ends with the sync marker of every block
    empty = b"\0\0" + header[-16:]
    assert count(tmp_path / "one.avro", header + empty, format="avro") == 0
    for name, data in {"two": header + 2 * empty, "within a number": header + b"\x80"}.items():
        with pytest.raises(OSError, match="truncated, or not Avro"):
            count(tmp_path / name, data, format="avro")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        count_file_rows(tmp_path / "a.json", activity_source())

"""Rows of a file counted by plain Python, as bronze should have them."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.ingest.files import reader
from medallion.ingest.files.verify import count_file_rows
from medallion.storage.paths import Layout
from tests.support import PROJECT
from tests.support.any_lines import objects, objects_in
from tests.support.home import activity_source
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
    "all of them": (b"{}\r{}\r\n{}\n", 3),
    "a BOM": (BOM + b"{}\n{}\n", 2),
    "nothing but a BOM": (BOM, 0),
    "a BOM and a line end": (BOM + b"\n{}\n", 1),
    "a BOM in the second line": (b"{}\n" + BOM + b"\n" + BOM + b"{}", 2),
    "not UTF-8": (b"\xff\n\xe4\xf6\n", 2),
    "separators that end no line": ("{}\u2028{}\u0085\x1c\x1d{}\n".encode(), 1),
    "a next-line byte": (b"a\x85b\n", 1),
    "a no-break space is something": ("\u00a0\n{}\n".encode(), 2),
    "a NUL": (b"\x00\n", 1),
    "anything at all": (b"{broken\n[]\nnull\n", 3),
}


OBJECTS: dict[str, tuple[str, int]] = {
    "nothing between": ('{"a":1}{"b":2}{}', 3),
    "a blank between": ('{"a":1} {"b":2}', 2),
    "more than a blank between": ('{"a":1}  {"b":2}', 1),
    "a blank before": (' {"a":1}{"b":2} ', 2),
    "braces in a string": (r'{"a":"}{\"}{"}{"b":"} {"}', 2),
    "nested": ('{"a":{"b":[{},{}]}}{"a":[]}', 2),
    "a comma between": ('{"a":1},{"b":2}', 1),
    "one that is cut": ('{"a":1}{"b":2}{"c":', 3),
    "one without its end, and more": ('{"a":1}{"b":{"c":2}{"d":3}{"e":4}', 2),
    "within an array": ('[{"a":1}{"b":2}{"c":3}]', 1),
    "within an object": ('{"a":{"b":1}{"c":2}{"d":3}}', 1),
    "a quote that is never closed": ('{"a":1}{"b":"2}{"c":3}', 2),
    "what is no object": ('{"a":1}{"b":2} 3{"c":3}{"d":4}', 2),
    "as deep as they are split": ('{"a":' + "[" * 99 + "]" * 99 + "}{}", 2),
    "deeper by one": ('{"a":' + "[" * 100 + "]" * 100 + "}{}", 1),
    "many": ('{"a":{"b":"}{"}}' * 50_000, 50_000),
    "a long one": ('{"a":"' + "x" * 5_000_000 + '"}{"b":[' + '"{",' * 500_000 + "1]}{}", 3),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_on_a_line(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Spark splits a line where Python does, and loses no character."""
    text, rows = OBJECTS[name]
    (tmp_path / "a.json").write_text(f"{text}\n\n{{}}\n", encoding="utf-8")
    assert count_file_rows(tmp_path / "a.json", activity_source()) == rows + 1
    assert objects_in(text.encode()) == rows
    config = replace(load({}, PROJECT), layout=Layout(tmp_path))
    found = (
        reader.read_rows(spark, config, activity_source(), ["a.json"], {}).select("value").collect()
    )
    assert [row.value for row in found][-1] == "{}"
    assert len(found) == rows + 1
    assert "".join(row.value for row in found[:-1]) == text


@settings(max_examples=200)
@given(
    some=st.lists(objects(), min_size=1, max_size=4),
    blank=st.sampled_from([b"", b" "]),
    cut=st.integers(0, 9),
)
def test_objects_that_pythons_parser_finds(some: list[bytes], blank: bytes, cut: int) -> None:
    """An independent parser of JSON finds as many in valid ones; a cut-off rest is a row."""
    line, found, at = blank.join(some).decode(), 0, 0
    while at < len(line):
        at = json.JSONDecoder().raw_decode(line, at)[1] + len(blank)
        found += 1
    assert found == len(some) == objects_in(line.encode())
    short = some[-1].decode()[: -1 - cut].encode() or b"{"
    assert objects_in(blank.join([*some[:-1], short])) == len(some)


@pytest.mark.parametrize("kind", ["json", "text"])
@pytest.mark.parametrize("name", LINES)
def test_lines(tmp_path: Path, name: str, kind: str) -> None:
    data, rows = LINES[name]
    assert count(tmp_path / "a.json", data, format=kind) == rows


@pytest.mark.parametrize(
    ("name", "pack"), [("a.json.gz", gzip.compress), ("a.json.bz2", bz2.compress)]
)
def test_packed_lines(tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    assert count(tmp_path / name, pack(b"{}\n\n{}\n{}")) == 3
    assert count(tmp_path / name.upper(), pack(b"{}\n")) == 1
    assert count(tmp_path / name, pack(b"{}\n") + pack(b"{}\n")) == 2  # as `cat a b` makes them
    assert count(tmp_path / name, pack(b"")) == 0


@pytest.mark.parametrize("size", [200_000, 1_000_000])
def test_a_csv_field_of_any_length(tmp_path: Path, size: int) -> None:
    data = b"a,b\n1," + b"x" * size + b"\n"
    assert count(tmp_path / "a.csv", data, format="csv") == 1


DOCUMENTS: dict[str, tuple[bytes, int]] = {
    "none": (b"", 0),
    "blanks": (b" \n\t\n", 0),
    "an array": (b'[\n {"a": 1},\n {"a": 2}\n]\n', 2),
    "an empty array": (b"[]", 0),
    "an object": (b'{\n "a": [1, 2, 3]\n}\n', 1),
    "something else": (b"null", 1),
    "broken": (b'[{"a": 1}, {"a":', 1),
    "no JSON, though Python reads it": (b'[{"a": NaN}, {"a": -Infinity}]', 1),
    "two documents": (b'{"a": 1}\n{"a": 2}\n', 2),
    "documents without anything between": (b'{"a": "}{"}{\n"a": [{}]}\t\r\n {"a": 3', 3),
    "documents that are not UTF-8": (b'{"a": 1}\n{"a": "\xff"}\n', 1),
    "a BOM": (BOM + b"[1, 2, 3]", 3),
    "nothing but a BOM": (BOM, 0),
    "a BOM and a line end": (BOM + b"\n", 0),
    "two BOMs": (BOM + BOM + b"[1, 2, 3]", 3),
    "not UTF-8": (b'["\xff", 2]', 1),
    "deep": (b"[" * 100_000 + b"]" * 100_000, 1),
    "as deep as is split": (b'[1, "[", ' + b"[" * 100 + b"]" * 100 + b"]", 3),
    "deeper by one": (b"[1, 2, " + b"[" * 101 + b"]" * 101 + b"]", 1),
    "blanks before an array": (b"\n\t\r [1, 2]\n", 2),
    "a blank that is none to JSON": (b"\x0b[1, 2]", 1),
    "numbers longer than Python reads": (b"[1, %b, 0.%b]" % (b"7" * 5_000, b"7" * 5_000), 3),
    "items of all kinds": (b'[1, null, "a", [1, 2], {}]', 5),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents(tmp_path: Path, name: str) -> None:
    data, rows = DOCUMENTS[name]
    assert count(tmp_path / "a.json", data, multi_line=True) == rows
    assert count(tmp_path / "a.json.gz", gzip.compress(data), multi_line=True) == rows


@pytest.mark.parametrize("name", ["a.parquet", "a [1].parquet", "it's {b} 100%.parquet"])
def test_parquet(tmp_path: Path, name: str) -> None:
    made = tmp_path / "made"
    sql = "select unnest(range(70000)) as i, [1, 2] as list"
    duckdb.execute(f"copy ({sql}) to '{made}' (format parquet, row_group_size 10000)")
    assert count(tmp_path / name, made.read_bytes(), format="parquet") == 70_000


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"PAR1" + b"x" * 99 + b"PAR1", b"PAR1" + bytes(99) + b"PAR1", b"{}\n"]
)
def test_parquet_that_is_none(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(OSError, match="truncated, or not Parquet"):
        count(tmp_path / "a.parquet", data, format="parquet")


@pytest.mark.parametrize("kind", ["orc", "avro"])
def test_files_with_types(tmp_path: Path, kind: str) -> None:
    whole = MAKE[kind](INDEX, ({"Index": i} for i in range(70_000)))
    assert count(tmp_path / "a", whole, format=kind) == 70_000
    torn = (b"", b"{}\n", whole[:-9], whole[:-30])
    for number, data in enumerate(torn):
        with pytest.raises(OSError, match=r"truncated, or not (ORC|Avro)"):
            count(tmp_path / str(number), data, format=kind)


def test_avro_that_spark_would_not_read_to_its_end(tmp_path: Path) -> None:
    header = MAKE["avro"](INDEX, [])  # which ends with what each block ends with
    empty = b"\0\0" + header[-16:]
    assert count(tmp_path / "one.avro", header + empty, format="avro") == 0
    for name, data in {"two": header + 2 * empty, "within a number": header + b"\x80"}.items():
        with pytest.raises(OSError, match="truncated, or not Avro"):
            count(tmp_path / name, data, format="avro")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        count_file_rows(tmp_path / "a.json", activity_source())

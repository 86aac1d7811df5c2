"""CSV files whose first row is not the expected header stay pending."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from medallion.config.model import ReaderOptions, SourceConfig
from medallion.ingest.files import header
from medallion.ingest.schema.registry import unknown_schema_reason
from medallion.state.ledger import State
from medallion.storage.paths import StoragePath
from tests.support.home import Home
from tests.support.lakehouse import activity_source

SILVER = {
    "at": "coalesce(to_timestamp(happened, 'dd.MM.yyyy'), `Order Date`)",
    "id": "cast(Order_Id as decimal(10, 2))",
}
SOURCE = replace(activity_source(), format="csv", schema=None, hints={}, silver=SILVER)
GOOD = {
    "known": "order_id,v\n1,x\n",
    "known by its backticks": "v,order date\nx,1\n",
    "years": "happened,2019,2020\n1,2,3\n",
    "known among data": "1,Order_Id\n2,3\n",
    "unknown": "country,note\nx,2\n",
    "one column": "note\nx;y\nz\n",
    "a name with a semicolon": "comment; if any\nx\ny\n",
    "no row": "\n\n",
    "only text": "a;b",
    "digits in names": "q1,2nd,e5,x-1\n1,2,3,4\n",
    "an empty name beside a known one": ",order_id\n0,1\n",
    "not text": "PK\x03\x04\x00",
}
HEADERLESS = {
    "number": ("3,z\n4,w\n", "'3'"),
    "time": ("z,2026-05-01T10:02:00Z\nw,x\n", "'2026-05-01T10:02:00Z'"),
    "German date": ("z,31.12.2026\n", "'31.12.2026'"),
    "price": ("z,€ 12.50\n", "'€ 12.50'"),
    "empty": ("z,,y\n", "''"),
    "in a literal and a type": ("dd.MM.yyyy,10\n", "'10'"),
    "CRLF after blank lines": ("\r\n7,x\r\n", "'7'"),
}
SEPARATED = {
    "tabs": ("id\tat\tv\n1\t2026-05-01T10:00:00Z\tx\n", "1 column by commas, and 2 tabs", r'"\t"'),
    "semicolons": ("a;b;c\n1;2,5;3\n4;5,5;6\n", "1 column by commas, and 2 semicolons", '";"'),
    "pipes": ("a|b\n1|2\n", "1 column by commas, and 1 pipe in", '"|"'),
    "known by semicolons": ("Name, first;Order_Id\n", "2 columns by commas, and 1 semi", '";"'),
    "delimiters at the ends": ("a;b\n1;2;\n3;4;\n", "1 column by commas, and 1 semicolon", '";"'),
}


def reason(path: Path, text: str, options: ReaderOptions = ReaderOptions()) -> str | None:  # noqa: B008
    path.write_text(text, encoding="utf-8")
    source = replace(SOURCE, options=options)
    return misread_reason(path, source, header.known_header_names(Home(path).layout, source))


def misread_reason(path: Path, source: SourceConfig, known: Collection[str]) -> str | None:
    message = header.misread_reason(StoragePath(path), source, known)
    return message.text if message else None


def test_lines_before_the_header(tmp_path: Path) -> None:
    text = "Report\n\nOrder_Id,v\n1,x\n"
    assert "set options.skipRows" in str(reason(tmp_path / "a.csv", text))
    assert reason(tmp_path / "a.csv", text, ReaderOptions(skip_rows=2)) is None


@pytest.mark.parametrize("name", GOOD)
def test_valid_header(tmp_path: Path, name: str) -> None:
    assert reason(tmp_path / "a.csv", GOOD[name]) is None


@pytest.mark.parametrize("name", HEADERLESS)
def test_header_that_looks_like_data(tmp_path: Path, name: str) -> None:
    text, value = HEADERLESS[name]
    message = reason(tmp_path / "a.csv", text) or ""
    assert message.startswith(f"its header looks like data ({value}), and has no known column")
    assert "options: {header: false}" in message
    assert reason(tmp_path / "a.csv", text, ReaderOptions(header=True)) is None


@pytest.mark.parametrize("name", SEPARATED)
def test_header_with_another_delimiter(tmp_path: Path, name: str) -> None:
    text, start, delimiter = SEPARATED[name]
    message = reason(tmp_path / "a.csv", text) or ""
    assert message.startswith(start)
    assert f"set options: {{delimiter: {delimiter}}}" in message
    assert reason(tmp_path / "a.csv", text, ReaderOptions(header=True)) is None


def test_commas_with_delimiter_semicolon(tmp_path: Path) -> None:
    options = ReaderOptions(delimiter=";")
    message = reason(tmp_path / "a.csv", "Order_Id,v\n1,2\n", options) or ""
    assert message.startswith("1 column by semicolons, and 1 comma in the header")
    assert reason(tmp_path / "a.csv", "Order_Id;v\n1;2,3\n", options) is None


def test_headerless_file_with_a_header(tmp_path: Path) -> None:
    source = replace(
        SOURCE, schema={"Id": "long", "v": "string"}, options=ReaderOptions(header=False)
    )

    def message(text: str) -> str:
        (tmp_path / "a.csv").write_text(text)
        return misread_reason(tmp_path / "a.csv", source, {"id", "v"}) or ""

    assert message("1,x\n2,y\n") == ""
    assert message("id,v\n1,x\n").startswith("its first row has the names of the columns")
    assert message("1;x\n2;y\n").startswith("1 column by commas, and 1 semicolon")


def test_long_and_compressed_headers(tmp_path: Path) -> None:
    """A header beyond the inspected bytes, and a file rejected later, are not pending."""
    names = header.known_header_names(Home(tmp_path).layout, SOURCE)
    files = {
        "long.csv": b"1," * (1 << 16) + b"\n",
        "rows.csv.gz": gzip.compress(b"1,2\n" + b"3,4\n" * 99_999),
        "truncated.csv.gz": gzip.compress(b"1,2\n3,4\n" * 9)[:-20],
        "a.csv.xz": lzma.compress(b"1,2\n"),
    }
    messages = {}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        messages[name] = misread_reason(tmp_path / name, SOURCE, names)
    assert [name for name, message in messages.items() if message] == ["rows.csv.gz", "a.csv.xz"]


def test_misread_file_stays_pending_until_a_change(home: Home) -> None:
    home.change(**{k: getattr(SOURCE, k) for k in ("format", "schema", "hints", "silver")})
    home.land("a.csv", "Order_Id,v\n1,x\n")
    home.land("b.csv", "3,z\n4,w\n", age=9)
    home.land("c.csv", "5;2026\n6;2026\n", age=9)
    assert home.poll() == 1
    assert home.poll() == 0
    assert home.names() == ["a.csv"]
    waiting = {name: entry for (name, _), entry in home.ledger().items() if entry.why}
    assert {name: entry.state for name, entry in waiting.items()} == {
        "b.csv": State.PENDING,
        "c.csv": State.PENDING,
    }
    assert "looks like data" in str(waiting["b.csv"].why)
    assert "1 semicolon in the header" in str(waiting["c.csv"].why)
    assert [line for line in home.messages if "b.csv: pending" in line] == home.messages[:1]
    home.land("c.csv", "Order_Id,v\n5,2026\n6,2026\n")
    assert home.poll() == 1
    home.change(schema={"Order_Id": "long", "v": "string"}, options=ReaderOptions(header=False))
    assert home.poll() == 1
    assert home.names() == ["a.csv", "c.csv", "b.csv"]


def test_unknown_schema_names_a_file(home: Home) -> None:
    home.change(**{k: getattr(SOURCE, k) for k in ("format", "schema", "hints", "silver")})

    def reason_text() -> str:
        return unknown_schema_reason(home.config, home.source)

    assert reason_text() == "its schema is unknown until a file or message lands"
    home.land("a.csv", "Order_Id\n")
    home.poll()
    home.ingest("a.csv")
    landed = home.path("a.csv")
    assert reason_text() == f"no file gave its schema; {landed} is ingested: no row has a field"
    home.land("b.tsv", "id\tat\n1\t2\n")
    home.poll()
    assert reason_text().startswith(
        f"no file gave its schema; {home.path('b.tsv')} is pending: 1 column by commas, and 1 tab"
    )
    assert reason_text().endswith("(2 files landed: medallion files)")

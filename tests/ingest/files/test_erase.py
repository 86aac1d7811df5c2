"""Records of files with their text, by which lines are removed; values by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from medallion.config.model import ReaderOptions
from medallion.ingest.files.content import create_packed
from medallion.ingest.files.decode import rows_with_text
from medallion.ingest.files.erase import unsupported_reason
from tests.support.home import activity_source

BOM = "\ufeff"


def records(path: Path, text: str, **settings: Any) -> list[tuple[Any, str]]:
    source = activity_source(**settings)
    path.write_bytes(text.encode(source.options.encoding, "surrogateescape"))
    columns = {"Index": "long"}
    found = rows_with_text(path, source, columns)
    return [(row and json.loads(row), line) for row, line in found]


def test_rows_with_text_of_csv(tmp_path: Path) -> None:
    """A header, and records that are no row, have none; the texts are the file."""
    lines = [
        "Index,Device\r\n",
        '1,"a\r\nb"\r\n',
        "2,c,d\r\n",  # too many fields
        "3,c\r\n",
        "4,\udcff",
    ]
    found = records(tmp_path / "a.csv", "".join(lines), format="csv")
    assert [line for _, line in found] == lines
    assert [row for row, _ in found] == [
        None,
        {"Index": 1, "Device": "a\r\nb"},
        None,
        {"Index": 3, "Device": "c"},
        None,
    ]


def test_rows_with_text_of_csv_with_lines_before_its_header(tmp_path: Path) -> None:
    lines = ['Report "x\n\nIndex,Device\n', "1,a\n"]
    options = ReaderOptions(skip_rows=2)
    found = records(tmp_path / "a.csv", "".join(lines), format="csv", options=options)
    assert found == [(None, lines[0]), ({"Index": 1, "Device": "a"}, lines[1])]


def test_rows_with_text_of_lines(tmp_path: Path) -> None:
    text = f'{BOM}{{"a": 1}}\n\n{{"a": 2}}'
    found = records(tmp_path / "a.json", text, format="json")
    assert [row for row, _ in found] == [{"a": 1}, {"a": 2}]
    assert "".join(line for _, line in found) == text
    found = records(tmp_path / "a.txt", "x\ny\n", format="text")
    assert found == [({"value": "x"}, "x\n"), ({"value": "y"}, "y\n")]


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("a.json", {"format": "json"}, None),
        ("a.csv.gz", {"format": "csv"}, None),
        ("a.json.zst", {"format": "json"}, ".zst files"),
        ("a.zip", {"format": "csv"}, ".zip files"),
        ("a.json", {"format": "json", "multi_line": True}, "one document"),
        ("a.parquet", {"format": "parquet"}, "parquet has no lines"),
    ],
)
def test_unsupported_reason(name: str, settings: dict[str, Any], reason: str | None) -> None:
    found = unsupported_reason(name, activity_source(**settings))
    assert found is None if reason is None else reason in str(found)


def test_create_packed_is_unpacked_by_others(tmp_path: Path) -> None:
    with create_packed(tmp_path / ".a.tmp", ".gz") as file:
        file.write(b"x\n")
    assert gzip.decompress((tmp_path / ".a.tmp").read_bytes()) == b"x\n"

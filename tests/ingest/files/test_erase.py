"""Records of files with their raw lines, which erasure removes; expected values are written by
hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from medallion.config.model import ReaderOptions
from medallion.ingest.files.content import create_packed
from medallion.ingest.files.decode import rows_with_text
from medallion.ingest.files.erase import erase_from_files, erased_origins, unsupported_reason
from medallion.state.journal import Action
from medallion.state.ledger import Entry, Ledger, State
from medallion.storage.paths import StoragePath
from tests.support.home import Home
from tests.support.lakehouse import activity_source

BOM = "\ufeff"


def records(path: Path, text: str, **settings: Any) -> list[tuple[Any, str]]:
    source = activity_source(**settings)
    path.write_bytes(text.encode(source.options.encoding, "surrogateescape"))
    columns = {"Index": "long"}
    rows = rows_with_text(path, source, columns)
    return [(row and json.loads(row), line) for row, line in rows]


def test_rows_with_text_of_csv(tmp_path: Path) -> None:
    """The header and corrupt records have no row; the lines concatenate to the file."""
    lines = [
        "Index,Device\r\n",
        '1,"a\r\nb"\r\n',
        "2,c,d\r\n",  # too many fields
        "3,c\r\n",
        "4,\udcff",
    ]
    rows = records(tmp_path / "a.csv", "".join(lines), format="csv")
    assert [line for _, line in rows] == lines
    assert [row for row, _ in rows] == [
        None,
        {"Index": 1, "Device": "a\r\nb"},
        None,
        {"Index": 3, "Device": "c"},
        None,
    ]


def test_rows_with_text_of_csv_with_skipped_rows(tmp_path: Path) -> None:
    lines = ['Report "x\n\nIndex,Device\n', "1,a\n"]
    options = ReaderOptions(skip_rows=2)
    rows = records(tmp_path / "a.csv", "".join(lines), format="csv", options=options)
    assert rows == [(None, lines[0]), ({"Index": 1, "Device": "a"}, lines[1])]


def test_rows_with_text_of_lines(tmp_path: Path) -> None:
    text = f'{BOM}{{"a": 1}}\n\n{{"a": 2}}'
    rows = records(tmp_path / "a.json", text, format="json")
    assert [row for row, _ in rows] == [{"a": 1}, {"a": 2}]
    assert "".join(line for _, line in rows) == text
    rows = records(tmp_path / "a.txt", "x\ny\n", format="text")
    assert rows == [({"value": "x"}, "x\n"), ({"value": "y"}, "y\n")]


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
    actual = unsupported_reason(name, activity_source(**settings))
    assert actual is None if reason is None else reason in str(actual)


def test_create_packed_is_readable_by_gzip(tmp_path: Path) -> None:
    with create_packed(tmp_path / ".a.tmp", ".gz") as file:
        file.write(b"x\n")
    assert gzip.decompress((tmp_path / ".a.tmp").read_bytes()) == b"x\n"


def context_of(home: Home, *entries: Entry) -> Any:
    Ledger(home.layout, "activity").write(entries)
    return SimpleNamespace(
        config=home.config, source=home.source, ledger=Ledger(home.layout, "activity")
    )


def test_erasure_deletes_only_the_ingested_file(home: Home) -> None:
    """A file was overwritten after it was ingested, and no scan has seen that yet."""
    kept, overwritten = home.land("a.json", "{}"), home.land("b.json", "{}")
    entries = [
        Entry("activity", f"landing/activity/{name}.json", 1, *info, 5, State.INGESTED)
        for name in "ab"
        if (info := (home.layout.root / f"landing/activity/{name}.json").info())
    ]
    overwritten.write_text("not ingested")
    context = context_of(home, *entries)
    rows = {(entry.path, entry.modified_at): 1 for entry in entries}
    origins = erased_origins(context, rows, is_deleted=True)
    assert [origin.action for origin in origins] == [Action.DELETED, Action.GONE]
    kept.write_text("overwritten after the plan was written")
    erase_from_files(context, origins, lambda frame: frame)
    assert (kept.exists(), overwritten.read_text()) == (True, "not ingested")


def test_erased_origins_of_a_file_that_cannot_be_inspected(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still have the rows: it does not count as gone."""
    entry = Entry("activity", "landing/activity/a.json", 1, 3, 5, 5, State.INGESTED)
    context = context_of(home, entry)
    (gone,) = erased_origins(context, {(entry.path, 5): 2}, is_deleted=False)
    assert gone.action is Action.GONE

    def fail(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(StoragePath, "info", fail)
    with pytest.raises(PermissionError):
        erased_origins(context, {(entry.path, 5): 2}, is_deleted=False)

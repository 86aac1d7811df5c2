"""Rejected files: each is moved to a unique name in rejected/, or stays where it landed."""

from __future__ import annotations

import bz2
from pathlib import Path

import duckdb
import pytest

from medallion.ingest.files import archive, content, listing
from medallion.ingest.files.verify import verify_files
from medallion.ingest.formats import SOURCE_TYPES
from medallion.runtime import backfill
from medallion.state.ledger import Entry, Ledger, State
from medallion.storage.paths import StoragePath
from tests.support.home import Home


def reject(home: Home, *names: str, why: str = "no reason") -> dict[str, Entry]:
    """Reject files; return the ledger's newest entries by path."""
    ledger = home.discovery().ledger
    files = ((name, listing.current_info(home.layout, name)) for name in names)
    entries = [
        Entry("activity", name, 1, f.size, f.modified_at, 0, state=State.UNREADABLE, why=why)
        for name, f in files
        if f
    ]
    home.reject(ledger, entries)
    return {entry.path: entry for entry in home.discovery().ledger.newest_entries()}


def rejected_files(home: Home) -> dict[str, str]:
    """Return the text of each file in rejected/ by its relative path."""
    below = home.layout.rejected("activity")
    files = (path for path in below.local.rglob("*") if path.is_file())
    return {str(path.relative_to(below)): path.read_text() for path in files}


def land_in_two_directories(home: Home, tmp_path: Path, *names: str) -> list[Path]:
    """Land the same names in two directories, each file with its path as content."""
    folders = [tmp_path / folder for folder in ("north", "south")]
    home.change(folders=tuple(str(folder) for folder in folders))
    files = [folder / name for folder in folders for name in names]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text(str(file))
    return files


def test_reject_numbers_name_collisions(home: Home, tmp_path: Path) -> None:
    files = land_in_two_directories(home, tmp_path, "day.json")
    entries = reject(home, *(str(file) for file in files))
    for file in files:
        moved_to = entries[str(file)].moved_to
        assert moved_to
        assert (home.layout.root / moved_to).local.read_text() == str(file)
        assert (
            home.layout.root / f"{moved_to}.reason.txt"
        ).local.read_text() == f"{file}: no reason\n"
    assert len(rejected_files(home)) == 4


def test_reject_file_named_like_a_reason(home: Home) -> None:
    for names in (("a.json", "a.json.reason.txt"), ("b.json.reason.txt", "b.json")):
        for name in names:
            home.land(name, f"text of {name}")
        reject(home, *(home.path(name) for name in names))
    contents = sorted(text for text in rejected_files(home).values() if text.startswith("text of"))
    names_in_order = ("a.json", "a.json.reason.txt", "b.json", "b.json.reason.txt")
    assert contents == [f"text of {name}" for name in names_in_order]
    assert len(rejected_files(home)) == 8


def test_reject_numbers_the_longest_names(home: Home, tmp_path: Path) -> None:
    files = land_in_two_directories(home, tmp_path, "x" * 250 + ".json")
    reject(home, *(str(file) for file in files))
    assert not any(file.exists() for file in files)
    assert set(map(str, files)) <= set(rejected_files(home).values())
    assert len(rejected_files(home)) == 4


def test_reject_never_replaces_a_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example one created at the same moment."""
    other = home.layout.rejected("activity") / "a.json"
    other.parent.local.mkdir(parents=True)
    other.local.write_text("another one")
    file = home.land("a.json", "mine")
    monkeypatch.setattr(StoragePath, "first_free", lambda path: path)
    entry = reject(home, home.path("a.json"))[home.path("a.json")]
    assert (other.local.read_text(), file.read_text()) == ("another one", "mine")
    assert entry.moved_to is None


def land_unmovable(home: Home, name: str = "a.json", why: str = "truncated") -> Path:
    """Land an unreadable file that cannot be moved yet: rejected/activity is a file."""
    file = home.land(name, "torn\n", age=9)
    home.poll()
    home.layout.rejected("").local.mkdir(exist_ok=True)
    home.layout.rejected("activity").local.touch()
    entry = reject(home, home.path(name), why=why)[home.path(name)]
    assert (entry.state, entry.moved_to, file.read_text()) == (
        State.UNREADABLE,
        None,
        "torn\n",
    )
    return file


def rescan(home: Home) -> Entry:
    """Scan as a nightly run without work does; return the newest ledger entry."""
    SOURCE_TYPES["json"].scan(home.config, home.source).enqueue(-1, home.messages.append)
    return max(home.ledger().values(), key=lambda entry: entry.version)


@pytest.mark.parametrize("clean_source", ["archive", "delete", "off"])
def test_reject_moves_later_without_reading_again(home: Home, clean_source: str) -> None:
    home.change(clean_source=clean_source)
    file = land_unmovable(home, "sub/a.json")
    home.messages.clear()
    entries = [rescan(home) for _ in range(3)]
    assert {entry.state for entry in entries} == {State.UNREADABLE}
    assert file.is_file()
    home.layout.rejected("activity").local.unlink()
    entry = rescan(home)
    assert (entry.state, entry.version, entry.rows) == (State.REJECTED, 1, None)
    assert entry.moved_to == "rejected/activity/sub/a.json"
    assert (home.layout.root / entry.moved_to).local.read_text() == "torn\n"
    reason = (home.layout.root / f"{entry.moved_to}.reason.txt").local.read_text()
    assert (reason, entry.why) == (f"{home.path('sub/a.json')}: truncated\n", "truncated")
    assert not file.exists()
    assert [rescan(home), home.queued()] == [entry, [("sub/a.json", 1)]]
    message = "  activity: landing/activity/sub/a.json cannot be moved: Not a directory"
    assert home.messages == [message] * 3


@pytest.mark.parametrize("overwrites", [False, True])
def test_reject_of_a_file_replaced_meanwhile(home: Home, overwrites: bool) -> None:
    """No row of the first file was ingested: the new file is no overwrite."""
    home.change(allow_overwrites=overwrites)
    file = land_unmovable(home)
    home.layout.rejected("activity").local.unlink()
    home.land("a.json", "{}\n{}\n", age=4)
    assert rescan(home).state == State.PENDING
    assert file.read_text() == "{}\n{}\n"
    assert home.queued() == [("a.json", 1), ("a.json", 2)]
    assert rejected_files(home) == {}


def test_reject_of_a_vanished_file(home: Home) -> None:
    """It is not recorded as moved, and is ingested if it lands again."""
    file = land_unmovable(home)
    home.layout.rejected("activity").local.unlink()
    file.rename(home.layout.root / "mine")
    assert rescan(home).state == State.UNREADABLE
    home.land("a.json", "{}\n{}\n", age=4)
    assert rescan(home).version == 2
    assert rejected_files(home) == {}


def test_reject_then_backfill_of_the_file(
    home: Home,
) -> None:
    file = land_unmovable(home)
    backfill.request_backfill(home.config, "activity", file)
    assert rescan(home).state == State.PENDING
    assert home.queued() == [("a.json", 1), ("a.json", 2)]


@pytest.mark.parametrize("after", ["the ledger", "the move"])
def test_reject_interrupted(home: Home, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    home.land("a.json", "torn\n", age=9)
    home.poll()

    def interrupt(*_: object) -> None:
        raise RuntimeError("interrupted")

    with monkeypatch.context() as patch:
        if after == "the ledger":
            patch.setattr(archive, "path_below_source", interrupt)
        else:
            writes = iter((Ledger.write, interrupt))
            patch.setattr(Ledger, "write", lambda *args: next(writes)(*args))
        with pytest.raises(RuntimeError):
            reject(home, home.path("a.json"), why="truncated")
    assert home.states() == {("a.json", 1): State.UNREADABLE}
    assert (home.landing / "a.json").exists() == (after == "the ledger")
    assert verify_files(home.config, home.source).findings == []
    entry = rescan(home)
    assert (entry.state, entry.version, entry.why) == (State.REJECTED, 1, "truncated")
    assert (home.layout.root / str(entry.moved_to)).local.read_text() == "torn\n"
    assert rejected_files(home)["a.json.reason.txt"] == f"{entry.path}: truncated\n"
    assert home.queued() == [("a.json", 1)]


def test_reject_leaves_files_of_backfills(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("torn\n")
    entry = reject(home, str(file))[str(file)]
    assert (entry.state, entry.moved_to, file.read_text()) == (State.REJECTED, None, "torn\n")
    assert rescan(home) == entry
    assert rejected_files(home) == {}


@pytest.mark.parametrize(
    "text",
    [
        "ORCID,name\n0000-0002-1825-0097,Carberry\n",
        "ORC\n",
        "ORCID;Größe\n1;2\n".encode("latin-1"),
        "ORC\tkill\x1b[0m\r\n\f",
        "PAR1,PAR2\n1,2\n",
        "BZh9,x\n",
        "BZh91AY&SY\n",
        "PK,name\n",
        "Obj,name\n",
        "%PDF,%DOC\n3,4\n",
        "",
    ],
)
def test_not_text_reason_of_text(tmp_path: Path, text: str | bytes) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert content.not_text_reason(file) is None


# Written by Spark, without and with compression, and without rows.
@pytest.mark.parametrize(
    ("start", "file_format"),
    [
        (b"ORC\n\x06\x12\x04\x08\x03P\x00\n!\n\x03\x00\x00\x00\x12\x1a\x08\x03", "ORC"),
        (b"ORC\x11\x00\x00\n\x06\x12\x04\x08\x03P\x00K\x00\x00\n#\n\x05", "ORC"),
        (b'ORC\x08\x03\x10\x03"\r\x08\x0c\x12\x01\x01\x1a\x06Device"%', "ORC"),
        (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n", "PDF"),
        (bz2.compress(b""), "bzip2"),
        (bz2.compress(b"{}\n"), "bzip2"),
        (bz2.compress(bytes(range(256)) * 5000), "bzip2"),
        (b"Obj\x01\x04\x14avro.codec", "Avro"),
    ],
)
def test_not_text_reason_of_other_formats(tmp_path: Path, start: bytes, file_format: str) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(start)
    assert file_format in (content.not_text_reason(file) or "")


def test_not_text_reason_of_parquet(tmp_path: Path) -> None:
    duckdb.connect().sql("select 'd' as Device where false").write_parquet(str(tmp_path / "a.json"))
    assert "Parquet" in (content.not_text_reason(tmp_path / "a.json") or "")

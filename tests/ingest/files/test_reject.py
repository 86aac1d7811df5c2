"""Files put aside: each is kept under a name of its own, or stays where it landed."""

from __future__ import annotations

import bz2
from pathlib import Path

import duckdb
import pytest

from medallion.ingest.files import archive, content, discovery, listing
from medallion.ingest.files.verify import verify_files
from medallion.ingest.formats import SOURCE_TYPES
from medallion.state.ledger import Entry, Ledger, State
from medallion.storage import files
from tests.support.home import Home


def put_aside(home: Home, *names: str, why: str = "no reason") -> dict[str, Entry]:
    """Reject files, and give the ledger's rows by their paths."""
    book = home.discovery().ledger
    files = ((name, listing.current_info(home.layout, name)) for name in names)
    entries = [
        Entry("activity", name, 1, f.size, f.modified_at, 0, state=State.UNREADABLE, why=why)
        for name, f in files
        if f
    ]
    archive.reject_files(home.layout, home.source, book, entries)
    return {entry.path: entry for entry in home.discovery().ledger.newest_entries()}


def kept(home: Home) -> dict[str, str]:
    """What lies in rejected/, by name."""
    below = home.layout.rejected("activity")
    files = (path for path in below.local.rglob("*") if path.is_file())
    return {str(path.relative_to(below)): path.read_text() for path in files}


def in_folders(home: Home, tmp_path: Path, *names: str) -> list[Path]:
    """The same names in two folders, whose text is their path."""
    folders = [tmp_path / folder for folder in ("north", "south")]
    home.change(folders=tuple(str(folder) for folder in folders))
    files = [folder / name for folder in folders for name in names]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text(str(file))
    return files


def test_reject_numbers_equal_names(home: Home, tmp_path: Path) -> None:
    files = in_folders(home, tmp_path, "day.json")
    entries = put_aside(home, *(str(file) for file in files))
    for file in files:
        place = entries[str(file)].moved_to
        assert place
        assert (home.layout.root / place).local.read_text() == str(file)
        assert (
            home.layout.root / f"{place}.reason.txt"
        ).local.read_text() == f"{file}: no reason\n"
    assert len(kept(home)) == 4


def test_reject_file_named_like_a_reason(home: Home) -> None:
    for names in (("a.json", "a.json.reason.txt"), ("b.json.reason.txt", "b.json")):
        for name in names:
            home.land(name, f"text of {name}")
        put_aside(home, *(home.path(name) for name in names))
    texts = sorted(text for text in kept(home).values() if text.startswith("text of"))
    every = ("a.json", "a.json.reason.txt", "b.json", "b.json.reason.txt")
    assert texts == [f"text of {name}" for name in every]
    assert len(kept(home)) == 8


def test_reject_numbers_the_longest_names(home: Home, tmp_path: Path) -> None:
    files = in_folders(home, tmp_path, "x" * 250 + ".json")
    put_aside(home, *(str(file) for file in files))
    assert not any(file.exists() for file in files)
    assert set(map(str, files)) <= set(kept(home).values())
    assert len(kept(home)) == 4


def test_reject_never_replaces_a_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when somebody puts a file there just now."""
    other = home.layout.rejected("activity") / "a.json"
    other.parent.local.mkdir(parents=True)
    other.local.write_text("another one")
    file = home.land("a.json", "mine")
    monkeypatch.setattr(files, "free_path", lambda path, *_: path)
    entry = put_aside(home, home.path("a.json"))[home.path("a.json")]
    assert (other.local.read_text(), file.read_text()) == ("another one", "mine")
    assert entry.moved_to is None
    assert "could not be moved at once" in (entry.why or "")


def stuck(home: Home, name: str = "a.json", why: str = "torn") -> Path:
    """A file that cannot be moved for now, for rejected/activity is no folder."""
    file = home.land(name, "torn\n", age=9)
    home.poll()
    home.layout.rejected("").local.mkdir(exist_ok=True)
    home.layout.rejected("activity").local.touch()
    entry = put_aside(home, home.path(name), why=why)[home.path(name)]
    assert (entry.state, entry.moved_to, file.read_text()) == (State.UNREADABLE, None, "torn\n")
    return file


def look_again(home: Home) -> Entry:
    """As a night does that finds nothing to do; the newest row of the ledger."""
    SOURCE_TYPES["json"].scan(home.config, home.source).enqueue(-1, home.messages.append)
    return max(home.ledger().values(), key=lambda entry: entry.version)


@pytest.mark.parametrize("clean_source", ["archive", "delete", "off"])
def test_reject_moves_later_without_reading_again(home: Home, clean_source: str) -> None:
    home.change(clean_source=clean_source)
    file = stuck(home, "sub/a.json")
    home.messages.clear()
    waits = [look_again(home) for _ in range(3)]
    assert {entry.state for entry in waits} == {State.UNREADABLE}
    assert file.is_file()
    home.layout.rejected("activity").local.unlink()
    entry = look_again(home)
    assert (entry.state, entry.version, entry.rows) == (State.REJECTED, 1, None)
    assert entry.moved_to == "rejected/activity/sub/a.json"
    assert (home.layout.root / entry.moved_to).local.read_text() == "torn\n"
    reason = (home.layout.root / f"{entry.moved_to}.reason.txt").local.read_text()
    why = "torn; it could not be moved at once: Not a directory"
    assert (reason, entry.why) == (f"{home.path('sub/a.json')}: {why}\n", why)
    assert not file.exists()
    assert [look_again(home), home.queued(), home.messages] == [entry, [("sub/a.json", 1)], []]


@pytest.mark.parametrize("overwrites", [False, True])
def test_reject_another_file_in_its_place(home: Home, overwrites: bool) -> None:
    """Nothing of the first one was taken in: the other one is no namesake that is refused."""
    home.change(allow_overwrites=overwrites)
    file = stuck(home)
    home.layout.rejected("activity").local.unlink()
    home.land("a.json", "{}\n{}\n", age=4)
    assert look_again(home).state == State.PENDING
    assert file.read_text() == "{}\n{}\n"
    assert home.queued() == [("a.json", 1), ("a.json", 2)]
    assert kept(home) == {}


def test_reject_file_that_is_gone(home: Home) -> None:
    """It is not called moved, and comes again under its name as any other."""
    file = stuck(home)
    home.layout.rejected("activity").local.unlink()
    file.rename(home.layout.root / "mine")
    assert look_again(home).state == State.UNREADABLE
    home.land("a.json", "{}\n{}\n", age=4)
    assert look_again(home).version == 2
    assert kept(home) == {}


def test_reject_then_backfill_of_the_file(
    home: Home,
) -> None:
    file = stuck(home)
    discovery.request_backfill(home.layout, "activity", file)
    assert look_again(home).state == State.PENDING
    assert home.queued() == [("a.json", 1), ("a.json", 2)]


@pytest.mark.parametrize("after", ["the ledger", "the move"])
def test_reject_interrupted(home: Home, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    home.land("a.json", "torn\n", age=9)
    home.poll()

    def dies(*_: object) -> None:
        raise RuntimeError("interrupted")

    with monkeypatch.context() as patch:
        if after == "the ledger":
            patch.setattr(archive, "path_below_source", dies)
        else:
            writes = iter((Ledger.write, dies))
            patch.setattr(Ledger, "write", lambda *given: next(writes)(*given))
        with pytest.raises(RuntimeError):
            put_aside(home, home.path("a.json"), why="torn")
    assert home.states() == {("a.json", 1): State.UNREADABLE}
    assert (home.landing / "a.json").exists() == (after == "the ledger")
    assert verify_files(home.config, home.source).findings == []
    entry = look_again(home)
    assert (entry.state, entry.version, entry.why) == (State.REJECTED, 1, "torn")
    assert (home.layout.root / str(entry.moved_to)).local.read_text() == "torn\n"
    assert kept(home)["a.json.reason.txt"] == f"{entry.path}: torn\n"
    assert home.queued() == [("a.json", 1)]


def test_reject_leaves_files_of_backfills(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("torn\n")
    entry = put_aside(home, str(file))[str(file)]
    assert (entry.state, entry.moved_to, file.read_text()) == (State.REJECTED, None, "torn\n")
    assert look_again(home) == entry
    assert kept(home) == {}


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


# As Spark writes them: without and with compression, and without rows.
@pytest.mark.parametrize(
    ("start", "what"),
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
def test_not_text_reason_of_other_formats(tmp_path: Path, start: bytes, what: str) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(start)
    assert what in (content.not_text_reason(file) or "")


def test_not_text_reason_of_parquet(tmp_path: Path) -> None:
    duckdb.connect().sql("select 'd' as Device where false").write_parquet(str(tmp_path / "a.json"))
    assert "Parquet" in (content.not_text_reason(tmp_path / "a.json") or "")

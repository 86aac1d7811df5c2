"""Files leave a folder as a whole, or stay there and are told: no copy of them is left behind."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medallion.ingest.files import archive as cleaning
from medallion.state.ledger import Entry, State
from medallion.storage.files import info_from_stat, move_file
from tests.support.home import Home

Fails = Callable[..., None]


@pytest.fixture
def fails(home: Home, monkeypatch: pytest.MonkeyPatch) -> Fails:
    """Make functions of `os` fail for whatever lies in landing, on a disk of its own if EXDEV."""

    def make(code: int, *names: str) -> None:
        for name in names:
            monkeypatch.setattr(os, name, failing(getattr(os, name), code))

    def failing(function: Any, code: int) -> Any:
        def instead(path: Any, *args: Any, **more: Any) -> Any:
            stays = code == errno.EXDEV and str(args[0]).startswith(str(home.landing))
            if str(path).startswith(str(home.landing)) and not stays:
                raise OSError(code, os.strerror(code), str(path))
            return function(path, *args, **more)

        return instead

    return make


def archive(home: Home, name: str = "a.json") -> Entry:
    home.change(clean_source="archive")
    cleaning.archive_due_files(
        home.config, home.source, home.discovery().ledger, 0, home.messages.append
    )
    return home.ledger()[name, 1]


def reject(home: Home, name: str = "a.json") -> Entry:
    book = home.discovery().ledger
    (known,) = (e for e in book.newest_entries() if e.path == home.path(name))
    entry = replace(known, state=State.UNREADABLE, why="torn")
    cleaning.reject_files(home.layout, home.source, book, [entry])
    return home.ledger()[name, 1]


def landed(home: Home, text: str = "{}\n") -> Path:
    file = home.land("a.json", text, age=9)
    home.poll()
    home.ingest("a.json")
    return file


def found(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*") if not p.is_dir())


def test_move_out_of_a_read_only_folder(home: Home, fails: Fails) -> None:
    file = landed(home)
    fails(errno.EACCES, "rename", "unlink")
    for _ in range(3):
        entry = archive(home)
    assert entry.state == State.INGESTED
    assert entry.why == "cannot be moved: Permission denied"
    entry = reject(home)
    assert (entry.state, entry.moved_to) == (State.UNREADABLE, None)
    assert entry.why == "torn; it could not be moved at once: Permission denied"
    assert file.is_file()
    assert found((home.layout.root / "archive").local) == []
    assert found((home.layout.root / "rejected").local) == []


def test_move_to_another_disk_without_deletion(home: Home, fails: Fails) -> None:
    file = landed(home)
    fails(errno.EXDEV, "rename")
    fails(errno.EROFS, "unlink")
    for _ in range(2):
        entry = archive(home)
    assert (entry.state, entry.why) == (State.INGESTED, "cannot be moved: Read-only file system")
    assert reject(home).moved_to is None
    assert file.is_file()
    assert found((home.layout.root / "archive").local) == []
    assert found((home.layout.root / "rejected").local) == []


@pytest.mark.parametrize("way", [archive, reject])
def test_move_to_another_disk(home: Home, fails: Fails, way: Any) -> None:
    file = landed(home, "{}\n" * 7)
    before = file.stat()
    fails(errno.EXDEV, "rename")
    entry = way(home)
    assert not file.exists()
    moved = home.layout.root / str(entry.moved_to)
    assert moved.local.read_text() == "{}\n" * 7
    assert moved.local.stat().st_mtime_ns == before.st_mtime_ns
    assert {p.name for p in moved.parent.local.iterdir()} <= {"a.json", "a.json.reason.txt"}


@pytest.mark.parametrize("way", [archive, reject])
def test_move_to_a_full_disk(
    home: Home, fails: Fails, monkeypatch: pytest.MonkeyPatch, way: Any
) -> None:
    file = landed(home)
    fails(errno.EXDEV, "rename")

    def half(path: Any, target: Any, **_: Any) -> None:
        Path(target).write_text("{")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copy2", half)
    entry = way(home)
    assert entry.moved_to is None
    assert "No space left" in (entry.why or "")
    assert file.read_text() == "{}\n"
    assert found((home.layout.root / "archive").local) == []
    assert found((home.layout.root / "rejected").local) == []


def test_move_of_a_file_that_grows(
    home: Home, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = landed(home)
    fails(errno.EXDEV, "rename")
    copy = shutil.copy2

    def grows(path: Any, target: Any, **more: Any) -> None:
        copy(path, target, **more)
        with Path(path).open("a") as more_rows:
            more_rows.write("{}\n")

    monkeypatch.setattr(shutil, "copy2", grows)
    entry = reject(home)
    assert entry.moved_to is None
    assert file.read_text() == "{}\n" * 2
    assert found((home.layout.root / "rejected").local) == []


def replaced_after_a_look(home: Home, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Another file comes under the name just after a look at the first one; gives it."""
    came: list[Path] = []
    whole = Path.lstat

    def then_replaced(self: Path, *arguments: Any) -> Any:
        found = whole(self, *arguments)
        if self.name == "a.json" and self.parent == home.landing and not came:
            came.append(home.land("a.json", "{}\n{}\n", age=4))
        return found

    monkeypatch.setattr(Path, "lstat", then_replaced)
    return came


@pytest.mark.parametrize("way", ["archive", "delete"])
def test_move_of_a_file_replaced_before_the_move(
    home: Home, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It would lie in the archive, or be gone, and nobody would have read it."""
    home.change(clean_source=way, allow_overwrites=True)
    file = landed(home)
    came = replaced_after_a_look(home, monkeypatch)
    cleaning.archive_due_files(
        home.config, home.source, home.discovery().ledger, 0, home.messages.append
    )
    assert came == [file]
    assert home.states() == {("a.json", 1): State.INGESTED}
    assert file.read_text() == "{}\n{}\n"
    assert home.poll() == 1
    assert home.queued() == [("a.json", 1), ("a.json", 2)]
    assert found((home.layout.root / "archive").local) == []
    assert found(home.landing) == ["a.json"]


def test_reject_of_a_file_that_was_replaced(home: Home) -> None:
    home.land("a.json", "torn", age=9)
    home.poll()
    (entry,) = home.ledger().values()
    file = home.land("a.json", "{}\n{}\n", age=4)
    refused = replace(entry, state=State.UNREADABLE, why="torn")
    cleaning.reject_files(home.layout, home.source, home.discovery().ledger, [refused])
    assert file.read_text() == "{}\n{}\n"
    assert found((home.layout.root / "rejected").local) == []
    assert home.poll() == 1
    assert home.queued() == [("a.json", 1), ("a.json", 2)]


def test_move_back_beside_a_third_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    first = landed(home)
    seen = first.stat()
    home.land("a.json", "second\n", age=4)
    rename = Path.rename

    def then_another(self: Path, target: Any) -> Any:
        rename(self, target)
        if self == first:
            home.land("a.json", "third\n", age=2)

    monkeypatch.setattr(Path, "rename", then_another)
    expected = info_from_stat(seen)
    assert not move_file(first, (home.layout.root / "archive/a.json").local, expected)
    assert (home.landing / "a.json").read_text() == "third\n"
    assert (home.landing / "2~a.json").read_text() == "second\n"

"""Files are moved completely, or stay and are reported; no partial copy remains."""

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

FailOs = Callable[..., None]


@pytest.fixture
def fail_os(home: Home, monkeypatch: pytest.MonkeyPatch) -> FailOs:
    """Make functions of `os` fail below landing; with EXDEV, only for moves to another disk."""

    def patch_functions(code: int, *names: str) -> None:
        for name in names:
            monkeypatch.setattr(os, name, failing(getattr(os, name), code))

    def failing(function: Any, code: int) -> Any:
        def call_or_fail(path: Any, *args: Any, **more: Any) -> Any:
            is_inside = code == errno.EXDEV and str(args[0]).startswith(str(home.landing))
            if str(path).startswith(str(home.landing)) and not is_inside:
                raise OSError(code, os.strerror(code), str(path))
            return function(path, *args, **more)

        return call_or_fail

    return patch_functions


def archive(home: Home, name: str = "a.json") -> Entry:
    home.change(clean_source="archive")
    cleaning.archive_due_files(
        home.config, home.source, home.discovery().ledger, 0, home.messages.append
    )
    return home.ledger()[name, 1]


def reject(home: Home, name: str = "a.json") -> Entry:
    ledger = home.discovery().ledger
    (known,) = (e for e in ledger.newest_entries() if e.path == home.path(name))
    entry = replace(known, state=State.UNREADABLE, why="truncated")
    home.reject(ledger, [entry])
    return home.ledger()[name, 1]


def landed(home: Home, text: str = "{}\n") -> Path:
    file = home.land("a.json", text, age=9)
    home.poll()
    home.ingest("a.json")
    return file


def file_names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*") if not p.is_dir())


def test_move_out_of_a_read_only_folder(home: Home, fail_os: FailOs) -> None:
    file = landed(home)
    fail_os(errno.EACCES, "rename", "unlink")
    for _ in range(3):
        entry = archive(home)
    assert entry.state == State.INGESTED
    assert entry.why == "cannot be moved: Permission denied"
    entry = reject(home)
    assert (entry.state, entry.moved_to) == (State.UNREADABLE, None)
    assert entry.why == "truncated"
    assert home.messages[-1].endswith("a.json cannot be moved: Permission denied")
    assert file.is_file()
    assert file_names((home.layout.root / "archive").local) == []
    assert file_names((home.layout.root / "rejected").local) == []


def test_move_to_another_disk_without_deletion(home: Home, fail_os: FailOs) -> None:
    file = landed(home)
    fail_os(errno.EXDEV, "rename")
    fail_os(errno.EROFS, "unlink")
    for _ in range(2):
        entry = archive(home)
    assert (entry.state, entry.why) == (State.INGESTED, "cannot be moved: Read-only file system")
    assert reject(home).moved_to is None
    assert file.is_file()
    assert file_names((home.layout.root / "archive").local) == []
    assert file_names((home.layout.root / "rejected").local) == []


@pytest.mark.parametrize("move", [archive, reject])
def test_move_to_another_disk(home: Home, fail_os: FailOs, move: Any) -> None:
    file = landed(home, "{}\n" * 7)
    before = file.stat()
    fail_os(errno.EXDEV, "rename")
    entry = move(home)
    assert not file.exists()
    moved = home.layout.root / str(entry.moved_to)
    assert moved.local.read_text() == "{}\n" * 7
    assert moved.local.stat().st_mtime_ns == before.st_mtime_ns
    assert {p.name for p in moved.parent.local.iterdir()} <= {"a.json", "a.json.reason.txt"}


@pytest.mark.parametrize("move", [archive, reject])
def test_move_to_a_full_disk(
    home: Home, fail_os: FailOs, monkeypatch: pytest.MonkeyPatch, move: Any
) -> None:
    file = landed(home)
    fail_os(errno.EXDEV, "rename")

    def copy_partly(path: Any, target: Any, **_: Any) -> None:
        Path(target).write_text("{")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copy2", copy_partly)
    entry = move(home)
    assert entry.moved_to is None
    assert "No space left" in home.messages[-1]
    assert file.read_text() == "{}\n"
    assert file_names((home.layout.root / "archive").local) == []
    assert file_names((home.layout.root / "rejected").local) == []


def test_move_of_a_file_that_grows(
    home: Home, fail_os: FailOs, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = landed(home)
    fail_os(errno.EXDEV, "rename")
    copy = shutil.copy2

    def copy_and_append(path: Any, target: Any, **more: Any) -> None:
        copy(path, target, **more)
        with Path(path).open("a") as more_rows:
            more_rows.write("{}\n")

    monkeypatch.setattr(shutil, "copy2", copy_and_append)
    entry = reject(home)
    assert entry.moved_to is None
    assert file.read_text() == "{}\n" * 2
    assert file_names((home.layout.root / "rejected").local) == []


def replace_after_lstat(home: Home, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Replace a.json right after its first lstat; return the new file's path."""
    replacements: list[Path] = []
    lstat = Path.lstat

    def lstat_and_replace(self: Path, *arguments: Any) -> Any:
        stat = lstat(self, *arguments)
        if self.name == "a.json" and self.parent == home.landing and not replacements:
            replacements.append(home.land("a.json", "{}\n{}\n", age=4))
        return stat

    monkeypatch.setattr(Path, "lstat", lstat_and_replace)
    return replacements


@pytest.mark.parametrize("clean_source", ["archive", "delete"])
def test_move_of_a_file_replaced_before_the_move(
    home: Home, monkeypatch: pytest.MonkeyPatch, clean_source: str
) -> None:
    """It would be archived or deleted unread."""
    home.change(clean_source=clean_source, allow_overwrites=True)
    file = landed(home)
    replacements = replace_after_lstat(home, monkeypatch)
    cleaning.archive_due_files(
        home.config, home.source, home.discovery().ledger, 0, home.messages.append
    )
    assert replacements == [file]
    assert home.states() == {("a.json", 1): State.INGESTED}
    assert file.read_text() == "{}\n{}\n"
    assert home.poll() == 1
    assert home.queued() == [("a.json", 1), ("a.json", 2)]
    assert file_names((home.layout.root / "archive").local) == []
    assert file_names(home.landing) == ["a.json"]


def test_reject_of_a_file_that_was_replaced(home: Home) -> None:
    home.land("a.json", "torn", age=9)
    home.poll()
    (entry,) = home.ledger().values()
    file = home.land("a.json", "{}\n{}\n", age=4)
    unreadable = replace(entry, state=State.UNREADABLE, why="truncated")
    home.reject(home.discovery().ledger, [unreadable])
    assert file.read_text() == "{}\n{}\n"
    assert file_names((home.layout.root / "rejected").local) == []
    assert home.poll() == 1
    assert home.queued() == [("a.json", 1), ("a.json", 2)]


def test_move_back_beside_a_third_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    first = landed(home)
    first_stat = first.stat()
    home.land("a.json", "second\n", age=4)
    rename = Path.rename

    def rename_and_land(self: Path, target: Any) -> Any:
        rename(self, target)
        if self == first:
            home.land("a.json", "third\n", age=2)

    monkeypatch.setattr(Path, "rename", rename_and_land)
    expected = info_from_stat(first_stat)
    assert not move_file(first, (home.layout.root / "archive/a.json").local, expected)
    assert (home.landing / "a.json").read_text() == "third\n"
    assert (home.landing / "2~a.json").read_text() == "second\n"

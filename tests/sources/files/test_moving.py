"""Files leave a folder as a whole, or stay there and are told: no copy of them is left behind."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medallion.ops.ledger import INGESTED, REJECTED, Entry
from medallion.sources.files import archive as cleaning
from medallion.sources.files import reject as rejects
from tests.support.home import Home

Fails = Callable[..., None]


@pytest.fixture
def fails(home: Home, monkeypatch: pytest.MonkeyPatch) -> Fails:
    """Make functions of `os` fail for whatever lies in landing."""

    def make(code: int, *names: str) -> None:
        for name in names:
            monkeypatch.setattr(os, name, failing(getattr(os, name), code))

    def failing(function: Any, code: int) -> Any:
        def instead(path: Any, *args: Any, **more: Any) -> Any:
            if str(path).startswith(str(home.landing)):
                raise OSError(code, os.strerror(code), str(path))
            return function(path, *args, **more)

        return instead

    return make


def archive(home: Home, name: str = "a.json") -> Entry:
    home.change(clean_source="archive")
    cleaning.clean(home.config, home.source, home.discovery().ledger, 0)
    return home.ledger()[name, 1]


def reject(home: Home, name: str = "a.json") -> Entry:
    entry = Entry("activity", home.path(name), 1, 0, 0, 0, state=REJECTED, why="torn")
    rejects.put_aside(home.layout, home.source, home.discovery().ledger, [entry])
    return home.ledger()[name, 1]


def landed(home: Home, text: str = "{}\n") -> Path:
    file = home.land("a.json", text, age=9)
    home.poll()
    home.take_in("a.json")
    return file


def found(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*") if not p.is_dir())


def test_a_folder_that_may_only_be_read_gets_no_copies_of_its_files(
    home: Home, fails: Fails
) -> None:
    file = landed(home)
    fails(errno.EACCES, "rename", "unlink")
    for _ in range(3):
        entry = archive(home)
    assert entry.state == INGESTED
    assert entry.why == "cannot be moved: Permission denied"
    entry = reject(home)
    assert (entry.state, entry.moved_to) == (REJECTED, None)
    assert entry.why == "torn; it cannot be moved: Permission denied"
    assert file.is_file()
    assert found(home.layout.root / "archive") == []
    assert found(home.layout.root / "rejected") == []


def test_a_file_on_another_disk_that_cannot_be_removed_is_not_copied(
    home: Home, fails: Fails
) -> None:
    file = landed(home)
    fails(errno.EXDEV, "rename")
    fails(errno.EROFS, "unlink")
    for _ in range(2):
        entry = archive(home)
    assert (entry.state, entry.why) == (INGESTED, "cannot be moved: Read-only file system")
    assert reject(home).moved_to is None
    assert file.is_file()
    assert found(home.layout.root / "archive") == []
    assert found(home.layout.root / "rejected") == []


def test_a_file_is_not_copied_from_where_it_surely_cannot_be_removed(
    home: Home, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each night would copy everything, for nothing."""
    landed(home)
    fails(errno.EXDEV, "rename")
    monkeypatch.setattr(os, "access", lambda path, *_, **__: Path(path) != home.landing)
    copied: list[Any] = []
    monkeypatch.setattr(shutil, "copy2", lambda *paths: copied.append(paths))
    assert archive(home).why == "cannot be moved: Permission denied"
    assert copied == []


@pytest.mark.parametrize("way", [archive, reject])
def test_a_file_on_another_disk_is_copied_whole(home: Home, fails: Fails, way: Any) -> None:
    file = landed(home, "{}\n" * 7)
    before = file.stat()
    fails(errno.EXDEV, "rename")
    entry = way(home)
    assert not file.exists()
    moved = home.layout.root / str(entry.moved_to)
    assert moved.read_text() == "{}\n" * 7
    assert moved.stat().st_mtime_ns == before.st_mtime_ns
    assert {p.name for p in moved.parent.iterdir()} <= {"a.json", "a.json.reason.txt"}


@pytest.mark.parametrize("way", [archive, reject])
def test_a_full_disk_leaves_no_part_of_a_file(
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
    assert found(home.layout.root / "archive") == []
    assert found(home.layout.root / "rejected") == []


def test_a_file_that_grows_while_it_is_copied_stays(
    home: Home, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = landed(home)
    fails(errno.EXDEV, "rename")
    copy = shutil.copy2

    def grows(path: Any, target: Any, **more: Any) -> None:
        copy(path, target, **more)
        with file.open("a") as more_rows:
            more_rows.write("{}\n")

    monkeypatch.setattr(shutil, "copy2", grows)
    entry = reject(home)
    assert entry.moved_to is None
    assert file.read_text() == "{}\n" * 2
    assert found(home.layout.root / "rejected") == []


def test_a_directory_is_not_copied_to_another_disk(home: Home, fails: Fails) -> None:
    home.land("out.json/part-0", "{}\n")
    fails(errno.EXDEV, "rename")
    assert [home.poll(), home.poll()] == [0, 0]
    entry = home.ledger()["out.json", 1]
    assert (entry.state, entry.moved_to) == (REJECTED, None)
    assert "a directory" in (entry.why or "")
    assert (home.landing / "out.json" / "part-0").is_file()
    assert found(home.layout.root / "rejected") == []
    assert len(home.said) == 1

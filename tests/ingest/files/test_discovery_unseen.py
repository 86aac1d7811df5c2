"""What cannot be looked at just now: told, left where it is, and looked at again."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from medallion.ingest.files import archive, listing
from medallion.ingest.files.listing import walk_directory
from medallion.ingest.formats import SOURCE_TYPES
from medallion.state.ledger import ARCHIVED, INGESTED, PENDING, REJECTED, VANISHED
from tests.support.home import Home


class Trouble:
    """Calls of the system that fail for some paths."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stat: dict[Path, int] = {}
        self.scandir: dict[Path, int] = {}
        for name in ("stat", "scandir"):
            monkeypatch.setattr(os, name, self._failing(getattr(os, name), getattr(self, name)))
        inspect = self._failing(listing._inspect_entry, self.stat)
        monkeypatch.setattr(listing, "_inspect_entry", inspect)

    def _failing(self, call: Callable[..., Any], codes: dict[Path, int]) -> Callable[..., Any]:
        def instead(path: Any = ".", *args: Any, **more: Any) -> Any:
            if not isinstance(path, int) and (code := codes.get(Path(path))):
                raise OSError(code, os.strerror(code), str(path))
            return call(path, *args, **more)

        return instead


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> Trouble:
    return Trouble(monkeypatch)


def whys(home: Home) -> dict[str, tuple[str, str | None]]:
    """State and reason of the newest version of each path."""
    return {name: (e.state, e.why) for (name, _), e in sorted(home.ledger().items())}


def test_files_in_a_folder_that_cannot_be_entered_are_told_and_taken_once_it_can(
    nobodys: Home,
) -> None:
    home = nobodys
    for name in ("2024-05-01/a.json", "2024-05-01/deep/b.json", "good.json"):
        home.land(name)
    (home.landing / "2024-05-01").chmod(0o644)
    assert [home.poll(), home.poll()] == [1, 0]
    denied = (PENDING, "cannot be inspected: Permission denied")
    assert whys(home) == {
        "2024-05-01/a.json": denied,
        "2024-05-01/deep": denied,
        "good.json": (PENDING, None),
    }
    assert len(home.said) == 2
    assert home.path("2024-05-01/a.json") in home.said[0]
    (home.landing / "2024-05-01").chmod(0o755)
    assert [home.poll(), home.poll()] == [2, 0]
    assert sorted(home.handed()) == [
        ("2024-05-01/a.json", 1),
        ("2024-05-01/deep/b.json", 1),
        ("good.json", 1),
    ]
    assert home.states()["2024-05-01/deep", 1] == VANISHED
    assert not home.layout.rejected("activity").exists()


def test_a_folder_that_goes_while_the_one_above_it_is_listed_is_no_entry(home: Home) -> None:
    """As those of a writer do that is done: on record, it would be a file that was lost."""
    first, gone = home.land("a.json"), home.land("writing/b.json").parent
    found = walk_directory(home.landing, "*")
    assert next(found).path == str(first)
    shutil.rmtree(gone)
    assert list(found) == []


@pytest.mark.parametrize("seconds", [-62_135_596_801, 253_402_300_800, 2**62])
def test_a_time_that_no_table_holds_holds_up_its_own_file_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """Before year 1, after 9999, and more microseconds than a long has: a tmpfs keeps any of them.

    (PySpark's own rows, Python's datetime and Delta's timestamps end there.)
    """
    home = Home(tmp_path)
    home.land("odd.json")
    home.land("good.json")
    inspect = listing._inspect_entry

    def with_odd_time(entry: os.DirEntry[str], *given: Any) -> Any:
        found = inspect(entry, *given)
        if found is None or found.status is None or entry.name != "odd.json":
            return found
        mode, size = found.status.st_mode, found.status.st_size
        status: Any = SimpleNamespace(st_mode=mode, st_size=size, st_mtime_ns=seconds * 10**9)
        return found._replace(status=status)

    with monkeypatch.context() as patch:
        patch.setattr(listing, "_inspect_entry", with_odd_time)
        assert [home.poll(), home.poll()] == [1, 0]
        state, why = whys(home)["odd.json"]
        assert (state, (why or "").endswith("2 to 9998: touch the file")) == (PENDING, True)
    assert home.poll() == 1
    assert sorted(home.handed()) == [("good.json", 1), ("odd.json", 1)]


def test_files_that_wait_in_a_folder_that_is_closed_have_not_vanished(nobodys: Home) -> None:
    home = nobodys
    home.land("sub/a.json")
    assert home.poll() == 1
    (home.landing / "sub").chmod(0)
    assert home.poll() == 0
    assert whys(home) == {
        "sub": (PENDING, "cannot be listed: Permission denied"),
        "sub/a.json": (PENDING, None),
    }
    (home.landing / "sub").chmod(0o755)
    assert [home.poll(), home.poll()] == [0, 0]
    assert whys(home)["sub"][0] == VANISHED
    assert "can be listed again" in (whys(home)["sub"][1] or "")
    assert whys(home)["sub/a.json"] == (PENDING, None)
    assert len(home.said) == 2


def test_a_folder_below_one_that_cannot_be_entered_is_told(nobodys: Home) -> None:
    home = nobodys
    closed = home.layout.root / "closed"
    (closed / "folder").mkdir(parents=True)
    closed.chmod(0o600)
    home.change(folders=("closed/folder",))
    home.land("a.json")
    assert [home.poll(), home.poll()] == [1, 0]
    assert whys(home)["closed/folder"][1] == "cannot be listed: Permission denied"
    closed.chmod(0o700)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("name", ["", "sub"])
def test_a_folder_that_cannot_be_listed_for_a_moment_stays(
    home: Home, trouble: Trouble, code: int, name: str
) -> None:
    folder = home.landing / name
    home.land(f"{name}/a.json".lstrip("/"))
    trouble.scandir[folder] = code
    assert [home.poll(), home.poll()] == [0, 0]
    assert (folder / "a.json").is_file()
    assert len(home.said) == 1
    assert home.layout.relative(folder) in home.said[0]
    assert f"cannot be listed: {os.strerror(code)}" in home.said[0]
    trouble.scandir.clear()
    assert [home.poll(), home.poll()] == [1, 0]
    assert not home.layout.rejected("activity").exists()
    assert {e.state for e in home.ledger().values()} == {PENDING, VANISHED}
    (told,) = SOURCE_TYPES["json"].losses(home.config, home.source)
    assert told.startswith("1 file not ingested yet")  # and the folder is none that has gone
    before = len(home.said)
    trouble.scandir[folder] = code
    assert [home.poll(), home.poll()] == [0, 0]
    assert len(home.said) == before + 1  # told again, and a.json has not vanished
    assert [e.state for (n, _), e in home.ledger().items() if n.endswith("a.json")] == [PENDING]


def test_a_file_that_bronze_has_is_not_new_after_a_moment_without_a_look(
    home: Home, trouble: Trouble
) -> None:
    home.change(allow_overwrites=True)
    file = home.land("a.json")
    home.poll()
    home.take_in("a.json")
    trouble.stat[file] = errno.EIO
    assert home.poll() == 0
    trouble.stat.clear()
    assert home.poll() == 0
    assert home.states() == {("a.json", 1): INGESTED}
    assert home.handed() == [("a.json", 1)]


def test_a_file_that_waits_keeps_its_version_and_is_handed_over_again(
    home: Home, trouble: Trouble
) -> None:
    """Under the same version: bronze leaves out what it has taken in since."""
    file = home.land("a.json", "{}\n{}\n")
    home.poll()
    trouble.stat[file] = errno.EIO
    assert home.poll() == 0
    entry = home.ledger()["a.json", 1]
    assert (entry.state, entry.why) == (PENDING, "cannot be inspected: Input/output error")
    assert entry.size == 6
    trouble.stat.clear()
    assert home.poll() == 1
    assert home.handed() == [("a.json", 1), ("a.json", 1)]
    assert whys(home) == {"a.json": (PENDING, None)}


def test_another_file_under_an_archived_name_is_told(home: Home, trouble: Trouble) -> None:
    file = home.land("a.json", age=9)
    home.poll()
    home.take_in("a.json")
    archive.archive_due_files(
        home.config, home.source, home.discovery().ledger, 0, home.said.append
    )
    home.land("a.json", "{}\n{}\n")
    trouble.stat[file] = errno.EACCES
    assert [home.poll(), home.poll()] == [0, 0]
    assert home.states()["a.json", 2] == PENDING
    trouble.stat.clear()
    assert home.poll() == 0
    assert home.states()["a.json", 2] == REJECTED


@pytest.mark.parametrize("way", ["archive", "delete"])
def test_a_file_that_cannot_be_looked_at_is_not_cleaned(
    home: Home, trouble: Trouble, way: str
) -> None:
    home.change(clean_source=way)
    files = [home.land(name, age=9) for name in ("a.json", "b.json")]
    home.poll()
    home.take_in("a.json", "b.json")
    trouble.stat[files[0]] = errno.EACCES
    archive.archive_due_files(
        home.config, home.source, home.discovery().ledger, 0, home.said.append
    )
    assert whys(home)["a.json"] == (INGESTED, "cannot be moved: Permission denied")
    assert os.listdir(home.landing) == ["a.json"]  # noqa: PTH208


def test_files_that_cannot_leave_their_folder_are_told_once(nobodys: Home) -> None:
    home = nobodys
    for name in ("a.json", "b.json"):
        home.land(name, age=9)
    home.poll()
    home.take_in("a.json", "b.json")
    home.landing.chmod(0o555)
    for _ in range(3):
        archive.archive_due_files(
            home.config, home.source, home.discovery().ledger, 0, home.said.append
        )
    (said,) = home.said
    assert "2 files whose rows are in bronze cannot be moved: Permission denied" in said
    home.landing.chmod(0o755)
    archive.archive_due_files(
        home.config, home.source, home.discovery().ledger, 0, home.said.append
    )
    assert (set(home.states().values()), len(home.said)) == ({ARCHIVED}, 1)


def test_a_file_that_may_not_be_read_waits_until_it_may(nobodys: Home) -> None:
    home = nobodys
    file = home.land("a.json", age=9)
    file.chmod(0)
    assert [home.poll(), home.poll()] == [0, 0]
    assert whys(home) == {"a.json": (PENDING, "cannot be opened: Permission denied")}
    assert len(home.said) == 1
    assert home.discovery().backlog() == []
    file.chmod(0o644)
    assert [home.poll(), home.poll()] == [1, 0]
    assert whys(home) == {"a.json": (PENDING, None)}


def test_a_hidden_file_that_cannot_be_looked_at_for_a_while_is_no_loss_once_it_is_renamed(
    home: Home, trouble: Trouble
) -> None:
    file = home.land(".a.json", age=100)
    home.poll()
    hidden = home.ledger()[".a.json", 1]
    trouble.stat[file] = errno.EIO
    home.poll()
    assert whys(home) == {".a.json": (PENDING, "cannot be inspected: Input/output error")}
    trouble.stat.clear()
    assert [home.poll(), home.poll()] == [0, 0]
    assert home.ledger() == {(".a.json", 1): hidden}
    file.rename(home.landing / "a.json")
    assert home.poll() == 1
    assert SOURCE_TYPES["json"].losses(home.config, home.source)[:-1] == []

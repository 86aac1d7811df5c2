"""Symbolic links in a source's folders: told, left where they are, and never followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from medallion.config.values import Duration
from medallion.errors import UsageError
from medallion.ingest.files import discovery
from medallion.ingest.files.listing import canonical_path, stat_file
from medallion.ingest.files.source import FileSource
from medallion.ingest.formats import SOURCE_TYPES
from medallion.state import ledger
from medallion.state.ledger import PENDING, VANISHED
from tests.support.home import Home, aged


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder elsewhere with one file, and a link to it, `link`, beside it."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a.json").write_text('{"Index": 1}\n')
    aged(tmp_path / "old" / "a.json", 3600)
    (tmp_path / "link").symlink_to("old")
    return tmp_path / "old"


def ask(home: Home, path: Path) -> None:
    discovery.request_backfill(home.layout, home.source.name, path)


@pytest.mark.parametrize("name", ["b.json", ".b.json", "2024", "deep/b.json"])
@pytest.mark.parametrize(
    "to", ["sub/a.json", "sub", "{old}", "{old}/a.json", "nowhere.json", "b.json", "/etc/hostname"]
)
def test_a_link_is_told_once_and_left(home: Home, old: Path, name: str, to: str) -> None:
    home.land("sub/a.json")
    link = home.landing / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(home.landing / to.format(old=old))
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.names() == ["sub/a.json"]
    entry = home.ledger()[name, 1]
    assert (entry.state, entry.moved_to, entry.rows) == (PENDING, None, None)
    assert "a symbolic link" in (entry.why or "")
    (said,) = home.said
    assert home.path(name) in said
    assert link.is_symlink()
    assert home.discovery().backlog() == [e.file for e in home.ledger().values() if not e.why]
    assert not (home.layout.root / "rejected").exists()


def test_a_link_that_the_pattern_leaves_out_is_told_where_it_leads_to_a_folder(
    home: Home, old: Path
) -> None:
    home.change(pattern="*.json")
    home.landing.mkdir(parents=True)
    (home.landing / "notes.txt").symlink_to(old / "a.json")
    (home.landing / "latest").symlink_to(old)
    assert home.poll() == 0
    assert list(home.states()) == [("latest", 1)]


def test_a_file_in_the_place_of_a_link_is_taken_in(home: Home, old: Path) -> None:
    home.landing.mkdir(parents=True)
    (home.landing / "a.json").symlink_to(old / "a.json")
    (home.landing / "b.json").symlink_to(old / "a.json")
    home.poll()
    for name in ("a.json", "b.json"):
        (home.landing / name).unlink()
    home.land("a.json")
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.handed() == [("a.json", 1)]
    assert home.states() == {("a.json", 1): PENDING, ("b.json", 1): VANISHED}
    home.take_in("a.json")
    assert SOURCE_TYPES["json"].losses(home.config, home.source) == []


def test_a_link_in_the_place_of_a_file_is_not_that_file(home: Home, old: Path) -> None:
    """A batch that was handed the file finds none."""
    home.land("a.json")
    assert home.poll() == 1
    (home.landing / "a.json").unlink()
    (home.landing / "a.json").symlink_to(old / "a.json")
    assert stat_file(home.layout, home.path("a.json")) is None
    assert home.poll() == 0
    assert "a symbolic link" in (home.ledger()["a.json", 1].why or "")
    (home.landing / "a.json").unlink()
    assert home.poll() == 0
    (told,) = SOURCE_TYPES["json"].losses(home.config, home.source)
    assert told.startswith("1 file gone without being ingested")


def test_a_waiting_file_is_not_found_again_by_way_of_a_link(home: Home, old: Path) -> None:
    home.change(quiet_period=Duration.parse("1 hour"))
    home.land("sub/a.json")
    assert home.poll() == 0
    (home.landing / "sub").rename(home.landing / ".sub")
    (home.landing / "sub").symlink_to(old)
    home.poll()
    assert home.handed() == []


def test_one_folder_by_two_names_is_listed_under_the_first(home: Home, old: Path) -> None:
    (old / "sub").mkdir()
    home.change(folders=(str(old.parent / "link"), str(old / "sub"), str(old)))
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.names() == [str(old.parent / "link" / "a.json")]
    assert home.said == []


@pytest.mark.parametrize("is_backfill", [False, True])
def test_a_folder_that_lies_in_a_later_one_by_another_name_is_listed_once(
    home: Home, old: Path, is_backfill: bool
) -> None:
    """The folder where files land is a link into what is named, or asked for, as well."""
    (old / "sub").mkdir()
    home.landing.parent.mkdir(parents=True, exist_ok=True)
    home.landing.symlink_to(old / "sub")
    home.land("b.json")
    if is_backfill:
        ask(home, old)
    else:
        home.change(folders=(str(old),))
    assert [home.poll(), home.poll()] == [2, 0]
    assert sorted(home.names()) == [str(old / "a.json"), "b.json"]
    assert home.said == []


@pytest.mark.parametrize("kind", ["root", "landing"])
def test_a_root_that_is_a_link_keeps_its_names(home: Home, tmp_path: Path, kind: str) -> None:
    home.land("sub/a.json")
    assert home.poll() == 1
    home.take_in("sub/a.json")
    moved = tmp_path / "moved"
    place = {"root": home.layout.root, "landing": home.layout.root / "landing"}[kind]
    place.rename(moved)
    place.symlink_to(moved)
    assert home.poll() == 0
    home.land("b.json")
    assert home.poll() == 1
    assert home.names() == ["sub/a.json", "b.json"]


def test_what_is_asked_for_by_another_path_to_the_root_is_no_other_file(
    home: Home, tmp_path: Path
) -> None:
    """Whoever asks a stream that is on need not have its root by the same name."""
    file = home.layout.root / "inbox" / "a.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}\n", encoding="utf-8")
    ask(home, file.parent)
    assert home.poll() == 1
    (tmp_path / "link").symlink_to(home.layout.root)
    ask(home, tmp_path / "link" / "inbox")
    assert home.poll() == 0
    assert [entry.path for entry in ledger.read_entries(home.layout)] == ["inbox/a.json"]


@pytest.mark.parametrize("is_configured", [False, True])
@pytest.mark.parametrize("way", ["link", "folder", "root", "landing", "file", "linked file"])
def test_a_backfill_is_spelled_in_one_way(
    home: Home, tmp_path: Path, way: str, is_configured: bool
) -> None:
    """However its path is written, and as the source's own folders are where it lies in one."""
    root = home.layout.root
    file = home.land("sub/a.json")
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "old").mkdir()
    (tmp_path / "also").symlink_to("old")
    (tmp_path / "linked.json").symlink_to(file)
    if is_configured:
        (tmp_path / "configured").symlink_to("old")
        home.change(folders=(str(tmp_path / "configured"),))
    elsewhere = tmp_path / ("configured" if is_configured else "old")
    spelled, expected = {
        "link": (tmp_path / "also", elsewhere),
        "folder": (tmp_path / "old", elsewhere),
        "root": (tmp_path / "link", root),
        "landing": (tmp_path / "link" / "landing" / "activity", home.landing),
        "file": (tmp_path / "link" / "landing" / "activity" / "sub" / "a.json", file),
        "linked file": (tmp_path / "linked.json", file),
    }[way]
    assert canonical_path(home.layout, home.source, spelled) == expected


def test_files_of_the_lakehouse_itself_are_never_taken_in(home: Home, tmp_path: Path) -> None:
    root = home.layout.root
    for name in ("bronze/activity/a.parquet", "archive/activity/a.json", "ops/files/a.parquet"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("PAR1\0")
    home.land("a.json")
    for folder in (root, tmp_path):
        ask(home, folder)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.names() == ["a.json"]
    assert len(home.ledger()) == 1


NO_SPARK: Any = None


def opened(home: Home) -> FileSource:
    return FileSource(NO_SPARK, home.config, home.source, NO_SPARK, home.said.append)


def test_a_landing_folder_whose_disk_is_not_there_is_told(home: Home, old: Path) -> None:
    """Each night would be one without new files, and nobody would ask why."""
    home.landing.parent.mkdir(parents=True)
    home.landing.symlink_to(old)
    assert home.poll() == 1
    home.take_in("a.json")
    assert home.said == []
    old.rename(old.with_name("away"))
    opened(home).poll()
    (said,) = home.said
    assert "landing/activity: pending: there is no such folder" in said
    (told,) = SOURCE_TYPES["json"].losses(home.config, home.source)  # each night, until it is back
    assert told.startswith("1 file not ingested yet")
    old.with_name("away").rename(old)
    assert home.poll() == 0
    assert SOURCE_TYPES["json"].losses(home.config, home.source) == []


def test_a_folder_that_is_a_link_to_itself_is_told(home: Home, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    home.change(folders=(str(tmp_path / "loop"),))
    home.land("a.json")
    assert [home.poll(), home.poll()] == [1, 0]
    (said,) = home.said
    assert said.endswith("cannot be listed: Too many levels of symbolic links")


def test_a_file_in_the_place_of_the_landing_folder_is_told(home: Home) -> None:
    """It is what cp makes of the first one, before there is a folder."""
    home.landing.parent.mkdir(parents=True)
    home.landing.write_text("{}\n")
    with pytest.raises(UsageError, match="landing/activity is a file"):
        opened(home)
    home.poll()
    home.landing.unlink()
    home.land("activity")
    opened(home).poll()
    assert home.names()[-1] == "activity"

"""One file under several names, by way of links: taken in once, and told where that matters."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from medallion.ops.ledger import PENDING, REJECTED
from medallion.sources.files import requests
from medallion.sources.files.links import one_spelling
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
    requests.ask(home.layout, home.source.name, path)


def test_a_link_to_another_folder_of_the_source_is_not_entered(home: Home) -> None:
    home.land("2024-05-01/a.json")
    (home.landing / "latest").symlink_to("2024-05-01")
    (home.landing / "2024-05-01" / "deep").symlink_to(home.landing / "2024-05-02")
    home.land("2024-05-02/below/b.json")
    (home.landing / "a first").symlink_to(home.landing / "2024-05-02" / "below")
    assert [home.poll(), home.poll()] == [2, 0]
    assert sorted(home.names()) == ["2024-05-01/a.json", "2024-05-02/below/b.json"]
    assert (home.said, len(home.ledger())) == ([], 2)


def test_a_link_to_a_hidden_folder_is_the_way_to_its_files(home: Home) -> None:
    home.land("_2024/a.json")
    (home.landing / "latest").symlink_to("_2024")
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.names() == ["latest/a.json"]


def test_a_link_to_a_folder_elsewhere_is_entered_once(home: Home, old: Path) -> None:
    home.landing.mkdir(parents=True)
    for name in ("x", "y"):
        (home.landing / name).symlink_to(old)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.names() == ["x/a.json"]
    assert home.states() == {("x/a.json", 1): PENDING, ("y/a.json", 1): REJECTED}
    (said,) = home.said
    assert home.path("y/a.json") in said
    assert home.path("x/a.json") in said


@pytest.mark.parametrize("name", ["0.json", "z.json"])
def test_a_link_to_a_file_of_the_source_is_told_and_left_out(home: Home, name: str) -> None:
    home.land("sub/a.json")
    (home.landing / name).symlink_to("sub/a.json")
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.names() == ["sub/a.json"]
    assert home.states()[name, 1] == REJECTED
    (said,) = home.said
    assert "sub/a.json" in said.split("rejected", 1)[1]
    assert (home.landing / name).is_symlink()


def test_a_link_that_is_made_later_is_left_out_too(home: Home) -> None:
    home.land("a.json")
    home.poll()
    home.take_in("a.json")
    (home.landing / "b.json").symlink_to("a.json")
    assert [home.poll(), home.poll()] == [0, 0]
    assert home.names() == ["a.json"]


@pytest.mark.parametrize("target", [".data/a.json", "a.blob"])
def test_a_link_to_what_is_not_taken_in_itself_is_taken_in(home: Home, target: str) -> None:
    home.change(pattern="*.json")
    home.land(target)
    (home.landing / "a.json").symlink_to(target)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.names() == ["a.json"]


def test_files_alike_in_size_and_time_are_files_of_their_own(home: Home, old: Path) -> None:
    for name in ("a.json", "sub/a.json"):
        file = home.land(name, '{"Index": 1}\n')
        at = (old / "a.json").stat().st_mtime_ns
        os.utime(file, ns=(at, at))
    ask(home, old)
    assert [home.poll(), home.poll()] == [3, 0]


@pytest.mark.parametrize("spelled", [("old", "link"), ("link", "old")])
def test_a_backfill_that_was_put_on_record_by_a_link(
    home: Home, old: Path, spelled: tuple[str, str]
) -> None:
    """As before links were followed: the ledger has the names as they were then."""
    ask(home, old.parent / spelled[0])
    assert home.poll() == 1
    home.take_in(str(old.parent / spelled[0] / "a.json"))
    ask(home, old.parent / spelled[1])
    assert [home.poll(), home.poll()] == [0, 0]
    assert len(home.handed()) == 1


def test_a_folder_of_the_source_that_was_backfilled_before(home: Home, old: Path) -> None:
    ask(home, old)
    assert home.poll() == 1
    home.take_in(str(old / "a.json"))
    home.change(folders=(str(old.parent / "link"),))
    assert [home.poll(), home.poll()] == [0, 0]
    assert len(home.said) == 1


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
    ask(home, moved / {"root": "landing/activity", "landing": "activity"}[kind])
    assert home.poll() == 1
    assert home.names() == ["sub/a.json", "b.json"]


@pytest.mark.parametrize("is_configured", [False, True])
@pytest.mark.parametrize("way", ["link", "folder", "root", "landing", "file"])
def test_a_backfill_is_spelled_in_one_way(
    home: Home, tmp_path: Path, way: str, is_configured: bool
) -> None:
    """However its path is written, and as the source's own folders are where it lies in one."""
    root = home.layout.root
    file = home.land("sub/a.json")
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "old").mkdir()
    (tmp_path / "also").symlink_to("old")
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
    }[way]
    assert one_spelling(home.layout, home.source, spelled) == expected


def test_a_linked_file_keeps_its_name(home: Home, tmp_path: Path) -> None:
    """What it points to may be called anything."""
    (tmp_path / "a.json").symlink_to(home.land("blob"))
    assert one_spelling(home.layout, home.source, tmp_path / "a.json") == tmp_path / "a.json"


@pytest.mark.parametrize("to", ["..", "bronze", "archive"])
def test_a_link_leads_to_no_file_of_the_lakehouse_itself(home: Home, to: str) -> None:
    """They would be put aside, or taken in over and over."""
    root = home.layout.root
    for name in ("bronze/activity/a.parquet", "archive/activity/a.json", "ops/files/a.parquet"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("PAR1\0")
    home.land("a.json")
    (home.landing / "all").symlink_to(root / to)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.names() == ["a.json"]
    assert len(home.ledger()) == 1

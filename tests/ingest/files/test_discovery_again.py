"""A file with the name, size and time of one that was taken in and put away: told, never twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from medallion.ingest.files import archive, discovery
from medallion.ingest.files.classify import _THE_SAME
from medallion.state.ledger import ARCHIVED, PENDING, REJECTED
from tests.support.home import Home


@pytest.fixture(params=[False, True], ids=["refused", "overwrites"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return Home(tmp_path / "lakehouse", allow_overwrites=request.param)


def put_away(home: Home, name: str, text: str) -> tuple[Path, int]:
    """A file that bronze has and that has left landing; where it lay, and its time."""
    file = home.land(name, text, age=3600)
    at = file.stat().st_mtime_ns
    home.poll()
    home.take_in(name)
    archive.archive_due_files(
        home.config, home.source, home.discovery().ledger, 0, home.said.append
    )
    assert not file.exists()
    assert home.states()[name, 1] == ARCHIVED
    return file, at


def land_again(file: Path, text: str, at: int) -> None:
    file.write_text(text)
    os.utime(file, ns=(at, at))


@pytest.mark.parametrize("later", [0, 60], ids=["its time", "another time"])
def test_the_same_file_again_is_told_once_and_left_out(home: Home, later: int) -> None:
    file, at = put_away(home, "a.json", '{"x": 1}\n')
    at += later * 1_000_000_000
    for _ in range(3):  # night after night
        land_again(file, '{"x": 1}\n', at)
        assert [home.poll(), home.poll()] == [0, 0]
    assert home.handed() == [("a.json", 1)]
    assert home.states() == {("a.json", 1): ARCHIVED, ("a.json", 2): REJECTED}
    (said,) = home.said
    assert home.path("a.json") in said
    assert "same" in said
    assert file.is_file()  # so that nobody sends it once more
    assert len(list(home.layout.archive("activity").rglob("*.json"))) == 1
    assert not home.layout.rejected("activity").exists()


def test_another_file_of_that_size_and_time_is_a_namesake(home: Home) -> None:
    file, at = put_away(home, "a.json", '{"x": 1}\n')
    land_again(file, '{"x": 2}\n', at)
    is_allowed = home.source.allow_overwrites
    assert [home.poll(), home.poll()] == [int(is_allowed), 0]
    state = PENDING if is_allowed else REJECTED
    assert home.states() == {("a.json", 1): ARCHIVED, ("a.json", 2): state}
    assert home.handed() == [("a.json", 1), ("a.json", 2)][: 1 + is_allowed]
    assert ("allow_overwrites" in "".join(home.said)) is not is_allowed
    if not is_allowed:
        home.change(allow_overwrites=True)  # as its reason tells
        assert [home.poll(), home.poll()] == [1, 0]


def test_one_that_cannot_be_compared_is_told_and_left_out(home: Home) -> None:
    """A nightly copy of what is already in bronze is likelier than another file like it."""
    home.change(clean_source="delete")
    file, at = put_away(home, "a.json", '{"x": 1}\n')
    land_again(file, '{"x": 2}\n', at)
    assert [home.poll(), home.poll()] == [0, 0]
    assert home.states() == {("a.json", 1): ARCHIVED, ("a.json", 2): REJECTED}
    (said,) = home.said
    assert home.path("a.json") in said
    assert "compare" in said
    assert "name of its own" in said


def test_one_whose_archive_has_gone_cannot_be_compared(home: Home) -> None:
    file, at = put_away(home, "a.json", '{"x": 1}\n')
    (home.layout.archive("activity") / "a.json").unlink()
    land_again(file, '{"x": 1}\n', at)
    assert [home.poll(), home.poll()] == [0, 0]
    assert home.states() == {("a.json", 1): ARCHIVED, ("a.json", 2): REJECTED}
    assert "compare" in home.said[0]


def test_the_same_file_night_after_night_under_other_times(home: Home) -> None:
    """As a copy that keeps none makes it; the version before is one that was left out."""
    file, at = put_away(home, "a.json", '{"x": 1}\n')
    for night in range(1, 4):
        land_again(file, '{"x": 1}\n', at + night * 60_000_000_000)
        assert home.poll() == 0
    assert home.handed() == [("a.json", 1)]
    assert [entry.why for entry in home.ledger().values()][1:] == [_THE_SAME.text] * 3


def test_another_file_after_the_same_one_is_a_namesake_still(home: Home) -> None:
    file, at = put_away(home, "a.json", '{"x": 1}\n')
    land_again(file, '{"x": 1}\n', at)
    assert home.poll() == 0
    land_again(file, '{"x": 2}\n', at + 5_000_000_000)
    is_allowed = home.source.allow_overwrites
    assert [home.poll(), home.poll()] == [int(is_allowed), 0]
    assert home.states()["a.json", 3] == (PENDING if is_allowed else REJECTED)


@pytest.mark.parametrize("case", ["off", "delete", "between"])
def test_the_same_file_that_overwrites_what_it_is_not_held_against(home: Home, case: str) -> None:
    """Without allow_overwrites it is another file of the same name."""
    is_allowed = home.source.allow_overwrites
    if case == "off":
        file = home.land("a.json", '{"x": 1}\n', age=3600)
        home.poll()
        home.take_in("a.json")
        at = file.stat().st_mtime_ns
    else:
        home.change(clean_source="delete" if case == "delete" else "archive", allow_overwrites=True)
        file, at = put_away(home, "a.json", '{"x": 1}\n')
        if case == "between":
            home.land("a.json", '{"x": 2}\n', age=1800)
            home.poll()
            home.take_in("a.json")
            archive.archive_due_files(
                home.config, home.source, home.discovery().ledger, 0, home.said.append
            )
        home.change(allow_overwrites=is_allowed)
    land_again(file, '{"x": 1}\n', at + 60_000_000_000)
    assert home.poll() == int(is_allowed)


def test_an_archived_file_that_a_backfill_asks_for_is_told_and_left_out(home: Home) -> None:
    put_away(home, "a.json", '{"x": 1}\n')
    discovery.request_backfill(home.layout, "activity", home.layout.archive("activity"))
    assert [home.poll(), home.poll()] == [0, 0]
    (said,) = home.said
    assert "archive/activity/a.json: rejected: the same file as landing/activity/a.json" in said

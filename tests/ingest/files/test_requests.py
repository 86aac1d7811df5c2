"""Files that a backfill asked for: seen to once, and not forgotten while they wait or change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from medallion.config.values import Duration
from medallion.errors import MedallionError
from medallion.ingest.files import archive, discovery
from medallion.state.ledger import PENDING, UNREADABLE, VANISHED
from tests.support.home import Home, aged


def asked(home: Home, folder: Path, name: str, text: str = "{}\n", age: float = 0) -> Path:
    """A file elsewhere, whose folder is asked for."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    discovery.request_backfill(home.layout, home.source.name, folder)
    return aged(file, age)


def test_a_file_that_was_not_still_yet_comes_later(home: Home, tmp_path: Path) -> None:
    home.change(quiet_period=Duration.parse("5 minutes"))
    file = asked(home, tmp_path / "old", "a.json", age=100)
    assert [home.poll(), home.poll()] == [0, 0]
    assert discovery.pending_backfills(home.layout, home.source.name) == []
    assert home.discovery().backlog() == []
    aged(file, 301)
    assert [found.path for found in home.discovery().backlog()] == [str(file)]
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.names() == [str(file)]
    assert home.discovery().backlog()


def test_a_file_that_changed_since_comes_as_it_is_now(home: Home, tmp_path: Path) -> None:
    file = asked(home, tmp_path / "old", "a.json", age=100)
    assert home.poll() == 1
    file.write_text("{}\n{}\n")
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.ledger()[str(file), 1].size == 6
    file.unlink()
    assert home.poll() == 0
    assert home.states() == {(str(file), 1): VANISHED}


def test_a_file_that_is_taken_in_is_its_owners_to_change(home: Home, tmp_path: Path) -> None:
    file = asked(home, tmp_path / "old", "a.json", age=100)
    home.poll()
    home.take_in(str(file))
    file.write_text("{}\n{}\n")
    assert home.poll() == 0


@pytest.mark.parametrize("age", [0, 3600])
@pytest.mark.parametrize("name", [".a.json", "_below/a.json"])
def test_a_hidden_file_is_told_at_once(home: Home, tmp_path: Path, name: str, age: float) -> None:
    """Nobody lists its folder once more."""
    file = asked(home, tmp_path / "old", name, age=age)
    assert [home.poll(), home.poll()] == [0, 0]
    assert home.states() == {(str(file), 1): PENDING}
    (said,) = home.said
    assert "hidden" in said
    assert "backfill" in said
    aged(file, 7200)
    assert home.poll() == 0
    assert home.discovery().backlog() == []


def test_a_rejected_file_that_stays_is_looked_at_once_more_for_each_request(
    home: Home, tmp_path: Path
) -> None:
    """What it was rejected for may have been put right without a change to it: max_line_bytes."""
    file = asked(home, tmp_path / "old", "a.json", age=100)
    assert home.poll() == 1
    for version in (1, 2):
        book = home.discovery().ledger
        entry = book.version(str(file), version)
        assert entry
        unreadable = replace(entry, state=UNREADABLE, why="no")
        archive.reject_files(home.layout, home.source, book, [unreadable])
        assert home.poll() == 0
        discovery.request_backfill(home.layout, home.source.name, file.parent)
        assert [len(home.discovery().backlog()), home.poll(), home.poll()] == [1, 1, 0]
    assert home.handed() == [(str(file), version) for version in (1, 2, 3)]


def test_a_request_whose_folder_has_gone_is_told(home: Home, tmp_path: Path) -> None:
    asked(home, tmp_path / "old", "a.json")
    (tmp_path / "old").rename(tmp_path / "new")
    assert [home.poll(), home.poll()] == [0, 0]
    (said,) = home.said
    assert str(tmp_path / "old") in said


def test_a_request_that_goes_while_requests_are_listed_is_none(home: Home, tmp_path: Path) -> None:
    """`medallion status` looks while a stream hands over what was asked for."""
    asked(home, tmp_path / "old", "a.json")
    gone = home.layout.requests("activity") / "0.json"
    gone.symlink_to(tmp_path / "gone.json")  # listed, and not to be read
    (request,) = discovery.pending_backfills(home.layout, "activity")
    assert request.path == tmp_path / "old"


def test_the_backlog_has_what_is_asked_for(home: Home, tmp_path: Path) -> None:
    asked(home, tmp_path / "old", "a.json", "x" * 10)
    assert [found.size for found in home.discovery().backlog()] == [10]
    assert len(discovery.pending_backfills(home.layout, home.source.name)) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"path": 7}', '"\\u001b[2J"'])
def test_what_is_no_request_is_named(home: Home, text: str) -> None:
    file = home.layout.requests("activity") / "a.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(MedallionError, match=r"a\.json is not a backfill request"):
        home.poll()

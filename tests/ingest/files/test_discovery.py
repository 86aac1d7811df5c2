"""What discovery hands over to bronze, once and in order, and what it says of the rest."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from medallion.config.values import Duration
from medallion.ingest.formats import SOURCE_TYPES
from medallion.state.ledger import PENDING, VANISHED, Ledger
from medallion.storage import delta_tables
from medallion.storage.paths import Layout
from tests.support import checkpoints
from tests.support.home import Home, aged

HOUR, DAY = 3600, 86400


def test_no_landing_folder_is_nothing_to_do(home: Home) -> None:
    assert home.poll() == 0
    assert home.handed() == []
    assert home.ledger() == {}


def test_each_file_is_handed_over_once(home: Home) -> None:
    file = home.land("a.json", "{}\n{}\n")
    assert home.poll() == 1
    assert home.poll() == 0
    assert home.handed() == [("a.json", 1)]
    home.land("b.json")
    assert home.poll() == 1
    assert home.handed() == [("a.json", 1), ("b.json", 1)]
    entry = home.ledger()["a.json", 1]
    assert (entry.state, entry.why, entry.size) == (PENDING, None, 6)
    assert entry.modified_at == file.stat().st_mtime_ns // 1_000_000 * 1000


def test_one_process_looks_again_and_again(home: Home) -> None:
    always_on = home.discovery()
    assert [always_on.poll(print), always_on.poll(print)] == [0, 0]
    home.land("a.json")
    assert [always_on.poll(print), always_on.poll(print)] == [1, 0]
    assert home.names() == ["a.json"]


@pytest.mark.parametrize("age", [DAY, 400 * DAY, 40 * 365 * DAY], ids=["day", "year", "decades"])
def test_an_old_file_that_lands_after_newer_ones_is_new(home: Home, age: float) -> None:
    home.land("new.json")
    home.poll()
    home.land("old.json", age=age)
    assert home.poll() == 1
    assert home.names() == ["new.json", "old.json"]


def test_files_come_in_the_order_of_their_times(home: Home) -> None:
    for name, age in {"c.json": 30, "a.json": 10, "b.json": 20, "d/e.json": 25}.items():
        home.land(name, age=age)
    home.poll()
    assert home.names() == ["c.json", "d/e.json", "b.json", "a.json"]


@pytest.mark.parametrize(
    "name", ["a b.json", "ä.json", "100%.json", "a+b.json", "[a].json", "x/y/z.json", "no suffix"]
)
def test_names_that_are_nothing_special(home: Home, name: str) -> None:
    home.land(name)
    assert home.poll() == 1
    assert home.poll() == 0
    assert home.handed() == [(name, 1)]


def test_several_folders_below_the_root_and_elsewhere(home: Home, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    home.change(folders=("extra", str(elsewhere), "not there"))
    home.land("a.json", age=3)
    for folder, age in ((home.layout.root / "extra", 2), (elsewhere, 1)):
        folder.mkdir()
        (folder / "b.json").write_text("{}\n")
        aged(folder / "b.json", age)
    assert home.poll() == 3
    assert home.names() == ["a.json", "extra/b.json", f"{elsewhere}/b.json"]
    assert home.poll() == 0


@pytest.mark.parametrize("folder", ["landing/activity", "landing/activity/sub"])
def test_a_folder_named_twice_hands_its_files_over_once(home: Home, folder: str) -> None:
    home.change(folders=(folder,))
    home.land("sub/a.json")
    assert home.poll() == 1
    assert home.handed() == [("sub/a.json", 1)]


def test_a_folder_that_is_not_there_is_told_once_as_long_as_it_is_not(
    home: Home, tmp_path: Path
) -> None:
    """Nobody would see that its name is misspelled, or its disk gone."""
    drop = tmp_path / "drop"
    home.change(folders=(str(drop),))
    look = home.discovery()
    for _ in range(2):
        assert [look.poll(home.said.append), look.poll(home.said.append)] == [0, 0]
        (said,) = home.said
        assert f"  activity: {drop}: pending: there is no such folder" in said
        drop.mkdir()
        look.poll(home.said.append)
        assert SOURCE_TYPES["json"].losses(home.config, home.source) == []
        drop.rmdir()
        home.said.clear()
    home.change(folders=())
    home.poll()
    assert SOURCE_TYPES["json"].losses(home.config, home.source) == []


def test_names_that_are_not_like_the_pattern_are_none_of_ours(home: Home) -> None:
    home.change(pattern="*.json*")
    for name in ("a.json", "b.csv", "c.json.gz", "sub/d.json", "_SUCCESS"):
        home.land(name, age=HOUR)
    assert home.poll() == 3
    assert sorted(home.names()) == ["a.json", "c.json.gz", "sub/d.json"]
    assert set(home.states().values()) == {PENDING}
    assert home.said == []


@pytest.mark.parametrize("name", [".a.json", "_a.json"])
def test_a_hidden_file_is_told_after_a_minute_and_taken_once_renamed(home: Home, name: str) -> None:
    hidden = home.land(name)
    assert home.poll() == 0
    assert (home.ledger(), home.said) == ({}, [])
    aged(hidden, 61)
    for _ in range(3):
        assert home.poll() == 0
    assert home.states() == {(name, 1): PENDING}
    (said,) = home.said
    assert home.path(name) in said
    assert "hidden" in said
    hidden.rename(home.landing / "a.json")
    assert home.poll() == 1
    assert home.handed() == [("a.json", 1)]
    assert home.states() == {(name, 1): VANISHED, ("a.json", 1): PENDING}
    home.take_in("a.json")
    assert SOURCE_TYPES["json"].losses(home.config, home.source) == []


def test_a_file_waits_until_it_has_been_still(home: Home) -> None:
    home.change(quiet_period=Duration.parse("5 minutes"))
    file = home.land("a.json", "{}\n", age=100)
    assert [home.poll(), home.poll()] == [0, 0]
    assert home.handed() == []
    assert "5 minutes" in (home.ledger()["a.json", 1].why or "")
    assert len(home.said) == 1
    file.write_text("{}\n{}\n")  # it has grown, and waits anew
    aged(file, 299)
    assert home.poll() == 0
    assert home.ledger()["a.json", 1].size == 6
    aged(file, 301)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.handed() == [("a.json", 1)]
    entry = home.ledger()["a.json", 1]
    assert (entry.state, entry.why, entry.size) == (PENDING, None, 6)


def test_a_time_to_come_need_not_come_for_a_file_to_be_still(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By our own clock it has to have been as it is for so long."""
    home.change(quiet_period=Duration.parse("5 minutes"))
    file = home.land("a.json", age=-10 * DAY)
    began = time.time_ns()

    def polled_at(minutes: int) -> int:
        monkeypatch.setattr(time, "time_ns", lambda: began + minutes * 60 * 10**9)
        return home.poll()

    assert [polled_at(0), polled_at(4)] == [0, 0]
    file.write_text("{}\n{}\n")
    aged(file, -9 * DAY)
    assert [polled_at(6), polled_at(10)] == [0, 0]
    assert [polled_at(12), polled_at(13)] == [1, 0]


def test_a_file_that_was_first_seen_by_a_wrong_clock_is_still_by_the_right_one(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.change(quiet_period=Duration.parse("5 minutes"))
    began = time.time_ns()

    def polled_at(minutes: int) -> int:
        monkeypatch.setattr(time, "time_ns", lambda: began + minutes * 60 * 10**9)
        return home.poll()

    home.land("a.json", age=-2 * DAY)
    assert polled_at(24 * 60) == 0
    assert [polled_at(2), polled_at(4)] == [0, 0]
    assert polled_at(8) == 1
    assert home.ledger()["a.json", 1].first_seen_at == began // 1000 + 2 * 60 * 10**6


def test_a_still_file_does_not_wait(home: Home) -> None:
    home.change(quiet_period=Duration.parse("1 minute"))
    home.land("a.json", age=61)
    assert home.poll() == 1


def test_a_file_that_changes_before_it_is_taken_in_is_handed_over_as_it_is_then(home: Home) -> None:
    home.land("a.json", "{}\n", age=20)
    home.poll()
    home.land("a.json", "{}\n{}\n", age=10)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.handed() == [("a.json", 1), ("a.json", 1)]
    assert home.ledger()["a.json", 1].size == 6


def test_a_file_that_went_and_came_again(home: Home) -> None:
    file = home.land("a.json", age=50)
    home.poll()
    file.unlink()
    assert home.poll() == 0
    assert home.states() == {("a.json", 1): VANISHED}
    home.land("a.json", age=10)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.states() == {("a.json", 1): VANISHED, ("a.json", 2): PENDING}
    assert home.handed() == [("a.json", 1), ("a.json", 2)]


def test_a_file_that_went_and_came_again_just_as_it_was(home: Home, tmp_path: Path) -> None:
    file = home.land("a.json", age=50)
    home.poll()
    shutil.move(file, tmp_path / "aside")
    home.poll()
    shutil.move(tmp_path / "aside", file)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.handed() == [("a.json", 1), ("a.json", 2)]


def hand_over_twice(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "write", fails)
        with pytest.raises(RuntimeError):
            home.poll()


def test_a_run_cut_off_before_the_ledger_hands_over_again(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather twice than never: bronze leaves out what the ledger has as taken in."""
    home.land("a.json")
    hand_over_twice(home, monkeypatch)
    assert home.ledger() == {}
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.handed() == [("a.json", 1), ("a.json", 1)]
    assert home.states() == {("a.json", 1): PENDING}


def test_what_was_handed_over_and_is_lost_is_handed_over_again(home: Home) -> None:
    """A torn commit was moved away: once bronze has read what is left, it is known that it will
    never read the rest."""
    home.land("a.json")
    home.poll()
    home.land("b.json")
    assert home.poll() == 1
    (home.layout.intake("activity") / f"_delta_log/{2:020}.json").unlink()
    assert home.handed() == [("a.json", 1)]
    assert home.poll() == 0
    table = home.layout.intake("activity")
    checkpoints.done(home.layout, "bronze.activity", 0, version=2, of=delta_tables.table_id(table))
    home.take_in("a.json")
    assert home.poll() == 1
    assert home.handed() == [("a.json", 1), ("b.json", 1)]


def test_nothing_is_handed_over_to_a_bronze_that_would_pass_over_it(home: Home) -> None:
    """It has read more commits than there are: torn ones were moved away."""
    home.land("a.json")
    home.poll()
    table = home.layout.intake("activity")
    identity = delta_tables.table_id(table)
    checkpoints.done(home.layout, "bronze.activity", 0, version=2, of=identity)
    home.take_in("a.json")
    home.land("b.json")
    scan = SOURCE_TYPES["json"].scan(home.config, home.source)
    assert scan.has_work
    assert home.handed() == [("a.json", 1)], "deciding writes nothing"
    scan.enqueue(0, print)
    assert home.handed() == [("a.json", 1), ("b.json", 1)]
    checkpoints.done(home.layout, "bronze.activity", 1, version=3, of=identity)
    for version in (1, 2):
        (table / f"_delta_log/{version:020}.json").unlink()
    home.land("c.json")
    scan = SOURCE_TYPES["json"].scan(home.config, home.source)
    assert scan.has_work
    scan.enqueue(0, print)
    assert home.handed() == []


def test_a_root_that_moves_takes_its_files_with_it(home: Home, tmp_path: Path) -> None:
    home.land("sub/a.json")
    home.land("b.json")
    assert home.poll() == 2
    home.take_in("b.json")
    os.rename(home.layout.root, tmp_path / "elsewhere")  # noqa: PTH104
    home.layout = Layout(tmp_path / "elsewhere")
    assert home.poll() == 0
    assert len(home.handed()) == 2
    home.land("c.json")
    assert home.poll() == 1

"""Files leave the source's folders once their rows are committed, and are found where they went."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medallion.config.values import Duration
from medallion.ingest.files import archive
from medallion.state.ledger import Ledger, State
from tests.support.home import Home


def clean(home: Home, batch: int = 0) -> None:
    archive.archive_due_files(
        home.config, home.source, home.discovery().ledger, batch, home.messages.append
    )


def taken(home: Home, name: str, text: str = "{}\n", batch: int = 0, age: float = 9) -> Path:
    """A file that bronze has."""
    file = home.land(name, text, age)
    home.poll()
    home.ingest(name, batch=batch)
    return file


def test_archive_keeps_the_path_below_the_folder(home: Home) -> None:
    file = taken(home, "sub/a.json", "{}\n{}\n")
    modified = file.stat().st_mtime_ns
    clean(home)
    assert not file.exists()
    entry = home.ledger()["sub/a.json", 1]
    assert (entry.state, entry.moved_to) == (State.ARCHIVED, "archive/activity/sub/a.json")
    moved = home.layout.root / "archive/activity/sub/a.json"
    assert moved.local.read_text() == "{}\n{}\n"
    assert moved.local.stat().st_mtime_ns == modified
    assert (entry.rows, entry.batch, entry.size) == (1, 0, 6)
    clean(home)
    assert home.ledger()["sub/a.json", 1] == entry
    assert home.poll() == 0


def test_archive_syncs_before_it_deletes(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system writes half a minute later what it is given: were the power to fail by then, the
    rows would be nowhere."""
    home.change(clean_source="delete")
    files = [taken(home, "a.json"), taken(home, "b.json")]
    there = []
    monkeypatch.setattr(os, "sync", lambda: there.append([file.exists() for file in files]))
    for _ in range(2):  # the second time there is nothing to put away
        clean(home)
    assert there == [[True, True]]
    assert not any(file.exists() for file in files)


def test_archive_deletes(home: Home) -> None:
    home.change(clean_source="delete")
    file = taken(home, "a.json")
    clean(home)
    assert not file.exists()
    entry = home.ledger()["a.json", 1]
    assert (entry.state, entry.moved_to) == (State.ARCHIVED, None)
    assert "deleted" in (entry.why or "")
    assert not home.layout.archive("activity").local.exists()


def test_archive_off(home: Home) -> None:
    home.change(clean_source="off")
    file = taken(home, "a.json")
    clean(home)
    assert file.is_file()
    assert home.states() == {("a.json", 1): State.INGESTED}


def test_archive_after_the_clock_was_set_back(home: Home) -> None:
    home.land("a.json")
    home.poll()
    home.ingest("a.json", at=(int(time.time()) + 3600) * 1_000_000)  # in an hour, it says
    clean(home)
    assert home.states() == {("a.json", 1): State.ARCHIVED}


@pytest.mark.parametrize(("age", "state"), [(3500, State.INGESTED), (3601, State.ARCHIVED)])
def test_archive_after_clean_after(home: Home, age: float, state: str) -> None:
    home.change(clean_after=Duration.parse("1 hour"))
    file = home.land("a.json", age=10 * 3600)
    home.poll()
    home.ingest("a.json", at=int((time.time() - age) * 1e6))
    clean(home)
    assert home.states() == {("a.json", 1): state}
    assert file.exists() == (state == State.INGESTED)


def test_archive_leaves_unrecorded_batches(home: Home) -> None:
    taken(home, "a.json", batch=3)
    taken(home, "b.json", batch=4)
    clean(home, batch=3)
    assert home.states() == {("a.json", 1): State.ARCHIVED, ("b.json", 1): State.INGESTED}
    clean(home, batch=-1)
    assert home.states()["b.json", 1] == State.INGESTED


def test_archive_leaves_pending_files(home: Home) -> None:
    home.change(quiet_period=Duration.parse("1 hour"))
    waiting = home.land("waits.json", age=5)
    handed = home.land("handed.json", age=5000)
    home.poll()
    clean(home, batch=99)
    assert waiting.is_file()
    assert handed.is_file()
    assert set(home.states().values()) == {State.PENDING}


def test_archive_numbers_equal_names(home: Home) -> None:
    home.change(allow_overwrites=True)
    for number in (1, 2, 3):
        taken(home, "a.json", "{}\n" * number, batch=number, age=100 - number)
        clean(home, batch=number)
    places = [home.ledger()["a.json", number].moved_to for number in (1, 2, 3)]
    assert places == [f"archive/activity/{name}" for name in ("a.json", "2~a.json", "3~a.json")]
    texts = [(home.layout.root / str(place)).local.read_text() for place in places]
    assert texts == ["{}\n", "{}\n" * 2, "{}\n" * 3]


def test_archive_with_a_file_in_place_of_a_folder(home: Home) -> None:
    taken(home, "2018", "2018\n")
    clean(home)
    taken(home, "2018/a.json", "a\n")
    clean(home)
    entry = home.ledger()["2018/a.json", 1]
    assert (entry.state, entry.reason_code) == (State.INGESTED, "cannot_move")
    assert (home.landing / "2018/a.json").read_text() == "a\n"


def test_archive_leaves_a_replaced_file(home: Home) -> None:
    taken(home, "a.json")
    file = home.land("a.json", "{}\n{}\n")
    clean(home)
    assert file.is_file()
    assert home.states() == {("a.json", 1): State.INGESTED}
    home.poll()
    clean(home)
    assert file.is_file()
    assert home.states() == {("a.json", 1): State.INGESTED, ("a.json", 2): State.REJECTED}


def test_archive_leaves_files_of_backfills(home: Home, tmp_path: Path) -> None:
    home.change(folders=(str(tmp_path / "folder"),))
    for folder in ("folder", "backfill"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "b.json").write_text("{}\n")
    home.poll()
    book = home.discovery().ledger
    (entry,) = book.newest_entries()
    mine = replace(entry, state=State.INGESTED, batch=0, committed_at=1)
    backfilled = replace(mine, path=str(tmp_path / "backfill" / "b.json"))
    book.write([mine, backfilled])
    clean(home)
    assert not (tmp_path / "folder" / "b.json").exists()
    assert (tmp_path / "backfill" / "b.json").is_file()
    states = {Path(path).parent.name: state for (path, _), state in home.states().items()}
    assert states == {"folder": State.ARCHIVED, "backfill": State.INGESTED}


def interrupt(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clean, but the process ends before the ledger has it."""

    def fails(*_: Any) -> None:
        raise RuntimeError("interrupted")

    book = home.discovery().ledger
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "write", fails)
        with pytest.raises(RuntimeError):
            archive.archive_due_files(home.config, home.source, book, 99, home.messages.append)


@pytest.mark.parametrize("namesakes", [0, 1, 2])
def test_archive_interrupted_after_the_move(
    home: Home, monkeypatch: pytest.MonkeyPatch, namesakes: int
) -> None:
    home.change(allow_overwrites=True)
    for number in range(namesakes):
        taken(home, "a.json", "x" * (number + 1), age=100 - number)
        clean(home)
    file = taken(home, "a.json", "last", age=5)
    interrupt(home, monkeypatch)
    assert not file.exists()
    clean(home)
    entry = home.ledger()["a.json", namesakes + 1]
    assert entry.state == State.ARCHIVED
    assert (home.layout.root / str(entry.moved_to)).local.read_text() == "last"


def test_archive_interrupted_after_the_deletion(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.change(clean_source="delete")
    taken(home, "a.json")
    interrupt(home, monkeypatch)
    clean(home)
    assert home.states() == {("a.json", 1): State.ARCHIVED}


def test_archive_of_a_file_that_is_gone(home: Home) -> None:
    taken(home, "a.json").unlink()
    clean(home)
    assert home.states() == {("a.json", 1): State.INGESTED}


def test_archive_continues_after_an_error(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    (home.layout.archive("activity")).local.mkdir(parents=True)
    (home.layout.archive("activity") / "sub").local.symlink_to("/proc")  # not writable
    stuck = taken(home, "sub/a.json")
    taken(home, "b.json")
    clean(home)
    assert stuck.is_file()
    assert home.states() == {("sub/a.json", 1): State.INGESTED, ("b.json", 1): State.ARCHIVED}
    why = home.ledger()["sub/a.json", 1].why
    assert why
    assert "cannot be moved" in why
    said = f"  activity: 1 file whose rows are in bronze {why} (medallion files --state ingested)"
    assert home.messages == [said]
    clean(home)
    assert home.messages == [said]
    (home.layout.archive("activity") / "sub").local.unlink()
    clean(home)
    entry = home.ledger()["sub/a.json", 1]
    assert (entry.state, entry.why) == (State.ARCHIVED, None)

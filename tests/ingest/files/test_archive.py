"""Files are archived or deleted once their rows are committed, and the ledger records where they
are."""

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
from medallion.storage import files
from tests.support.home import Home


def archive_due(home: Home, batch: int = 0) -> None:
    archive.archive_due_files(
        home.config, home.source, home.discovery().ledger, batch, home.messages.append
    )


def land_ingested(
    home: Home, name: str, text: str = "{}\n", batch: int = 0, age: float = 9
) -> Path:
    """Land a file and record it as ingested."""
    file = home.land(name, text, age)
    home.poll()
    home.ingest(name, batch=batch)
    return file


def test_archive_keeps_the_path_below_the_folder(home: Home) -> None:
    file = land_ingested(home, "sub/a.json", "{}\n{}\n")
    modified = file.stat().st_mtime_ns
    archive_due(home)
    assert not file.exists()
    entry = home.ledger()["sub/a.json", 1]
    assert (entry.state, entry.moved_to) == (State.ARCHIVED, "archive/activity/sub/a.json")
    moved = home.layout.root / "archive/activity/sub/a.json"
    assert moved.local.read_text() == "{}\n{}\n"
    assert moved.local.stat().st_mtime_ns == modified
    assert (entry.rows, entry.batch, entry.size) == (1, 0, 6)
    archive_due(home)
    assert home.ledger()["sub/a.json", 1] == entry
    assert home.poll() == 0


def test_archive_syncs_before_it_deletes(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows must be on disk first: the operating system writes its cache only seconds later."""
    home.change(clean_source="delete")
    files = [land_ingested(home, "a.json"), land_ingested(home, "b.json")]
    existing = []
    monkeypatch.setattr(os, "sync", lambda: existing.append([file.exists() for file in files]))
    for _ in range(2):  # the second run has nothing to delete
        archive_due(home)
    assert existing == [[True, True]]
    assert not any(file.exists() for file in files)


def test_archive_deletes(home: Home) -> None:
    home.change(clean_source="delete")
    file = land_ingested(home, "a.json")
    other = land_ingested(home, "b.json")
    left = files.deletion_path(other, home.ledger()["b.json", 1].info)  # by a killed process
    other.rename(left)
    archive_due(home)
    assert not file.exists()
    assert not left.exists()
    entry = home.ledger()["a.json", 1]
    assert (entry.state, entry.moved_to) == (State.ARCHIVED, None)
    assert "deleted" in (entry.why or "")
    assert not home.layout.archive("activity").local.exists()


def test_archive_off(home: Home) -> None:
    home.change(clean_source="off")
    file = land_ingested(home, "a.json")
    archive_due(home)
    assert file.is_file()
    assert home.states() == {("a.json", 1): State.INGESTED}


def test_archive_after_the_clock_was_set_back(home: Home) -> None:
    home.land("a.json")
    home.poll()
    home.ingest("a.json", at=(int(time.time()) + 3600) * 1_000_000)  # one hour in the future
    archive_due(home)
    assert home.states() == {("a.json", 1): State.ARCHIVED}


@pytest.mark.parametrize(("age", "state"), [(3500, State.INGESTED), (3601, State.ARCHIVED)])
def test_archive_after_clean_after(home: Home, age: float, state: str) -> None:
    home.change(clean_after=Duration.parse("1 hour"))
    file = home.land("a.json", age=10 * 3600)
    home.poll()
    home.ingest("a.json", at=int((time.time() - age) * 1e6))
    archive_due(home)
    assert home.states() == {("a.json", 1): state}
    assert file.exists() == (state == State.INGESTED)


def test_archive_leaves_unrecorded_batches(home: Home) -> None:
    land_ingested(home, "a.json", batch=3)
    land_ingested(home, "b.json", batch=4)
    archive_due(home, batch=3)
    assert home.states() == {("a.json", 1): State.ARCHIVED, ("b.json", 1): State.INGESTED}
    archive_due(home, batch=-1)
    assert home.states()["b.json", 1] == State.INGESTED


def test_archive_leaves_pending_files(home: Home) -> None:
    home.change(quiet_period=Duration.parse("1 hour"))
    waiting = home.land("waits.json", age=5)
    queued = home.land("queued.json", age=5000)
    home.poll()
    archive_due(home, batch=99)
    assert waiting.is_file()
    assert queued.is_file()
    assert set(home.states().values()) == {State.PENDING}


def test_archive_numbers_name_collisions(home: Home) -> None:
    home.change(allow_overwrites=True)
    for number in (1, 2, 3):
        land_ingested(home, "a.json", "{}\n" * number, batch=number, age=100 - number)
        archive_due(home, batch=number)
    paths = [home.ledger()["a.json", number].moved_to for number in (1, 2, 3)]
    assert paths == [f"archive/activity/{name}" for name in ("a.json", "2~a.json", "3~a.json")]
    contents = [(home.layout.root / str(path)).local.read_text() for path in paths]
    assert contents == ["{}\n", "{}\n" * 2, "{}\n" * 3]


def test_archive_with_a_file_at_a_directory_path(home: Home) -> None:
    land_ingested(home, "2018", "2018\n")
    archive_due(home)
    land_ingested(home, "2018/a.json", "a\n")
    archive_due(home)
    entry = home.ledger()["2018/a.json", 1]
    assert (entry.state, entry.reason_code) == (State.INGESTED, "cannot_move")
    assert (home.landing / "2018/a.json").read_text() == "a\n"


def test_archive_leaves_a_replaced_file(home: Home) -> None:
    land_ingested(home, "a.json")
    file = home.land("a.json", "{}\n{}\n")
    archive_due(home)
    assert file.is_file()
    assert home.states() == {("a.json", 1): State.INGESTED}
    home.poll()
    archive_due(home)
    assert file.is_file()
    assert home.states() == {("a.json", 1): State.INGESTED, ("a.json", 2): State.REJECTED}


def test_archive_leaves_files_of_backfills(home: Home, tmp_path: Path) -> None:
    home.change(folders=(str(tmp_path / "folder"),))
    for folder in ("folder", "backfill"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "b.json").write_text("{}\n")
    home.poll()
    ledger = home.discovery().ledger
    (entry,) = ledger.newest_entries()
    ingested = replace(entry, state=State.INGESTED, batch=0, committed_at=1)
    backfilled = replace(ingested, path=str(tmp_path / "backfill" / "b.json"))
    ledger.write([ingested, backfilled])
    archive_due(home)
    assert not (tmp_path / "folder" / "b.json").exists()
    assert (tmp_path / "backfill" / "b.json").is_file()
    states = {Path(path).parent.name: state for (path, _), state in home.states().items()}
    assert states == {"folder": State.ARCHIVED, "backfill": State.INGESTED}


def interrupt(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Archive, but fail before the ledger is written."""

    def fail_write(*_: Any) -> None:
        raise RuntimeError("interrupted")

    ledger = home.discovery().ledger
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "write", fail_write)
        with pytest.raises(RuntimeError):
            archive.archive_due_files(home.config, home.source, ledger, 99, home.messages.append)


@pytest.mark.parametrize("collisions", [0, 1, 2])
def test_archive_interrupted_after_the_move(
    home: Home, monkeypatch: pytest.MonkeyPatch, collisions: int
) -> None:
    home.change(allow_overwrites=True)
    for number in range(collisions):
        land_ingested(home, "a.json", "x" * (number + 1), age=100 - number)
        archive_due(home)
    file = land_ingested(home, "a.json", "last", age=5)
    interrupt(home, monkeypatch)
    assert not file.exists()
    archive_due(home)
    entry = home.ledger()["a.json", collisions + 1]
    assert entry.state == State.ARCHIVED
    assert (home.layout.root / str(entry.moved_to)).local.read_text() == "last"


def test_archive_interrupted_after_the_deletion(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.change(clean_source="delete")
    land_ingested(home, "a.json")
    interrupt(home, monkeypatch)
    archive_due(home)
    assert home.states() == {("a.json", 1): State.ARCHIVED}


def test_archive_of_a_file_that_is_gone(home: Home) -> None:
    land_ingested(home, "a.json").unlink()
    archive_due(home)
    assert home.states() == {("a.json", 1): State.INGESTED}


def test_archive_continues_after_an_error(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    (home.layout.archive("activity")).local.mkdir(parents=True)
    (home.layout.archive("activity") / "sub").local.symlink_to("/proc")  # not writable
    stuck = land_ingested(home, "sub/a.json")
    land_ingested(home, "b.json")
    archive_due(home)
    assert stuck.is_file()
    assert home.states() == {("sub/a.json", 1): State.INGESTED, ("b.json", 1): State.ARCHIVED}
    reason = home.ledger()["sub/a.json", 1].why
    assert reason
    assert "cannot be moved" in reason
    message = (
        f"  activity: 1 file whose rows are in bronze {reason} (medallion files --state ingested)"
    )
    assert home.messages == [message]
    archive_due(home)
    assert home.messages == [message]
    (home.layout.archive("activity") / "sub").local.unlink()
    archive_due(home)
    entry = home.ledger()["sub/a.json", 1]
    assert (entry.state, entry.why) == (State.ARCHIVED, None)

"""Files whose path the ledger already has with another version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from medallion.config.values import Duration
from medallion.ingest.files import archive
from medallion.runtime import backfill
from medallion.state import journal
from medallion.state.journal import Backfill
from medallion.state.ledger import Entry, Reason, ReasonCode, State
from tests.support.home import Home, set_age


@pytest.fixture(params=[False, True], ids=["rejected", "overwrites"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return Home(tmp_path / "lakehouse", allow_overwrites=request.param)


def archive_files(home: Home) -> None:
    ledger = home.discovery().ledger
    archive.archive_due_files(home.config, home.source, ledger, 0, home.messages.append)


def land_archived(home: Home, name: str, text: str) -> tuple[Path, int]:
    """Land a file, ingest and archive it; return its path and modification time."""
    file = home.land(name, text, age=3600)
    at = file.stat().st_mtime_ns
    home.poll()
    home.ingest(name)
    archive_files(home)
    assert home.states()[name, 1] == State.ARCHIVED
    return file, at


def land_again(file: Path, text: str, at: int) -> None:
    file.write_text(text)
    os.utime(file, ns=(at, at))


def newest(home: Home) -> Entry:
    return max(home.ledger().values(), key=lambda entry: entry.version)


@pytest.mark.parametrize("later", [0, 60], ids=["same time", "another time"])
def test_same_content_as_an_archived_file(either: Home, later: int) -> None:
    home = either
    file, at = land_archived(home, "a.json", '{"x": 1}\n')
    for _ in range(3):  # several runs
        land_again(file, '{"x": 1}\n', at + later * 10**9)
        assert [home.poll(), home.poll()] == [0, 0]
    assert home.queued() == [("a.json", 1)]
    assert (newest(home).state, newest(home).reason_code) == (State.REJECTED, ReasonCode.SAME_FILE)
    (line,) = home.messages
    assert home.path("a.json") in line
    assert file.is_file()  # kept, else its writer would send it again
    assert not home.layout.rejected("activity").local.exists()


def test_other_content_than_an_archived_file(either: Home) -> None:
    home = either
    file, at = land_archived(home, "a.json", '{"x": 1}\n')
    land_again(file, '{"x": 2}\n', at)
    is_allowed = home.source.allow_overwrites
    assert [home.poll(), home.poll()] == [int(is_allowed), 0]
    state = State.PENDING if is_allowed else State.REJECTED
    assert home.states() == {("a.json", 1): State.ARCHIVED, ("a.json", 2): state}
    if not is_allowed:
        assert newest(home).reason_code == ReasonCode.NAME_TAKEN
        home.change(allow_overwrites=True)  # as the rejection reason suggests
        assert [home.poll(), home.poll()] == [1, 0]


@pytest.mark.parametrize("lost_by", ["delete", "lost"])
def test_same_size_and_time_as_a_deleted_file(either: Home, lost_by: str) -> None:
    """It is more probably the same file, sent again."""
    home = either
    home.change(clean_source="delete" if lost_by == "delete" else "archive")
    file, at = land_archived(home, "a.json", '{"x": 1}\n')
    (home.layout.archive("activity") / "a.json").local.unlink(missing_ok=True)
    land_again(file, '{"x": 2}\n', at)
    assert [home.poll(), home.poll()] == [0, 0]
    assert newest(home).reason_code == ReasonCode.SAME_FILE
    land_again(file, '{"x": 2}\n', at + 10**9)
    assert home.poll() == int(home.source.allow_overwrites)


def test_file_that_grew_is_rejected_once(home: Home) -> None:
    home.land("a.json", "{}\n", age=20)
    home.poll()
    home.ingest("a.json")
    file = home.land("a.json", "{}\n{}\n", age=10)
    assert [home.poll(), home.poll()] == [0, 0]
    assert file.is_file()
    assert home.states() == {("a.json", 1): State.INGESTED, ("a.json", 2): State.REJECTED}
    (line,) = home.messages
    assert "grew after it was read, from 3 to 6 bytes: bronze has the 1 row read before" in line
    home.land("a.json", "{}\n" * 3, age=5)
    assert home.poll() == 0
    assert home.states()["a.json", 3] == State.REJECTED
    home.change(allow_overwrites=True)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.queued() == [("a.json", 1), ("a.json", 4)]


def test_copies_with_another_time_are_reported_together(home: Home) -> None:
    names = [f"{number:02}.json" for number in range(25)]
    files = [home.land(name, age=20) for name in names]
    home.poll()
    home.ingest(*names)
    for file in files:
        set_age(file, 10)
    assert [home.poll(), home.poll()] == [0, 0]
    assert {e.reason_code for e in home.ledger().values() if e.version == 2} == {"name_taken"}
    *lines, more = home.messages
    assert [line.split()[1] for line in lines] == [f"{home.path(name)}:" for name in names[:20]]
    assert more.endswith(
        "and 5 more rejected for the same reason (medallion files --state rejected)"
    )


def test_new_version_waits_for_the_quiet_period(home: Home) -> None:
    home.change(allow_overwrites=True, quiet_period=Duration.parse("1 minute"))
    home.land("a.json", "{}\n", age=200)
    home.poll()
    home.ingest("a.json")
    file = home.land("a.json", "{}\n{}\n", age=10)
    assert [home.poll(), home.poll()] == [0, 0]
    set_age(file, 100)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.queued() == [("a.json", 1), ("a.json", 2)]


def test_rejected_file_that_is_put_back(home: Home) -> None:
    """For example after the configuration was corrected."""
    file = home.land("a.json", age=10)
    assert home.poll() == 1
    ledger = home.discovery().ledger
    reason = Reason(ReasonCode.UNREADABLE, "not text")
    unreadable = ledger.newest_entries()[0].with_state(State.UNREADABLE, reason)
    home.reject(ledger, [unreadable])
    moved = home.ledger()[("a.json", 1)].moved_to
    assert moved
    assert home.poll() == 0
    (home.layout.root / moved).local.rename(file)  # with its modification time
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.queued() == [("a.json", 1), ("a.json", 2)]


def request(home: Home, folder: Path, name: str, text: str = "{}\n", age: float = 0) -> Path:
    """Land a file in another directory and request a backfill of the directory."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    backfill.request_backfill(home.config, home.source.name, folder)
    return set_age(file, age)


def test_backfill_waits_for_the_quiet_period(home: Home, tmp_path: Path) -> None:
    home.change(quiet_period=Duration.parse("5 minutes"))
    file = request(home, tmp_path / "old", "a.json", age=100)
    assert [home.poll(), home.poll()] == [0, 0]
    assert journal.read_entries(home.config, Backfill) == []
    assert home.backlog() == []
    set_age(file, 301)
    assert [entry.path for entry in home.backlog()] == [str(file)]
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.names() == [str(file)]


def test_backfill_file_that_changes_and_vanishes(home: Home, tmp_path: Path) -> None:
    file = request(home, tmp_path / "old", "a.json", age=100)
    assert home.poll() == 1
    file.write_text("{}\n{}\n")
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.ledger()[str(file), 1].size == 6
    file.unlink()
    assert home.poll() == 0
    assert home.states() == {(str(file), 1): State.VANISHED}


def test_backfill_file_that_changes_after_ingestion(home: Home, tmp_path: Path) -> None:
    file = request(home, tmp_path / "old", "a.json", age=100)
    home.poll()
    home.ingest(str(file))
    file.write_text("{}\n{}\n")
    assert home.poll() == 0


def test_backfill_reads_a_rejected_file_again(home: Home, tmp_path: Path) -> None:
    """The setting that rejected it, such as max_line_bytes, may have changed."""
    file = request(home, tmp_path / "old", "a.json", age=100)
    assert home.poll() == 1
    for version in (1, 2):
        ledger = home.discovery().ledger
        entry = ledger.version(str(file), version)
        assert entry
        unreadable = entry.with_state(State.UNREADABLE, Reason(ReasonCode.UNREADABLE, "too long"))
        home.reject(ledger, [unreadable])
        assert home.poll() == 0
        backfill.request_backfill(home.config, home.source.name, file.parent)
        assert [len(home.backlog()), home.poll(), home.poll()] == [1, 1, 0]
    assert home.queued() == [(str(file), version) for version in (1, 2, 3)]

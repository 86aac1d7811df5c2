"""Files that the user has to see to, by ledgers and folders made by hand."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medallion.cli import render_runs
from medallion.errors import UsageError
from medallion.ingest.files import archive
from medallion.inspect import ledger_files
from medallion.runtime import outcome
from medallion.state.ledger import Entry, Ledger, State
from medallion.storage import clock, locks
from tests.support.home import Home

HOUR = 3600 * 1_000_000


def enter(home: Home, name: str, version: int = 1, **columns: Any) -> Entry:
    """Write a row of the ledger; `code` is its reason, `hours` how long ago it was seen."""
    seen = clock.now_micros() - int(columns.pop("hours", 0) * HOUR)
    code = columns.pop("code", None)
    reason = {"reason_code": code, "why": code and f"because of {code}"}
    row = Entry("activity", home.path(name), version, 5, 0, seen, **reason, **columns)
    Ledger(home.layout, "activity").write([row])
    return row


def names(entries: tuple[Entry, ...]) -> list[str]:
    return [Path(entry.path).name for entry in entries]


def test_rejected_files_are_the_newest_whose_rows_are_missing(home: Home) -> None:
    enter(home, "bad", state=State.REJECTED, code="unreadable", hours=2)
    enter(home, "stuck", state=State.UNREADABLE, code="unreadable", hours=1)
    enter(home, "copy", state=State.REJECTED, code="same_file")
    enter(home, "put back", state=State.REJECTED, code="unreadable")
    enter(home, "put back", 2, state=State.INGESTED)
    enter(home, "known", state=State.REJECTED, code="name_taken", dismissed_at=1)
    found = ledger_files.find_attention(home.config)
    assert names(found.rejected) == ["bad", "stuck"]
    assert ledger_files.rejected_files(home.config) == {"activity": 2}
    assert found.has_failures
    assert render_runs.attention_summary(found) == "2 files were rejected"


def test_files_that_wait_for_more_than_a_day(home: Home) -> None:
    enter(home, "new", hours=30)  # without a reason: the next batch ingests it
    enter(home, "young", code="being_written", hours=23)
    enter(home, "old", code="being_written", hours=25)
    enter(home, "no header.csv", code="csv_header")  # does not get better by itself
    found = ledger_files.find_attention(home.config)
    assert sorted(names(found.waiting)) == ["no header.csv", "old"]
    assert (found.pending, found.has_failures) == (4, True)


def test_waiting_files_stay_acknowledged(home: Home) -> None:
    """A poll enters it again each time, with the same reason."""
    home.land("10:20.json", age=100)
    home.poll()
    (row,) = home.ledger().values()
    known = replace(row, first_seen_at=row.first_seen_at - 25 * HOUR, reported_at=1, dismissed_at=2)
    Ledger(home.layout, "activity").write([known])
    home.poll()
    assert home.ledger()["10:20.json", 1] == known
    assert ledger_files.find_attention(home.config).files == []


def test_a_missing_folder_is_a_failure_of_each_run(home: Home, tmp_path: Path) -> None:
    home.change(folders=(str(tmp_path / "missing"),))
    home.poll()
    for _ in range(2):
        found = ledger_files.find_attention(home.config)
        assert (names(found.folders), found.files, found.has_failures) == (["missing"], [], True)
        outcome.record_reported(home.config, found, "test")
    assert render_runs.attention_errors(found)[0].startswith(
        f"no files were read from: {tmp_path}/missing: "
    )
    (tmp_path / "missing").mkdir()
    home.poll()
    assert not ledger_files.find_attention(home.config).has_failures


def test_a_folder_that_cannot_be_listed_is_a_failure(unprivileged_home: Home) -> None:
    unprivileged_home.land("sub/a.json")
    (unprivileged_home.landing / "sub").chmod(0)
    unprivileged_home.poll()
    found = ledger_files.find_attention(unprivileged_home.config)
    assert (names(found.folders), found.has_failures) == (["sub"], True)
    (unprivileged_home.landing / "sub").chmod(0o755)


def test_reported_files_are_a_warning(home: Home) -> None:
    """The record decides: a run that dies before it ends has not reported them."""
    enter(home, "bad", state=State.REJECTED, code="unreadable")
    first = ledger_files.find_attention(home.config)
    assert (
        render_runs.attention_errors(first)[0]
        == "rejected: landing/activity/bad: because of unreadable"
    )
    assert render_runs.attention_warnings(first) == []
    with locks.lock_layers(home.layout, ["bronze"], "stream"):  # nothing can be written
        outcome.record_reported(home.config, first, "nightly")
    assert ledger_files.find_attention(home.config).has_failures
    outcome.record_reported(home.config, first, "nightly")
    second = ledger_files.find_attention(home.config)
    assert (second.has_failures, render_runs.attention_errors(second)) == (False, [])
    assert render_runs.attention_warnings(second)[0] == render_runs.attention_errors(first)[0]


def test_ten_files_are_named_the_others_counted(home: Home) -> None:
    for number in range(13):
        enter(home, f"{number:02}", state=State.REJECTED, code="unreadable", hours=20 - number)
    found = ledger_files.find_attention(home.config)
    lines = render_runs.attention_lines(found)
    assert [line.split(":")[1][-2:] for line in lines[:10]] == [f"{n:02}" for n in range(10)]
    assert lines[10] == "rejected: and 3 more files (medallion files --state rejected)"
    shown = render_runs.attention_json(found)["rejected"]
    assert (len(shown["files"]), shown["more"]) == (10, 3)


def test_dismissed_files_stay_rejected(home: Home) -> None:
    enter(home, "sub/a.png", state=State.REJECTED, code="unreadable")
    enter(home, "b.png", state=State.REJECTED, code="unreadable")
    with pytest.raises(UsageError, match="no reported file matches"):
        outcome.dismiss_files(home.config, "*.json", None)
    with (
        locks.lock_layers(home.layout, ["bronze"], "stream"),
        pytest.raises(UsageError, match="stream"),
    ):
        outcome.dismiss_files(home.config, "*.png", None)
    (dismissed,) = outcome.dismiss_files(home.config, "b.png", "activity")
    row = home.ledger()["b.png", 1]
    assert (row, row.state, row.dismissed_at is not None) == (dismissed, State.REJECTED, True)
    assert names(ledger_files.find_attention(home.config).rejected) == ["a.png"]


def archived_file(home: Home, name: str = "a.json") -> Path:
    """A file of three bytes that was ingested and archived; where it is now."""
    home.land(name, "{}\n", age=60)
    home.poll()
    home.ingest(name)
    archive.archive_due_files(
        home.config, home.source, home.discovery().ledger, 0, home.said.append
    )
    return (home.layout.archive("activity") / name).local


def append(file: Path, later: float = 0) -> None:
    with file.open("a") as opened:
        opened.write("{}\n")
    at = file.stat().st_mtime + later
    os.utime(file, (at, at))


def test_each_change_of_an_archived_file_is_reported(home: Home) -> None:
    file = archived_file(home)
    assert ledger_files.find_attention(home.config).files == []
    append(file)
    (entry,) = ledger_files.find_attention(home.config).changed
    assert (entry.state, entry.reason_code) == (State.ARCHIVED, "changed_in_archive")
    assert "from 3 to 6 bytes: bronze has the 1 row read before" in str(entry.why)
    outcome.record_reported(home.config, ledger_files.find_attention(home.config), "nightly")
    found = ledger_files.find_attention(home.config)
    assert (len(found.changed), found.has_failures) == (1, False)
    outcome.dismiss_files(home.config, "a.json", None)
    assert ledger_files.find_attention(home.config).files == []
    append(file, later=10)
    found = ledger_files.find_attention(home.config)
    assert ("from 3 to 9 bytes" in str(found.changed[0].why), found.has_failures) == (True, True)
    file.write_text("{}\n")  # the other lines have landed as a file of their own
    assert ledger_files.find_attention(home.config).files == []


def test_a_file_that_grew_before_archiving_is_rejected(home: Home) -> None:
    """It stays where the writer has it, and its rows of then are in bronze."""
    file = home.land("a.json", "{}\n", age=60)
    home.poll()
    home.ingest("a.json")
    append(file)
    archive.archive_due_files(
        home.config, home.source, home.discovery().ledger, 0, home.said.append
    )
    assert file.is_file()
    home.poll()
    (entry,) = ledger_files.find_attention(home.config).rejected
    assert (entry.version, entry.reason_code) == (2, "grew_after_reading")
    home.change(allow_overwrites=True)  # as its reason says
    assert home.poll() == 1
    assert ledger_files.find_attention(home.config).rejected == ()


def test_the_newest_archived_files_are_compared(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_COMPARED", 2)
    for number in range(3):
        enter(
            home,
            f"{number}",
            state=State.ARCHIVED,
            moved_to=f"archive/{number}",
            committed_at=number,
        )
        (home.layout.root / "archive").local.mkdir(exist_ok=True)
        (home.layout.root / f"archive/{number}").local.write_text("larger")
    found = ledger_files.find_attention(home.config)
    assert (sorted(names(found.changed)), found.not_compared) == (["1", "2"], 1)

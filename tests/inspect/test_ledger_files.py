"""Files that need the user's attention, from ledgers and directories written by hand."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medallion.errors import UsageError
from medallion.ingest.files import archive
from medallion.inspect import ledger_files
from medallion.runtime import outcome
from medallion.state.ledger import Entry, Ledger, State
from medallion.storage import clock, locks
from tests.support.home import Home

HOUR = 3600 * 1_000_000


def enter(home: Home, name: str, version: int = 1, **columns: Any) -> Entry:
    """Write a ledger entry with reason code `code` that was first seen `hours` ago."""
    first_seen = clock.now_micros() - int(columns.pop("hours", 0) * HOUR)
    code = columns.pop("code", None)
    reason = {"reason_code": code, "why": code and f"because of {code}"}
    row = Entry("activity", home.path(name), version, 5, 0, first_seen, **reason, **columns)
    Ledger(home.layout, "activity").write([row])
    return row


def names(entries: tuple[Entry, ...]) -> list[str]:
    return [Path(entry.path).name for entry in entries]


def test_rejected_files_without_ingested_version(home: Home) -> None:
    enter(home, "bad", state=State.REJECTED, code="unreadable", hours=2)
    enter(home, "stuck", state=State.UNREADABLE, code="unreadable", hours=1)
    enter(home, "copy", state=State.REJECTED, code="same_file")
    enter(home, "put back", state=State.REJECTED, code="unreadable")
    enter(home, "put back", 2, state=State.INGESTED)
    enter(home, "known", state=State.REJECTED, code="name_taken", dismissed_at=1)
    attention = ledger_files.find_attention(home.config)
    assert names(attention.rejected) == ["bad", "stuck"]
    assert ledger_files.rejected_files(home.config) == {"activity": 2}
    assert attention.has_failures
    (problem,) = ledger_files.file_problems(attention)
    assert problem.sentence.startswith("2 files, such as landing/activity/")


@pytest.mark.parametrize(
    ("content", "is_rejected"), [("abcde", False), ("abcdf", True), (None, False)]
)
def test_rejected_file_is_settled(home: Home, content: str | None, is_rejected: bool) -> None:
    """Its bytes were ingested under another name, or the user has deleted it."""
    rejected = home.layout.rejected("activity") / "a.json"
    rejected.write_atomic("abcde")
    home.land("b.json", content or "12345")
    enter(home, "b.json", state=State.INGESTED)
    path = home.layout.relative(rejected)
    enter(home, "a.json", state=State.REJECTED, code="name_taken", moved_to=path)
    if content is None:
        rejected.delete()
    found = ledger_files.find_attention(home.config).rejected
    assert names(found) == ["a.json"] * is_rejected
    assert ledger_files.rejected_files(home.config).total() == is_rejected


def test_waiting_files_older_than_a_day(home: Home) -> None:
    enter(home, "new", hours=30)  # no reason: the next batch ingests it
    enter(home, "young", code="being_written", hours=23)
    enter(home, "old", code="being_written", hours=25)
    enter(home, "no header.csv", code="csv_header")  # never resolves by itself
    attention = ledger_files.find_attention(home.config)
    assert sorted(names(attention.waiting)) == ["no header.csv", "old"]
    assert (attention.pending, attention.has_failures) == (4, True)


def test_waiting_files_stay_acknowledged(home: Home) -> None:
    """Each poll enters the file again, with the same reason."""
    home.land("10:20.json", age=100)
    home.poll()
    (row,) = home.ledger().values()
    acknowledged = replace(
        row, first_seen_at=row.first_seen_at - 25 * HOUR, reported_at=1, dismissed_at=2
    )
    Ledger(home.layout, "activity").write([acknowledged])
    home.poll()
    assert home.ledger()["10:20.json", 1] == acknowledged
    assert ledger_files.find_attention(home.config).files == []


def test_missing_directory_is_a_failure_of_each_run(home: Home, tmp_path: Path) -> None:
    home.change(folders=(str(tmp_path / "missing"),))
    home.poll()
    for _ in range(2):
        attention = ledger_files.find_attention(home.config)
        assert (names(attention.folders), attention.files, attention.has_failures) == (
            ["missing"],
            [],
            True,
        )
        outcome.record_reported(home.config, attention, "test")
    (problem,) = ledger_files.file_problems(attention)
    assert problem.sentence.startswith(f"no files were read from {tmp_path}/missing: ")
    (tmp_path / "missing").mkdir()
    home.poll()
    assert not ledger_files.find_attention(home.config).has_failures


def test_unreadable_directory_is_a_failure(closable_home: Home) -> None:
    closable_home.land("sub/a.json")
    (closable_home.landing / "sub").chmod(0)
    closable_home.poll()
    attention = ledger_files.find_attention(closable_home.config)
    assert (names(attention.folders), attention.has_failures) == (["sub"], True)
    (closable_home.landing / "sub").chmod(0o755)


def test_reported_files_are_a_warning(home: Home) -> None:
    """Only recorded reports count: a run that dies early has not reported them."""
    enter(home, "bad", state=State.REJECTED, code="unreadable")
    first = ledger_files.find_attention(home.config)
    (problem,) = ledger_files.file_problems(first)
    line = "rejected: activity: landing/activity/bad: because of unreadable"
    assert (str(problem), problem.is_reported) == (line, False)
    with locks.lock_layers(home.layout, ["bronze"], "stream"):  # nothing can be written
        outcome.record_reported(home.config, first, "nightly")
    assert ledger_files.find_attention(home.config).has_failures
    outcome.record_reported(home.config, first, "nightly")
    second = ledger_files.find_attention(home.config)
    assert not second.has_failures
    assert [*ledger_files.file_problems(second)] == [replace(problem, is_reported=True)]


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
    """Archive an ingested file of three bytes; return its new path."""
    home.land(name, "{}\n", age=60)
    home.poll()
    home.ingest(name)
    archive.archive_due_files(
        home.config, home.source, home.discovery().ledger, 0, home.messages.append
    )
    return (home.layout.archive("activity") / name).local


def append(file: Path, later: float = 0) -> None:
    with file.open("a") as handle:
        handle.write("{}\n")
    at = file.stat().st_mtime + later
    os.utime(file, (at, at))


def test_changed_archived_file_is_reported_each_time(home: Home) -> None:
    file = archived_file(home)
    assert ledger_files.find_attention(home.config).files == []
    append(file)
    (entry,) = ledger_files.find_attention(home.config).changed
    assert (entry.state, entry.reason_code) == (State.ARCHIVED, "changed_in_archive")
    assert "from 3 to 6 bytes: bronze has the 1 row read before" in str(entry.why)
    outcome.record_reported(home.config, ledger_files.find_attention(home.config), "nightly")
    attention = ledger_files.find_attention(home.config)
    assert (len(attention.changed), attention.has_failures) == (1, False)
    outcome.dismiss_files(home.config, "a.json", None)
    assert ledger_files.find_attention(home.config).files == []
    append(file, later=10)
    attention = ledger_files.find_attention(home.config)
    assert ("from 3 to 9 bytes" in str(attention.changed[0].why), attention.has_failures) == (
        True,
        True,
    )
    file.write_text("{}\n")  # the other lines landed in a file of their own
    assert ledger_files.find_attention(home.config).files == []


def test_file_that_grew_before_archiving_is_rejected(home: Home) -> None:
    """It stays in landing, and bronze keeps the rows of its first version."""
    file = home.land("a.json", "{}\n", age=60)
    home.poll()
    home.ingest("a.json")
    append(file)
    archive.archive_due_files(
        home.config, home.source, home.discovery().ledger, 0, home.messages.append
    )
    assert file.is_file()
    home.poll()
    (entry,) = ledger_files.find_attention(home.config).rejected
    assert (entry.version, entry.reason_code) == (2, "grew_after_reading")
    home.change(allow_overwrites=True)  # as the reason of the rejection proposes
    assert home.poll() == 1
    assert ledger_files.find_attention(home.config).rejected == ()


def test_only_newest_archived_files_are_compared(
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
    attention = ledger_files.find_attention(home.config)
    assert (sorted(names(attention.changed)), attention.not_compared) == (["1", "2"], 1)

"""Files that change or go while their batch runs: the ledger says what bronze has of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from medallion.errors import MedallionError
from medallion.ingest.files import reader
from medallion.ingest.files.batch import FileBatch
from medallion.ingest.files.discovery import Discovery
from medallion.inspect.audit import run_audit
from medallion.spark.errors import StreamError
from medallion.spark.watch import Watch
from medallion.state.ledger import State
from tests.support.home import set_age
from tests.support.lakehouse import (
    Lakehouse,
    indexes,
    ledger_counts,
    ledger_entries,
    only_activity,
    start_flows,
)
from tests.support.lines import row


def poll_beside(batch: FileBatch) -> None:
    """Poll as the batch's own source does beside it."""
    found = Discovery(batch.context.config, batch.context.source)
    found.ledger = batch.context.ledger
    with batch.context.ledger_lock:
        found.poll(print)


def is_whole(home: Lakehouse, has_lost_one: bool = False) -> bool:
    """Whether audit finds everything, but for a file that was taken in and is not there: its owner
    may have deleted it, for nothing is put away here."""
    found = run_audit(home.config, everything=True)
    told = "activity: 1 file deleted or overwritten, and not counted again: the ledger's figures "
    told += "stand."
    return not found.findings and (told in found.notes or not has_lost_one)


def dies_between_rows_and_ledger(
    home: Lakehouse, monkeypatch: pytest.MonkeyPatch, after: Callable[[], Any]
) -> None:
    """A stream's batch is in bronze; a poll meets what has changed since; the process dies."""

    def interrupt(self: FileBatch, *_: Any) -> None:
        after()
        poll_beside(self)
        raise MedallionError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(FileBatch, "record_in_ledger", interrupt)
        with pytest.raises(StreamError, match="interrupted"):
            Watch(print).await_all(
                flow.started_run for flow in start_flows(home.pipeline(), "bronze")
            )


def another_while_it_is_read(
    home: Lakehouse, patch: pytest.MonkeyPatch, name: str, line: str
) -> None:
    """Land a file that is another one for as long as the next batch reads."""
    listed = home.land("activity", name, line).stat().st_mtime_ns
    read = FileBatch.read

    def read_another(self: FileBatch, *arguments: Any) -> None:
        home.land("activity", name, line, row(4))
        read(self, *arguments)
        os.utime(home.land("activity", name, line), ns=(listed, listed))

    patch.setattr(FileBatch, "read", read_another)


@pytest.mark.parametrize("allowed", [True, False])
def test_poll_finds_another_file_before_the_ledger(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    home = only_activity(lakehouse, allow_overwrites=allowed)
    first = home.land("activity", "a.json", row(1)).stat()
    home.land("activity", "b.json", row(2))

    def change() -> None:
        set_age(home.land("activity", "a.json", row(7), row(8)), -5)

    dies_between_rows_and_ledger(home, monkeypatch, change)
    home.fill("bronze")
    home.fill("bronze")
    assert indexes(home) == ([1, 2, 7, 8] if allowed else [1, 2])
    found = {key: value[:3] for key, value in ledger_counts(home).items()}
    assert found == {
        ("a.json", 1): (State.REPLACED if allowed else State.INGESTED, 0, 1),
        ("a.json", 2): (State.INGESTED, 2, 2) if allowed else (State.REJECTED, None, None),
        ("b.json", 1): (State.INGESTED, 0, 1),
    }
    entry = ledger_entries(home)["a.json", 1]
    assert (entry.size, entry.modified_at) == (
        first.st_size,
        first.st_mtime_ns // 1_000_000 * 1000,
    )
    if allowed:
        assert is_whole(home)


def test_files_replaced_before_they_are_opened(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are the second file's: it must not come again as a version of its own. One of them
    is replaced again after it."""
    home = only_activity(lakehouse, allow_overwrites=True)
    for number, name in enumerate(("a.json", "b.json", "again.json"), 1):
        home.land("activity", name, row(number))
    rows, record_in_ledger = reader.read_rows, FileBatch.record_in_ledger

    def changed_before(*arguments: Any) -> Any:
        set_age(home.land("activity", "a.json", row(7), row(8)), -5)
        set_age(home.land("activity", "again.json", row(5), row(6)), -5)
        return rows(*arguments)

    def changed_after(self: FileBatch, *arguments: Any) -> Any:
        set_age(home.land("activity", "again.json", row(9), row(10), row(11)), -9)
        return record_in_ledger(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(reader, "read_rows", changed_before)
        patch.setattr(FileBatch, "record_in_ledger", changed_after)
        home.fill("bronze")
    home.fill("bronze")
    assert indexes(home) == [2, 5, 6, 7, 8, 9, 10, 11]
    assert {key: value[:3] for key, value in ledger_counts(home).items()} == {
        ("a.json", 1): (State.INGESTED, 0, 2),
        ("b.json", 1): (State.INGESTED, 0, 1),
        ("again.json", 1): (State.REPLACED, 0, 2),
        ("again.json", 2): (State.INGESTED, 1, 3),
    }
    now = (home.config.layout.landing("activity") / "a.json").local.stat()
    assert ledger_entries(home)["a.json", 1].size == now.st_size
    assert is_whole(home)


def test_poll_misses_files_before_the_ledger(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them comes back, the other does not."""
    home = only_activity(lakehouse)
    files = [home.land("activity", name, row(1)) for name in ("gone.json", "back.json")]
    home.land("activity", "b.json", row(2))
    away = home.root.parent

    def go() -> None:
        for file in files:
            file.rename(away / file.name)

    dies_between_rows_and_ledger(home, monkeypatch, go)
    assert {ledger_counts(home)[file.name, 1][0] for file in files} == {State.VANISHED}
    (away / "back.json").rename(files[1])
    home.fill("bronze")
    home.fill("bronze")
    assert indexes(home) == [1, 1, 2]
    assert {key: value[:3] for key, value in ledger_counts(home).items()} == {
        (name, 1): (State.INGESTED, 0, 1) for name in ("gone.json", "back.json", "b.json")
    }
    assert is_whole(home, has_lost_one=True)


def test_file_that_was_away_while_its_batch_ran(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two polls make two versions of it; its rows came once. One that was another one just then
    comes with the next batch, although it is as it was listed again; also where the process dies
    before the ledger has that batch."""
    home = only_activity(lakehouse)
    file = home.land("activity", "a.json", row(1))
    away = home.root.parent / "a.json"
    whole = FileBatch.record_in_ledger

    def away_and_back(self: FileBatch, *arguments: Any) -> Any:
        file.rename(away)
        poll_beside(self)
        away.rename(file)
        poll_beside(self)
        return whole(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(FileBatch, "record_in_ledger", away_and_back)
        home.fill("bronze")
    home.fill("bronze")
    assert indexes(home) == [1]
    assert {key: value[:3] for key, value in ledger_counts(home).items()} == {
        ("a.json", 1): (State.VANISHED, None, None),
        ("a.json", 2): (State.INGESTED, 0, 1),
    }

    with monkeypatch.context() as patch:
        another_while_it_is_read(home, patch, "c.json", row(3))
        home.fill("bronze")
    assert ledger_counts(home)["c.json", 1][0] == State.PENDING
    home.fill("bronze")
    assert ledger_counts(home)["c.json", 1][:3] == (State.INGESTED, 3, 1)

    home.land("activity", "beside.json", row(6))
    with monkeypatch.context() as patch:
        another_while_it_is_read(home, patch, "d.json", row(5))
        dies_between_rows_and_ledger(home, monkeypatch, lambda: None)
    home.fill("bronze")
    home.fill("bronze")
    assert ledger_counts(home)["d.json", 1][:3] == (State.INGESTED, 5, 1)
    assert indexes(home) == [1, 3, 5, 6]
    assert is_whole(home)

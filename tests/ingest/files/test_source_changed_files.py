"""Files that change or vanish during their batch: the ledger records the version in bronze."""

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
from medallion.spark.watch import await_all
from medallion.state.ledger import State
from tests.support.batches import without_queries
from tests.support.home import set_age
from tests.support.lakehouse import (
    Lakehouse,
    indexes,
    ledger_counts,
    ledger_entries,
    only_rows,
    start_flows,
)
from tests.support.lines import row


def poll_beside(batch: FileBatch) -> None:
    """Poll as the batch's own source does during the batch."""
    discovery = Discovery(batch.files.config, batch.files.source)
    discovery.ledger = batch.files.ledger
    with batch.files.ledger_lock:
        discovery.enqueue(discovery.scan(), print)
        discovery.ledger.write([])


def is_balanced(home: Lakehouse, has_deleted_file: bool = False) -> bool:
    """Audit; return whether it finds no error and, on request, one deleted file.

    The file's owner may have deleted it, since nothing is archived here.
    """
    audit = run_audit(home.config, everything=True)
    note = "activity: 1 file deleted or overwritten, and not counted again: the ledger's figures "
    note += "stand."
    return not audit.findings and (note in audit.notes or not has_deleted_file)


def interrupt_between_rows_and_ledger(
    home: Lakehouse, monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any]
) -> None:
    """Commit a batch to bronze, change files, poll, and interrupt before the ledger."""

    def interrupt(self: FileBatch, *_: Any) -> None:
        change()
        poll_beside(self)
        raise MedallionError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(FileBatch, "record_in_ledger", interrupt)
        with without_queries(), pytest.raises(StreamError, match="interrupted"):
            await_all(flow.started_run for flow in start_flows(home.pipeline(), "bronze"))


def change_during_read(home: Lakehouse, patch: pytest.MonkeyPatch, name: str, line: str) -> None:
    """Land a file that has other content only while the next batch reads it."""
    listed = home.land("activity", name, line).stat().st_mtime_ns
    read = FileBatch.read

    def change_and_read(self: FileBatch, *arguments: Any) -> None:
        home.land("activity", name, line, row(4))
        read(self, *arguments)
        os.utime(home.land("activity", name, line), ns=(listed, listed))

    patch.setattr(FileBatch, "read", change_and_read)


@pytest.mark.parametrize("is_allowed", [True, False])
def test_poll_sees_a_replaced_file_before_the_ledger(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch, is_allowed: bool
) -> None:
    home = only_rows(lakehouse, allow_overwrites=is_allowed)
    first = home.land("activity", "a.json", row(1)).stat()
    home.land("activity", "b.json", row(2))

    def land_another() -> None:
        set_age(home.land("activity", "a.json", row(7), row(8)), -5)

    interrupt_between_rows_and_ledger(home, monkeypatch, land_another)
    home.fill("bronze")
    home.fill("bronze")
    assert indexes(home) == ([1, 2, 7, 8] if is_allowed else [1, 2])
    entries = {key: value[:3] for key, value in ledger_counts(home).items()}
    assert entries == {
        ("a.json", 1): (State.REPLACED if is_allowed else State.INGESTED, 0, 1),
        ("a.json", 2): (State.INGESTED, 2, 2) if is_allowed else (State.REJECTED, None, None),
        ("b.json", 1): (State.INGESTED, 0, 1),
    }
    entry = ledger_entries(home)["a.json", 1]
    assert (entry.size, entry.modified_at) == (
        first.st_size,
        first.st_mtime_ns // 1_000_000 * 1000,
    )
    if is_allowed:
        assert is_balanced(home)


def test_files_replaced_before_they_are_opened(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are the second file's, which must not be ingested again.

    One file is replaced once more after the read.
    """
    home = only_rows(lakehouse, allow_overwrites=True)
    for number, name in enumerate(("a.json", "b.json", "again.json"), 1):
        home.land("activity", name, row(number))
    rows, record_in_ledger = reader.read_rows, FileBatch.record_in_ledger

    def change_and_read(*arguments: Any) -> Any:
        set_age(home.land("activity", "a.json", row(7), row(8)), -5)
        set_age(home.land("activity", "again.json", row(5), row(6)), -5)
        return rows(*arguments)

    def change_and_record(self: FileBatch, *arguments: Any) -> Any:
        set_age(home.land("activity", "again.json", row(9), row(10), row(11)), -9)
        return record_in_ledger(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(reader, "read_rows", change_and_read)
        patch.setattr(FileBatch, "record_in_ledger", change_and_record)
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
    assert is_balanced(home)


def test_poll_misses_moved_files_before_the_ledger(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them is moved back, the other is not."""
    home = only_rows(lakehouse)
    files = [home.land("activity", name, row(1)) for name in ("gone.json", "back.json")]
    home.land("activity", "b.json", row(2))
    away = home.root.parent

    def move_away() -> None:
        for file in files:
            file.rename(away / file.name)

    interrupt_between_rows_and_ledger(home, monkeypatch, move_away)
    assert {ledger_counts(home)[file.name, 1][0] for file in files} == {State.VANISHED}
    (away / "back.json").rename(files[1])
    home.fill("bronze")
    home.fill("bronze")
    assert indexes(home) == [1, 1, 2]
    assert {key: value[:3] for key, value in ledger_counts(home).items()} == {
        (name, 1): (State.INGESTED, 0, 1) for name in ("gone.json", "back.json", "b.json")
    }
    assert is_balanced(home, has_deleted_file=True)


def test_file_moved_away_and_back_during_its_batch(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two polls make two versions; its rows are ingested once.

    A file with other content during the read is ingested by the next batch, although its listing is
    unchanged, also if the run is interrupted before the ledger.
    """
    home = only_rows(lakehouse)
    file = home.land("activity", "a.json", row(1))
    away = home.root.parent / "a.json"
    record_in_ledger = FileBatch.record_in_ledger

    def move_away_and_back(self: FileBatch, *arguments: Any) -> Any:
        file.rename(away)
        poll_beside(self)
        away.rename(file)
        poll_beside(self)
        return record_in_ledger(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(FileBatch, "record_in_ledger", move_away_and_back)
        home.fill("bronze")
    home.fill("bronze")
    assert indexes(home) == [1]
    assert {key: value[:3] for key, value in ledger_counts(home).items()} == {
        ("a.json", 1): (State.VANISHED, None, None),
        ("a.json", 2): (State.INGESTED, 0, 1),
    }

    with monkeypatch.context() as patch:
        change_during_read(home, patch, "c.json", row(3))
        home.fill("bronze")
    assert ledger_counts(home)["c.json", 1][0] == State.PENDING
    home.fill("bronze")
    assert ledger_counts(home)["c.json", 1][:3] == (State.INGESTED, 3, 1)

    home.land("activity", "beside.json", row(6))
    with monkeypatch.context() as patch:
        change_during_read(home, patch, "d.json", row(5))
        interrupt_between_rows_and_ledger(home, monkeypatch, lambda: None)
    home.fill("bronze")
    home.fill("bronze")
    assert ledger_counts(home)["d.json", 1][:3] == (State.INGESTED, 5, 1)
    assert indexes(home) == [1, 3, 5, 6]
    assert is_balanced(home)

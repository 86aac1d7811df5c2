"""Ledger entries of a batch's rows, by the entries queued for the batch."""

from __future__ import annotations

from typing import Any

import pytest

from medallion.ingest.files.batch import FileBatch
from medallion.ingest.files.source import FileSource
from medallion.ingest.files.verify import Counts
from medallion.state.ledger import Entry
from tests.support.home import Home

EARLY, LATE, OTHER = 1_700_000_000_000_000, 1_700_000_060_000_000, 1_700_000_120_000_000


@pytest.mark.parametrize(
    ("read_at", "version", "size"), [(EARLY, 1, 3), (LATE, 2, 6), (OTHER, 2, 6)]
)
@pytest.mark.parametrize("order", [1, -1])
def test_ingested_entries_of_one_version(
    home: Home, read_at: int, version: int, size: int, order: int
) -> None:
    """After a lost ledger and checkpoint, an entry for another version would count the rows
    twice."""
    queued = [
        Entry("activity", "a.json", 1, 3, EARLY, EARLY),
        Entry("activity", "a.json", 2, 6, LATE, LATE),
        Entry("activity", "b.json", 1, 9, EARLY, EARLY),
    ]
    counts = {"a.json": (read_at, Counts(2, 1, 0)), "b.json": (EARLY, Counts(5, 0, 0))}
    unused: Any = None
    files = FileSource(unused, home.config, home.source, unused, print)
    entries = FileBatch(files, 7, [], queued[::order]).ingested_entries(counts)
    assert {(e.path, e.version, e.size, e.modified_at, e.rows, e.batch) for e in entries} == {
        ("a.json", version, size, read_at, 2, 7),
        ("b.json", 1, 9, EARLY, 5, 7),
    }
    assert len(entries) == 2


@pytest.mark.parametrize(("batch", "versions"), [(7, [1]), (6, [])])
def test_rows_of_an_ingested_file_belong_to_its_batch(
    home: Home, batch: int, versions: list[int]
) -> None:
    """A repeated batch keeps the entry; the rows of another batch are already in the ledger."""
    queued = Entry("activity", "a.json", 1, 3, EARLY, EARLY)
    newer = Entry("activity", "a.json", 2, 6, LATE, LATE)
    ledger = home.discovery().ledger
    ledger.write([queued.as_ingested(batch, 2, 1, 0), newer])
    unused: Any = None
    files = FileSource(unused, home.config, home.source, unused, print)
    counts = {"a.json": (EARLY, Counts(2, 1, 0))}
    entries = FileBatch(files, 7, [], [queued]).ingested_entries(counts)
    assert [entry.version for entry in entries] == versions


def test_rows_of_an_unknown_file_get_an_entry(home: Home) -> None:
    """A power failure may lose the queue's commit and the ledger's, which follow each other."""
    unused: Any = None
    files = FileSource(unused, home.config, home.source, unused, print)
    counts = {"a.json": (EARLY, Counts(2, 1, 0))}
    (entry,) = FileBatch(files, 7, []).ingested_entries(counts)
    assert (entry.path, entry.version, entry.batch, entry.rows) == ("a.json", 1, 7, 2)
    assert (entry.state, entry.modified_at, entry.size) == ("ingested", EARLY, 0)

"""What the ledger is to say of a batch's rows, by what the batch was handed."""

from __future__ import annotations

from typing import Any

import pytest

from medallion.ingest.files.batch import BatchContext, FileBatch
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
    """As where ledger and checkpoint are lost: another version's rows would be counted again."""
    handed = [
        Entry("activity", "a.json", 1, 3, EARLY, EARLY),
        Entry("activity", "a.json", 2, 6, LATE, LATE),
        Entry("activity", "b.json", 1, 9, EARLY, EARLY),
    ]
    found = {"a.json": (read_at, Counts(2, 1, 0)), "b.json": (EARLY, Counts(5, 0, 0))}
    ledger = home.discovery().ledger
    nothing: Any = None
    context = BatchContext(nothing, home.config, home.source, nothing, print, ledger)
    entries = FileBatch(context, 7, handed[::order], []).ingested_entries(found)
    assert {(e.path, e.version, e.size, e.modified_at, e.rows, e.batch) for e in entries} == {
        ("a.json", version, size, read_at, 2, 7),
        ("b.json", 1, 9, EARLY, 5, 7),
    }
    assert len(entries) == 2

"""Erasure deletes the files that have erased rows, and no others."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from medallion.ingest.files.archive import count_rows_again, delete_files, erased_origins
from medallion.state.journal import Action, ErasedOrigin
from medallion.state.ledger import Entry, Ledger, State
from medallion.storage.paths import StoragePath
from tests.support.home import Home


def test_erasure_deletes_only_the_ingested_file(home: Home) -> None:
    """A file was overwritten after it was ingested, and no scan has seen that yet."""
    kept, overwritten = home.land("a.json", "{}"), home.land("b.json", "{}")
    entries = [
        Entry("activity", path, 1, 0, 0, 5, State.INGESTED).with_info(info)
        for path in ("landing/activity/a.json", "landing/activity/b.json")
        if (info := (home.layout.root / path).info())
    ]
    overwritten.write_text("not ingested")
    Ledger(home.layout, "activity").write(entries)
    rows = {(entry.path, entry.modified_at): 1 for entry in entries}
    origins = erased_origins(home.config, home.source, rows)
    assert [origin.action for origin in origins] == [Action.DELETED, Action.GONE]
    kept.write_text("overwritten after the plan was written")
    delete_files(home.config, home.source, origins)
    assert (kept.exists(), overwritten.read_text()) == (True, "not ingested")


def test_erased_origins_of_a_file_that_cannot_be_inspected(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still have the rows: it does not count as gone."""
    entry = Entry("activity", "landing/activity/a.json", 1, 3, 5, 5, State.INGESTED)
    Ledger(home.layout, "activity").write([entry])
    (gone,) = erased_origins(home.config, home.source, {(entry.path, 5): 2})
    assert gone.action is Action.GONE

    def fail(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(StoragePath, "info", fail)
    with pytest.raises(PermissionError):
        erased_origins(home.config, home.source, {(entry.path, 5): 2})


def test_versions_with_the_same_time_are_counted_once(home: Home) -> None:
    """Bronze cannot tell them apart; the erasure left three rows, of which one is not JSON."""
    path = "landing/activity/a.json"
    versions = [Entry("activity", path, n, 9, 5, 5, State.INGESTED, rows=2) for n in (1, 2)]
    Ledger(home.layout, "activity").write(versions)
    rows = {
        "_source_file": pa.array([path] * 3),
        "_source_modified_at": pa.array([5] * 3, pa.timestamp("us", "UTC")),
        "_corrupt_record": pa.array([None, None, "{"]),
        "_rescued_data": pa.array([None] * 3, pa.string()),
    }
    write_deltalake(home.layout.table("bronze.activity").local, pa.table(rows))
    count_rows_again(home.config, home.source, [ErasedOrigin(path, 1, Action.DELETED, version=2)])
    entries = Ledger(home.layout, "activity").all_versions()
    assert [(e.version, e.rows, e.corrupt_rows) for e in entries] == [(1, 0, 0), (2, 3, 1)]

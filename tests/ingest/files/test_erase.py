"""Erasure deletes the files that have erased rows, and no others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from medallion.ingest.files.erase import delete_files, erased_origins
from medallion.state.journal import Action
from medallion.state.ledger import Entry, Ledger, State
from medallion.storage.paths import StoragePath
from tests.support.home import Home


def context_of(home: Home, *entries: Entry) -> Any:
    Ledger(home.layout, "activity").write(entries)
    return SimpleNamespace(
        config=home.config, source=home.source, ledger=Ledger(home.layout, "activity")
    )


def test_erasure_deletes_only_the_ingested_file(home: Home) -> None:
    """A file was overwritten after it was ingested, and no scan has seen that yet."""
    kept, overwritten = home.land("a.json", "{}"), home.land("b.json", "{}")
    entries = [
        Entry("activity", path, 1, 0, 0, 5, State.INGESTED).with_info(info)
        for path in ("landing/activity/a.json", "landing/activity/b.json")
        if (info := (home.layout.root / path).info())
    ]
    overwritten.write_text("not ingested")
    context = context_of(home, *entries)
    rows = {(entry.path, entry.modified_at): 1 for entry in entries}
    origins = erased_origins(context, rows)
    assert [origin.action for origin in origins] == [Action.DELETED, Action.GONE]
    kept.write_text("overwritten after the plan was written")
    delete_files(context, origins)
    assert (kept.exists(), overwritten.read_text()) == (True, "not ingested")


def test_erased_origins_of_a_file_that_cannot_be_inspected(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still have the rows: it does not count as gone."""
    entry = Entry("activity", "landing/activity/a.json", 1, 3, 5, 5, State.INGESTED)
    context = context_of(home, entry)
    (gone,) = erased_origins(context, {(entry.path, 5): 2})
    assert gone.action is Action.GONE

    def fail(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(StoragePath, "info", fail)
    with pytest.raises(PermissionError):
        erased_origins(context, {(entry.path, 5): 2})

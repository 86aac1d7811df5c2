"""A source's files compared with its ledger and bronze, without Spark."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from medallion.ingest.files.verify import verify_files
from medallion.state import erasures
from medallion.state.journal import Action, ErasedOrigin, Erasure
from medallion.state.ledger import Entry, State
from medallion.storage import records, table_specs
from medallion.storage.table_specs import (
    CORRUPT,
    FILE_ORIGIN_COLUMNS,
    RESCUED,
    SOURCE_FILE,
    SOURCE_MODIFIED_AT,
)
from tests.support.home import Home


def write_bronze(home: Home, files: Mapping[tuple[str, int], tuple[int, int]]) -> None:
    """Write rows to bronze: for each file version, its modification time and row count."""
    spec = table_specs.TableSpec({**FILE_ORIGIN_COLUMNS, CORRUPT: "string", RESCUED: "string"})
    rows = [
        {SOURCE_FILE: home.path(name), SOURCE_MODIFIED_AT: at}
        for (name, _), (at, count) in files.items()
        for _ in range(count)
    ]
    records.append_records(home.layout.table("bronze.activity"), spec, rows)


@pytest.mark.parametrize(("cleaning", "is_reported"), [("off", False), ("archive", True)])
def test_verify_files_deleted_by_the_user(home: Home, cleaning: str, is_reported: bool) -> None:
    """A user may delete ingested files if they are not archived."""
    home.change(clean_source=cleaning)
    landed = home.land("a.json")
    home.poll()
    home.ingest("a.json")
    (entry,) = home.discovery().ledger.newest_entries()
    write_bronze(home, {("a.json", 1): (entry.modified_at, 1)})
    assert verify_files(home.config, home.source).findings == []
    landed.unlink()
    result = verify_files(home.config, home.source)
    assert ["does not exist any more" in text for text in result.findings] == [True] * is_reported
    note = (
        "activity: 1 file deleted or overwritten, and not counted again: the ledger's figures stand"
    )
    assert [text.startswith(note) for text in result.notes] == [True] * (not is_reported)


@pytest.mark.parametrize(("lines", "is_reported"), [(5, False), (3, False), (4, True)])
def test_verify_files_of_a_backfill_after_erasure(
    home: Home, lines: int, is_reported: bool
) -> None:
    """Erasure does not change a backfilled file; the user may remove its lines or not."""
    path = "elsewhere/Zoe's.json"
    file = (home.layout.root / path).local
    file.parent.mkdir(parents=True)
    file.write_text("{}\n" * lines)
    entry = Entry("activity", path, 1, 15, 7, 0, state=State.INGESTED, rows=3)
    home.discovery().ledger.write([entry])
    origin = ErasedOrigin(path, 2, Action.KEPT, 1, path)
    erasure = Erasure("a1", "silver.activity", "true", False, {}, 0, (origin,), ())
    erasures.record(home.layout, erasure, 9)
    spec = table_specs.TableSpec({**FILE_ORIGIN_COLUMNS, CORRUPT: "string", RESCUED: "string"})
    rows = [{SOURCE_FILE: path, SOURCE_MODIFIED_AT: 7}] * 3
    records.append_records(home.layout.table("bronze.activity"), spec, rows)
    finding = f"activity: {path} has {lines} lines, 3 rows in the ledger and 3 in bronze."
    assert verify_files(home.config, home.source).findings == [finding] * is_reported

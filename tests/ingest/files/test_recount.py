"""Files of a source compared with its ledger and bronze, without Spark."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from medallion.ingest.files.verify import verify_files
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
    """The rows of each version of a file: its time, and how many there are."""
    spec = table_specs.TableSpec({**FILE_ORIGIN_COLUMNS, CORRUPT: "string", RESCUED: "string"})
    rows = [
        {SOURCE_FILE: home.path(name), SOURCE_MODIFIED_AT: at}
        for (name, _), (at, count) in files.items()
        for _ in range(count)
    ]
    records.append_records(home.layout.table("bronze.activity"), spec, rows)


@pytest.mark.parametrize(("cleaning", "is_told"), [("off", False), ("archive", True)])
def test_verify_files_deleted_by_the_user(home: Home, cleaning: str, is_told: bool) -> None:
    """A user may delete ingested files if they are not archived."""
    home.change(clean_source=cleaning)
    landed = home.land("a.json")
    home.poll()
    home.take_in("a.json")
    (entry,) = home.discovery().ledger.newest_entries()
    write_bronze(home, {("a.json", 1): (entry.modified_at, 1)})
    assert verify_files(home.config, home.source).findings == []
    landed.unlink()
    found = verify_files(home.config, home.source)
    assert [("does not exist any more" in each) for each in found.findings] == [True] * is_told
    told = (
        "activity: 1 file deleted or overwritten, and not counted again: the ledger's figures stand"
    )
    assert [each.startswith(told) for each in found.notes] == [True] * (not is_told)

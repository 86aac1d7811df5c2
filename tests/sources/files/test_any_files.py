"""Files that nobody thought of, all in one lakehouse: every line of each is found again."""

from __future__ import annotations

import os

import pytest

from medallion.inspection.audit import audit
from medallion.ops import ledger
from medallion.ops.ledger import ARCHIVED, INGESTED, REJECTED
from tests.support.any_files import LIMIT, any_files
from tests.support.lakehouse import Lakehouse, only


@pytest.mark.parametrize(
    ("seed", "number"),
    [
        (11, 100),
        # Another seed each time, or one that was shown before.
        pytest.param(
            int(os.environ["FUZZ_SEED"]),
            1000,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_every_line_of_any_files_is_found_again(
    lakehouse: Lakehouse, seed: int, number: int
) -> None:
    home = only(lakehouse, max_line_bytes=LIMIT, clean_source="archive")
    files = {f"landing/activity/{file.name}": file for file in any_files(seed, number)}
    landing = home.config.layout.landing("activity")
    landing.mkdir(parents=True)
    for file in files.values():
        (landing / file.name).write_bytes(file.content)
    home.fill("bronze")
    if number > 100:
        home.fill("silver")
    entries = {entry.path: entry for entry in ledger.read(home.config.layout)}
    assert entries.keys() == files.keys(), seed
    assert {entry.state for entry in entries.values()} <= {INGESTED, ARCHIVED, REJECTED}
    found = {path: None if e.state == REJECTED else e.rows for path, e in entries.items()}
    expected = {path: found[path] if f.rows == -1 else f.rows for path, f in files.items()}
    wrong = {
        path: (found[path], expected[path], entries[path].why)
        for path in files
        if found[path] != expected[path]
    }
    assert wrong == {}, f"FUZZ_SEED={seed}"
    checked = audit(home.config, everything=True)
    assert (checked.findings, checked.is_balanced) == ((), True), f"FUZZ_SEED={seed}"
    assert checked.balances["activity"].bronze_rows == sum(rows or 0 for rows in found.values())

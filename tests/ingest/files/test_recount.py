"""Files of a source held against its ledger without Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from medallion.ingest.files import archive
from medallion.ingest.files.verify import verify_files
from medallion.state.ledger import ARCHIVED
from medallion.storage import records, table_specs
from medallion.storage.table_specs import (
    CORRUPT,
    FILE_ORIGIN_COLUMNS,
    RESCUED,
    SOURCE_FILE,
    SOURCE_MODIFIED_AT,
)
from tests.support.home import Home, aged


def take_in(home: Home, name: str, text: str, age: float = 3600) -> None:
    """A file that is in the tables, and archived."""
    home.land(name, text, age)
    home.poll()
    home.take_in(name)
    archive.archive_due_files(
        home.config, home.source, home.discovery().ledger, 0, home.said.append
    )


def leave(home: Home, name: str, text: str = "{}\n", age: float = 3600) -> Path:
    """A file that is in no table, though it was put away."""
    file = home.layout.root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return aged(file, age)


def write_bronze(home: Home, files: Mapping[tuple[str, int], tuple[int, int]]) -> None:
    """The rows of each version of a file: its time, and how many there are."""
    spec = table_specs.TableSpec({**FILE_ORIGIN_COLUMNS, CORRUPT: "string", RESCUED: "string"})
    rows = [
        {SOURCE_FILE: home.path(name), SOURCE_MODIFIED_AT: at}
        for (name, _), (at, count) in files.items()
        for _ in range(count)
    ]
    records.append_records(home.layout.table("bronze.activity"), spec, rows)


def unknown(home: Home) -> list[str]:
    """What is told of such files, and where they are to go."""
    told = verify_files(home.config, home.source).findings
    found = [re.search(r": (\S+) lies there, .*\(mv -n\) to (\S+) to have", each) for each in told]
    return [f"{each[1]} {each[2]}" for each in found if each]


@pytest.mark.parametrize(
    ("file", "landed"),
    [
        ("archive/activity/a.json", "landing/activity/a.json"),
        ("archive/activity/2~a.json", "landing/activity/a.json"),
        ("archive/activity/day/12~a.json", "landing/activity/day/a.json"),
        ("rejected/activity/a.json", "landing/activity/a.json"),
    ],
)
def test_a_file_in_no_table_is_taken_in_from_where_it_landed(
    home: Home, file: str, landed: str
) -> None:
    """Once, though its sender brings it again: its path, its name and its bytes are known then."""
    lost = leave(home, file, '{"x": 1}\n')
    assert unknown(home) == [f"{file} {landed}"]
    place = home.layout.root / landed
    place.parent.mkdir(parents=True)
    lost.rename(place)
    name = str(place.relative_to(home.landing))
    take_in(home, name, '{"x": 1}\n')
    assert home.states() == {(name, 1): ARCHIVED}
    assert unknown(home) == []
    home.land(name, '{"x": 1}\n')
    assert home.poll() == 0


def test_a_file_that_moves_back_beside_a_known_one_of_its_name(home: Home) -> None:
    home.change(allow_overwrites=True)
    take_in(home, "a.json", '{"x": 1}\n')
    lost = leave(home, "archive/activity/2~a.json", '{"x": 2}\n')
    assert unknown(home) == ["archive/activity/2~a.json landing/activity/a.json"]
    lost.rename(home.landing / "a.json")
    assert home.poll() == 1


def test_a_file_that_was_moved_just_before_an_interruption(home: Home) -> None:
    """The next run enters it; another file of its name and time is reported."""
    home.land("day/my-a.json", age=3600)
    home.poll()
    home.take_in("day/my-a.json")
    landed = home.landing / "day/my-a.json"
    at = landed.stat().st_mtime_ns
    for name in ("a.json", "my-a.json", "day/my-a.json", "day/2~my-a.json"):
        os.utime(leave(home, f"archive/activity/{name}", '{"x": 1}\n'), ns=(at, at))
    landed.rename(home.layout.archive("activity") / "day/3~my-a.json")
    assert {file.split()[0] for file in unknown(home)} == {
        f"archive/activity/{name}"
        for name in ("a.json", "my-a.json", "day/my-a.json", "day/2~my-a.json")
    }


def test_a_file_that_the_source_would_not_take_in_is_not_told(home: Home) -> None:
    home.change(pattern="event*.json")
    for name in ("NOTES.md", "a.json", "event1.json.reason.txt", "2~event1.json"):
        leave(home, f"rejected/activity/{name}")
    assert unknown(home) == ["rejected/activity/2~event1.json landing/activity/event1.json"]


def test_each_folder_that_a_file_may_have_come_from_is_told(home: Home, tmp_path: Path) -> None:
    home.change(folders=[str(tmp_path / "drop")])
    leave(home, "archive/activity/a.json")
    (told,) = verify_files(home.config, home.source).findings
    assert f"(mv -n) to landing/activity/a.json or {tmp_path / 'drop'}/a.json to have it" in told


@pytest.mark.parametrize(("cleaning", "is_told"), [("off", False), ("archive", True)])
def test_a_file_that_its_owner_has_deleted_since(home: Home, cleaning: str, is_told: bool) -> None:
    """Where nothing is put away, files are their owner's, as those of a backfill are anywhere."""
    home.change(clean_source=cleaning)
    landed = home.land("a.json")
    home.poll()
    home.take_in("a.json")
    file = next(iter(home.discovery().ledger.newest_entries())).file
    write_bronze(home, {("a.json", 1): (file.modified_at, 1)})
    assert verify_files(home.config, home.source).findings == []
    landed.unlink()
    found = verify_files(home.config, home.source)
    assert [("is not there any more" in each) for each in found.findings] == [True] * is_told
    told = (
        "activity: 1 file deleted or overwritten, and not counted again: the ledger's figures stand"
    )
    assert [each.startswith(told) for each in found.notes] == [True] * (not is_told)

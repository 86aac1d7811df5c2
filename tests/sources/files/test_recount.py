"""Files in `archive/` and `rejected/` that no table knows, after an older copy was put back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from medallion.lakehouse import small_tables, specs
from medallion.lakehouse.columns import CORRUPT, OF_FILES, RESCUED, SOURCE_FILE, SOURCE_MODIFIED_AT
from medallion.ops.ledger import ARCHIVED, REPLACED
from medallion.sources.files import archive, ledger_repair
from medallion.sources.files.recount import recount
from tests.support.home import Home, aged


def take_in(home: Home, name: str, text: str, age: float = 3600) -> None:
    """A file that is in the tables, and archived."""
    home.land(name, text, age)
    home.poll()
    home.take_in(name)
    archive.clean(home.config, home.source, home.discovery().ledger, 0, home.said.append)


def leave(home: Home, name: str, text: str = "{}\n", age: float = 3600) -> Path:
    """A file that is in no table, though it was put away."""
    file = home.layout.root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return aged(file, age)


def write_bronze(home: Home, files: Mapping[tuple[str, int], tuple[int, int]]) -> None:
    """The rows of each version of a file: its time, and how many there are."""
    spec = specs.TableSpec({**OF_FILES, CORRUPT: "string", RESCUED: "string"})
    rows = [
        {SOURCE_FILE: home.path(name), SOURCE_MODIFIED_AT: at}
        for (name, _), (at, count) in files.items()
        for _ in range(count)
    ]
    small_tables.append(home.layout.table("bronze.activity"), spec, rows)


def unknown(home: Home) -> list[str]:
    """What is told of such files, and where they are to go."""
    told = recount(home.config, home.source).findings
    words = [finding.split() for finding in told if "no table has it" in finding]
    return [f"{each[1]} {each[-7].rstrip(',')}" for each in words]


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


def test_a_file_that_has_come_once_more_since_is_not_taken_in_twice(home: Home) -> None:
    leave(home, "archive/activity/a.json", '{"x": 1}\n', age=9000)
    take_in(home, "a.json", '{"x": 1}\n')
    assert home.ledger()["a.json", 1].moved_to == "archive/activity/2~a.json"
    assert unknown(home) == []


@pytest.mark.parametrize("is_intake_there", [True, False])
def test_an_archive_without_its_times_beside_a_ledger_that_is_gone(
    is_intake_there: bool, home: Home
) -> None:
    """As after `cp -r`, which keeps none: each file is known by its size, or by its rows, and
    nobody is told to land one again; of one name the oldest was archived first."""
    home.change(allow_overwrites=True)
    files = {
        ("a.json", 1): ('{"x": 1}\n', "archive/activity/a.json"),
        ("b.json", 1): ('{"x": 1}\n{"x": 2}\n', "archive/activity/b.json"),
        ("b.json", 2): ('{"x": 3}\n{"x": 4}\n', "archive/activity/2~b.json"),
    }
    for age, ((name, _), (text, _)) in zip((9000, 8000, 7000), files.items(), strict=True):
        take_in(home, name, text, age)
    old = home.ledger()
    assert {key: entry.moved_to for key, entry in old.items()} == {
        key: place for key, (_, place) in files.items()
    }
    bronze = {key: (old[key].modified_at, text.count("\n")) for key, (text, _) in files.items()}
    write_bronze(home, bronze)
    shutil.rmtree(home.layout.table("ops.files"))
    if not is_intake_there:
        shutil.rmtree(home.layout.intake("activity"))
    for number, (_, place) in enumerate(files.values()):
        aged(home.layout.root / place, 100 + number)
    findings = recount(home.config, home.source).findings
    assert len(findings) == len(files)
    assert all("which the ledger does not have as taken in" in finding for finding in findings)

    ledger_repair.make_whole(home.layout, home.source, home.discovery().ledger, 0)
    whole = home.ledger()
    assert {key: (e.state, e.moved_to, e.size, e.rows) for key, e in whole.items()} == {
        key: (ARCHIVED if key != ("b.json", 1) else REPLACED, place, len(text), bronze[key][1])
        for key, (text, place) in files.items()
    }
    assert recount(home.config, home.source).findings == []
    home.land("a.json", files["a.json", 1][0])  # its sender brings it once more
    assert home.poll() == 0


def test_what_is_left_of_a_file_whose_rows_are_there_is_not_to_land_again(home: Home) -> None:
    """It would be taken in as another one, where that is allowed, and some rows be double."""
    take_in(home, "a.json", '{"x": 1}\n{"x": 2}\n')
    write_bronze(home, {("a.json", 1): (home.ledger()["a.json", 1].modified_at, 2)})
    shutil.rmtree(home.layout.table("ops.files"))
    leave(home, "archive/activity/a.json", '{"x": 1}\n')
    for is_whole in (False, True):
        found = recount(home.config, home.source).findings
        told = "activity: archive/activity/a.json lies there, and may be landing/activity/a.json, "
        assert [line for line in found if "lies there" in line] == [
            f"{told}changed: of that bronze has 2 rows, and it is not there any more. Leave it; if "
            "it has other rows, move it to landing/activity by a name of its own."
        ]
        assert any("was taken in, and" in line for line in found) == is_whole
        ledger_repair.make_whole(home.layout, home.source, home.discovery().ledger, 0)


def test_a_file_is_known_by_all_of_its_path(home: Home) -> None:
    """Another one may share its time, and the end of its name."""
    home.land("day/my-a.json", age=3600)
    home.poll()
    home.take_in("day/my-a.json")
    at = (home.landing / "day/my-a.json").stat().st_mtime_ns
    for name in ("a.json", "my-a.json", "day/a.json", "day/2~my-a.json"):
        os.utime(leave(home, f"archive/activity/{name}", '{"x": 1}\n'), ns=(at, at))
    assert {told.split()[0] for told in unknown(home)} == {
        f"archive/activity/{name}" for name in ("a.json", "my-a.json", "day/a.json")
    }


def test_a_file_that_the_source_would_not_take_in_is_not_told(home: Home) -> None:
    home.change(pattern="event*.json")
    for name in ("NOTES.md", "a.json", "event1.json.reason.txt", "2~event1.json"):
        leave(home, f"rejected/activity/{name}")
    assert unknown(home) == ["rejected/activity/2~event1.json landing/activity/event1.json"]


def test_each_folder_that_a_file_may_have_come_from_is_told(home: Home, tmp_path: Path) -> None:
    home.change(folders=[str(tmp_path / "drop")])
    leave(home, "archive/activity/a.json")
    (told,) = recount(home.config, home.source).findings
    assert f"(mv -n) to landing/activity/a.json or {tmp_path / 'drop'}/a.json, from where" in told


@pytest.mark.parametrize(("cleaning", "is_told"), [("off", False), ("archive", True)])
def test_a_file_that_its_owner_has_deleted_since(home: Home, cleaning: str, is_told: bool) -> None:
    """Where nothing is put away, files are their owner's, as those of a backfill are anywhere."""
    home.change(clean_source=cleaning)
    landed = home.land("a.json")
    home.poll()
    home.take_in("a.json")
    file = next(iter(home.discovery().ledger.all_newest())).file
    write_bronze(home, {("a.json", 1): (file.modified_at, 1)})
    assert recount(home.config, home.source).findings == []
    landed.unlink()
    found = recount(home.config, home.source)
    assert [("is not there any more" in each) for each in found.findings] == [True] * is_told
    told = (
        "activity: 1 file deleted or overwritten, and not counted again: the ledger's figures stand"
    )
    assert [each.startswith(told) for each in found.notes] == [True] * (not is_told)

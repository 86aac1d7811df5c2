"""Folders that hold what is no file to read, and how a long list of files is cut into batches."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path

import pytest

from medallion.config.values import Duration
from medallion.ingest.files import archive
from medallion.ingest.formats import SOURCE_TYPES
from medallion.state.ledger import PENDING, UNREADABLE
from tests.support.home import Home, aged, tree


def test_a_folder_named_like_a_file_is_one_like_any_other(home: Home) -> None:
    """Spark's own writers make such ones; what they have not ended, and what they note, is passed
    over."""
    part = home.land("a.json/part-0", age=3600)
    for name in ("_SUCCESS", ".part-0.crc", "_temporary/0/task-1/part-1", "_temporary/0/.crc"):
        home.land(f"a.json/{name}")
    (home.landing / "empty.parquet").mkdir()
    home.land("b.json", age=60)
    before = tree(home.landing)
    assert [home.poll(), home.poll()] == [2, 0]
    assert home.handed() == [("a.json/part-0", 1), ("b.json", 1)]
    assert home.said == []
    assert tree(home.landing) == before
    home.take_in("a.json/part-0")
    archive.archive_due_files(
        home.config, home.source, home.discovery().ledger, 0, home.said.append
    )
    assert home.ledger()["a.json/part-0", 1].moved_to == "archive/activity/a.json/part-0"
    assert not part.exists()


@pytest.mark.parametrize(
    "name", [b"a\nb.json", b"a\rb.json", b"\xff.json", b"\xe4\xf6.json", b"10:20.json"]
)
def test_a_name_that_cannot_be_handed_over_is_told_until_it_is_another_one(
    home: Home, name: bytes
) -> None:
    home.land("good.json")
    odd = Path(os.fsdecode(os.fsencode(home.landing) + b"/" + name))
    odd.write_text("{}\n")
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.names() == ["good.json"]
    assert len(home.said) == 1
    home.said[0].encode()  # a terminal can show it
    assert "\n" not in home.said[0]
    (entry,) = (e for e in home.ledger().values() if e.why)
    assert entry.state == PENDING
    assert "rename it" in str(entry.why)
    home.take_in("good.json")
    (told,) = SOURCE_TYPES["json"].losses(home.config, home.source)
    assert told.startswith("1 file not ingested yet")
    odd.rename(home.landing / "other.json")
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.names() == ["good.json", "other.json"]
    home.take_in("other.json")
    assert SOURCE_TYPES["json"].losses(home.config, home.source) == []


def test_what_is_unfit_and_not_like_the_pattern_is_none_of_ours(home: Home) -> None:
    home.change(pattern="*.json")
    home.land("notes 10:20.txt")
    home.land("other.parquet/part-0.parquet")
    home.land("other.parquet/a.json")  # in a folder like any other
    (home.landing / "link.txt").symlink_to("nowhere.txt")
    os.mkfifo(home.landing / "pipe")
    for name in ("10:30.json", "b.json"):
        home.land(name)
    (home.landing / "folder.json").mkdir()
    before = tree(home.landing)
    assert [home.poll(), home.poll()] == [2, 0]
    assert sorted(home.names()) == ["b.json", "other.parquet/a.json"]
    assert tree(home.landing) == before
    assert [name for (name, _), e in home.ledger().items() if e.why] == ["10:30.json"]


def test_a_file_that_was_put_aside_and_is_put_back_is_looked_at_again(home: Home) -> None:
    """As after the configuration was put right, which had another format."""
    file = home.land("a.json", age=10)
    assert home.poll() == 1
    book = home.discovery().ledger
    entry = book.newest(home.path("a.json"))
    assert entry
    unreadable = replace(entry, state=UNREADABLE, why="no reason")
    archive.reject_files(home.layout, home.source, book, [unreadable])
    moved = home.ledger()[("a.json", 1)].moved_to
    assert moved
    assert home.poll() == 0
    (home.layout.root / moved).rename(file)  # its time is that of before
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.handed() == [("a.json", 1), ("a.json", 2)]


@pytest.mark.parametrize(
    ("files", "most", "commits"), [(7, 3, [3, 3, 1]), (6, 3, [3, 3]), (3, 1, [1] * 3), (2, 9, [2])]
)
def test_a_batch_has_so_many_files_at_most(
    home: Home, files: int, most: int, commits: list[int]
) -> None:
    home.change(max_files_per_trigger=most)
    for number in range(files):
        home.land(f"{number}.json", age=100 - number)
    home.poll()
    assert [len(commit) for commit in home.commits()] == commits
    assert home.names() == [f"{number}.json" for number in range(files)]


@pytest.mark.parametrize(
    ("sizes", "most", "commits"),
    [
        ([40, 40, 40], 100, [2, 1]),
        ([50, 50, 50], 100, [2, 1]),  # as many bytes as it may be
        ([500, 10, 10], 100, [1, 2]),  # one file is never too much
        ([10, 500, 10], 100, [1, 1, 1]),
        ([0, 0, 0, 100], 100, [4]),
    ],
)
def test_a_batch_has_so_many_bytes_at_most(
    home: Home, sizes: list[int], most: int, commits: list[int]
) -> None:
    home.change(max_bytes_per_trigger=most)
    for number, size in enumerate(sizes):
        home.land(f"{number}.json", "x" * size, age=100 - number)
    home.poll()
    assert [len(commit) for commit in home.commits()] == commits


def test_packed_files_count_as_they_are_unpacked(home: Home) -> None:
    home.change(max_bytes_per_trigger=1000)
    for number, size in enumerate((600, 600, 300, 300, 300)):
        file = home.land(f"{number}.json.gz", age=100 - number)
        file.write_bytes(gzip.compress(bytes(size)))
        aged(file, 100 - number)
    home.poll()
    assert [len(commit) for commit in home.commits()] == [1, 2, 2]


def test_backlog_is_what_a_poll_would_hand_over_and_what_waits(home: Home) -> None:
    home.change(quiet_period=Duration.parse("1 minute"))
    home.land("handed.json", "x" * 10, age=200)
    gone = home.land("gone.json", "x" * 10, age=200)
    home.poll()
    gone.unlink()
    home.land("new.json", "x" * 20, age=100)
    home.land("growing.json", "x" * 40, age=1)
    home.land(".hidden.json", "x" * 80, age=100)
    home.land("taken.json", "x" * 160, age=300)
    home.poll()
    home.take_in("taken.json", "new.json")
    home.land("later.json", "x" * 320, age=100)
    found = {Path(file.path).name: file.size for file in home.discovery().backlog()}
    assert found == {"handed.json": 10, "later.json": 320}


def test_a_changed_file_counts_once_in_the_backlog(home: Home) -> None:
    file = home.land("a.json", "x" * 10, age=20)
    home.poll()
    file.write_text("x" * 25)
    aged(file, 10)
    assert [file.size for file in home.discovery().backlog()] == [25]


def test_folders_may_lie_in_one_another_deeper_than_calls_may(home: Home) -> None:
    home.landing.mkdir(parents=True)
    deep = [Path(f"{home.landing}{'/d' * depth}") for depth in range(1, 1011)]
    try:
        for folder in deep:
            folder.mkdir()
        (deep[-1] / "a.json").write_text("{}\n")
        home.land("b.json")
        assert home.poll() == 2
        assert {name.rpartition("/")[2] for name in home.names()} == {"a.json", "b.json"}
    finally:  # what takes old folders of tests away goes by calls
        (deep[-1] / "a.json").unlink(missing_ok=True)
        for folder in reversed(deep):
            folder.rmdir()

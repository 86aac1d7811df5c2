"""Listing of a source's directories: files, ignored names, links, and files that no source
reads."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medallion.config.model import IGNORED_NAMES
from medallion.ingest.files.listing import (
    canonical_path,
    is_ignored,
    unread_file_warnings,
    walk_directory,
)
from medallion.ingest.files.source import FileSource
from medallion.ingest.formats import SOURCE_TYPES
from medallion.inspect.audit import run_audit
from medallion.runtime import backfill
from medallion.state.ledger import Entry, ReasonCode, State
from medallion.storage.paths import StoragePath
from tests.support.home import Home, set_age, tree


def reasons(home: Home) -> dict[str, tuple[str, str | None]]:
    """Return state and reason code of the newest version of each path."""
    return {name: (e.state, e.reason_code) for (name, _), e in sorted(home.ledger().items())}


def losses(home: Home) -> list[str]:
    return SOURCE_TYPES["json"].losses(home.config, home.source)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Create a directory outside the root with one file, and `link`, a link to it."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a.json").write_text('{"Index": 1}\n')
    set_age(tmp_path / "old" / "a.json", 3600)
    (tmp_path / "link").symlink_to("old")
    return tmp_path / "old"


@pytest.mark.parametrize(
    "name",
    [
        *("_SUCCESS", "_started_1", "_committed_1", ".a.json", "_a=b.json", "a.json._COPYING_"),
        *(".DS_Store", "Thumbs.db", ".part-0.crc", "a.json.crc", ".~lock.a.csv#", "~lock.a.csv#"),
        *("a.json.part", "a.filepart", "a.partial", "a.crdownload", "a.json.tmp", "~$book.csv"),
    ],
)
def test_is_ignored_default(name: str) -> None:
    assert is_ignored(name, IGNORED_NAMES)


@pytest.mark.parametrize("name", ["a.json", "a_b", "part-0.json", "tmp", "date=2026-05-01", "~a"])
def test_is_ignored_other_names(name: str) -> None:
    assert not is_ignored(name, IGNORED_NAMES)


def test_is_ignored_configured() -> None:
    assert is_ignored("a.bak", ["*.bak"])
    assert not is_ignored("a.tmp", ["*.bak"])
    assert is_ignored("_a", [])


def test_scan_ignores_names_silently(home: Home) -> None:
    for name in ("a.json.part", "_SUCCESS", "_temporary/0/part-0.json", ".git/a.json", "b.json"):
        home.land(name, age=90_000)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.names() == ["b.json"]
    assert home.messages == []
    (home.landing / "a.json.part").rename(home.landing / "a.json")
    assert home.poll() == 1
    assert home.names() == ["b.json", "a.json"]
    home.ingest("a.json", "b.json")
    assert losses(home) == []


def test_scan_drops_names_ignored_by_now(home: Home) -> None:
    """Also the hidden files that earlier releases wrote to the ledger."""
    for name in (".a.json", "10:20.bak"):
        home.land(name, age=90_000)
    hidden = Entry("activity", home.path(".a.json"), 1, 3, 1, 1, why="hidden", reason_code="hidden")
    home.discovery().ledger.write([hidden])
    home.poll()
    assert reasons(home)["10:20.bak"] == (State.PENDING, ReasonCode.UNSUPPORTED_NAME)
    home.change(ignore=("*.bak",))
    home.poll()
    assert set(reasons(home).values()) == {(State.VANISHED, ReasonCode.NOT_INPUT)}
    assert losses(home) == []


@pytest.mark.parametrize("name", ["b.json", "2024", "deep/b.json"])
@pytest.mark.parametrize("to", ["sub/a.json", "sub", "{old}", "{old}/a.json", "gone", "b.json"])
def test_scan_reports_links_once(home: Home, old: Path, name: str, to: str) -> None:
    home.land("sub/a.json")
    link = home.landing / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(home.landing / to.format(old=old))
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.names() == ["sub/a.json"]
    assert reasons(home)[name] == (State.PENDING, ReasonCode.LINK)
    (line,) = home.messages
    assert home.path(name) in line
    assert link.is_symlink()
    assert [Path(e.path).name for e in home.backlog()] == ["a.json"]


def test_scan_reports_links_to_directories(home: Home, old: Path) -> None:
    """For any pattern: they may contain files that match."""
    home.change(pattern="*.json")
    home.landing.mkdir(parents=True)
    (home.landing / "notes.txt").symlink_to(old / "a.json")
    (home.landing / "latest").symlink_to(old)
    assert home.poll() == 0
    assert list(home.states()) == [("latest", 1)]


def test_scan_ingests_a_file_that_replaces_a_link(home: Home, old: Path) -> None:
    home.landing.mkdir(parents=True)
    for name in ("a.json", "b.json"):
        (home.landing / name).symlink_to(old / "a.json")
    home.poll()
    for name in ("a.json", "b.json"):
        (home.landing / name).unlink()
    home.land("a.json")
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.queued() == [("a.json", 1)]
    assert home.states() == {("a.json", 1): State.PENDING, ("b.json", 1): State.VANISHED}
    home.ingest("a.json")
    assert losses(home) == []


def test_scan_reports_a_link_that_replaces_a_file(home: Home, old: Path) -> None:
    home.land("a.json")
    assert home.poll() == 1
    (home.landing / "a.json").unlink()
    (home.landing / "a.json").symlink_to(old / "a.json")
    assert home.poll() == 0
    assert reasons(home) == {"a.json": (State.PENDING, ReasonCode.LINK)}
    (home.landing / "a.json").unlink()
    assert home.poll() == 0
    (line,) = losses(home)
    assert line.startswith("1 file gone without being ingested")


@pytest.mark.parametrize("linked", ["root", "landing"])
def test_paths_stay_if_the_root_becomes_a_link(home: Home, tmp_path: Path, linked: str) -> None:
    home.land("sub/a.json")
    assert home.poll() == 1
    home.ingest("sub/a.json")
    moved = tmp_path / "moved"
    path = {"root": home.layout.root, "landing": home.layout.root / "landing"}[linked]
    path.local.rename(moved)
    path.local.symlink_to(moved)
    assert home.poll() == 0
    home.land("b.json")
    assert home.poll() == 1
    assert home.names() == ["sub/a.json", "b.json"]


def test_backfill_by_another_path_to_the_root(home: Home, tmp_path: Path) -> None:
    file = home.layout.root / "inbox" / "a.json"
    file.parent.local.mkdir(parents=True)
    file.local.write_text("{}\n", encoding="utf-8")
    backfill.request_backfill(home.config, "activity", file.parent.local)
    assert home.poll() == 1
    (tmp_path / "link").symlink_to(home.layout.root)
    backfill.request_backfill(home.config, "activity", tmp_path / "link" / "inbox")
    assert home.poll() == 0
    assert [entry.path for entry in home.ledger().values()] == ["inbox/a.json"]


@pytest.mark.parametrize("is_configured", [False, True])
@pytest.mark.parametrize("path_type", ["link", "folder", "root", "landing", "file", "linked file"])
def test_canonical_path(home: Home, tmp_path: Path, path_type: str, is_configured: bool) -> None:
    root = home.layout.root.local
    file = home.land("sub/a.json")
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "old").mkdir()
    (tmp_path / "also").symlink_to("old")
    (tmp_path / "linked.json").symlink_to(file)
    if is_configured:
        (tmp_path / "configured").symlink_to("old")
        home.change(folders=(str(tmp_path / "configured"),))
    elsewhere = tmp_path / ("configured" if is_configured else "old")
    path, expected = {
        "link": (tmp_path / "also", elsewhere),
        "folder": (tmp_path / "old", elsewhere),
        "root": (tmp_path / "link", root),
        "landing": (tmp_path / "link" / "landing" / "activity", home.landing),
        "file": (tmp_path / "link" / "landing" / "activity" / "sub" / "a.json", file),
        "linked file": (tmp_path / "linked.json", file),
    }[path_type]
    assert canonical_path(home.layout, home.source, StoragePath(path)).local == expected


def test_scan_lists_directories_named_like_files(home: Home) -> None:
    """Spark's writers create such directories."""
    home.land("a.json/part-0", age=3600)
    for name in ("_SUCCESS", ".part-0.crc", "_temporary/0/task-1/part-1"):
        home.land(f"a.json/{name}")
    (home.landing / "empty.parquet").mkdir()
    home.land("b.json", age=60)
    before = tree(home.landing)
    assert [home.poll(), home.poll()] == [2, 0]
    assert home.queued() == [("a.json/part-0", 1), ("b.json", 1)]
    assert home.messages == []
    assert tree(home.landing) == before


def test_scan_lists_directories_nested_deeper_than_recursion(home: Home) -> None:
    home.landing.mkdir(parents=True)
    deep = [Path(f"{home.landing}{'/d' * depth}") for depth in range(1, 1011)]
    try:
        for folder in deep:
            folder.mkdir()
        (deep[-1] / "a.json").write_text("{}\n")
        assert home.poll() == 1
    finally:  # pytest deletes old directories by recursion
        (deep[-1] / "a.json").unlink(missing_ok=True)
        for folder in reversed(deep):
            folder.rmdir()


@pytest.mark.parametrize("name", [b"a\nb.json", b"a\rb.json", b"\xff.json", b"10:20.json"])
def test_scan_reports_unsupported_names_until_renamed(home: Home, name: bytes) -> None:
    home.land("good.json")
    unsupported = Path(os.fsdecode(os.fsencode(home.landing) + b"/" + name))
    unsupported.write_text("{}\n")
    assert [home.poll(), home.poll()] == [1, 0]
    (line,) = home.messages
    line.encode()  # a terminal can show it
    assert "\n" not in line
    (entry,) = (e for e in home.ledger().values() if e.why)
    assert (entry.state, entry.reason_code) == (State.PENDING, ReasonCode.UNSUPPORTED_NAME)
    unsupported.rename(home.landing / "other.json")
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.names() == ["good.json", "other.json"]
    home.ingest("good.json", "other.json")
    assert losses(home) == []


def test_scan_skips_names_outside_the_pattern(home: Home) -> None:
    home.change(pattern="*.json")
    for name in ("notes 10:20.txt", "other.parquet/part-0.parquet", "10:30.json", "b.json"):
        home.land(name)
    os.mkfifo(home.landing / "pipe")
    (home.landing / "folder.json").mkdir()
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.names() == ["b.json"]
    assert [name for (name, _), e in home.ledger().items() if e.why] == ["10:30.json"]


def test_walk_directory_deleted_during_the_walk(home: Home) -> None:
    first, gone = home.land("a.json"), home.land("writing/b.json").parent
    entries = walk_directory(StoragePath(home.landing), "*", ())
    assert next(entries)[0] == str(first)
    shutil.rmtree(gone)
    assert list(entries) == []


def test_scan_of_directories_without_permission(closable_home: Home) -> None:
    home = closable_home
    for name in ("no-x/a.json", "no-x/deep/b.json", "good.json", "closed/c.json"):
        home.land(name)
    (home.landing / "no-x").chmod(0o644)
    assert home.poll() == 2  # good.json and closed/c.json
    (home.landing / "closed").chmod(0)
    assert [home.poll(), home.poll()] == [0, 0]
    unreadable = (State.PENDING, ReasonCode.FOLDER_UNREADABLE)
    assert reasons(home) == {
        "no-x/a.json": (State.PENDING, ReasonCode.INACCESSIBLE),
        "no-x/deep": unreadable,
        "good.json": (State.PENDING, None),
        "closed": unreadable,
        "closed/c.json": (State.PENDING, None),
    }
    assert len(home.messages) == 3
    for name in ("no-x", "closed"):
        (home.landing / name).chmod(0o755)
    assert [home.poll(), home.poll()] == [2, 0]
    gone = (State.VANISHED, ReasonCode.NOT_INPUT)
    assert (reasons(home)["no-x/deep"], reasons(home)["closed"]) == (gone, gone)
    assert reasons(home)["no-x/deep/b.json"] == (State.PENDING, None)


def test_scan_of_a_file_without_permission(closable_home: Home) -> None:
    home = closable_home
    file = home.land("a.json", age=9)
    file.chmod(0)
    assert [home.poll(), home.poll()] == [0, 0]
    assert reasons(home) == {"a.json": (State.PENDING, ReasonCode.INACCESSIBLE)}
    assert len(home.messages) == 1
    assert home.backlog() == []
    file.chmod(0o644)
    assert [home.poll(), home.poll()] == [1, 0]
    assert reasons(home) == {"a.json": (State.PENDING, None)}


def open_source(home: Home) -> FileSource:
    no_spark: Any = None
    return FileSource(no_spark, home.config, home.source, no_spark, home.messages.append)


def test_scan_reports_a_broken_landing_link(home: Home, old: Path) -> None:
    home.landing.parent.mkdir(parents=True)
    home.landing.symlink_to(old)
    assert home.poll() == 1
    home.ingest("a.json")
    old.rename(old.with_name("away"))
    open_source(home).poll()
    (line,) = home.messages
    assert "landing/activity: pending: the folder does not exist" in line
    assert losses(home)[0].startswith("1 file not ingested yet")
    old.with_name("away").rename(old)
    assert home.poll() == 0
    assert losses(home) == []


def test_scan_reports_a_link_to_itself(home: Home, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    home.change(folders=(str(tmp_path / "loop"),))
    home.land("a.json")
    assert [home.poll(), home.poll()] == [1, 0]
    (line,) = home.messages
    assert line.endswith("cannot be listed: Too many levels of symbolic links")


def test_source_whose_landing_is_a_file(home: Home) -> None:
    """`cp` creates it if the directory does not exist yet."""
    home.landing.parent.mkdir(parents=True)
    home.landing.write_text("{}\n")
    with pytest.raises(FileExistsError, match="landing/activity"):
        open_source(home)
    home.landing.unlink()
    home.land("activity")
    open_source(home).poll()
    assert home.names() == ["activity"]


def test_unread_file_warnings_other_folders(home: Home) -> None:
    config = home.project_config
    assert unread_file_warnings(config) == [], "there is no landing yet"
    landing = home.layout.landing("")
    files = ("activity/a.json", "event/deep/b.json", "evnt/c.json", "evnt/deep/d.json", "e.json")
    for name in (*files, "evnt/.being-written", "evnt/f.json.part"):
        (landing / name).parent.local.mkdir(parents=True, exist_ok=True)
        (landing / name).local.touch()
    assert unread_file_warnings(config) == [
        "landing: 1 file that no source of pipeline.yaml reads",
        "landing/evnt: 2 files that no source of pipeline.yaml reads",
    ]
    assert run_audit(config).notes[-1] == (
        "landing/evnt: 2 files that no source of pipeline.yaml reads"
    )
    event = replace(config.sources["event"], folders=("landing/evnt/deep",))
    config = replace(config, sources={**config.sources, "event": event})
    line = "landing/evnt: 1 file that no source of pipeline.yaml reads"
    assert unread_file_warnings(config)[1] == line


def test_unread_file_warnings_patterns(home: Home, tmp_path: Path) -> None:
    """Two sources share a directory with different patterns; one also reads a linked directory."""
    config = home.project_config
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "its disk").mkdir()
    elsewhere.symlink_to("its disk")
    event = replace(config.sources["event"], pattern="*.json", folders=(str(elsewhere),))
    activity = replace(config.sources["activity"], pattern="*.log", folders=("landing/event",))
    config = replace(config, sources={"event": event, "activity": activity})
    landing = home.layout.landing("").local
    read = ("event/a.json", "event/a.log", "event/deep/c.json")
    ignored = ("event/_SUCCESS", "event/.c.txt", "event/d.csv._COPYING_", "event/.tmp/e.csv")
    others = ("event/f.JSON", "event/deep/g.csv", "activity/h.json")
    for file in (*(landing / n for n in (*read, *ignored, *others)), elsewhere / "deep/i.log"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    reads = "that no source of pipeline.yaml reads: not named as"
    assert unread_file_warnings(config) == [
        f"{elsewhere}: 1 file {reads} *.json",
        f"landing/activity: 1 file {reads} *.log",
        f"landing/event: 2 files {reads} *.json or *.log",
    ]


def test_scan_reads_no_files_of_a_delta_table(home: Home) -> None:
    """Its files also have rows that were removed, and archiving them would damage it."""
    home.land("table/_delta_log/0.json")
    home.land("table/part-0.parquet")
    home.land("a.json")
    assert home.poll() == 1
    assert home.states() == {("a.json", 1): "pending", ("table", 1): "pending"}
    assert "a Delta table" in "".join(home.messages)

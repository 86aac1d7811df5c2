"""Discovery enqueues each file once and in order, and reports files it does not enqueue."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medallion.config.values import Duration
from medallion.errors import MedallionError
from medallion.ingest.files.archive import archive_due_files
from medallion.ingest.formats import SOURCE_TYPES
from medallion.runtime import backfill
from medallion.state import journal
from medallion.state.journal import Backfill
from medallion.state.ledger import Ledger, State
from medallion.storage import delta_tables, files, objects
from tests.support import checkpoints
from tests.support.fault_proxy import FaultProxy, refused
from tests.support.home import Home, set_age
from tests.support.s3_server import Bucket

HOUR, DAY = 3600, 86400


def test_poll_without_landing(home: Home) -> None:
    assert home.poll() == 0
    assert home.queued() == []
    assert home.ledger() == {}


def test_poll_enqueues_each_file_once(home: Home) -> None:
    file = home.land("a.json", "{}\n{}\n")
    assert home.poll() == 1
    assert home.poll() == 0
    assert home.queued() == [("a.json", 1)]
    home.land("b.json")
    assert home.poll() == 1
    assert home.queued() == [("a.json", 1), ("b.json", 1)]
    entry = home.ledger()["a.json", 1]
    assert (entry.state, entry.why, entry.size) == (State.PENDING, None, 6)
    assert entry.modified_at == file.stat().st_mtime_ns // 1_000_000 * 1000


@pytest.mark.parametrize("clean_source", ["archive", "delete", "off"])
def test_folder_in_another_bucket(home: Home, bucket: Bucket, clean_source: str) -> None:
    """Its files may have been written by any tool; those of 0 bytes too, but no folder markers."""
    for key in ("a.json", "day=1/b c.json", "day=1/_SUCCESS", "empty.json"):
        bucket.write(f"in/{key}", b"" if key == "empty.json" else b"{}\n")
    (bucket.server.folder / bucket.name / "in/marker").mkdir()
    home.change(folders=(bucket.url("in"),), clean_source=clean_source)
    names = [bucket.url(f"in/{key}") for key in ("a.json", "day=1/b c.json", "empty.json")]
    assert (home.poll(), home.poll()) == (3, 0)
    assert sorted(home.names()) == names
    assert {entry.state for entry in home.ledger().values()} == {State.PENDING}
    home.ingest(*names)
    source_ledger = home.discovery().ledger
    archive_due_files(home.config, home.source, source_ledger, 0, home.messages.append)
    assert home.messages == []
    kept = ["in/a.json", "in/day=1/b c.json", "in/empty.json"] if clean_source == "off" else []
    assert bucket.keys("in/") == sorted([*kept, "in/day=1/_SUCCESS"])
    archive = home.layout.archive("activity").local
    archived = {str(path.relative_to(archive)) for path in archive.rglob("*.json")}
    is_archived = clean_source == "archive"
    assert archived == ({"a.json", "day=1/b c.json", "empty.json"} if is_archived else set())
    assert home.poll() == 0


@pytest.mark.parametrize("fault", ["no bucket", "no permission", "503", "odd key"])
def test_folder_that_cannot_be_listed_stops_no_other(
    home: Home,
    bucket: Bucket,
    proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    """Files that were there before stay pending, and are ingested later."""
    monkeypatch.setattr(objects, "_TRIES", 0)
    url = bucket.url("in") if fault != "no bucket" else "s3://no-such-bucket/in"
    home.change(folders=(url,))
    if fault != "no bucket":
        bucket.write("in/first.json", b"{}\n")
        assert home.poll() == 1
    home.land("own.json")
    folder = bucket.server.folder / bucket.name / "in"
    if fault == "odd key":
        (folder / "a\tb").touch()
    status = {"no permission": 403, "503": 503}.get(fault)
    with proxy.inject(refused(status or 500), "LIST", times=math.inf if status else 0):
        assert home.poll() == 1
    reason = {
        "no bucket": "there is no such bucket",
        "no permission": "access is denied",
        "503": "the store answers 503 SlowDown",
        "odd key": "the key 'in/a\\tb' cannot be read: rename or delete that object",
    }[fault]
    entries = home.ledger()
    assert f"cannot be listed: {reason}" in str(entries[url, 1].why)
    assert {entry.state for entry in entries.values()} == {State.PENDING}
    if fault == "odd key":
        (folder / "a\tb").unlink()
    if fault != "no bucket":
        bucket.write("in/second.json", b"{}\n")
        assert home.poll() == 1
        assert (url, 1) not in home.ledger() or home.states()[url, 1] == State.VANISHED


def test_key_that_is_not_utf_8_is_not_read(home: Home, bucket: Bucket) -> None:
    home.change(folders=(bucket.url("in"),))
    bucket.write("in/größe \ufffd.json", b"{}\n")
    folder = bucket.server.folder / bucket.name / "in"
    Path(os.fsdecode(os.fsencode(folder) + b"/b\xff.json")).write_text("{}\n")
    assert home.poll() == 1
    assert home.states()[bucket.url("in/größe \ufffd.json"), 1] == State.PENDING
    assert "not UTF-8: rename it" in str(home.ledger()[bucket.url("in/b\ufffd.json"), 1].why)


@pytest.mark.parametrize("age", [DAY, 400 * DAY, 40 * 365 * DAY], ids=["day", "year", "decades"])
def test_poll_old_file_after_newer_ones(home: Home, age: float) -> None:
    home.land("new.json")
    home.poll()
    home.land("old.json", age=age)
    assert home.poll() == 1
    assert home.names() == ["new.json", "old.json"]


def test_poll_orders_files_by_time(home: Home) -> None:
    for name, age in {"c.json": 30, "a.json": 10, "b.json": 20, "d/e.json": 25}.items():
        home.land(name, age=age)
    home.poll()
    assert home.names() == ["c.json", "d/e.json", "b.json", "a.json"]


@pytest.mark.parametrize(
    "name", ["a b.json", "ä.json", "100%.json", "a+b.json", "[a].json", "x/y/z.json", "no suffix"]
)
def test_poll_unusual_names(home: Home, name: str) -> None:
    home.land(name)
    assert home.poll() == 1
    assert home.poll() == 0
    assert home.queued() == [(name, 1)]


def test_poll_several_folders(home: Home, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    home.change(folders=("extra", str(elsewhere), "missing"))
    home.land("a.json", age=3)
    for folder, age in ((home.layout.root.local / "extra", 2), (elsewhere, 1)):
        folder.mkdir()
        (folder / "b.json").write_text("{}\n")
        set_age(folder / "b.json", age)
    assert home.poll() == 3
    assert home.names() == ["a.json", "extra/b.json", f"{elsewhere}/b.json"]
    assert home.poll() == 0


def test_poll_reports_a_missing_folder_once(home: Home, tmp_path: Path) -> None:
    drop = tmp_path / "drop"
    home.change(folders=(str(drop),))
    discovery_run = home.discovery()
    for _ in range(2):
        for _ in range(2):
            discovery_run.enqueue(discovery_run.scan(), home.messages.append)
        (message,) = home.messages
        assert f"  activity: {drop}: pending: the folder does not exist" in message
        drop.mkdir()
        discovery_run.enqueue(discovery_run.scan(), home.messages.append)
        assert SOURCE_TYPES["json"].losses(home.config, home.source) == []
        drop.rmdir()
        home.messages.clear()
    home.change(folders=())
    home.poll()
    assert SOURCE_TYPES["json"].losses(home.config, home.source) == []


def test_poll_other_names_than_the_pattern(home: Home) -> None:
    home.change(pattern="*.json*")
    for name in ("a.json", "b.csv", "c.json.gz", "sub/d.json"):
        home.land(name, age=HOUR)
    assert home.poll() == 3
    assert sorted(home.names()) == ["a.json", "c.json.gz", "sub/d.json"]
    assert set(home.states().values()) == {State.PENDING}
    assert home.messages == []


def test_poll_quiet_period(home: Home) -> None:
    home.change(quiet_period=Duration.parse("5 minutes"))
    file = home.land("a.json", "{}\n", age=100)
    assert [home.poll(), home.poll()] == [0, 0]
    assert home.queued() == []
    assert "5 minutes" in (home.ledger()["a.json", 1].why or "")
    assert len(home.messages) == 1
    file.write_text("{}\n{}\n")  # grew: the quiet period starts again
    set_age(file, 299)
    assert home.poll() == 0
    assert home.ledger()["a.json", 1].size == 6
    set_age(file, 301)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.queued() == [("a.json", 1)]
    entry = home.ledger()["a.json", 1]
    assert (entry.state, entry.why, entry.size) == (State.PENDING, None, 6)


def test_poll_file_that_changed_before_ingestion(home: Home) -> None:
    home.land("a.json", "{}\n", age=20)
    home.poll()
    home.land("a.json", "{}\n{}\n", age=10)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.queued() == [("a.json", 1), ("a.json", 1)]
    assert home.ledger()["a.json", 1].size == 6


def test_poll_file_that_reappears(home: Home) -> None:
    file = home.land("a.json", age=50)
    home.poll()
    file.unlink()
    assert home.poll() == 0
    assert home.states() == {("a.json", 1): State.VANISHED}
    home.land("a.json", age=10)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.states() == {("a.json", 1): State.VANISHED, ("a.json", 2): State.PENDING}
    assert home.queued() == [("a.json", 1), ("a.json", 2)]


def test_poll_file_that_reappears_unchanged(home: Home, tmp_path: Path) -> None:
    file = home.land("a.json", age=50)
    home.poll()
    shutil.move(file, tmp_path / "elsewhere")
    home.poll()
    shutil.move(tmp_path / "elsewhere", file)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.queued() == [("a.json", 1), ("a.json", 2)]


def interrupt_before_ledger(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_write(*_: Any) -> None:
        raise RuntimeError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "write", fail_write)
        with pytest.raises(RuntimeError):
            home.poll()


def test_poll_after_an_interruption_before_the_ledger(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enqueued twice: bronze skips entries that the ledger has as ingested."""
    home.land("a.json")
    interrupt_before_ledger(home, monkeypatch)
    assert home.ledger() == {}
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.queued() == [("a.json", 1), ("a.json", 1)]
    assert home.states() == {("a.json", 1): State.PENDING}


def test_poll_enqueues_a_lost_commit_again(home: Home) -> None:
    """Bronze that has read later commits would never read the lost one."""
    home.land("a.json")
    home.poll()
    home.land("b.json")
    assert home.poll() == 1
    (home.layout.queue("activity") / f"_delta_log/{2:020}.json").local.unlink()
    assert home.queued() == [("a.json", 1)]
    assert home.poll() == 0
    table = home.layout.queue("activity")
    checkpoints.write_completed(
        home.layout, "bronze.activity", 0, version=2, of=delta_tables.table_id(table)
    )
    home.ingest("a.json")
    assert home.poll() == 1
    assert home.queued() == [("a.json", 1), ("b.json", 1)]


def test_scan_while_the_queue_is_behind(home: Home) -> None:
    """Bronze has read more commits than the queue has: corrupt commits were moved away."""
    home.land("a.json")
    home.poll()
    table = home.layout.queue("activity")
    identity = delta_tables.table_id(table)
    checkpoints.write_completed(home.layout, "bronze.activity", 0, version=2, of=identity)
    home.ingest("a.json")
    home.land("b.json")
    scan = SOURCE_TYPES["json"].scan(home.config, home.source)
    assert scan.has_work
    assert home.queued() == [("a.json", 1)], "deciding writes nothing"
    scan.enqueue(0, print)
    assert home.queued() == [("a.json", 1), ("b.json", 1)]
    checkpoints.write_completed(home.layout, "bronze.activity", 1, version=3, of=identity)
    for version in (1, 2):
        (table / f"_delta_log/{version:020}.json").local.unlink()
    home.land("c.json")
    scan = SOURCE_TYPES["json"].scan(home.config, home.source)
    assert scan.has_work
    scan.enqueue(0, print)
    assert home.queued() == []


def test_poll_after_the_root_moved(home: Home, tmp_path: Path) -> None:
    home.land("sub/a.json")
    home.land("b.json")
    assert home.poll() == 2
    home.ingest("b.json")
    os.rename(home.layout.root, tmp_path / "elsewhere")  # noqa: PTH104
    home = Home(tmp_path / "elsewhere")
    assert home.poll() == 0
    assert len(home.queued()) == 2
    home.land("c.json")
    assert home.poll() == 1


@pytest.mark.parametrize(
    ("files", "limit", "commits"), [(7, 3, [3, 3, 1]), (6, 3, [3, 3]), (3, 1, [1] * 3), (2, 9, [2])]
)
def test_enqueue_files_per_batch(home: Home, files: int, limit: int, commits: list[int]) -> None:
    home.change(max_files_per_trigger=limit)
    for number in range(files):
        home.land(f"{number}.json", age=100 - number)
    home.poll()
    assert [len(commit) for commit in home.commits()] == commits
    assert home.names() == [f"{number}.json" for number in range(files)]


@pytest.mark.parametrize(
    ("sizes", "limit", "commits"),
    [
        ([40, 40, 40], 100, [2, 1]),
        ([50, 50, 50], 100, [2, 1]),
        ([500, 10, 10], 100, [1, 2]),  # a file above the limit is a batch of its own
        ([10, 500, 10], 100, [1, 1, 1]),
        ([0, 0, 0, 100], 100, [4]),
    ],
)
def test_enqueue_bytes_per_batch(
    home: Home, sizes: list[int], limit: int, commits: list[int]
) -> None:
    home.change(max_bytes_per_trigger=limit)
    for number, size in enumerate(sizes):
        home.land(f"{number}.json", "x" * size, age=100 - number)
    home.poll()
    assert [len(commit) for commit in home.commits()] == commits


def test_enqueue_counts_compressed_files_eight_times(home: Home) -> None:
    home.change(max_bytes_per_trigger=1000)
    for number, size in enumerate((75, 75, 40, 40, 40)):
        home.land(f"{number}.json.gz", "x" * size, age=100 - number)
    home.poll()
    assert [len(commit) for commit in home.commits()] == [1, 2, 2]


def test_backlog(home: Home) -> None:
    home.change(quiet_period=Duration.parse("1 minute"))
    home.land("queued.json", "x" * 10, age=200)
    gone = home.land("gone.json", "x" * 10, age=200)
    home.poll()
    gone.unlink()
    home.land("new.json", "x" * 20, age=100)
    home.land("growing.json", "x" * 40, age=1)
    home.land(".hidden.json", "x" * 80, age=100)
    home.land("ingested.json", "x" * 160, age=300)
    home.poll()
    home.ingest("ingested.json", "new.json")
    home.land("later.json", "x" * 320, age=100)
    home.land("queued.json", "x" * 25, age=150)  # changed, and counted once
    sizes = {Path(entry.path).name: entry.size for entry in home.backlog()}
    assert sizes == {"queued.json": 25, "later.json": 320}


def test_backfill_request_of_a_missing_folder(home: Home, tmp_path: Path) -> None:
    backfill.request_backfill(home.config, "activity", tmp_path / "old")
    assert [home.poll(), home.poll()] == [0, 0]
    (line,) = home.messages
    assert str(tmp_path / "old") in line


def test_backfill_request_completed_concurrently(home: Home, tmp_path: Path) -> None:
    """`medallion status` reads requests while a stream enqueues their files."""
    (tmp_path / "old").mkdir()
    backfill.request_backfill(home.config, "activity", tmp_path / "old")
    gone = home.layout.journal / "backfill-0.json"
    gone.local.symlink_to(tmp_path / "gone.json")  # listed but not readable
    (request,) = journal.read_entries(home.config, Backfill)
    assert request.arguments == Backfill("activity", str(tmp_path / "old"))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"path": 7}', '"\\u001b[2J"'])
def test_backfill_request_invalid(home: Home, text: str) -> None:
    (home.layout.journal / "backfill-a.json").write_atomic(text)
    with pytest.raises(MedallionError, match=r"a\.json is damaged .* request the backfill again"):
        home.poll()


def test_backfill_folder_is_listed_once_it_can_be(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is gone by then."""
    old = tmp_path / "old"
    (old / "deep").mkdir(parents=True)
    for file in (old / "a.json", old / "deep/b.json"):
        file.write_text("{}")
    listed = files.list_entries

    def fail(directory: str) -> files.Entries:
        if directory == str(old / "deep"):
            raise OSError(5, "Input/output error")
        return listed(directory)

    backfill.request_backfill(home.config, "activity", old)
    with monkeypatch.context() as patch:
        patch.setattr(files, "list_entries", fail)
        assert [home.poll(), home.poll()] == [1, 0]
    assert home.poll() == 1
    states = {Path(path).name: state for (path, _), state in home.states().items()}
    assert states == {"a.json": "pending", "b.json": "pending", "deep": "vanished"}


def test_backfill_request_of_a_path_that_cannot_be_inspected(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is reported, and the request does not count as one of a missing path."""
    old = tmp_path / "old"
    old.mkdir()
    (old / "a.json").write_text("{}")
    backfill.request_backfill(home.config, "activity", old)

    def failing(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def fail(path: object) -> Any:
            if Path(str(path)) == old:
                raise OSError(5, "Input/output error")
            return function(path)

        return fail

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", failing(os.lstat))
        patch.setattr(files, "list_entries", failing(files.list_entries))
        assert home.poll() == 0
    assert "no longer exists" not in "".join(home.messages)
    assert home.poll() == 1

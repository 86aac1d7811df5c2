"""Backfills beside a stream, without Spark: files that wait, change, are hidden or vanish."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from medallion.cli.render_tables import backfill_text
from medallion.config.values import Duration
from medallion.errors import UsageError
from medallion.runtime import backfill as module
from medallion.runtime.backfill import BackfillResult, run_backfill
from medallion.state.ledger import State
from medallion.storage import locks
from medallion.storage.text import Reporter
from tests.support.home import Home, set_age

_PATIENCE = 60.0


@pytest.fixture
def old(tmp_path: Path) -> Path:
    (tmp_path / "old").mkdir()
    return tmp_path / "old"


def land(folder: Path, name: str, text: str = "{}\n", age: float = 3600) -> Path:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return set_age(file, age)


def poll_and_ingest(home: Home) -> None:
    """Poll and ingest, as a stream does between two checks of the backfill, without reading."""
    home.poll()
    home.ingest(*[e.path for e in home.ledger().values() if e.state == State.PENDING and not e.why])


def backfill_beside(
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
    path: Path,
    *steps: Callable[[], Any],
    report: Reporter = lambda _: None,
) -> BackfillResult:
    """Run a backfill beside a process that does these steps; the last one repeats."""
    remaining, started = list(steps), time.monotonic()

    def sleep(_: float) -> None:
        assert time.monotonic() - started < _PATIENCE, "the command hangs"
        (remaining.pop(0) if len(remaining) > 1 else remaining[0])()

    monkeypatch.setattr(locks, "lock_holder", lambda *_: "medallion stream, pid 1")
    # Replace the name in this module only: other threads also sleep, and must not run steps.
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=sleep))
    return run_backfill(home.config, home.source.name, path, report)


def test_backfill_reports_a_growing_file(
    home: Home, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.change(quiet_period=Duration.parse("5 minutes"))
    recent, file = land(old, "young.json", age=100), land(old, "a.json")
    result = backfill_beside(home, monkeypatch, old, lambda: poll_and_ingest(home))
    assert (result.files, result.new_files, result.rows, result.refused) == (2, 1, 1, ())
    (waiting,) = result.waiting
    assert waiting.path == str(recent)
    assert "5 minutes" in (waiting.why or "")
    assert not result.is_good
    assert f"  {recent}: pending: still being written" in backfill_text(result)
    assert "2 files: 1 ingested with 1 row, 0 known before or refused, 1 waiting" in (
        backfill_text(result)
    )
    assert [entry["path"] for entry in asdict(result)["waiting"]] == [str(recent)]
    set_age(recent, 301)
    assert home.poll() == 1
    assert home.names() == [str(file), str(recent)]


def test_backfill_waits_for_a_file_that_changed(
    home: Home, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = land(old, "a.json")
    result = backfill_beside(
        home,
        monkeypatch,
        old,
        lambda: land(old, "a.json", "{}\n{}\n"),
        home.poll,
        lambda: poll_and_ingest(home),
    )
    assert (result.files, result.new_files, result.waiting, result.is_good) == (1, 1, (), True)
    assert home.ledger()[str(file), 1].size == 6


def test_backfill_leaves_out_ignored_files(
    home: Home, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(old, "a.json")
    ignored = land(old, "b.json.part")
    result = backfill_beside(home, monkeypatch, old, lambda: poll_and_ingest(home))
    assert (result.files, result.new_files, result.is_good) == (1, 1, True)
    with pytest.raises(UsageError, match=r"b\.json\.part: files of this name are ignored"):
        run_backfill(home.config, "activity", ignored, lambda _: None)


def test_backfill_refuses_folders_of_the_source(home: Home) -> None:
    archived = home.layout.archive("activity").local
    for folder in (archived, home.landing):
        folder.mkdir(parents=True)
    root = home.layout.root.local
    for path in (root.parent, root, home.landing.parent, archived.parent):
        with pytest.raises(UsageError, match="it contains"):
            run_backfill(home.config, "activity", path, lambda _: None)
    with pytest.raises(UsageError, match="archived files are in bronze already"):
        run_backfill(home.config, "activity", archived, lambda _: None)


def test_backfill_refuses_an_address(home: Home) -> None:
    with pytest.raises(UsageError, match="s3://bucket/old: no root or folder is on s3://"):
        run_backfill(home.config, "activity", "s3://bucket/old", lambda _: None)


def test_backfill_reports_an_unsupported_name(
    home: Home, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(old, "a.json")
    Path(os.fsdecode(os.fsencode(old) + b"/\xff.json")).write_text("{}\n")
    result = backfill_beside(home, monkeypatch, old, lambda: poll_and_ingest(home))
    assert (result.files, result.new_files) == (2, 1)
    (waiting,) = result.waiting
    assert "UTF-8" in (waiting.why or "")
    assert not result.is_good


def test_backfill_reports_a_vanished_file(
    home: Home, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(old, "a.json")
    vanished = land(old, "b.json")
    result = backfill_beside(home, monkeypatch, old, vanished.unlink, lambda: poll_and_ingest(home))
    assert (result.files, result.new_files) == (2, 1)
    (refused,) = result.refused
    assert (refused.path, refused.state) == (str(vanished), "vanished")
    assert not result.is_good


def test_backfill_of_ingested_files_succeeds(
    home: Home, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(old, "a.json")
    result = backfill_beside(home, monkeypatch, old, lambda: poll_and_ingest(home))
    assert (result.files, result.new_files, result.rows, result.is_good) == (1, 1, 1, True)
    second = backfill_beside(home, monkeypatch, old, home.poll)
    assert (second.files, second.new_files, second.rows, second.is_good) == (1, 0, 0, True)


def test_backfill_of_a_link_to_a_folder(
    home: Home, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(old, "below/a.json")
    (old.parent / "link").symlink_to(old)
    first = backfill_beside(
        home, monkeypatch, old.parent / "link" / "below", lambda: poll_and_ingest(home)
    )
    assert (first.files, first.new_files, first.is_good) == (1, 1, True)
    monkeypatch.chdir(old.parent / "link")
    for path in (Path("below"), Path("below/a.json"), old):
        second = backfill_beside(home, monkeypatch, path, home.poll)
        assert (second.files, second.new_files, second.is_good) == (1, 0, True)
    assert list(home.states()) == [(str(old / "below" / "a.json"), 1)]


def test_backfill_of_landing_by_a_link(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.land("a.json")
    home.poll()
    home.ingest("a.json")
    (tmp_path / "link").symlink_to(home.layout.root)
    result = backfill_beside(
        home, monkeypatch, tmp_path / "link" / "landing" / "activity", home.poll
    )
    assert (result.files, result.new_files, result.is_good) == (1, 0, True)
    assert list(home.states()) == [("a.json", 1)]


def test_backfill_refuses_a_file_beside_the_pattern(
    home: Home, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in a directory is reported, and the others are ingested."""
    home.change(pattern="*.json")
    for name in ("a.json", "deep/b.csv", "deep/.c.csv"):
        land(old, name)
    messages: list[str] = []
    result = backfill_beside(
        home, monkeypatch, old, lambda: poll_and_ingest(home), report=messages.append
    )
    assert (result.files, result.new_files, result.is_good) == (1, 1, True)
    assert messages[0] == f"{old}: 1 file left out, whose names do not match *.json"
    with pytest.raises(UsageError, match=r"a\.csv: its name does not match \*\.json, the pattern"):
        run_backfill(home.config, "activity", land(old, "a.csv"), lambda _: None)


def test_backfill_refuses_a_table(home: Home) -> None:
    """Its rows would be ingested again, or its log would wait forever."""
    for name in ("bronze/activity", "_schemas"):
        (home.layout.root / name).local.mkdir(parents=True, exist_ok=True)
        with pytest.raises(UsageError, match="belongs to the lakehouse's own tables"):
            run_backfill(home.config, "activity", (home.layout.root / name).local, lambda _: None)


def test_backfill_leaves_reason_files_out(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejected files can be ingested again."""
    home.change(pattern="*")
    rejected = home.layout.rejected("activity") / "day"
    rejected.local.mkdir(parents=True)
    land(rejected.local, "a.json.reason.txt", "landing/activity/a.json: torn\n")
    land(rejected.local, "a.json")
    result = backfill_beside(
        home, monkeypatch, rejected.parent.local, lambda: poll_and_ingest(home)
    )
    assert (result.files, result.new_files, result.is_good) == (1, 1, True)
    assert list(home.states()) == [("rejected/activity/day/a.json", 1)]


def test_backfill_reports_errors_of_other_sources(
    home: Home, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing source of another format, such as a socket, does not fail the backfill."""
    land(old, "a.json")
    failing = "chat"

    def flows(layer: str) -> list[Any]:
        return [SimpleNamespace(name=f"{layer}.x", query=SimpleNamespace(sources=[failing]))]

    def run_flows(flows: list[Any]) -> list[Any]:
        layer = flows[0].name.removesuffix(".x")
        if layer == "bronze":
            poll_and_ingest(home)
        failed = UsageError(f"{layer}.{failing}: no")
        return [(flows[0], failed)] if layer != "gold" else []

    pipeline = SimpleNamespace(flows=flows, run_flows=run_flows, unblocked_flows=list)
    monkeypatch.setattr(module, "open_pipeline", lambda *_: nullcontext(pipeline))
    unbuilt: list[Any] = []
    monkeypatch.setattr("medallion.runtime.refresh.rebuild_pending", lambda *_: unbuilt)
    monkeypatch.setattr("medallion.runtime.refresh.rebuild_late", lambda *_: [])
    messages: list[str] = []
    result = run_backfill(home.config, "activity", old, messages.append)
    assert (result.new_files, result.is_good) == (1, True)
    assert messages == ["bronze.chat: no", "silver.chat: no"]
    failing = "activity"
    with pytest.raises(UsageError, match=r"^bronze.activity: no; silver.activity: no$"):
        run_backfill(home.config, "activity", old, messages.append)
    failing = "chat"
    flow = SimpleNamespace(name="gold.y", query=SimpleNamespace(sources=["activity"]))
    unbuilt = [(flow, UsageError("it cannot be rebuilt"))]
    with pytest.raises(UsageError, match=r"^it cannot be rebuilt$"):
        run_backfill(home.config, "activity", old, messages.append)

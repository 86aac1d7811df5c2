"""Files from anywhere, taken in once: by a process of its own, or by the stream that is on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from medallion.inspection.audit import audit
from medallion.lakehouse.layout import Layout
from tests.support.command import Cli
from tests.support.lakehouse import Lakehouse


def event(minute: int, number: int = 0) -> str:
    return json.dumps({"id": f"p{number}", "action": "open", "ts": f"2018-03-02T10:{minute:02}:00"})


def old_files(folder: Path) -> None:
    """Three files, a folder deep and from 1990, with five rows; one of them is no text."""
    (folder / "below").mkdir(parents=True)
    (folder / "a.json").write_text(f"{event(0)}\n{event(1)}\n")
    (folder / "below" / "b.json").write_text(f"{event(2)}\n\n{event(2)}\n{event(3)}\n")
    (folder / "c.json").write_bytes(b"\x89PNG\r\n")
    for file in folder.rglob("*.json"):
        os.utime(file, (631152000, 631152000))


def test_a_backfill_with_nothing_running(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    old_files(folder)
    done = cli("backfill", "event", str(folder), "--json")
    assert done.returncode == 1, done.stderr  # one file was refused
    found = json.loads(done.stdout)
    assert (found["files"], found["new_files"], found["rows"]) == (3, 2, 5)
    (refused,) = found["refused"]
    assert refused["path"] == str(folder / "c.json")
    assert "PNG" in refused["why"]
    # They are their owner's: each lies where it lay.
    assert sorted(f.name for f in folder.rglob("*.json")) == ["a.json", "b.json", "c.json"]
    again = cli("backfill", "event", str(folder / ".." / "elsewhere"), "--json")
    assert json.loads(again.stdout)["new_files"] == 0
    balance = cli.json("audit", "--deep")["sources"]["event"]
    assert balance["bronze_rows"] == 5
    assert (balance["silver_rows"], balance["duplicate_rows"]) == (4, 1)
    counts = cli.json("sql", "select sum(total_events) from gold.action_counts")["rows"]
    assert counts == [[4]]


@pytest.mark.parametrize(
    ("source", "path", "words"),
    [
        ("nothing", ".", "there is no source nothing"),
        ("event", "no/such", "no such file or folder"),
    ],
)
def test_wrong_use(cli: Cli, source: str, path: str, words: str) -> None:
    done = cli("backfill", source, path)
    assert done.returncode == 2
    assert words in done.stderr


@contextmanager
def stream_on(cli: Cli) -> Iterator[subprocess.Popen[str]]:
    process = cli.start("stream", "--trigger", "1 second")
    try:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("on:"):
                break
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)


def test_a_backfill_beside_a_stream(cli: Cli, tmp_path: Path) -> None:
    """What it brings is late, and comes into silver all the same."""
    folder = tmp_path / "elsewhere"
    old_files(folder)
    landing = Layout(Path(cli.environment["MEDALLION_HOME"])).landing("event")
    landing.mkdir(parents=True)
    with stream_on(cli) as stream:
        # Hours later than what will be backfilled: silver's watermark passes it.
        for number, hour in enumerate((15, 18)):
            line = event(0).replace("T10", f"T{hour}")
            (landing / f"{number}.json").write_text(f"{line}\n")
            wait_for(cli, "silver.event", 1 + number)
        done = cli("backfill", "event", str(folder))
        assert done.returncode == 1
        assert "asked of medallion stream" in done.stdout
        assert "3 files: 2 taken in with 5 rows" in done.stdout
        wait_for(cli, "silver.event", 6)
        wait_for(cli, "ops.runs where late_rows > 0", 1)
        assert stream.poll() is None
    balance = cli.json("audit", "--deep")["sources"]["event"]
    assert balance["bronze_rows"] == 7
    assert (balance["silver_rows"], balance["late_rows"], balance["duplicate_rows"]) == (6, 4, 1)


def wait_for(cli: Cli, table: str, rows: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = cli("sql", f"select count(*) from {table}", "--json")
        if found.returncode == 0 and json.loads(found.stdout)["rows"][0][0] >= rows:
            return
        time.sleep(0.5)
    raise AssertionError(f"{table} did not come to have {rows} rows")


def test_a_request_that_was_cut_off_is_seen_to_by_the_next_run(lakehouse: Lakehouse) -> None:
    from medallion.sources.files import requests

    folder = lakehouse.root / "elsewhere"
    old_files(folder)
    requests.ask(lakehouse.config.layout, "event", folder)
    report = lakehouse.nightly()
    assert report.is_good, report
    assert report.balances["event"].bronze_rows == 5
    assert requests.waiting(lakehouse.config.layout, "event") == []
    assert audit(lakehouse.config, everything=True).findings == ()

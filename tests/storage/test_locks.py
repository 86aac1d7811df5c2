"""One writer process per layer, even if the lock file is deleted."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import IO

import pytest

from medallion.errors import UsageError
from medallion.storage import clock, locks
from medallion.storage.layout import Layout

HELD = ("silver", "publish")
HOLD_SCRIPT = """
import sys
from pathlib import Path
from typing import IO
from medallion.storage import locks
from medallion.storage.layout import Layout
with locks.lock_layers(Layout(Path(sys.argv[1])), ["silver", "publish"], "stream"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "lakehouse")


@contextmanager
def other_process(layout: Layout) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds the lock of silver."""
    command = [sys.executable, "-c", HOLD_SCRIPT, str(layout.root)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_layer_has_one_writer(layout: Layout) -> None:
    with other_process(layout) as process:
        named = rf"pid {process.pid} \(stream, since ([\d-]+ )?\d\d:\d\d UTC\)"
        message = f"silver of .* being written by {named}"
        with (
            pytest.raises(UsageError, match=message),
            locks.lock_layers(layout, ["bronze", "silver"], "nightly"),
        ):
            pass
        assert re.fullmatch(named, str(locks.lock_holder(layout, "silver")))
        assert locks.lock_holder(layout, "bronze") is None
        with locks.lock_layers(layout, ["bronze", "gold"], "run"):
            assert str(locks.lock_holder(layout, "gold")).startswith(f"pid {os.getpid()} (run, ")


def test_lock_layers_waits_for_a_shared_lock(layout: Layout) -> None:
    with locks.lock_layers(layout, ["silver"], "nightly"):
        pass
    with layout.lock("silver").local.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # as lock_holder does
        release = Timer(0.2, lambda: fcntl.flock(file, fcntl.LOCK_UN))
        release.start()
        with locks.lock_layers(layout, ["silver"], "nightly"):
            release.join()


def test_lock_layers_rejects_a_disk_without_locks(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locks.lock_layers(layout, ["silver"], "nightly"):
        pass

    def raise_no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", raise_no_locks)
    message = (
        r"silver/\.lock cannot be locked \(No locks available\), and concurrent runs could lose"
    )
    with pytest.raises(UsageError, match=message), locks.lock_layers(layout, ["silver"], "nightly"):
        pass
    with pytest.raises(UsageError, match=message):
        locks.lock_holder(layout, "silver")


def test_lock_layers_after_the_holder_was_killed(layout: Layout) -> None:
    with other_process(layout) as process:
        assert locks.killed_processes(layout, HELD) == []
        process.send_signal(signal.SIGKILL)
        process.wait()
        (killed,) = locks.killed_processes(layout, HELD)
        assert (killed.command, killed.pid) == ("stream", process.pid)
        with locks.lock_layers(layout, HELD, "nightly"):
            assert locks.killed_processes(layout, HELD) == []
        assert locks.killed_processes(layout, HELD) == []


def test_start_has_its_day_unless_it_is_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_micros", lambda: 86_400_000_000 + 1)
    assert locks.LockHolder("erase", 7, 86_400_000_000).start == "00:00 UTC"
    assert str(locks.LockHolder("erase", 7, 0)) == "pid 7 (erase, since 1970-01-01 00:00 UTC)"


def test_lock_of_an_earlier_release(layout: Layout) -> None:
    """It kept the file after a normal end."""
    with locks.lock_layers(layout, ["silver"], "nightly"):
        pass
    old = '{"command": "nightly", "pid": 1, "started": "2026-11-29T10:00:00Z"}'
    layout.lock("silver").local.write_text(old)
    assert locks.killed_processes(layout, HELD) == []
    with layout.lock("silver").local.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert locks.lock_holder(layout, "silver") == "another process"


def test_lock_layers_after_other_directories_are_deleted(layout: Layout) -> None:
    with other_process(layout):
        for folder in layout.root.local.glob("_*"):
            shutil.rmtree(folder)
        with (
            pytest.raises(UsageError, match="silver"),
            locks.lock_layers(layout, ["silver"], "nightly"),
        ):
            pass


def test_lock_file_deleted_between_open_and_lock(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, files = fcntl.flock, list[IO[str]]()

    def delete_and_lock(file: IO[str], operation: int) -> None:
        if not files:
            layout.lock("silver").local.unlink()
        files.append(file)
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", delete_and_lock)
    with locks.lock_layers(layout, ["silver"], "nightly"):
        monkeypatch.undo()
        assert len(files) == 2
        assert str(locks.lock_holder(layout, "silver")).startswith(f"pid {os.getpid()} (nightly, ")

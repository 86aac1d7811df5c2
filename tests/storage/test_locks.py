"""One writer a layer, whatever becomes of the file that says so."""

from __future__ import annotations

import errno
import fcntl
import os
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
from medallion.storage import locks
from medallion.storage.paths import Layout

HOLD = """
import sys
from pathlib import Path
from typing import IO
from medallion.storage import locks
from medallion.storage.paths import Layout
with locks.lock_layers(Layout(Path(sys.argv[1])), ["silver"], "stream"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "lakehouse")


@contextmanager
def another(layout: Layout) -> Iterator[subprocess.Popen[str]]:
    """A process that holds silver."""
    command = [sys.executable, "-c", HOLD, str(layout.root)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_layer_has_one_writer(layout: Layout) -> None:
    with another(layout) as process:
        told = rf"silver of .* written by medallion stream, pid {process.pid}, started 20\d\d-"
        with (
            pytest.raises(UsageError, match=told),
            locks.lock_layers(layout, ["bronze", "silver"], "nightly"),
        ):
            pass
        assert locks.lock_holder(layout, "silver") == f"medallion stream, pid {process.pid}"
        assert locks.lock_holder(layout, "bronze") is None  # what was held by then is free again
        with locks.lock_layers(layout, ["bronze", "gold"], "run"):
            assert locks.lock_holder(layout, "gold") == f"medallion run, pid {os.getpid()}"


def test_an_onlooker_that_is_set_aside_while_it_looks_is_waited_for(layout: Layout) -> None:
    with locks.lock_layers(layout, ["silver"], "nightly"):
        pass
    with layout.lock("silver").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # as whoever asks for the holder does
        goes_on = Timer(1, lambda: fcntl.flock(file, fcntl.LOCK_UN))
        goes_on.start()
        with locks.lock_layers(layout, ["silver"], "nightly"):
            goes_on.join()


def test_a_disk_without_locks_is_told(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    with locks.lock_layers(layout, ["silver"], "nightly"):
        pass

    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    told = r"silver/\.lock cannot be locked \(No locks available\), and two runs at once could lose"
    with pytest.raises(UsageError, match=told), locks.lock_layers(layout, ["silver"], "nightly"):
        pass
    with pytest.raises(UsageError, match=told):
        locks.lock_holder(layout, "silver")
    with pytest.raises(UsageError, match="cannot be locked"), (layout.root / "state.json").lock():
        pass


def test_it_ends_with_the_process_however_that_ends(layout: Layout) -> None:
    with another(layout) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with locks.lock_layers(layout, ["silver"], "nightly"):
            pass


def test_a_folder_of_locks_that_is_deleted_admits_nobody(layout: Layout) -> None:
    """Whoever tidies up takes what looks like leftovers, and not the tables."""
    with another(layout):
        for folder in layout.root.glob("_*"):
            shutil.rmtree(folder)
        with (
            pytest.raises(UsageError, match="silver"),
            locks.lock_layers(layout, ["silver"], "nightly"),
        ):
            pass


def test_a_lock_that_is_deleted_between_its_opening_and_its_taking(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that is locked then has no name, and the next process would lock another one."""
    flock, files = fcntl.flock, list[IO[str]]()

    def deleted_first(file: IO[str], how: int) -> None:
        if not files:
            layout.lock("silver").unlink()
        files.append(file)
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", deleted_first)
    with locks.lock_layers(layout, ["silver"], "nightly"):
        monkeypatch.undo()
        assert len(files) == 2
        assert locks.lock_holder(layout, "silver") == f"medallion nightly, pid {os.getpid()}"

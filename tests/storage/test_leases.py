"""Leases: one holder at a time, also across machines, and an heir of a holder that has ended."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from medallion.errors import MedallionError, UsageError
from medallion.storage import leases, locks
from medallion.storage.layout import Layout
from medallion.storage.paths import ObjectPath
from tests.support.fault_proxy import FaultProxy, lost_answer, refused
from tests.support.s3_server import Bucket

HOLD = """
import sys, time
from medallion.storage import locks
from medallion.storage.layout import Layout
with locks.lock_layers(Layout(sys.argv[1]), ["bronze"], "nightly"):
    print("held", flush=True)
    time.sleep(100)
"""


@pytest.fixture
def layout(bucket: Bucket) -> Layout:
    return Layout(bucket.url("lake"))


@pytest.fixture
def directory(layout: Layout) -> ObjectPath:
    path = layout.lock("bronze")
    assert isinstance(path, ObjectPath)
    return path


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each process look like one of another machine, and leases expire after two seconds."""
    monkeypatch.setattr(leases, "_process", lambda _: [])
    monkeypatch.setattr(leases, "SECONDS", 2)


@pytest.fixture
def other(layout: Layout) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds the lease of bronze."""
    command = [sys.executable, "-c", HOLD, str(layout.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_lease_is_held_and_released(layout: Layout, bucket: Bucket) -> None:
    for _ in range(5):
        with locks.lock_layers(layout, ["bronze", "silver"], "nightly"):
            locks.check_locks()
            assert locks.is_held_here(layout, "bronze")
            holder = locks.lock_holder(layout, "bronze") or ""
            assert re.fullmatch(rf"pid {os.getpid()} on .+ \(nightly, since .+ UTC\)", holder)
            with (
                pytest.raises(UsageError, match=r"bronze of .* is being written by pid "),
                locks.lock_layers(layout, ["bronze"], "run bronze"),
            ):
                pass
        assert locks.lock_holder(layout, "bronze") is None
        assert not locks.is_held_here(layout, "bronze")
    assert bucket.keys("lake/bronze") == [f"lake/bronze/.lock/{n:010}.json" for n in (3, 4, 5)]


def test_killed_holder_is_succeeded_at_once(layout: Layout, other: subprocess.Popen[str]) -> None:
    assert locks.lock_holder(layout, "bronze")
    with pytest.raises(UsageError, match=rf"pid {other.pid} on .*, since "):
        locks.lock_layers(layout, ["bronze"], "nightly").__enter__()
    assert locks.killed_processes(layout, ["bronze"]) == []
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    start = time.monotonic()
    assert [killed.pid for killed in locks.killed_processes(layout, ["bronze"])] == [other.pid]
    with locks.lock_layers(layout, ["bronze"], "nightly"):
        assert time.monotonic() - start < 5
    assert locks.lock_holder(layout, "bronze") is None
    assert locks.killed_processes(layout, ["bronze"]) == []


@pytest.mark.usefixtures("elsewhere")
def test_holder_elsewhere_keeps_its_lease(directory: ObjectPath) -> None:
    """Its beats distinguish it from one that has ended."""
    lease = leases.take(directory, {"command": "stream"})
    with pytest.raises(leases.HeldError):
        leases.take(directory, {"command": "nightly"})
    assert leases.inspect(directory)[0]
    lease.check()
    lease.release()
    leases.take(directory, {"command": "nightly"}).release()


@pytest.mark.usefixtures("elsewhere")
def test_suspended_holder_is_succeeded_and_finds_out(
    directory: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = leases.take(directory, {"command": "stream"})
    with monkeypatch.context() as patch:
        patch.setattr(leases.Lease, "_write", lambda *_, **__: None)  # no beat
        heir = leases.take(directory, {"command": "nightly"})
        with pytest.raises(MedallionError, match="bronze: another process may write it"):
            lease.check()
    before = (directory / "0000000002.json").read()
    lease.release()
    with pytest.raises(MedallionError):
        lease.check()
    heir.check()
    assert json.loads((directory / "0000000002.json").read())["id"] == json.loads(before)["id"]
    assert not json.loads((directory / "0000000001.json").read())["released"]
    heir.release()


@pytest.mark.parametrize("status", [0, 500])
def test_lost_answer_is_no_lost_race(directory: ObjectPath, proxy: FaultProxy, status: int) -> None:
    with proxy.inject(lost_answer(status), "PUT"):
        lease = leases.take(directory, {"command": "nightly"})
    assert [path.name for path in directory.children()] == ["0000000001.json"]
    lease.release()


@pytest.mark.usefixtures("elsewhere")
def test_lease_outlives_a_failed_beat(
    directory: ObjectPath, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = leases.take(directory, {"command": "nightly"})
    with proxy.inject(refused(403), "LIST") as hits:
        while not hits:
            time.sleep(0.05)
    time.sleep(1)
    lease.check()
    lease.release()


def test_two_processes_never_hold_it_at_once(layout: Layout) -> None:
    """Four threads of others take turns; each adds one to a number without any other protection."""
    code = """
import sys, time
from medallion.storage import leases
from medallion.storage.paths import StoragePath
directory, number = StoragePath(sys.argv[1]), StoragePath(sys.argv[2])
done = 0
while done < 10:
    try:
        lease = leases.take(directory, {})
    except leases.HeldError:
        time.sleep(0.01)
        continue
    value = int(number.read())
    time.sleep(0.01)
    number.write_atomic(str(value + 1))
    lease.release()
    done += 1
"""
    number = layout.root / "number"
    number.write_atomic("0")
    command = [sys.executable, "-c", code, str(layout.lock("bronze")), str(number)]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0, 0]
    assert number.read() == b"40"


def test_stopped_process_is_not_succeeded_here(
    layout: Layout, other: subprocess.Popen[str]
) -> None:
    os.kill(other.pid, signal.SIGSTOP)
    with pytest.raises(UsageError, match=f"pid {other.pid}"):
        locks.lock_layers(layout, ["bronze"], "nightly").__enter__()
    os.kill(other.pid, signal.SIGCONT)


def test_old_leases_that_cannot_be_deleted_stop_nothing(layout: Layout, proxy: FaultProxy) -> None:
    for _ in range(4):
        with locks.lock_layers(layout, ["bronze"], "nightly"):
            pass
    with (
        proxy.inject(refused(403), "DELETE|POST") as hits,
        locks.lock_layers(layout, ["bronze"], "nightly"),
    ):
        assert hits
    with locks.lock_layers(layout, ["bronze"], "nightly"):
        pass

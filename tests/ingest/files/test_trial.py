"""A file is rejected for killing the engine only by the proof of a process that outlives it."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from medallion.ingest.files import trial
from medallion.ingest.files.batch import BatchContext
from medallion.ingest.files.source import FileSource
from medallion.ingest.files.trial import Groups, TrialProcess, TrialResult, find_crashing_files
from medallion.ingest.schema.evolution import Schema
from medallion.spark import signals
from tests.support.home import Home
from tests.support.lines import row

FILES = ("a", "b", "c", "d", "e")


class FakeChild:
    """Dies of some files, each time or a few times, and of too many at once."""

    def __init__(self, deaths: dict[str, int], most: int = 99) -> None:
        self.deaths, self.most, self.starts = dict(deaths), most, 0

    def __call__(self, groups: Groups) -> TrialResult:
        self.starts += 1
        for number, group in enumerate(groups):
            deadly = [path for path in group if self.deaths.get(path)]
            if deadly or len(group) > self.most:
                for path in deadly:
                    self.deaths[path] -= 1
                return TrialResult(number, True)
        return TrialResult(len(groups), False)


@pytest.mark.parametrize(
    ("deaths", "found", "starts"),
    [
        ({}, [], 1),
        ({"c": 99}, ["c"], 4),  # all, up to c, c again, and the rest
        ({"e": 99}, ["e"], 3),  # after e there is no rest
        ({"a": 99, "b": 99, "e": 99}, ["a", "b", "e"], 7),
        ({"a": 1, "d": 2}, [], 3),  # among all, and d once more alone
    ],
)
def test_killers_are_files_that_kill_twice_alone(
    deaths: dict[str, int], found: list[str], starts: int
) -> None:
    child = FakeChild(deaths)
    assert find_crashing_files(child, FILES) == found
    assert child.starts == starts


def test_killers_of_a_single_suspect() -> None:
    assert find_crashing_files(FakeChild({"a": 1}), ["a"]) == []
    assert find_crashing_files(FakeChild({"a": 2}), ["a"]) == ["a"]


def test_files_that_kill_only_together_are_no_killers() -> None:
    assert find_crashing_files(FakeChild({}, most=4), FILES) == []


def test_killers_found_before_a_child_that_proves_nothing() -> None:
    results = iter(
        [TrialResult(0, True), TrialResult(0, True), TrialResult(0, True), TrialResult(1, False)]
    )
    assert find_crashing_files(lambda _: next(results), FILES) == ["a"]


def child_of(monkeypatch: pytest.MonkeyPatch, home: Home, script: str) -> TrialProcess:
    """A child that runs this script in place of Spark."""
    context = SimpleNamespace(master="local[2]", getConf=lambda: SimpleNamespace(getAll=dict))
    spark: Any = SimpleNamespace(sparkContext=context)
    lines = f"import os, signal, sys, time, pickle\npickle.load(sys.stdin.buffer)\n{script}"
    monkeypatch.setattr(trial, "_COMMAND", (sys.executable, "-c", lines))
    return TrialProcess(spark, home.config, home.source, {}, home.layout.root / "trial")


STEPS = "os.write(1, b'...')\n"  # ready, and two groups read


@pytest.mark.parametrize(
    ("script", "result"),
    [
        (STEPS, TrialResult(2, False)),
        (f"{STEPS}sys.exit(1)", TrialResult(2, False)),
        (f"{STEPS}sys.exit(3)", TrialResult(2, True)),
        ("sys.exit(3)", TrialResult(0, False)),  # before it was ready: Java does not start
        (f"{STEPS}os.kill(os.getpid(), signal.SIGKILL)", TrialResult(2, False)),
        (f"{STEPS}os.kill(os.getpid(), signal.SIGTERM)", TrialResult(2, False)),
    ],
)
def test_end_of_a_child(
    monkeypatch: pytest.MonkeyPatch, home: Home, script: str, result: TrialResult
) -> None:
    assert child_of(monkeypatch, home, script)([["a"], ["b"], ["c"]]) == result


def test_child_that_hangs_is_ended_and_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, home: Home
) -> None:
    monkeypatch.setattr(trial, "_TIMEOUT_SECONDS", 1)
    started = time.monotonic()
    assert not child_of(monkeypatch, home, f"{STEPS}time.sleep(99)")([["a"]]).is_crash
    assert time.monotonic() - started < 30


def test_child_ends_with_a_signal_to_its_parent(
    monkeypatch: pytest.MonkeyPatch, home: Home
) -> None:
    child = child_of(monkeypatch, home, f"{STEPS}time.sleep(99)")
    started = time.monotonic()
    with signals.defer_signals():
        signal.raise_signal(signal.SIGTERM)
        assert not child([["a"]]).is_crash
    assert time.monotonic() - started < 30


def files_of(spark: SparkSession, home: Home) -> FileSource:
    schema = Schema(home.config, home.source)
    return FileSource(spark, home.config, home.source, schema, home.said.append)


def leave_mark(monkeypatch: pytest.MonkeyPatch, files: FileSource) -> None:
    """Leave the mark of a process that dies while it reads all that waits."""
    files.poll()
    with monkeypatch.context() as patch, suppress(Py4JError):
        patch.setattr(trial, "spark_responds", lambda _: False)
        with files.context.attempts.marked(list(files.ledger.newest_entries())):
            raise Py4JError("Answer from Java side is empty")


def read(files: FileSource) -> int:
    """The rows of all files that wait."""
    counts = [0]
    files.poll()
    files.sample_batch().read(lambda rows: counts.append(rows.count()), "a test")
    return counts[-1]


def test_file_that_kills_a_real_engine_is_rejected(
    spark: SparkSession, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of 150 MB in a heap of 600 MB; the other file of its batch is read."""
    home.change(max_line_bytes=2**28)
    home.landing.mkdir(parents=True)
    with gzip.open(home.landing / "vast.json.gz", "wt") as file:
        file.write(f'{{"Device": "{"a" * 150_000_000}"}}\n')
    leave_mark(monkeypatch, files_of(spark, home))
    home.land("healthy.json", "".join(f"{row(n)}\n" for n in range(400)))
    files = files_of(spark, home)
    child = files.context.trial_process()
    assert isinstance(child, TrialProcess)
    child.settings["spark.driver.memory"] = "600m"
    monkeypatch.setattr(BatchContext, "trial_process", lambda _: child)
    assert read(files) == 400
    entry = home.ledger()["vast.json.gz", 1]
    assert (entry.state, entry.why) == ("rejected", trial.CRASH_REASON)
    assert entry.moved_to == "rejected/activity/vast.json.gz"
    assert home.states()["healthy.json", 1] == "pending"
    assert not child._folder.local.exists()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_child_ends_once_its_parent_is_killed(tmp_path: Path) -> None:
    """SIGKILL leaves the parent no time to end it, nor the Java that it has started."""
    note = tmp_path / "pid"
    script = f"""
import os, pathlib, signal, subprocess, sys, threading, time
from medallion.ingest.files import trial
threading.Thread(target=trial._end_with_input, daemon=True).start()
java = subprocess.Popen(["sleep", "99"])
pathlib.Path({str(note)!r}).write_text(f"{{os.getpid()}} {{java.pid}} ")
time.sleep(99)
"""
    parent = f"""
import subprocess, sys, time
script = {script!r}
subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, start_new_session=True)
time.sleep(99)
"""
    process = subprocess.Popen([sys.executable, "-c", parent])
    try:
        wait_for(lambda: note.exists() and note.read_text().endswith(" "))
    finally:
        process.kill()
        process.wait()
    pids = [int(pid) for pid in note.read_text().split()]
    wait_for(lambda: not any(map(is_running, pids)))


def is_running(pid: int) -> bool:
    """Whether a process is there, and no zombie that nobody has waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"

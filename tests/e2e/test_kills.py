"""Runs that are killed from outside, and a file that kills them."""

from __future__ import annotations

import gzip
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from medallion.spark import checkpoints
from medallion.storage.paths import Layout
from tests.support.command import Cli
from tests.support.lakehouse import rows_of


def is_marked(root: Path) -> bool:
    checkpoint = Layout(root).checkpoint("bronze.event")
    return checkpoints.read_document(checkpoint, "reading") is not None


def land(root: Path) -> list[str]:
    """A file of 400 rows; their devices."""
    devices = [f"phone{number}" for number in range(400)]
    lines = [{"id": id_, "action": "open", "ts": "2018-03-02T10:00:00"} for id_ in devices]
    landing = root / "landing/event"
    landing.mkdir(parents=True)
    (landing / "a.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return sorted(devices)


def kill_when(cli: Cli, is_time: Callable[[str], bool], log: Path) -> None:
    """Start a nightly run, and kill its process group once it is time by what it has printed."""
    with log.open("w") as file:
        night = cli.start("nightly", stdout=file, stderr=file, start_new_session=True)
    deadline = time.monotonic() + 300
    while not is_time(log.read_text()):
        assert night.poll() is None, log.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(night.pid, signal.SIGKILL)
    night.wait()


def processes_of(root: Path) -> list[str]:
    """The processes that work on a lakehouse, by their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"MEDALLION_HOME={root}\0".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_kills_while_a_file_is_read_cost_no_row(cli: Cli, tmp_path: Path, kills: int) -> None:
    """A run is killed while it reads the file, and later ones while their child does."""
    root, log = tmp_path / "lakehouse", tmp_path / "log"
    cli.about(tmp_path / "conf", "event", small=True)
    devices = land(root)
    kill_when(cli, lambda _: is_marked(root), log)
    for _ in range(kills):
        kill_when(cli, lambda said: "a child reads them first" in said, log)
        deadline = time.monotonic() + 30
        while left := processes_of(root):
            assert time.monotonic() < deadline, left
            time.sleep(0.1)
    done = cli("nightly")
    assert done.returncode == 0, done.stderr
    assert [device for (device,) in rows_of(root / "silver/event", "device")] == devices
    assert not (root / "rejected").exists()
    assert not is_marked(root)
    assert "medallion.ingest" not in done.stdout + done.stderr


@pytest.mark.slow
def test_file_that_kills_java_is_rejected_by_the_next_run(cli: Cli, tmp_path: Path) -> None:
    """A line of 150 MB in a heap of 600 MB."""
    root, conf = tmp_path / "lakehouse", tmp_path / "conf"
    cli.about(conf, "event", small=True)
    with (conf / "spark/spark-defaults.conf").open("a") as settings:
        settings.write("spark.driver.memory 600m\n")
    pipeline = conf / "pipeline.yaml"
    text = pipeline.read_text().replace("event_time:", "max_line_bytes: 256 MiB\n    event_time:")
    pipeline.write_text(text)
    devices = land(root)
    with gzip.open(root / "landing/event/vast.json.gz", "wt") as file:
        file.write(f'{{"id": "{"a" * 150_000_000}"}}\n')
    runs = [cli("nightly") for _ in range(2)]
    assert runs[0].returncode != 0
    assert "vast.json.gz: rejected" in runs[1].stdout
    assert (root / "rejected/event/vast.json.gz").is_file()
    assert [device for (device,) in rows_of(root / "silver/event", "device")] == devices

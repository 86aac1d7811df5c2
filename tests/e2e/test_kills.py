"""Runs as processes: one that ends well, one that is killed, and a file that ends Java."""

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
from medallion.storage.layout import Layout
from tests.support.command import Cli
from tests.support.lakehouse import rows_of


def land(root: Path) -> list[str]:
    """Land a file of 400 rows; return their devices."""
    devices = [f"phone{number}" for number in range(400)]
    lines = [{"id": id_, "action": "open", "ts": "2018-03-02T10:00:00"} for id_ in devices]
    landing = root / "landing/event"
    landing.mkdir(parents=True)
    (landing / "a.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return sorted(devices)


def kill_when(cli: Cli, condition: Callable[[str], bool], log: Path) -> None:
    """Start a nightly run, and kill its process group once its output meets a condition."""
    with log.open("w") as file:
        process = cli.start("nightly", stdout=file, stderr=file, start_new_session=True)
    deadline = time.monotonic() + 300
    while not condition(log.read_text()):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def check_nightly(cli: Cli, devices: list[str]) -> None:
    """Check that a nightly run as a process moves these rows to silver, and ends well."""
    root = cli.lakehouse.root
    result = cli("nightly")
    assert result.returncode == 0, result.stderr
    assert "\nbalanced\n" in result.stdout
    assert [device for (device,) in rows_of(root / "silver/event", "device")] == devices
    assert not (root / "rejected").exists()


def test_nightly_run_as_a_process(cli: Cli, tmp_path: Path) -> None:
    cli.lakehouse.keep_only("event", to=tmp_path)
    cli.write_spark_settings(small=True)
    check_nightly(cli, land(tmp_path / "lakehouse"))


@pytest.mark.slow  # tests of batches and locks interrupt them in this process
def test_kill_while_a_file_is_read_costs_no_row(cli: Cli, tmp_path: Path) -> None:
    root, log = tmp_path / "lakehouse", tmp_path / "log"
    cli.lakehouse.keep_only("event", to=tmp_path)
    cli.write_spark_settings(small=True)
    devices = land(root)
    checkpoint = Layout(root).checkpoint("bronze.event")
    kill_when(cli, lambda _: checkpoints.last_planned(checkpoint) == 0, log)
    check_nightly(cli, devices)


@pytest.mark.slow
def test_file_that_ends_java_is_named(cli: Cli, tmp_path: Path) -> None:
    """A line of 150 MB in a heap of 600 MB; without it, the next run reads the other file."""
    root, conf = tmp_path / "lakehouse", tmp_path / "conf"
    cli.lakehouse.keep_only("event", to=tmp_path)
    cli.write_spark_settings(small=True)
    with (conf / "spark/spark-defaults.conf").open("a") as settings:
        settings.write("spark.driver.memory 600m\n")
    pipeline = conf / "pipeline.yaml"
    text = pipeline.read_text().replace("event_time:", "max_line_bytes: 256 MiB\n    event_time:")
    pipeline.write_text(text)
    devices = land(root)
    huge = root / "landing/event/vast.json.gz"
    with gzip.open(huge, "wt") as file:
        file.write(f'{{"id": "{"a" * 150_000_000}"}}\n')
    run = cli("nightly")
    assert run.returncode != 0
    assert "Java ended while it read landing/event/a.json and 1 more" in run.stdout
    huge.unlink()
    run = cli("nightly")
    assert "gone" in run.stdout
    assert [device for (device,) in rows_of(root / "silver/event", "device")] == devices

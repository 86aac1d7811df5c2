"""The commands and the jobs as processes: the same tables, clean ends, and exit statuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from medallion.config.loader import load
from medallion.errors import MedallionError
from medallion.factory import DataFactory, Landed
from medallion.inspect.audit import run_audit
from medallion.sql import engine
from medallion.storage import locks
from medallion.storage.paths import Layout, StoragePath
from tests.support import PROJECT
from tests.support.command import Cli
from tests.support.lakehouse import Lakehouse
from tests.support.old_files import old_files

SPARK_SUBMIT = Path(sys.executable).parent / "spark-submit"
SOURCES = ("activity", "event")
TABLES = (
    *(f"{layer}.{source}" for layer in ("silver", "quarantine") for source in SOURCES),
    *(f"gold.{n}" for n in ("device_counts", "device_totals", "action_counts", "user_activity")),
)
# When and where a row was read, which two roots cannot share.
OWN_TO_A_ROOT = {"_ingested_at", "_source_file"}


def content(cli: Cli, table: str) -> list[str]:
    """A table's rows as text, in order, by the command."""
    found = cli.json("sql", f"select * from {table}")
    columns = [n for n, name in enumerate(found["columns"]) if name not in OWN_TO_A_ROOT]
    return sorted(json.dumps([row[n] for n in columns]) for row in found["rows"])


def submit(cli: Cli, job: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SPARK_SUBMIT), "--conf", "spark.sql.shuffle.partitions=3", f"jobs/{job}.py"],
        env=cli.environment,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.slow
def test_jobs_by_spark_submit_equal_nightly(cli: Cli, tmp_path: Path) -> None:
    landed = cli.json("land", "--dirty", "--rows", "400", "--seed", "5")
    other = Cli(tmp_path / "other")
    # Modification times are copied as well.
    shutil.copytree(tmp_path / "lakehouse/landing", tmp_path / "other/landing")
    for job in ("bronze", "silver", "gold"):
        done = submit(cli, job)
        assert done.returncode == 0, done.stderr
    checkpoint = StoragePath(tmp_path / "lakehouse/_checkpoints/silver.event")
    offsets = (checkpoint / "offsets/0").read().splitlines()
    kept = json.loads(offsets[1])["conf"]
    assert kept["spark.sql.shuffle.partitions"] == "3"  # and not what the project's file has
    assert other.json("nightly")["ok"]
    for table in TABLES:
        rows = content(cli, table)
        assert rows, table
        assert rows == content(other, table), table
    audits = [each.json("audit") for each in (cli, other)]
    assert audits[0] == audits[1]
    assert audits[0]["balanced"]
    assert {s: audits[0]["sources"][s]["landed_lines"] for s in SOURCES} == {
        s: landed[s]["lines"] for s in SOURCES
    }


def in_gold(root: Path) -> int:
    """The events that gold counts; 0 before there is a table."""
    try:
        asked = engine.query(str(root), "select sum(total_events) from gold.action_counts")
    except MedallionError:
        return 0
    return int(asked.rows[0][0] or 0)


def await_gold(root: Path, process: subprocess.Popen[str], landed: Landed) -> None:
    """Wait until gold counts all that has landed."""
    expected = landed.expected_silver
    deadline = time.monotonic() + 300  # seconds on an idle machine, minutes on a crowded one
    while in_gold(root) != expected:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, (in_gold(root), expected)
        time.sleep(0.5)


def interrupt_a_night(cli: Cli) -> None:
    """By Ctrl-C, once it has something to do."""
    night = cli.start("nightly", start_new_session=True)
    assert night.stdout
    while not night.stdout.readline().startswith("session"):
        assert night.poll() is None
    os.killpg(night.pid, signal.SIGINT)
    out, err = night.communicate(timeout=60)
    assert (night.returncode, err.splitlines()[-1]) == (
        130,
        "medallion: interrupted; the next run resumes from here.",
    )
    assert "Traceback" not in err
    assert "balance" not in out


# Five rows, one of them there twice; they are older than all others, so each is late.
BACKFILLED = Landed(lines=5, duplicates=1)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_stream_a_backfill_beside_it_and_a_night(
    cli: Cli, lakehouse: Lakehouse, tmp_path: Path, number: int
) -> None:
    """The stream ingests the backfill's files beside what lands, and ends cleanly.

    The nightly run resumes from there; the next one has nothing to do but to name the file that was
    rejected, and its output goes nowhere.
    """
    root, conf = lakehouse.root, tmp_path / "conf"
    cli.keep_only(conf, "event", "action_counts", small=number == signal.SIGTERM)
    # The same settings, by which the last night knows that there is nothing to do.
    lakehouse.config = load({"MEDALLION_CONF": str(conf), "MEDALLION_HOME": str(root)}, PROJECT)

    factory = DataFactory(root / "landing", seed=7, dirty=True)

    def land() -> Landed:
        return factory.land(rows=300, source="event")["event"]

    process = cli.start("stream", "--trigger", "1 seconds", start_new_session=True)
    try:
        landed = land()
        await_gold(root, process, landed)
        landed += land()  # late rows and repeats of the first among them
        await_gold(root, process, landed)
        old_files(tmp_path / "elsewhere")
        done = cli("backfill", "event", str(tmp_path / "elsewhere"))
        assert done.returncode == 1, done.stderr  # one file was refused
        assert "requested from medallion stream" in done.stdout
        assert "3 files: 2 ingested with 5 rows" in done.stdout
        landed += BACKFILLED
        await_gold(root, process, landed)
        beside = run_audit(lakehouse.config)  # the stream has not ended
        assert (beside.is_balanced, beside.notes) == (True, ())
        assert beside.balances["event"].late_rows >= 4
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does for Ctrl-C
        else:
            process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, err
    assert out.splitlines()[-1] == "stopped: the next run resumes from here"
    assert "Traceback" not in err

    landed += land()
    interrupt_a_night(cli)
    assert lakehouse.nightly().is_good
    assert in_gold(root) == landed.expected_silver
    read, write = os.pipe()
    os.close(read)  # as `medallion nightly | true` does: the status is that of the night
    night = cli.start("nightly", stdout=write)
    os.close(write)
    _, err = night.communicate(timeout=600)
    assert night.returncode == 1, err
    assert "rejected: " in err
    assert "c.json: not text: a PNG picture" in err
    runs = lakehouse.rows("ops.runs", "command", "kind", "state")
    assert {command for command, kind, _ in runs if kind != "run"} == {"stream", "test"}
    assert ("nightly", "run", "idle") in runs  # which had nothing to do
    found = cli.json("audit")
    assert found["balanced"]
    figures = {
        "landed_lines": "lines",
        "bronze_rows": "lines",
        "silver_rows": "expected_silver",
        "quarantined_rows": "expected_quarantined",
        "duplicate_rows": "duplicates",
    }
    balance = {ours: found["sources"]["event"][ours] for ours in figures}
    assert balance == {ours: getattr(landed, theirs) for ours, theirs in figures.items()}


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence of a command that was wrongly used."""
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("medallion: ")]
    assert len(told) == 1, done.stderr
    assert done.stderr.splitlines()[-1] == told[0]
    return told[0]


def test_second_nightly_names_who_holds_the_lock(cli: Cli, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "lakehouse")
    with locks.lock_layers(layout, ["bronze"], "stream"):
        started = json.loads(layout.lock("bronze").local.read_text())["started"]
        told = refused(cli("nightly"))
    assert f"pid {os.getpid()}, started {started}" in told
    assert "medallion stream" in told


def test_an_expectation_that_nobody_has(cli: Cli) -> None:
    done = cli("nightly", "--accept", "typo")
    assert "--accept typo: no suite has" in refused(done)
    assert "session" not in done.stdout  # told before Spark starts


def test_a_job_of_gold_before_silver(cli: Cli) -> None:
    """Submitted to Spark, whose exit status is the job's."""
    done = submit(cli, "gold")
    assert done.returncode == 2, done
    # The launcher hands on what a job says on both its streams as one.
    (told,) = (line for line in done.stdout.splitlines() if line.startswith("medallion: "))
    assert "silver." in told
    assert "run medallion run silver first" in told

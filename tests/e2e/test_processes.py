"""Commands and jobs as processes: the same tables, clean ends, and exit statuses.

One quick test runs the stream in this process; test_kills runs batches as processes.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from medallion.cli import main
from medallion.errors import MedallionError
from medallion.factory import DataFactory, Landed
from medallion.inspect.audit import run_audit
from medallion.runtime import backfill
from medallion.runtime.stream import Stream, run_stream
from medallion.sql import engine
from medallion.state import journal
from medallion.state.journal import Backfill
from medallion.storage import locks
from medallion.storage.layout import Layout
from medallion.storage.paths import StoragePath
from tests.support import PROJECT
from tests.support.command import Cli
from tests.support.lakehouse import Lakehouse
from tests.support.lines import event
from tests.support.old_files import old_files

SPARK_SUBMIT = Path(sys.executable).parent / "spark-submit"
SOURCES = ("activity", "event")
TABLES = (
    *(f"{layer}.{source}" for layer in ("silver", "quarantine") for source in SOURCES),
    *(f"gold.{n}" for n in ("device_counts", "device_totals", "action_counts", "user_activity")),
)
# Time and file of ingestion differ between two roots.
ROOT_SPECIFIC = {"_ingested_at", "_source_file"}


def content(cli: Cli, table: str) -> list[str]:
    """Return a table's rows as sorted strings, read by the command."""
    result = cli.json("sql", f"select * from {table}")
    columns = [n for n, name in enumerate(result["columns"]) if name not in ROOT_SPECIFIC]
    return sorted(json.dumps([row[n] for n in columns]) for row in result["rows"])


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
    other = Cli(Lakehouse(None, tmp_path / "other"))
    # This copies modification times as well.
    shutil.copytree(tmp_path / "lakehouse/landing", tmp_path / "other/landing")
    for job in ("bronze", "silver", "gold"):
        result = submit(cli, job)
        assert result.returncode == 0, result.stderr
    checkpoint = StoragePath(tmp_path / "lakehouse/_checkpoints/silver.event")
    offsets = (checkpoint / "offsets/0").read().splitlines()
    conf_of_batch = json.loads(offsets[1])["conf"]
    # The value of --conf, not that of the project's file.
    assert conf_of_batch["spark.sql.shuffle.partitions"] == "3"
    assert other.json("nightly")["ok"]
    for table in TABLES:
        rows = content(cli, table)
        assert rows, table
        assert rows == content(other, table), table
    audits = [cli_.json("audit") for cli_ in (cli, other)]
    assert audits[0] == audits[1]
    assert audits[0]["balanced"]
    assert {s: audits[0]["sources"][s]["landed_lines"] for s in SOURCES} == {
        s: landed[s]["lines"] for s in SOURCES
    }


def gold_count(root: Path) -> int:
    """Return the number of events that gold counts; 0 before the table exists."""
    try:
        result = engine.query(str(root), "select sum(total_events) from gold.action_counts")
    except MedallionError:
        return 0
    return int(result.rows[0][0] or 0)


def await_gold(root: Path, process: subprocess.Popen[str], landed: Landed) -> None:
    """Wait until gold counts all landed rows."""
    expected = landed.expected_silver
    deadline = time.monotonic() + 300  # seconds on an idle machine, minutes on a busy one
    while gold_count(root) != expected:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, (gold_count(root), expected)
        time.sleep(0.5)


def interrupt_nightly(cli: Cli) -> None:
    """Interrupt a nightly run by Ctrl-C once it has work."""
    nightly = cli.start("nightly", start_new_session=True)
    assert nightly.stdout
    while not nightly.stdout.readline().startswith("session"):
        assert nightly.poll() is None
    os.killpg(nightly.pid, signal.SIGINT)
    out, err = nightly.communicate(timeout=60)
    assert (nightly.returncode, err.splitlines()[-1]) == (
        130,
        "medallion: interrupted; the next run resumes from here.",
    )
    assert "Traceback" not in err
    assert "balance" not in out


# Five rows, one of them twice; they are older than all others, so each is late.
BACKFILLED = Landed(lines=5, duplicates=1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stream_backfill_and_nightly(lakehouse: Lakehouse, tmp_path: Path, number: int) -> None:
    """The stream ingests the backfill's files beside landed ones, and ends cleanly.

    The nightly run resumes from there. The next one is idle and only reports the rejected file;
    its output goes to a closed pipe.
    """
    root, cli = lakehouse.root, Cli(lakehouse)
    # With the same settings the last nightly run knows that there is nothing to do.
    lakehouse.keep_only("event", "action_counts", to=tmp_path)
    cli.write_spark_settings(small=number == signal.SIGTERM)

    factory = DataFactory(root / "landing", seed=7, dirty=True)

    def land() -> Landed:
        return factory.land(rows=300, source="event")["event"]

    process = cli.start("stream", "--trigger", "1 seconds", start_new_session=True)
    try:
        landed = land()
        await_gold(root, process, landed)
        landed += land()  # includes late rows and repeats of the first ones
        await_gold(root, process, landed)
        old_files(tmp_path / "elsewhere")
        result = cli("backfill", "event", str(tmp_path / "elsewhere"))
        assert result.returncode == 1, result.stderr  # one file was refused
        assert f"requested from pid {process.pid} (stream, since " in result.stdout
        assert "3 files: 2 ingested with 5 rows" in result.stdout
        landed += BACKFILLED
        await_gold(root, process, landed)
        audit_of_stream = run_audit(lakehouse.config)  # the stream is still running
        assert (audit_of_stream.is_balanced, audit_of_stream.notes) == (True, ())
        assert audit_of_stream.balances["event"].late_rows >= 4
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
    interrupt_nightly(cli)
    assert lakehouse.nightly().is_good
    assert gold_count(root) == landed.expected_silver
    read, write = os.pipe()
    os.close(read)  # as `medallion nightly | true` does: the exit status is that of the run
    nightly = cli.start("nightly", stdout=write)
    os.close(write)
    _, err = nightly.communicate(timeout=600)
    assert nightly.returncode == 1, err
    assert "rejected: " in err
    assert "c.json: not text: a PNG picture" in err
    runs = lakehouse.rows("ops.runs", "command", "kind", "state")
    assert {command for command, kind, _ in runs if kind != "run"} == {"stream", "test"}
    assert ("nightly", "run", "idle") in runs  # it had nothing to do
    audit = cli.json("audit")
    assert audit["balanced"]
    figures = {
        "landed_lines": "lines",
        "bronze_rows": "lines",
        "silver_rows": "expected_silver",
        "quarantined_rows": "expected_quarantined",
        "duplicate_rows": "duplicates",
    }
    balance = {figure: audit["sources"]["event"][figure] for figure in figures}
    assert balance == {figure: getattr(landed, name) for figure, name in figures.items()}


@pytest.mark.usefixtures("production_streams")
def test_stream_ingests_a_backfill_until_sigterm(
    lakehouse: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream ingests files that land, and those of a backfill, and ends after its batches."""
    lakehouse.keep_only("event", "action_counts")
    lakehouse.land("event", "0.json", event("13:00:00"), event("13:01:00", action="close"))
    old_files(tmp_path / "elsewhere")
    layout, messages = lakehouse.config.layout, list[str]()
    pipeline = lakehouse.pipeline()
    pipeline.report = messages.append
    deadline, step = time.monotonic() + 120, Stream.step

    def step_and_land(stream: Stream) -> None:
        step(stream)
        assert time.monotonic() < deadline, stream.failures
        requests = journal.read_entries(lakehouse.config, Backfill)
        if gold_count(layout.root.local) == 2 and not requests:
            backfill.request_backfill(lakehouse.config, "event", tmp_path / "elsewhere")
        if gold_count(layout.root.local) == 2 + 4:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Stream, "step", step_and_land)
    run_stream(pipeline, ["bronze", "silver", "gold"], "1 second")
    assert messages[-1] == "stopped: the next run resumes from here"
    assert not lakehouse.spark.streams.active
    # Four rows of the backfill and a duplicate: they are hours older, so each is late.
    audit = run_audit(lakehouse.config)
    assert audit.is_balanced
    balance = audit.balances["event"]
    assert (balance.bronze_rows, balance.silver_rows, balance.duplicate_rows) == (7, 6, 1)
    assert balance.late_rows == 4
    recorded = lakehouse.rows("ops.runs", "command", "query")
    assert {query for _, query in recorded} >= {"bronze.event", "silver.event"}


@pytest.mark.parametrize(
    ("job", "arguments"),
    [(layer, ["run", layer]) for layer in ("bronze", "silver", "gold", "publish")]
    + [("nightly", ["nightly"])],
)
def test_job_runs_its_command(
    job: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job submitted to Spark has the command's exit status."""
    commands: list[list[str]] = []

    def run(command: list[str]) -> int:
        commands.append(command)
        return 2

    monkeypatch.setattr(main, "main", run)
    monkeypatch.setattr(sys, "argv", [f"{job}.py", "--debug"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(PROJECT / f"jobs/{job}.py"), run_name="__main__")
    assert (commands, end.value.code) == ([[*arguments, "--debug"]], 2)


def test_gold_before_silver_is_refused(lakehouse: Lakehouse) -> None:
    lakehouse.keep_only("event", "action_counts")
    message = r"silver\..* run medallion run silver first"
    with pytest.raises(MedallionError, match=message) as error:
        lakehouse.fill("gold")
    assert error.value.exit_status == 2


def refused_message(result: subprocess.CompletedProcess[str]) -> str:
    """Return the one-line error of a command that is refused."""
    assert result.returncode == 2, result
    assert "Traceback" not in result.stderr
    messages = [line for line in result.stderr.splitlines() if line.startswith("medallion: ")]
    assert len(messages) == 1, result.stderr
    assert result.stderr.splitlines()[-1] == messages[0]
    return messages[0]


def test_second_nightly_names_the_lock_holder(cli: Cli, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "lakehouse")
    with locks.lock_layers(layout, ["bronze"], "stream"):
        message = refused_message(cli("nightly"))
    assert f"is being written by pid {os.getpid()} (stream, since " in message


def test_nightly_unknown_expectation_is_refused(cli: Cli) -> None:
    result = cli("nightly", "--accept", "typo")
    assert "--accept typo: no suite has" in refused_message(result)
    assert "session" not in result.stdout  # reported before Spark starts


@pytest.mark.slow
def test_gold_job_before_silver_is_refused(cli: Cli) -> None:
    """A job submitted to Spark has the job's exit status."""
    result = submit(cli, "gold")
    assert result.returncode == 2, result
    # The launcher writes both streams of a job to one.
    lines = [line for line in result.stdout.splitlines() if line.startswith("medallion: ")]
    advice = "does not exist yet: run medallion run silver first."
    assert sorted(lines) == [f"medallion: silver.{source} {advice}" for source in SOURCES]

"""The sample files give the published counts, and runs without new input need no Spark."""

from __future__ import annotations

import os
import re
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

import medallion
from medallion.cli import main
from medallion.config.queries import query_names
from medallion.errors import MedallionError
from medallion.inspect.overview import take_overview
from medallion.layers.flow import Flow
from medallion.runtime.nightly import Nightly
from medallion.runtime.outcome import GateResult
from tests.support import PROJECT
from tests.support.command import Cli
from tests.support.lakehouse import Lakehouse
from tests.support.runs import ends_idle

SOURCES, GOLD = ("activity", "event"), ("device_counts", "action_counts")


@pytest.fixture(scope="module")
def samples(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """Return a lakehouse after one nightly run over the sample files."""
    folder = tmp_path_factory.mktemp("samples")
    lakehouse = Lakehouse(spark, folder / "lakehouse")
    lakehouse.keep_only(*SOURCES, *GOLD, to=folder)
    lakehouse.land_sample("activity", "sample.json")
    lakehouse.land_sample("event", "file1.json", "file2.json", "file3.json")
    report = lakehouse.nightly()
    assert report.is_good, report
    return lakehouse


@pytest.fixture
def lakehouse(samples: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lakehouse:
    """Return a copy that commands of this process use."""
    lakehouse = samples.copy(tmp_path / "lakehouse")
    for name, value in lakehouse.environment.items():
        monkeypatch.setenv(name, value)
    return lakehouse


def test_queries_for_analysts_have_rows(samples: Lakehouse) -> None:
    page = (PROJECT / "docs/analysts.md").read_text(encoding="utf-8")
    queries = re.findall(r"^```sql\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    rows = [len(medallion.query(samples.root, query).rows) for query in queries]
    assert (len(rows), min(rows)) == (10, 1), rows


def test_samples_give_the_published_counts(samples: Lakehouse) -> None:
    window = ("2015-02-23 10:10:00", "2015-02-23 10:20:00")
    assert samples.rows("gold.device_counts") == [
        (*window, "nexus4_1", 1),
        (*window, "nexus4_2", 9),
    ]
    # The files have four lines, and two each.
    assert samples.rows("gold.action_counts", "window_start", "action", "total_events") == [
        ("2018-03-02 10:00:00", "close", 3),
        ("2018-03-02 10:00:00", "open", 4),
        ("2018-03-02 10:10:00", "open", 1),
    ]


def test_overview_of_the_samples(samples: Lakehouse) -> None:
    """This is the content of `medallion report`."""
    overview = take_overview(samples.config)
    assert overview.audit.is_balanced
    first = {table.table: sorted(row[2:] for row in table.first.rows) for table in overview.gold}
    assert first["gold.device_counts"] == [("nexus4_1", 1), ("nexus4_2", 9)]
    assert overview.broken == {"activity": {}, "event": {}}
    assert {gate.state for gate in overview.gates} == {"passed"}
    row_counts = {run.query: (run.rows_in, run.rows_out) for run in overview.runs}
    assert row_counts["silver.activity"] == (10, 10)


class NightlyRuns:
    """Nightly runs of the command that need no Spark."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self) -> tuple[int, str]:
        """Return the exit status and the verdict, if the tables are balanced."""
        status = main.main(["nightly"])
        out = self._capsys.readouterr().out
        assert "nothing is new" in out
        return status, "".join(line for line in out.splitlines() if line.startswith("balanced"))


@pytest.fixture
def nightly_runs(capsys: pytest.CaptureFixture[str]) -> NightlyRuns:
    return NightlyRuns(capsys)


def test_nightly_reports_a_rejected_file_once(
    lakehouse: Lakehouse, nightly_runs: NightlyRuns
) -> None:
    assert nightly_runs.run() == (0, "balanced")
    lakehouse.land("activity", "sample.json", '{"Index": 1}')  # the archived file's name
    assert nightly_runs.run() == (1, "")
    assert nightly_runs.run() == (0, "balanced, but rejected: activity")
    assert main.main(["files", "--dismiss", "sample.json"]) == 0
    nightly_runs._capsys.readouterr()
    assert nightly_runs.run() == (0, "balanced")


def test_nightly_reports_an_archived_file_once(
    lakehouse: Lakehouse, nightly_runs: NightlyRuns
) -> None:
    """The user has written the file after it was read."""
    archived = lakehouse.config.layout.archive("activity") / "sample.json"
    lines = archived.local.read_bytes()
    archived.local.write_bytes(lines + lines)
    assert main.main(["audit"]) == 1
    nightly_runs._capsys.readouterr()
    assert nightly_runs.run() == (1, "")
    assert nightly_runs.run() == (0, "balanced, but changed: activity")
    archived.local.write_bytes(lines)
    assert nightly_runs.run() == (0, "balanced")


def test_nightly_keeps_its_status_in_a_closed_pipe(lakehouse: Lakehouse) -> None:
    """As `medallion nightly | true` does."""
    lakehouse.land("activity", "sample.json", '{"Index": 1}')
    read, write = os.pipe()
    os.close(read)
    nightly = Cli(lakehouse).start("nightly", stdout=write)
    os.close(write)
    _, err = nightly.communicate(timeout=600)
    assert nightly.returncode == 1, err
    assert "rejected: " in err
    assert "Traceback" not in err


def test_idle_run_needs_no_spark(lakehouse: Lakehouse) -> None:
    """Any work starts it."""
    config, messages = lakehouse.config, list[str]()

    def is_idle() -> bool:
        return ends_idle(lakehouse.config, messages.append) is not None

    outcome = ends_idle(config, messages.append)
    assert outcome is not None
    assert outcome.is_good
    assert asdict(outcome.snapshot.balances["activity"]) == {
        "landed_lines": 10,
        "bronze_rows": 10,
        "silver_rows": 10,
        "quarantined_rows": 0,
        "duplicate_rows": 0,
        "late_rows": 0,
        "waiting_rows": 0,
        "rejected_files": 0,
        "superseded_rows": 0,
        "deleted_rows": 0,
        "erased_rows": 0,
    }
    activity = replace(config.sources["activity"], allow_overwrites=True)
    changed_config = replace(config, sources={**config.sources, "activity": activity})
    assert ends_idle(changed_config, messages.append) is None, "the files may have to be refused"
    commits = (config.layout.checkpoint("silver.activity") / "commits").local
    commits.rename(away := commits.with_name("away"))
    commits.mkdir()
    assert not is_idle(), "a batch was interrupted"
    commits.rmdir()
    away.rename(commits)
    assert is_idle()
    assert [m for m in messages if "format" not in m] == ["nothing is new"] * 2
    lakehouse.land("activity", "new.json", "{}")
    assert not is_idle(), "a file has landed"


def test_run_beside_a_damaged_table_has_its_report(lakehouse: Lakehouse) -> None:
    lakehouse.keep_only("activity", "device_counts")
    lakehouse.land("activity", "new.json", "{}")
    log = lakehouse.config.layout.table("quarantine.activity") / "_delta_log"
    newest = max(log.local.glob("*.json"))
    newest.write_bytes(b"")
    report = lakehouse.run_without_gates()
    (error,) = report.errors
    assert error.startswith(f"quarantine.activity: {newest} is corrupt or truncated")
    assert (report.snapshot.balances, report.exit_status) == ({}, 1)
    assert set(report.seconds) >= {"bronze", "silver", "gold", "maintain"}


def test_unexpected_error_hides_no_other_result(lakehouse: Lakehouse) -> None:
    """An unexpected error in one step is reported as a crash."""
    nightly = Nightly(lakehouse.pipeline())
    with patch.object(nightly, "_run_layers", side_effect=KeyError("x")):
        report = nightly.run()
    assert (report.errors, repr(report.crash)) == (["KeyError: 'x'"], "KeyError('x')")
    # Gates that fail with the same message all block their tables of gold.
    failed: Future[GateResult | None] = Future()
    failed.set_exception(MedallionError("no suites"))
    flows = [SimpleNamespace(targets=(f"silver.{source}",)) for source in SOURCES]
    nightly._await_gates([(cast(Flow, flow), failed) for flow in flows])
    assert nightly.left_out == {*query_names(lakehouse.config, ["gold"])} != set()
    assert report.snapshot.balances["activity"].bronze_rows == 10

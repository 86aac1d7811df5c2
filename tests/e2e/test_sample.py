"""The sample files give the published counts; tests/notebooks has those of events."""

from __future__ import annotations

import shutil
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import patch

import yaml

from medallion.config.queries import query_names
from medallion.errors import MedallionError
from medallion.inspect.overview import take_overview
from medallion.layers.flow import Flow
from medallion.runtime.nightly import Nightly
from medallion.runtime.outcome import GateResult
from medallion.runtime.planner import end_if_idle
from tests.support import PROJECT
from tests.support.command import Cli
from tests.support.lakehouse import Lakehouse


def test_all_activity_samples_reach_gold(lakehouse: Lakehouse, tmp_path: Path) -> None:
    lakehouse.keep_only("activity", "device_counts", "device_totals")
    lakehouse.land_sample("activity", "sample.json")
    assert lakehouse.nightly().is_good
    window = ("2015-02-23 10:10:00", "2015-02-23 10:20:00")
    assert lakehouse.rows("gold.device_counts") == [
        (*window, "nexus4_1", 1),
        (*window, "nexus4_2", 9),
    ]
    assert lakehouse.rows("gold.device_totals") == [("nexus4_1", 1), ("nexus4_2", 9)]
    _check_overview(lakehouse)
    _check_dismissed_files(lakehouse, tmp_path)
    _check_idle_run(lakehouse)
    _check_damaged_table(lakehouse)
    _check_unexpected_error(lakehouse)


def _check_overview(lakehouse: Lakehouse) -> None:
    """Check the content of `medallion report`."""
    overview = take_overview(lakehouse.config)
    assert overview.audit.is_balanced
    first = {table.table: table.first.rows for table in overview.gold}
    assert first["gold.device_totals"] == [("nexus4_1", 1), ("nexus4_2", 9)]
    assert overview.broken == {"activity": {}}
    assert {gate.state for gate in overview.gates} == {"passed"}
    row_counts = {run.query: (run.rows_in, run.rows_out) for run in overview.runs}
    assert row_counts["silver.activity"] == (10, 10)


def _check_dismissed_files(lakehouse: Lakehouse, tmp_path: Path) -> None:
    """Run the command as a process, without Spark, and check its exit status."""
    shutil.copytree(PROJECT / "conf", tmp_path / "conf")
    file = tmp_path / "conf/pipeline.yaml"
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    for part in ("sources", "gold"):
        configured = getattr(lakehouse.config, part)
        document[part] = {
            name: section for name, section in document[part].items() if name in configured
        }
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    cli = Cli(lakehouse.root)
    cli.environment["MEDALLION_CONF"] = str(tmp_path / "conf")

    def run_nightly() -> tuple[int, str]:
        process = cli("nightly")
        assert "nothing is new" in process.stdout, process.stderr  # without Spark
        verdicts = [line for line in process.stdout.splitlines() if line.startswith("balanced")]
        return process.returncode, "".join(verdicts)

    assert run_nightly() == (0, "balanced")
    lakehouse.land("activity", "sample.json", '{"Index": 1}')  # the archived file's name
    assert run_nightly() == (1, "")
    assert run_nightly() == (0, "balanced, but 1 file was rejected:")
    assert cli("files", "--dismiss", "sample.json").returncode == 0
    assert run_nightly() == (0, "balanced")
    (lakehouse.config.layout.landing("activity") / "sample.json").local.unlink()

    archived = lakehouse.config.layout.archive("activity") / "sample.json"
    lines = archived.local.read_bytes()
    archived.local.write_bytes(lines + lines)
    assert cli("audit").returncode == 1
    assert run_nightly() == (1, "")
    assert run_nightly() == (0, "balanced, but 1 archived file was written after it was read:")
    archived.local.write_bytes(lines)
    assert run_nightly() == (0, "balanced")


def _check_idle_run(lakehouse: Lakehouse) -> None:
    """A run without new input needs no Spark; any work starts it."""
    config, messages = lakehouse.config, list[str]()

    def is_idle() -> bool:
        return end_if_idle(lakehouse.config, "test", messages.append) is not None

    outcome = end_if_idle(config, "test", messages.append)
    assert outcome is not None
    assert outcome.is_good
    assert asdict(outcome.balances["activity"]) == {
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
    changed_sources = {"activity": replace(config.sources["activity"], allow_overwrites=True)}
    changed_config = replace(config, sources=changed_sources)
    assert end_if_idle(changed_config, "test", messages.append) is None, (
        "the files may have to be refused"
    )
    commit = config.layout.checkpoint("silver.activity") / "commits" / "0"
    moved = commit.local.rename(commit.local.with_name("away"))
    (commit.local.with_name("1")).rename(commit.local.with_name("away1"))
    assert not is_idle(), "a batch was interrupted"
    moved.rename(commit)
    commit.local.with_name("away1").rename(commit.local.with_name("1"))
    assert is_idle()
    assert messages == ["nothing is new"] * 2
    lakehouse.land("activity", "new.json", "{}")
    assert not is_idle(), "a file has landed"


def _check_damaged_table(lakehouse: Lakehouse) -> None:
    """A run beside a damaged table still has its report."""
    log = lakehouse.config.layout.table("quarantine.activity") / "_delta_log"
    newest = max(log.local.glob("*.json"))
    content = newest.read_bytes()
    newest.write_bytes(b"")
    report = lakehouse.run_without_gates()
    (error,) = report.errors
    assert error.startswith(f"quarantine.activity: {newest} is corrupt or truncated")
    assert (report.balances, report.exit_status) == ({}, 1)
    assert set(report.seconds) >= {"bronze", "silver", "gold", "maintain"}
    newest.write_bytes(content)


def _check_unexpected_error(lakehouse: Lakehouse) -> None:
    """An unexpected error in one step is reported as a crash, and hides no other result."""
    nightly = Nightly(lakehouse.pipeline())
    with patch.object(nightly, "_run_layers", side_effect=KeyError("x")):
        report = nightly.run()
    assert (report.errors, repr(report.crash)) == (["KeyError: 'x'"], "KeyError('x')")
    # Gates that fail with the same message all block their tables of gold.
    failed: Future[GateResult | None] = Future()
    failed.set_exception(MedallionError("no suites"))
    sources = ("activity", "event")
    flows = [SimpleNamespace(targets=(f"silver.{source}",)) for source in sources]
    nightly._await_gates([(cast(Flow, flow), failed) for flow in flows])
    assert nightly.left_out == {*query_names(lakehouse.config, ["gold"])} != set()
    assert report.balances["activity"].bronze_rows == 11

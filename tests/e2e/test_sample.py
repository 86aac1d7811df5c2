"""The sample files give the counts that the contract publishes; the events': tests/notebooks."""

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
    _is_on_the_page(lakehouse)
    _names_files_until_they_are_dismissed(lakehouse, tmp_path)
    _goes_idle(lakehouse)
    _tells_what_is_damaged(lakehouse)
    _tells_what_nobody_foresaw(lakehouse)


def _is_on_the_page(lakehouse: Lakehouse) -> None:
    """What `medallion report` shows."""
    found = take_overview(lakehouse.config)
    assert found.audit.is_balanced
    first = {each.table: each.first.rows for each in found.gold}
    assert first["gold.device_totals"] == [("nexus4_1", 1), ("nexus4_2", 9)]
    assert found.broken == {"activity": {}}
    assert {gate.state for gate in found.gates} == {"passed"}
    in_and_out = {run.query: (run.rows_in, run.rows_out) for run in found.runs}
    assert in_and_out["silver.activity"] == (10, 10)


def _names_files_until_they_are_dismissed(lakehouse: Lakehouse, tmp_path: Path) -> None:
    """By the command as a process: runs that need no Spark, and their exit status."""
    shutil.copytree(PROJECT / "conf", tmp_path / "conf")
    file = tmp_path / "conf/pipeline.yaml"
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    for part in ("sources", "gold"):
        known = getattr(lakehouse.config, part)
        document[part] = {name: it for name, it in document[part].items() if name in known}
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    cli = Cli(lakehouse.root)
    cli.environment["MEDALLION_CONF"] = str(tmp_path / "conf")

    def night() -> tuple[int, str]:
        done = cli("nightly")
        assert "nothing is new" in done.stdout, done.stderr  # without Spark
        verdicts = [line for line in done.stdout.splitlines() if line.startswith("balanced")]
        return done.returncode, "".join(verdicts)

    assert night() == (0, "balanced")
    lakehouse.land("activity", "sample.json", '{"Index": 1}')  # the archived file's name
    assert night() == (1, "")
    assert night() == (0, "balanced, but 1 file was rejected:")
    assert cli("files", "--dismiss", "sample.json").returncode == 0
    assert night() == (0, "balanced")
    (lakehouse.config.layout.landing("activity") / "sample.json").local.unlink()

    archived = lakehouse.config.layout.archive("activity") / "sample.json"
    lines = archived.local.read_bytes()
    archived.local.write_bytes(lines + lines)
    assert cli("audit").returncode == 1
    assert night() == (1, "")
    assert night() == (0, "balanced, but 1 archived file was written after it was read:")
    archived.local.write_bytes(lines)
    assert night() == (0, "balanced")


def _goes_idle(lakehouse: Lakehouse) -> None:
    """A night with nothing new is known without Spark; anything to do starts one all the same."""
    config, told = lakehouse.config, list[str]()

    def is_idle() -> bool:
        return end_if_idle(lakehouse.config, "test", told.append) is not None

    found = end_if_idle(config, "test", told.append)
    assert found is not None
    assert found.is_good
    assert asdict(found.balances["activity"]) == {
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
    other = {"activity": replace(config.sources["activity"], allow_overwrites=True)}
    other_config = replace(config, sources=other)
    assert end_if_idle(other_config, "test", told.append) is None, "they may have to be refused"
    commit = config.layout.checkpoint("silver.activity") / "commits" / "0"
    away = commit.local.rename(commit.local.with_name("away"))
    (commit.local.with_name("1")).rename(commit.local.with_name("away1"))
    assert not is_idle(), "a batch was cut off"
    away.rename(commit)
    commit.local.with_name("away1").rename(commit.local.with_name("1"))
    assert is_idle()
    assert told == ["nothing is new"] * 2
    lakehouse.land("activity", "new.json", "{}")
    assert not is_idle(), "a file has come"


def _tells_what_is_damaged(lakehouse: Lakehouse) -> None:
    """A night beside a damaged table: its report is there all the same."""
    log = lakehouse.config.layout.table("quarantine.activity") / "_delta_log"
    newest = max(log.local.glob("*.json"))
    whole = newest.read_bytes()
    newest.write_bytes(b"")
    report = lakehouse.run_without_gates()
    (told,) = report.errors
    assert told.startswith(f"quarantine.activity: {newest} is corrupt or truncated")
    assert (report.balances, report.exit_status) == ({}, 1)
    assert set(report.seconds) >= {"bronze", "silver", "gold", "maintain"}
    newest.write_bytes(whole)


def _tells_what_nobody_foresaw(lakehouse: Lakehouse) -> None:
    """A fault of ours in one step is told as a crash, and hides nothing of the others."""
    nightly = Nightly(lakehouse.pipeline())
    with patch.object(nightly, "_run_layers", side_effect=KeyError("x")):
        report = nightly.run()
    assert (report.errors, repr(report.crash)) == (["KeyError: 'x'"], "KeyError('x')")
    # Gates that fail of the same, in the same words, all keep their rows from gold.
    failed: Future[GateResult | None] = Future()
    failed.set_exception(MedallionError("no suites"))
    sources = ("activity", "event")
    flows = [SimpleNamespace(targets=(f"silver.{source}",)) for source in sources]
    nightly._await_gates([(cast(Flow, flow), failed) for flow in flows])
    assert nightly.left_out == {*query_names(lakehouse.config, ["gold"])} != set()
    assert report.balances["activity"].bronze_rows == 11

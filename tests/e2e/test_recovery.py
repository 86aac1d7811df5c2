"""Runs interrupted before their record, and audits of tables changed by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import Observation, SparkSession

from medallion.cli.render_runs import audit_json, audit_text
from medallion.inspect.audit import run_audit
from medallion.layers.bronze import writer
from medallion.layers.silver import writer as silver_writer
from medallion.runtime import refresh
from medallion.runtime.recorder import record_flows
from medallion.spark.watch import await_all
from tests.support.batches import without_queries
from tests.support.lakehouse import Lakehouse, start_flows
from tests.support.lines import event, recording
from tests.support.three_nights import BY_HAND, DEVICES, FIRST, NAME, RECORDINGS, SECOND, THIRD

SOURCES = RECORDINGS | {"gold": {}}


@pytest.fixture
def lakehouse(lakehouse: Lakehouse, tmp_path: Path) -> Lakehouse:
    lakehouse.configure(tmp_path, SOURCES)
    return lakehouse


@pytest.fixture(scope="module")
def first_run(
    production_streams: None, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Lakehouse:
    folder = tmp_path_factory.mktemp("recovery")
    lakehouse = Lakehouse(spark, folder / "lakehouse")
    lakehouse.configure(folder, SOURCES)
    lakehouse.land(NAME, "0.json", *FIRST)
    lakehouse.fill("bronze", "silver")
    return lakehouse


@pytest.fixture
def after_first(first_run: Lakehouse, tmp_path: Path) -> Lakehouse:
    """Return a copy of the lakehouse after its first run."""
    return first_run.copy(tmp_path / "lakehouse")


def run_without_record(lakehouse: Lakehouse, *layers: str) -> None:
    """Run queries, but kill the process before their figures are recorded."""
    for layer in layers:
        with without_queries():  # of bronze
            started = start_flows(lakehouse.pipeline(), layer)
            await_all(flow.started_run for flow in started)


def table_of(lakehouse: Lakehouse, name: str) -> str:
    return str(lakehouse.config.layout.table(name))


def test_audit_finds_repeated_and_lost_rows(spark: SparkSession, tmp_path: Path) -> None:
    lakehouse = Lakehouse(spark, tmp_path / "lakehouse")
    lakehouse.keep_only("activity", "event")
    lakehouse.land("activity", "once.json", recording("10:00:00"), recording("10:00:01"))
    lakehouse.land("event", "whole.json", event("10:02:33", None))
    lakehouse.land("event", "with loss.json", event("10:02:34"), event("10:02:35"))
    lakehouse.fill("bronze", "silver")
    silver = DeltaTable(table_of(lakehouse, "silver.activity"))
    write_deltalake(silver, silver.to_pyarrow_table(), mode="append")
    audit = run_audit(lakehouse.config)
    assert not audit.is_balanced
    balance = audit.balances["activity"]
    assert (balance.landed_lines, balance.bronze_rows, balance.silver_rows) == (2, 2, 4)
    assert audit.balances["event"].is_balanced
    assert "NOT BALANCED" in audit_text(audit)
    lost = "ts = '2018-03-02T10:02:35Z'"
    DeltaTable(table_of(lakehouse, "bronze.event")).delete(lost)
    audit = run_audit(lakehouse.config)
    assert audit.balances["event"].bronze_rows == 2
    (message,) = (finding for finding in audit.findings if "with loss.json has 2 lines" in finding)
    assert message.endswith("2 lines, 2 rows in the ledger and 1 in bronze.")
    assert not any("whole.json" in finding for finding in audit.findings)
    assert audit_json(audit)["balanced"] is False


LOST = "recorded_at = '2015-02-23T10:00:01Z'"


def test_lost_row_is_no_duplicate(lakehouse: Lakehouse) -> None:
    """The record of a batch is lost, and one of its rows from silver."""
    lakehouse.land(NAME, "0.json", *FIRST)
    run_without_record(lakehouse, "bronze", "silver")
    DeltaTable(table_of(lakehouse, "silver.recordings")).delete(LOST)
    report = lakehouse.run_without_gates()
    balance = report.snapshot.balances[NAME]
    assert (report.is_good, balance.is_balanced, balance.duplicate_rows) == (False, False, 1)


@pytest.mark.slow  # test_refresh rebuilds silver from bronze, with its counts
def test_refresh_restores_a_lost_row(after_first: Lakehouse) -> None:
    lakehouse = after_first
    DeltaTable(table_of(lakehouse, "silver.recordings")).delete(LOST)
    assert not run_audit(lakehouse.config).is_balanced
    refresh.refresh_table(lakehouse.pipeline(), "silver.recordings")
    audit = run_audit(lakehouse.config)
    assert (audit.findings, audit.is_balanced) == ((), True)
    assert audit.balances[NAME].duplicate_rows == 1


class Twice(Observation):
    """Counts rows twice, as a cluster does that computes a part a second time."""

    @property
    def get(self) -> dict[str, Any]:
        return {name: 2 * value for name, value in super().get.items()}


def test_double_counts_of_the_engine_are_corrected(
    after_first: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakehouse = after_first
    lakehouse.land(NAME, "1.json", *SECOND)
    monkeypatch.setattr(writer, "Observation", Twice)
    monkeypatch.setattr(silver_writer, "Observation", Twice)
    lakehouse.fill("bronze")
    waiting = run_audit(lakehouse.config)  # rows wait for silver, which is no loss
    assert waiting.is_balanced
    assert waiting.balances[NAME].waiting_rows == len(SECOND)
    pipeline = lakehouse.pipeline()
    (flow,) = start_flows(pipeline, "silver")
    await_all([flow.started_run])
    assert record_flows(pipeline.runs, [flow]) == {}
    # By hand: 6 and 8 lines; 4 and 3 rows of silver, 1 and 1 of quarantine, 1 and 4 duplicates.
    figures = {"landed_lines": 14, "bronze_rows": 14, "silver_rows": 7, "duplicate_rows": 5}
    assert run_audit(lakehouse.config).balances[NAME] == replace(BY_HAND, **figures, late_rows=2)


@pytest.mark.usefixtures("production_streams")
def test_interrupted_runs_are_recorded_by_the_next(lakehouse: Lakehouse) -> None:
    """One run is interrupted while it records: silver has the late rows, the record has not."""
    for number, lines in enumerate((FIRST, SECOND)):
        lakehouse.land(NAME, f"{number}.json", *lines)
        run_without_record(lakehouse, "bronze", "silver")
    interrupted = run_audit(lakehouse.config)
    assert not interrupted.is_balanced
    message = "\n".join(interrupted.findings)
    assert "bronze.recordings: a run was interrupted" in message
    assert "silver.recordings: a run was interrupted" in message
    started = start_flows(lakehouse.pipeline(), "silver")
    await_all(flow.started_run for flow in started)
    for flow in started:
        flow.finish_batches(-1)
    assert not run_audit(lakehouse.config).is_balanced
    lakehouse.land(NAME, "2.json", *THIRD)
    lakehouse.fill("bronze", "silver")
    audit = run_audit(lakehouse.config)
    assert (audit.findings, audit.is_balanced) == ((), True)
    assert audit.balances[NAME] == BY_HAND
    keys = lakehouse.rows("silver.recordings", "device", "user_id", "recorded_at")
    assert set(Counter(keys).values()) == {1}
    assert sorted(Counter(device for device, *_ in keys).items()) == DEVICES

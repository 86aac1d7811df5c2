"""Runs that were cut off before their record, and what audit says of tables changed by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import Observation, SparkSession

from medallion.cli.render_runs import audit_json, audit_text
from medallion.config.loader import load
from medallion.errors import MedallionError
from medallion.inspect.audit import run_audit
from medallion.layers.bronze import writer
from medallion.layers.silver import late
from medallion.runtime import refresh
from medallion.runtime.recorder import record_flows
from medallion.spark.watch import Watch
from tests.support import PROJECT
from tests.support.lakehouse import Lakehouse, start_flows
from tests.support.lines import event, recording
from tests.support.three_nights import BY_HAND, DEVICES, FIRST, SECOND, THIRD


@pytest.fixture
def lakehouse(lakehouse: Lakehouse) -> Lakehouse:
    lakehouse.keep_only("activity", "device_totals")
    return lakehouse


@pytest.fixture
def two_cut_off(lakehouse: Lakehouse) -> Lakehouse:
    """Of two nights there is nothing on record."""
    for number, lines in enumerate((FIRST, SECOND)):
        lakehouse.land("activity", f"{number}.json", *lines)
        run_without_record(lakehouse, "bronze", "silver")
    return lakehouse


def run_without_record(lakehouse: Lakehouse, *layers: str) -> None:
    """Queries whose process is killed after they end, before their figures are on record."""
    for layer in layers:
        Watch(print).await_all(
            flow.started_run for flow in start_flows(lakehouse.pipeline(), layer)
        )


def table_of(lakehouse: Lakehouse, name: str) -> str:
    return str(lakehouse.config.layout.table(name))


def test_nights_that_were_cut_off_are_settled_by_the_next(two_cut_off: Lakehouse) -> None:
    """Also where one was cut off while it settled: silver has the late rows, the record has not."""
    lakehouse = two_cut_off
    cut_off = run_audit(lakehouse.config)
    assert not cut_off.is_balanced
    told = "\n".join(cut_off.findings)
    assert "bronze.activity: a run was interrupted" in told
    assert "silver.activity: a run was interrupted" in told
    first = lakehouse.config.layout.checkpoint("silver.activity") / "offsets/0"
    plan = first.local.read_bytes()
    first.local.unlink()  # Spark keeps a hundred batches
    with pytest.raises(MedallionError, match=r"medallion refresh silver\.activity"):
        lakehouse.fill("silver")
    first.local.write_bytes(plan)

    killed = lakehouse.pipeline()
    started = start_flows(killed, "silver")
    Watch(print).await_all(flow.started_run for flow in started)
    for flow in started:
        flow.finish_batches(-1)
    assert not run_audit(lakehouse.config).is_balanced
    lakehouse.land("activity", "2.json", *THIRD)
    report = lakehouse.run_without_gates()
    assert report.is_good, report
    assert report.balances["activity"] == BY_HAND
    found = run_audit(lakehouse.config)
    assert (found.findings, found.is_balanced) == ((), True)
    assert found.balances["activity"] == BY_HAND
    keys = lakehouse.rows("silver.activity", "device", "user_id", "recorded_at")
    assert set(Counter(keys).values()) == {1}
    assert lakehouse.rows("gold.device_totals") == DEVICES


def test_a_batch_that_was_cut_off_is_not_read_again_where_it_dropped_nothing(
    filled: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a stream that is killed would take minutes to be on again."""
    lakehouse = filled
    before = run_audit(lakehouse.config).balances["activity"]
    lakehouse.land("activity", "1.json", recording("12:30:00"), recording("12:30:01"))
    run_without_record(lakehouse, "bronze", "silver")
    monkeypatch.setattr(late, "RereadBatch", None)
    lakehouse.fill("bronze", "silver")
    found = run_audit(lakehouse.config)
    assert found.is_balanced, found
    after = {
        name: getattr(before, name) + 2 for name in ("landed_lines", "bronze_rows", "silver_rows")
    }
    assert found.balances["activity"] == replace(before, **after)


def test_audit_finds_rows_that_are_there_twice_and_rows_that_are_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    lakehouse = Lakehouse(spark, tmp_path / "lakehouse")
    lakehouse.keep_only("activity", "event")
    lakehouse.land("activity", "once.json", recording("10:00:00"), recording("10:00:01"))
    lakehouse.land("event", "whole.json", event("10:02:33", None))
    lakehouse.land("event", "with loss.json", event("10:02:34"), event("10:02:35"))
    lakehouse.fill("bronze", "silver")
    silver = table_of(lakehouse, "silver.activity")
    rows = lakehouse.spark.read.format("delta").load(silver).localCheckpoint()
    rows.write.format("delta").mode("append").save(silver)
    found = run_audit(lakehouse.config)
    assert not found.is_balanced
    assert found.balances["activity"].silver_rows == 4
    assert found.balances["event"].is_balanced
    assert any("once.json has 2 rows in bronze, and 4" in text for text in found.findings)
    assert "NOT BALANCED" in audit_text(found)
    report = lakehouse.nightly()  # the balance objects, and the gate: to rows of long ago as well
    assert not report.is_good
    stops = [
        (f.table, f.expectation, f.unexpected_count)
        for g in report.gates
        for f in g.blocking_failures
    ]
    assert stops == [("silver.activity", "unique_recordings", 4)]

    lost = "ts = '2018-03-02T10:02:35Z'"
    DeltaTable(table_of(lakehouse, "bronze.event")).delete(lost)
    found = run_audit(lakehouse.config)
    assert found.balances["event"].bronze_rows == 2
    (told,) = (finding for finding in found.findings if "with loss.json has 2 lines" in finding)
    assert told.endswith("2 lines, 2 rows in the ledger and 1 in bronze.")
    assert not any("whole.json" in finding for finding in found.findings)
    assert audit_json(found)["balanced"] is False


def test_a_row_that_is_lost_is_no_duplicate_and_stops_nobody_else(lakehouse: Lakehouse) -> None:
    """The record of a batch is lost, and one of its rows from silver."""
    lakehouse.config = replace(lakehouse.config, sources=load({}, PROJECT).sources, gold={})
    lakehouse.land("activity", "0.json", *FIRST)
    lakehouse.land("event", "0.json", event("10:00:00"), event("10:00:00"))
    run_without_record(lakehouse, "bronze", "silver")
    lost = "recorded_at = '2015-02-23T10:00:01Z'"
    DeltaTable(table_of(lakehouse, "silver.activity")).delete(lost)
    report = lakehouse.run_without_gates()
    told = "silver.activity lacks 1 keys that batch 0 read from bronze"
    assert [error for error in report.errors if error.startswith(told)]
    assert report.balances["event"].is_balanced
    assert report.balances["event"].duplicate_rows == 1
    assert lakehouse.rows("silver.event", "action") == [("open",)]
    refresh.refresh_table(lakehouse.pipeline(), "silver.activity")
    found = run_audit(lakehouse.config)
    assert (found.findings, found.is_balanced) == ((), True)
    assert found.balances["activity"].duplicate_rows == 1


class Twice(Observation):
    """Counts what it observes as a cluster does that has to compute a part a second time."""

    @property
    def get(self) -> dict[str, Any]:
        return {name: 2 * value for name, value in super().get.items()}


def test_what_the_engine_counted_twice_is_counted_again(
    filled: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakehouse = filled
    lakehouse.land("activity", "1.json", *SECOND)
    with monkeypatch.context() as patch:
        patch.setattr(writer, "Observation", Twice)
        lakehouse.fill("bronze")
    waiting = run_audit(lakehouse.config)  # for silver, which is no loss
    assert waiting.is_balanced
    assert waiting.balances["activity"].waiting_rows == len(SECOND)
    pipeline = lakehouse.pipeline()
    (flow,) = start_flows(pipeline, "silver")
    Watch(print).await_all([flow.started_run])
    for number, batch in flow.started_run.batches.items():
        read = {name: {"rows": 2 * found["rows"]} for name, found in batch.observed.items()}
        twice = replace(batch, observed=read, duplicates=2 * batch.duplicates, late=2 * batch.late)
        flow.started_run.batches[number] = twice
    assert record_flows(pipeline.config, pipeline.runs, [flow]) == {}
    # By hand: 6 and 8 lines; 4 and 3 rows of silver, 1 and 1 of quarantine, 1 and 4 duplicates.
    figures = {"landed_lines": 14, "bronze_rows": 14, "silver_rows": 7, "duplicate_rows": 5}
    assert run_audit(lakehouse.config).balances["activity"] == replace(
        BY_HAND, **figures, late_rows=2
    )

"""Runs that were cut off before their record, and what audit says of tables changed by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from medallion.cli.render.audit import as_json, as_text
from medallion.inspection.audit import audit
from medallion.inspection.balance import Balance
from medallion.spark import query
from tests.support.lakehouse import Lakehouse
from tests.support.lines import event, recording


@pytest.fixture
def lakehouse(lakehouse: Lakehouse) -> Lakehouse:
    lakehouse.about("activity", "device_totals")
    return lakehouse


def run_without_record(lakehouse: Lakehouse, *layers: str) -> None:
    """Queries whose process is killed after they end, before their figures are on record."""
    for layer in layers:
        query.await_all(flow.ran for flow in lakehouse.pipeline().start(layer))


def table_of(lakehouse: Lakehouse, name: str) -> str:
    return str(lakehouse.config.layout.table(name))


FIRST = (
    recording("10:00:00"),
    recording("10:00:00"),  # a duplicate in the file
    recording("10:00:00", index=1),
    recording("10:00:01"),
    "{broken",
    recording("13:00:00"),  # the watermark goes to 12:00
)
SECOND = (
    recording("09:00:00"),  # late
    recording("09:00:00"),  # late, and a duplicate of a late row
    recording("09:00:01", "other"),  # late
    recording("10:00:00"),  # late, and silver has it
    recording("13:00:00"),  # on time, and silver has it
    recording("13:30:00"),
    recording("13:30:00"),  # a duplicate in the file
    '{"Device": "phone"}',
)
THIRD = (
    recording("09:00:00"),  # late, and silver has it from the second night
    recording("08:00:00"),  # late
    recording("13:30:01"),
)
BY_HAND = Balance(
    landed_lines=17,
    bronze_rows=17,
    silver_rows=4 + 3 + 2,
    quarantined_rows=2,
    duplicate_rows=1 + 4 + 1,
    late_rows=2 + 1,
    waiting_rows=0,
)
DEVICES = [("other", 1), ("phone", 8)]


def test_nights_that_were_cut_off_are_settled_by_the_next(lakehouse: Lakehouse) -> None:
    for number, lines in enumerate((FIRST, SECOND)):
        lakehouse.land("activity", f"{number}.json", *lines)
        run_without_record(lakehouse, "bronze", "silver")
    cut_off = audit(lakehouse.config)
    assert not cut_off.is_balanced
    told = "\n".join(cut_off.findings)
    assert "bronze.activity: a run was cut off" in told
    assert "silver.activity: a run was cut off" in told

    lakehouse.land("activity", "2.json", *THIRD)
    report = lakehouse.nightly()
    assert report.is_good, report
    assert report.balances["activity"] == BY_HAND
    found = audit(lakehouse.config)
    assert found.findings == ()
    assert found.is_balanced
    assert found.balances["activity"] == BY_HAND
    keys = lakehouse.rows("silver.activity", "device", "user_id", "recorded_at")
    assert set(Counter(keys).values()) == {1}
    assert lakehouse.rows("gold.device_totals") == DEVICES


def test_the_same_nights_uncut_have_the_same_figures(lakehouse: Lakehouse) -> None:
    for number, lines in enumerate((FIRST, SECOND, THIRD)):
        lakehouse.land("activity", f"{number}.json", *lines)
        lakehouse.fill()
    assert audit(lakehouse.config).balances["activity"] == BY_HAND
    assert lakehouse.rows("gold.device_totals") == DEVICES


def test_settling_twice_admits_nothing_twice(lakehouse: Lakehouse) -> None:
    """Cut off while it settles: silver has the late rows, the record does not."""
    for number, lines in enumerate((FIRST, SECOND)):
        lakehouse.land("activity", f"{number}.json", *lines)
        run_without_record(lakehouse, "bronze", "silver")
    killed = lakehouse.pipeline()
    started = killed.start("silver")
    query.await_all(flow.ran for flow in started)
    for flow in started:
        flow.settle(-1)
    assert not audit(lakehouse.config).is_balanced
    lakehouse.land("activity", "2.json", *THIRD)
    lakehouse.fill()
    found = audit(lakehouse.config)
    assert (found.findings, found.balances["activity"]) == ((), BY_HAND)
    assert lakehouse.rows("gold.device_totals") == DEVICES


def test_rows_that_wait_for_silver_are_no_loss(lakehouse: Lakehouse) -> None:
    lakehouse.land("activity", "0.json", *FIRST)
    lakehouse.fill("bronze", "silver")
    lakehouse.land("activity", "1.json", *SECOND)
    lakehouse.fill("bronze")
    found = audit(lakehouse.config)
    assert found.is_balanced
    assert found.balances["activity"].waiting_rows == len(SECOND)


def test_audit_names_the_file_of_a_row_lost_from_bronze(lakehouse: Lakehouse) -> None:
    lakehouse.land("activity", "whole.json", recording("10:00:00"))
    lakehouse.land("activity", "with loss.json", recording("10:00:01"), recording("10:00:02"))
    lakehouse.fill("bronze", "silver")
    assert audit(lakehouse.config).is_balanced
    lost = "Recorded_At = timestamp'2015-02-23T10:00:02Z'"
    DeltaTable.forPath(lakehouse.spark, table_of(lakehouse, "bronze.activity")).delete(lost)
    found = audit(lakehouse.config)
    assert not found.is_balanced
    assert found.balances["activity"].bronze_rows == 2
    (told,) = (finding for finding in found.findings if "with loss.json has 2 lines" in finding)
    assert told.endswith("2 lines, 2 rows in the ledger and 1 in bronze.")
    assert not any("whole.json" in finding for finding in found.findings)
    assert as_json(found)["balanced"] is False


def test_audit_finds_rows_that_silver_has_twice(spark: SparkSession, tmp_path: Path) -> None:
    lakehouse = Lakehouse(spark, tmp_path / "lakehouse")
    lakehouse.about("activity", "event")
    lakehouse.land("activity", "once.json", recording("10:00:00"), recording("10:00:01"))
    lakehouse.land("event", "1.json", event("10:02:33", None))
    lakehouse.fill("bronze", "silver")
    silver = table_of(lakehouse, "silver.activity")
    rows = lakehouse.spark.read.format("delta").load(silver).localCheckpoint()
    rows.write.format("delta").mode("append").save(silver)
    found = audit(lakehouse.config)
    assert not found.is_balanced
    assert found.balances["activity"].silver_rows == 4
    assert found.balances["event"].is_even
    assert any("once.json has 2 rows in bronze, and 4" in text for text in found.findings)
    assert "NOT BALANCED" in as_text(found)
    report = lakehouse.nightly()  # the balance and the gate of unique keys both object
    assert not report.is_good

"""Runs that were cut off before their record, and what audit says of tables changed by hand."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from medallion.cli.render.audit import as_json, as_text
from medallion.config.loader import load
from medallion.inspection.audit import audit
from medallion.inspection.balance import Balance
from medallion.lakehouse import tables
from medallion.pipeline import refresh
from medallion.pipeline.pipeline import Pipeline
from medallion.spark import query
from medallion.spark.checkpoints import last_begun
from medallion.spark.errors import StreamError
from tests.support import PROJECT
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


def test_a_checkpoint_that_is_gone(lakehouse: Lakehouse) -> None:
    """Bronze goes on by its ledger, silver is not written twice, and gold is counted anew."""
    lakehouse.land("activity", "0.json", *FIRST)
    lakehouse.fill()
    layout = lakehouse.config.layout
    before = {name: lakehouse.rows(name) for name in ("silver.activity", "gold.device_totals")}
    for name in ("bronze.activity", "silver.activity", "gold.device_totals"):
        shutil.rmtree(layout.checkpoint(name))
    lakehouse.land("activity", "1.json", *SECOND)
    report = lakehouse.nightly()
    assert [error for error in report.errors if "medallion refresh silver.activity" in error]
    assert {name: lakehouse.rows(name) for name in before} == before
    assert tables.row_count(layout.table("bronze.activity")) == len(FIRST) + len(SECOND)
    refresh.refresh(lakehouse.pipeline(), "silver.activity")
    lakehouse.land("activity", "2.json", *THIRD)
    report = lakehouse.nightly()
    assert report.is_good, report
    balance = report.balances["activity"]
    assert balance.landed_lines == balance.bronze_rows == 17
    keys = Counter(lakehouse.rows("silver.activity", "device", "user_id", "recorded_at"))
    assert keys == Counter(dict.fromkeys(keys, 1))
    assert len(keys) == 9  # as BY_HAND has them
    assert lakehouse.rows("gold.device_totals") == DEVICES


def test_the_last_files_of_checkpoints_are_torn(lakehouse: Lakehouse) -> None:
    """An end that is gone is written again; a plan that is torn is made again, or told."""
    lakehouse.land("activity", "0.json", *FIRST)
    lakehouse.fill()
    layout = lakehouse.config.layout
    names = ("bronze.activity", "silver.activity", "gold.device_totals")
    for name in names:
        ends = layout.checkpoint(name) / "commits"
        max(ends.iterdir(), key=lambda end: int(end.name) if end.name.isdigit() else -1).unlink()
    lakehouse.land("activity", "1.json", *SECOND)
    lakehouse.fill()
    assert audit(lakehouse.config).is_balanced
    for name in ("bronze.activity", "gold.device_totals"):
        plan = layout.checkpoint(name) / "offsets" / str(last_begun(layout.checkpoint(name)))
        plan.write_text("v1\n{")
    lakehouse.land("activity", "2.json", *THIRD)
    report = lakehouse.nightly()
    assert report.errors == []
    assert report.balances["activity"] == BY_HAND
    assert lakehouse.rows("gold.device_totals") == DEVICES


def test_a_state_that_is_damaged(lakehouse: Lakehouse) -> None:
    lakehouse.land("activity", "0.json", *FIRST)
    lakehouse.fill()
    before = lakehouse.rows("silver.activity")
    state = lakehouse.config.layout.checkpoint("silver.activity") / "state"
    for file in [*state.rglob("*.zip"), *state.rglob("*.sst")]:
        file.write_bytes(b"damaged")
    lakehouse.land("activity", "1.json", *SECOND)
    lakehouse.fill("bronze")
    with pytest.raises(StreamError, match=r"state cannot be read: medallion refresh silver.acti"):
        lakehouse.fill("silver")
    assert lakehouse.rows("silver.activity") == before


def test_a_row_that_is_lost_is_no_duplicate_and_stops_nobody_else(lakehouse: Lakehouse) -> None:
    """The record of a batch is lost, and one of its rows from silver."""
    lakehouse.config = replace(lakehouse.config, sources=load({}, PROJECT).sources)
    lakehouse.land("activity", "0.json", *FIRST)
    lakehouse.land("event", "0.json", event("10:00:00"), event("10:00:00"))
    run_without_record(lakehouse, "bronze", "silver")
    lost = "recorded_at = timestamp'2015-02-23T10:00:01Z'"
    DeltaTable.forPath(lakehouse.spark, table_of(lakehouse, "silver.activity")).delete(lost)
    report = lakehouse.nightly()
    told = "silver.activity batch 0: 1 keys of bronze never came into silver: medallion refresh"
    assert [error for error in report.errors if error.startswith(told)]
    assert report.balances["event"].is_even
    assert report.balances["event"].duplicate_rows == 1
    assert lakehouse.rows("silver.event", "action") == [("open",)]
    refresh.refresh(lakehouse.pipeline(), "silver.activity")
    report = lakehouse.nightly()
    assert report.is_good, report
    assert report.balances["activity"].duplicate_rows == 1


def test_what_the_engine_counted_twice_is_counted_again(lakehouse: Lakehouse) -> None:
    """As it does on a cluster, where it has to compute a part a second time."""
    lakehouse.land("activity", "0.json", *FIRST)
    lakehouse.fill()
    lakehouse.land("activity", "1.json", *SECOND)
    lakehouse.fill("bronze")
    pipeline = lakehouse.pipeline()
    (flow,) = pipeline.start("silver")
    query.await_all([flow.ran])
    for number, batch in flow.ran.batches.items():
        read = {name: {"rows": 2 * found["rows"]} for name, found in batch.observed.items()}
        twice = replace(batch, observed=read, duplicates=2 * batch.duplicates, late=2 * batch.late)
        flow.ran.batches[number] = twice
    assert pipeline.settle([flow]) == []
    lakehouse.land("activity", "2.json", *THIRD)
    report = lakehouse.nightly()
    assert report.is_good, report
    assert report.balances["activity"] == BY_HAND


def test_settings_that_a_state_keeps(lakehouse: Lakehouse) -> None:
    lakehouse.land("activity", "0.json", *FIRST)
    lakehouse.fill()
    lakehouse.land("activity", "1.json", *SECOND)
    said: list[str] = []
    conf = lakehouse.spark.conf
    then = conf.get("spark.sql.shuffle.partitions")
    conf.set("spark.sql.shuffle.partitions", "3")
    try:
        for layer in ("bronze", "silver", "gold"):
            Pipeline(lakehouse.spark, lakehouse.config, "test", said.append).run(layer)
    finally:
        conf.set("spark.sql.shuffle.partitions", str(then))
    told = f"goes on with spark.sql.shuffle.partitions {then}, as it was first run with"
    assert [line.split()[0] for line in said if told in line] == [
        "silver.activity",
        "gold.device_totals",
    ]
    lakehouse.land("activity", "2.json", *THIRD)
    assert lakehouse.nightly().balances["activity"] == BY_HAND

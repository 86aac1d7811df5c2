"""Which versions are still needed: arithmetic over checkpoints and records made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.ops.runs import Runs
from medallion.pipeline.needed_versions import Need, needs, oldest
from medallion.sources.files import handover
from tests.support import PROJECT, checkpoints
from tests.support.home import Home
from tests.support.runs import record

NEVER = 10**9


@pytest.fixture
def config(home: Home) -> Config:
    return replace(load({}, PROJECT), layout=home.layout)


def oldest_of(config: Config, table: str, version: int = NEVER) -> tuple[int, str] | None:
    """The oldest version that is needed, and by whom, in one word or two."""
    need = oldest(needs(config, Runs(config.layout).standing)[table], version)
    return (need.version, need.who) if need else None


def test_the_need_that_goes_back_furthest() -> None:
    known = [Need(7, "a"), Need(4, "b"), Need(9, "c")]
    assert oldest(known, 20) == Need(4, "b")
    assert oldest(known[2:], 8) is None  # it has read all that there is
    assert oldest([], 8) is None


def test_what_has_never_run_needs_only_what_is_there(config: Config) -> None:
    """A query that begins reads the table as it is then."""
    record(config, "bronze.activity", table_version=3, last_batch=2)
    assert oldest_of(config, "bronze.activity", 3) is None
    assert oldest_of(config, "bronze.activity", 4) == (4, "the record of bronze.activity")


def test_a_first_batch_that_is_planned_keeps_everything(config: Config) -> None:
    record(config, "bronze.activity", table_version=30)
    checkpoints.planned(config.layout, "silver.activity", 0, version=12)
    found = oldest_of(config, "bronze.activity", 30)
    assert found == (0, "silver.activity, which has no two batches on record,")


def test_batches_that_are_not_on_record_are_read_once_more(config: Config) -> None:
    """Two of six are to be settled, and a query plans the last that is settled once more: it began
    at the version that the third one ended with."""
    record(config, "bronze.activity", table_version=90)
    for batch, version in enumerate((2, 3, 5, 6, 8, 9)):
        checkpoints.done(config.layout, "silver.activity", batch, version)
    record(config, "silver.activity", last_batch=3, table_version=7)
    assert oldest_of(config, "bronze.activity", 90) == (5, "silver.activity")
    record(config, "silver.activity", last_batch=5, table_version=8)
    assert oldest_of(config, "bronze.activity", 90) == (8, "silver.activity")
    checkpoints.planned(config.layout, "silver.activity", 6, version=40)  # it may run again
    assert oldest_of(config, "bronze.activity", 90) == (8, "silver.activity")


def test_offsets_that_spark_has_not_kept_are_as_good_as_none(config: Config) -> None:
    record(config, "bronze.activity", table_version=900)
    checkpoints.done(config.layout, "silver.activity", 500, version=800)
    record(config, "silver.activity", last_batch=3)
    found = oldest_of(config, "bronze.activity", 900)
    assert found == (0, "silver.activity, whose batches are not on record,")


def test_the_slowest_table_of_gold_counts(config: Config) -> None:
    record(config, "silver.activity", table_version=50, last_batch=9)
    for batch, (counts, totals) in enumerate(((31, 17), (40, 45))):
        checkpoints.done(config.layout, "gold.device_counts", batch, version=counts)
        checkpoints.done(config.layout, "gold.device_totals", batch, version=totals)
    assert oldest_of(config, "silver.activity", 50) == (17, "gold.device_totals")


def test_rows_that_a_gate_holds_back_are_judged_again(config: Config) -> None:
    record(config, "silver.activity", table_version=50, last_batch=9)
    gate = {"kind": "gate", "started_at": 0, "query": "silver.activity"}
    runs = Runs(config.layout)
    runs.write([{**gate, "state": "passed", "table_version": 20}])
    assert oldest_of(config, "silver.activity", 50) is None
    runs.write([{**gate, "state": "held", "table_version": 41}])
    assert oldest_of(config, "silver.activity", 50) == (21, "the gate of silver.activity")
    runs.write([{**gate, "state": "passed", "table_version": 50}])
    assert oldest_of(config, "silver.activity", 50) is None


def test_what_was_written_since_the_last_run_is_counted_from_the_log(config: Config) -> None:
    record(config, "silver.event", last_batch=1, table_version=5, quarantine_version=8)
    record(config, "gold.action_counts", last_batch=1, table_version=6)
    for table, version in (("silver.event", 5), ("quarantine.event", 8), ("gold.action_counts", 6)):
        assert oldest_of(config, table, version) is None
        found = oldest_of(config, table, version + 3)
        assert found is not None
        assert found[0] == version + 1


def test_handed_over_files_are_needed_until_their_batch_is_on_record(config: Config) -> None:
    handover.prepare(config.layout.intake("event"))
    for batch, version in enumerate((2, 3, 4)):
        checkpoints.done(config.layout, "bronze.event", batch, version)
    record(config, "bronze.event", last_batch=1, table_version=1)
    assert oldest_of(config, "_intake.event") == (2, "bronze.event")

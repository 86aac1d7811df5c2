"""The two equations of the balance, by arithmetic."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.inspect.balance import Balance, take_snapshot, unbalanced
from medallion.state.ledger import Entry, Ledger, State
from medallion.state.runs import Runs
from medallion.storage import delta_log, delta_tables, records, table_specs
from tests.support import PROJECT, checkpoints
from tests.support.home import Home
from tests.support.runs import record

# 13 lines landed are 13 rows; of those 4 went to silver, 3 to quarantine, 3 came again, 3 wait.
# (No sum is what its numbers make when they are or-ed.)
EVEN = Balance(
    landed_lines=13,
    bronze_rows=13,
    silver_rows=4,
    quarantined_rows=3,
    duplicate_rows=3,
    late_rows=2,
    waiting_rows=3,
)


def test_a_balance_that_adds_up() -> None:
    assert EVEN.is_balanced
    assert replace(EVEN, late_rows=0).is_balanced  # they are part of silver's rows
    assert replace(EVEN, rejected_files=2).is_balanced  # their rows are in no figure
    assert replace(EVEN, landed_lines=14, bronze_rows=14, waiting_rows=4).is_balanced
    assert replace(EVEN, landed_lines=15, erased_rows=2).is_balanced


@pytest.mark.parametrize(
    "figure", [f for f in asdict(EVEN) if f not in ("late_rows", "rejected_files")]
)
@pytest.mark.parametrize("by", [1, -1])
def test_one_row_more_or_less_is_unbalanced(figure: str, by: int) -> None:
    off = replace(EVEN, **{figure: getattr(EVEN, figure) + by})
    assert not off.is_balanced
    assert unbalanced({"a": EVEN, "b": off, "c": off}) == ["b", "c"]


def test_two_equal_errors_do_not_cancel() -> None:
    assert not replace(EVEN, landed_lines=14, silver_rows=5).is_balanced
    assert not replace(EVEN, bronze_rows=12, waiting_rows=2).is_balanced


@pytest.fixture
def config(home: Home) -> Config:
    known = load({}, PROJECT)
    return replace(known, layout=home.layout, sources=home.config.sources, gold={})


def append(config: Config, table: str, *commits: int) -> None:
    """Write a table with this number of rows in each commit."""
    spec = replace(table_specs.table_spec(table), columns={"n": "long"})
    for rows in commits:
        records.append_records(config.layout.table(table), spec, [{"n": n} for n in range(rows)])


def test_tables_and_records_make_the_balance(config: Config) -> None:
    """Bronze has 5 and 5 and 3 rows, of which silver has read the first two commits."""
    nothing = Balance(0, 0, 0, 0, 0, 0, 0)
    assert take_snapshot(config, Runs(config.layout)).balances == {"activity": nothing}
    append(config, "bronze.activity", 5, 5, 3)  # versions 1 to 3
    append(config, "silver.activity", 4)
    append(config, "quarantine.activity", 1, 2)
    record(config, "bronze.activity", rows_in=13)
    checkpoints.write_completed(config.layout, "silver.activity", 0, version=3)
    record(config, "silver.activity", duplicate_rows=3, late_rows=2)
    rejected = Entry("activity", "a.png", 1, 5, 0, 0, State.REJECTED, reason_code="unreadable")
    Ledger(config.layout, "activity").write([rejected])
    even = replace(EVEN, rejected_files=1)
    assert take_snapshot(config, Runs(config.layout)).balances == {"activity": even}


def test_rows_that_wait_for_a_first_silver_run(config: Config) -> None:
    """Bronze's older commits are not kept for it, and maintenance removes them."""
    append(config, "bronze.activity", 5, 5, 3)
    record(config, "bronze.activity", rows_in=13)
    bronze = config.layout.table("bronze.activity")
    delta_tables.open_for_write(bronze).create_checkpoint()
    for commit in (0, 1, 2):
        delta_log.commit_file(bronze, commit).local.unlink()
    waiting = Balance(13, 13, 0, 0, 0, 0, waiting_rows=13)
    assert take_snapshot(config, Runs(config.layout)).balances == {"activity": waiting}


def test_a_batch_without_a_record_is_unrecorded(config: Config) -> None:
    queries = ["bronze.activity", "silver.activity"]
    assert take_snapshot(config, Runs(config.layout)).unrecorded == {}
    for query in queries:
        checkpoints.write_completed(config.layout, query, 7, version=1)
    assert take_snapshot(config, Runs(config.layout)).unrecorded == dict.fromkeys(
        queries, "activity"
    )
    record(config, "bronze.activity", last_batch=7)
    record(config, "silver.activity", last_batch=6)
    assert take_snapshot(config, Runs(config.layout)).unrecorded == {"silver.activity": "activity"}
    record(config, "silver.activity", last_batch=8)  # of a checkpoint that was put back
    assert take_snapshot(config, Runs(config.layout)).unrecorded == {}
    checkpoints.write_plan(config.layout, "bronze.activity", 8, version=2)
    (config.layout.checkpoint("bronze.activity") / "metadata").local.write_text("")
    assert take_snapshot(config, Runs(config.layout)).unrecorded == {"bronze.activity": "activity"}

"""The two equations of the balance."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.inspect.balance import Balance, BalanceSnapshot, take_snapshot
from medallion.state.ledger import Entry, Ledger, State
from medallion.state.runs import RunRecords
from medallion.storage import delta_log, delta_tables, records, table_specs
from tests.support import PROJECT, checkpoints
from tests.support.home import Home
from tests.support.runs import record

# 13 lines landed as 13 rows: 4 in silver, 3 in quarantine, 3 duplicates, 3 waiting. The numbers
# are chosen so that adding them differs from or-ing them.
BALANCED = Balance(
    landed_lines=13,
    bronze_rows=13,
    silver_rows=4,
    quarantined_rows=3,
    duplicate_rows=3,
    late_rows=2,
    waiting_rows=3,
)


def test_balance_that_adds_up() -> None:
    assert BALANCED.is_balanced
    assert replace(BALANCED, late_rows=0).is_balanced  # late rows are part of silver's rows
    assert replace(BALANCED, rejected_files=2).is_balanced  # their rows are in no count
    assert replace(BALANCED, landed_lines=14, bronze_rows=14, waiting_rows=4).is_balanced
    assert replace(BALANCED, landed_lines=15, erased_rows=2).is_balanced


@pytest.mark.parametrize(
    "figure", [f for f in asdict(BALANCED) if f not in ("late_rows", "rejected_files")]
)
@pytest.mark.parametrize("difference", [1, -1])
def test_one_row_more_or_less_is_unbalanced(figure: str, difference: int) -> None:
    unequal = replace(BALANCED, **{figure: getattr(BALANCED, figure) + difference})
    assert not unequal.is_balanced
    snapshot = BalanceSnapshot({"a": BALANCED, "b": unequal, "c": unequal})
    assert list(dict.fromkeys(each.subject for each in snapshot.problems)) == ["b", "c"]


def test_two_equal_errors_do_not_cancel() -> None:
    assert not replace(BALANCED, landed_lines=14, silver_rows=5).is_balanced
    assert not replace(BALANCED, bronze_rows=12, waiting_rows=2).is_balanced


@pytest.fixture
def config(home: Home) -> Config:
    project = load({}, PROJECT)
    return replace(project, layout=home.layout, sources=home.config.sources, gold={})


def append(config: Config, table: str, *commits: int) -> None:
    """Write a table with this number of rows in each commit."""
    spec = replace(table_specs.table_spec(table), columns={"n": "long"})
    for rows in commits:
        records.append_records(config.layout.table(table), spec, [{"n": n} for n in range(rows)])


def test_take_snapshot_of_tables_and_records(config: Config) -> None:
    """Bronze has commits of 5, 5 and 3 rows, and silver has read the first two."""
    empty = Balance(0, 0, 0, 0, 0, 0, 0)
    assert take_snapshot(config, RunRecords(config.layout)).balances == {"activity": empty}
    append(config, "bronze.activity", 5, 5, 3)  # versions 1 to 3
    append(config, "silver.activity", 4)
    append(config, "quarantine.activity", 1, 2)
    record(config, "bronze.activity", rows_in=13)
    checkpoints.write_completed(config.layout, "silver.activity", 0, version=3)
    record(config, "silver.activity", duplicate_rows=3, late_rows=2)
    rejected = Entry(
        "activity", "landing/a.png", 1, 5, 0, 0, State.REJECTED, reason_code="unreadable"
    )
    Ledger(config.layout, "activity").write([rejected])
    expected = replace(BALANCED, rejected_files=1)
    assert take_snapshot(config, RunRecords(config.layout)).balances == {"activity": expected}


def test_rows_waiting_for_the_first_silver_run(config: Config) -> None:
    """Maintenance removes bronze's older commits before silver first reads them."""
    append(config, "bronze.activity", 5, 5, 3)
    record(config, "bronze.activity", rows_in=13)
    bronze = config.layout.table("bronze.activity")
    delta_tables.open_for_write(bronze).create_checkpoint()
    for commit in (0, 1, 2):
        delta_log.commit_file(bronze, commit).local.unlink()
    waiting = Balance(13, 13, 0, 0, 0, 0, waiting_rows=13)
    assert take_snapshot(config, RunRecords(config.layout)).balances == {"activity": waiting}


def test_batch_without_a_record_is_unrecorded(config: Config) -> None:
    queries = ["bronze.activity", "silver.activity"]
    assert take_snapshot(config, RunRecords(config.layout)).unrecorded == {}
    for query in queries:
        checkpoints.write_completed(config.layout, query, 7, version=1)
    assert take_snapshot(config, RunRecords(config.layout)).unrecorded == dict.fromkeys(
        queries, "activity"
    )
    record(config, "bronze.activity", last_batch=7)
    record(config, "silver.activity", last_batch=6)
    assert take_snapshot(config, RunRecords(config.layout)).unrecorded == {
        "silver.activity": "activity"
    }
    record(config, "silver.activity", last_batch=8)  # from a checkpoint that was restored
    assert take_snapshot(config, RunRecords(config.layout)).unrecorded == {}
    checkpoints.write_plan(config.layout, "bronze.activity", 8, version=2)
    (config.layout.checkpoint("bronze.activity") / "metadata").local.write_text("")
    assert take_snapshot(config, RunRecords(config.layout)).unrecorded == {
        "bronze.activity": "activity"
    }

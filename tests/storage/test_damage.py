"""Tables that cannot be read: one sentence with the file to blame and what to do, no wrong rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from medallion.errors import MedallionError
from medallion.state.runs import Runs
from medallion.storage import delta_tables, records
from medallion.storage.table_specs import TableSpec
from tests.support.home import Home

NEWEST = f"_delta_log/{22:020}.json"
CHECKPOINT = f"_delta_log/{19:020}.checkpoint.parquet"


def shorter(file: Path, size: int) -> None:
    content = file.read_bytes()
    assert len(content) > size
    file.write_bytes(content[:size])


@pytest.fixture
def gold(home: Home) -> Path:
    """A table of 22 commits of one row."""
    table = home.layout.table("gold.totals")
    for n in range(22):
        records.append_records(table, TableSpec({"n": "long"}), [{"n": n}])
    return table


def zeros(file: Path) -> None:
    file.write_bytes(bytes(500))


DAMAGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "cut short": (NEWEST, lambda file: shorter(file, 300)),
    # A reader takes it for a commit that adds nothing.
    "empty": (NEWEST, lambda file: shorter(file, 0)),
    "zeros": (NEWEST, zeros),
    "checkpoint": (CHECKPOINT, lambda file: shorter(file, 300)),
}


def rows(table: Path) -> object:
    return delta_tables.select_rows(table, "*")


def test_a_log_that_may_not_be_read_is_named_as_that(nobodys: Home) -> None:
    """Nobody is told to move a table away that is sound."""
    table = nobodys.layout.table("gold.totals")
    records.append_records(table, TableSpec({"n": "long"}), [{"n": 1}])
    newest = table / "_delta_log" / f"{1:020}.json"
    newest.chmod(0)
    with pytest.raises(MedallionError) as raised:
        delta_tables.table_version(table)
    assert str(raised.value) == f"gold.totals: {newest}: Permission denied."
    newest.parent.chmod(0)
    with pytest.raises(PermissionError):  # and it is not taken for one that is not there
        delta_tables.table_exists(table)


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_log_names_the_file_and_the_command(gold: Path, kind: str) -> None:
    name, damage = DAMAGES[kind]
    damage(gold / name)
    for ask in (
        delta_tables.table_version,
        delta_tables.row_count,
        delta_tables.column_names,
        rows,
    ):
        with pytest.raises(MedallionError) as raised:
            ask(gold)
        told = str(raised.value)
        assert told.startswith(f"gold.totals: {gold / name} is damaged or cut short: move ")
        assert told.endswith("away and run medallion refresh gold.totals.")
        assert "\n" not in told


def test_a_commit_that_is_missing_in_the_middle(gold: Path) -> None:
    (gold / f"_delta_log/{21:020}.json").unlink()
    with pytest.raises(
        MedallionError, match=r"gold\.totals: .* cannot be read .*medallion refresh"
    ):
        delta_tables.table_version(gold)


def test_a_record_whose_last_commit_is_cut_short_goes_on_without_it(home: Home) -> None:
    """What it said is settled again: the last batch on record is the one before."""
    runs = Runs(home.layout)
    for batch in range(3):
        runs.write([{"kind": "query", "query": "bronze.a", "last_batch": batch, "rows_in": 5}])
    newest = home.layout.table("ops.runs") / f"_delta_log/{3:020}.json"
    shorter(newest, 200)
    with pytest.raises(MedallionError, match=rf"ops\.runs: {newest} .* move that file away"):
        Runs(home.layout).last_batch("bronze.a")
    newest.unlink()
    assert Runs(home.layout).last_batch("bronze.a") == 1
    runs.write([{"kind": "query", "query": "bronze.a", "last_batch": 2, "rows_in": 5}])
    assert runs.run_state.sums["bronze.a"].rows_in == 15


def test_data_of_a_record_that_are_gone(home: Home) -> None:
    Runs(home.layout).write([{"kind": "query", "query": "bronze.a", "rows_in": 5}])
    (file,) = home.layout.table("ops.runs").glob("*.parquet")
    file.unlink()
    told = r"ops\.runs: .* cannot be read .*from a copy, or move .*/ops/runs away, and the next run"
    with pytest.raises(MedallionError, match=told):
        Runs(home.layout).last_batch("bronze.a")


def test_data_of_bronze_that_are_gone(home: Home) -> None:
    """Nobody else has its rows; who asks is told no more than that, for it may be the audit."""
    bronze = home.layout.table("bronze.a")
    records.append_records(bronze, TableSpec({"n": "long"}), [{"n": 1}])
    (file,) = bronze.glob("*.parquet")
    file.unlink()
    with pytest.raises(MedallionError, match=r"bronze\.a: .* put its files back from a copy\.$"):
        rows(bronze)

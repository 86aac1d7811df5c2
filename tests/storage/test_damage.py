"""Corrupt tables: an error names the file and the command to run, and no wrong rows are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from medallion.errors import MedallionError
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables, records
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import TableSpec
from tests.support.home import Home

NEWEST = f"_delta_log/{22:020}.json"


def truncate(file: Path, size: int) -> None:
    content = file.read_bytes()
    assert len(content) > size
    file.write_bytes(content[:size])


@pytest.fixture
def gold(home: Home) -> Path:
    """Create a table of 22 commits with one row each."""
    table = home.layout.table("gold.totals")
    for n in range(22):
        records.append_records(table, TableSpec({"n": "long"}), [{"n": n}])
    return table.local


def overwrite_with_zeros(file: Path) -> None:
    file.write_bytes(bytes(500))


DAMAGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "truncated": (NEWEST, lambda file: truncate(file, 300)),
    # delta-rs reads it as a commit without changes.
    "empty": (NEWEST, lambda file: truncate(file, 0)),
    "zeros": (NEWEST, overwrite_with_zeros),
}


def rows(table: StoragePath) -> object:
    return delta_tables.select_rows(table, "*")


def test_log_without_read_permission(closable_home: Home) -> None:
    table = closable_home.layout.table("gold.totals")
    records.append_records(table, TableSpec({"n": "long"}), [{"n": 1}])
    newest = table / "_delta_log" / f"{1:020}.json"
    newest.local.chmod(0)
    with pytest.raises(MedallionError) as raised:
        delta_tables.table_version(table)
    assert str(raised.value) == f"gold.totals: {newest}: Permission denied."
    newest.parent.local.chmod(0)
    with pytest.raises(PermissionError):
        delta_tables.table_exists(table)


@pytest.mark.parametrize("damage_type", DAMAGES)
def test_corrupt_log_names_file_and_command(gold: Path, damage_type: str) -> None:
    name, damage = DAMAGES[damage_type]
    damage(gold / name)
    for read in (
        delta_tables.table_version,
        delta_tables.row_count,
        delta_tables.column_names,
        rows,
    ):
        with pytest.raises(MedallionError) as raised:
            read(StoragePath(gold))
        message = str(raised.value)
        assert message.startswith(f"gold.totals: {gold / name} is corrupt or truncated: restore ")
        assert message.endswith("away and run medallion refresh gold.totals.")
        assert "\n" not in message


def test_missing_commit(gold: Path) -> None:
    (gold / f"_delta_log/{21:020}.json").unlink()
    with pytest.raises(
        MedallionError, match=r"gold\.totals: .* cannot be read .*medallion refresh"
    ):
        delta_tables.table_version(StoragePath(gold))


def test_record_table_without_its_truncated_commit(home: Home) -> None:
    runs = RunRecords(home.layout)
    for batch in range(3):
        runs.write([{"kind": "query", "query": "bronze.a", "last_batch": batch, "rows_in": 5}])
    newest = home.layout.table("ops.runs") / f"_delta_log/{3:020}.json"
    truncate(newest.local, 200)
    with pytest.raises(MedallionError, match=rf"ops\.runs: {newest} .* or move {newest} away"):
        RunRecords(home.layout).last_batch("bronze.a")
    newest.local.unlink()
    assert RunRecords(home.layout).last_batch("bronze.a") == 1
    runs.write([{"kind": "query", "query": "bronze.a", "last_batch": 2, "rows_in": 5}])
    assert runs.run_state.sums["bronze.a"].rows_in == 15


def test_missing_data_files_of_a_record_table(home: Home) -> None:
    RunRecords(home.layout).write([{"kind": "query", "query": "bronze.a", "rows_in": 5}])
    (file,) = home.layout.table("ops.runs").local.glob("*.parquet")
    file.unlink()
    message = r"ops\.runs: .* cannot be read .*from a copy, or move .*/ops/runs away: the next run"
    with pytest.raises(MedallionError, match=message):
        RunRecords(home.layout).last_batch("bronze.a")


def test_missing_data_files_of_bronze(home: Home) -> None:
    bronze = home.layout.table("bronze.a")
    records.append_records(bronze, TableSpec({"n": "long"}), [{"n": 1}])
    (file,) = bronze.local.glob("*.parquet")
    file.unlink()
    with pytest.raises(
        MedallionError, match=r"bronze\.a: .* restore the table's files from a copy\.$"
    ):
        rows(bronze)

"""Rows, files and transactions of single commits in a table's log."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from medallion.storage import delta_log
from medallion.storage.paths import StoragePath


def append(table: Path, rows: int, transaction: int | None = None) -> None:
    txn = [Transaction("query", transaction)] if transaction is not None else []
    numbers = duckdb.connect().sql(f"select * from range({rows}) t(n)")
    properties = CommitProperties(app_transactions=txn)
    write_deltalake(table, numbers, mode="append", commit_properties=properties)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Create a table: versions 0 to 3 add 1, 20, 300 and 4000 rows; version 4 compacts them."""
    table = tmp_path / "a b"
    append(table, 1)
    append(table, 20, transaction=7)
    append(table, 300)
    append(table, 4000, transaction=8)
    DeltaTable(table).optimize.compact()
    return table


def test_rows_added(table: Path) -> None:
    assert delta_log.rows_added(StoragePath(table), 0, 4) == 4321
    assert delta_log.rows_added(StoragePath(table), 1, 2) == 320
    assert delta_log.rows_added(StoragePath(table), 3, 2) == 0
    assert delta_log.rows_added(StoragePath(table), 4, 5) is None  # there is no version 5


def test_added_files(table: Path) -> None:
    files = delta_log.added_files(StoragePath(table), 1, 4)
    assert len(files) == 3
    assert duckdb.read_parquet([str(file) for file in files]).shape[0] == 4320
    with pytest.raises(FileNotFoundError):
        delta_log.added_files(StoragePath(table), 4, 5)


def test_first_readable_version(table: Path) -> None:
    """Files of a compaction add no rows, so they may be missing."""
    assert delta_log.first_readable_version(StoragePath(table)) == 0
    delta_log.added_files(StoragePath(table), 1, 1)[0].local.unlink()
    assert delta_log.first_readable_version(StoragePath(table)) == 2
    assert delta_log.are_readable(StoragePath(table), [0, 2, 3, 4])
    append(table, 1)
    delta_log.commit_file(StoragePath(table), 3).local.unlink()
    assert delta_log.first_readable_version(StoragePath(table)) == 4
    delta_log.added_files(StoragePath(table), 5, 5)[0].local.unlink()
    assert delta_log.first_readable_version(StoragePath(table)) == 6
    assert delta_log.first_readable_version(StoragePath(table / "none")) == 0


def test_rows_by_transaction(table: Path) -> None:
    assert delta_log.rows_by_transaction(StoragePath(table), "query", 0) == {7: 20, 8: 4000}
    assert delta_log.rows_by_transaction(StoragePath(table), "query", 8) == {8: 4000}
    assert delta_log.rows_by_transaction(StoragePath(table), "other", 0) == {}
    assert delta_log.rows_by_transaction(StoragePath(table / "none"), "query", 0) == {}

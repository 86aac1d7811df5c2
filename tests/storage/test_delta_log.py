"""Rows, files and transactions of single commits in a table's log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from deltalake.schema import PrimitiveType

from medallion.storage import delta_log, delta_tables
from medallion.storage.paths import StoragePath

FIELD = {"name": "n", "type": "long", "nullable": True, "metadata": {}}


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


def test_only_appends(tmp_path: Path) -> None:
    """Not with many versions, other columns, changed rows, a compaction, or a lost commit."""
    table = tmp_path / "t"
    append(table, 1)
    append(table, 20, transaction=7)
    assert delta_log.only_appends(StoragePath(table))
    assert not delta_log.only_appends(StoragePath(table), most=1)
    assert not delta_log.only_appends(StoragePath(table / "none"))

    def change(name: str) -> DeltaTable:
        return DeltaTable(shutil.copytree(table, tmp_path / name))

    change("deleted").delete("n = 0")
    change("compacted").optimize.compact()
    change("wider").alter.add_columns(Field("m", PrimitiveType("long")))
    change("lost")
    delta_log.commit_file(StoragePath(tmp_path / "lost"), 0).local.unlink()
    for name in ("deleted", "compacted", "wider", "lost"):
        assert not delta_log.only_appends(StoragePath(tmp_path / name)), name


def test_transactions(table: Path) -> None:
    def found(first: int, *applications: str) -> list[tuple[int, int]]:
        commits = delta_log.transactions(StoragePath(table), first, *applications)
        return [(each.number, each.rows) for each in commits]

    assert found(0, "query") == found(0) == [(8, 4000), (7, 20)]
    assert found(8, "query") == [(8, 4000)]
    assert found(0, "other") == []
    assert list(delta_log.transactions(StoragePath(table / "none"))) == []


def test_first_checksum(tmp_path: Path) -> None:
    """The table is empty, and its columns are exactly those of its log."""
    table = StoragePath(tmp_path / "t")
    columns = json.dumps({"type": "struct", "fields": [FIELD]})
    for interval in ("7", "8"):
        delta_tables.create_table(table, columns, {"delta.checkpointInterval": interval})
        lines = delta_log.commit_file(table, 0).read().decode().splitlines()
        created = {name: each for line in lines for name, each in json.loads(line).items()}
        assert created["metaData"]["configuration"] == {"delta.checkpointInterval": interval}
        assert json.loads(delta_log.first_checksum(table).read()) == {
            "numMetadata": 1,
            "numProtocol": 1,
            "numFiles": 0,
            "tableSizeBytes": 0,
            "setTransactions": [],
            "domainMetadata": [],
            "allFiles": [],
            "metadata": created["metaData"],
            "protocol": created["protocol"],
        }
        assert delta_tables.table_version(table) == 0
        delta_log.commit_file(table, 0).local.unlink()  # as after a power failure

"""Delta tables without a JVM: properties, rows and versions."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from medallion.errors import MedallionError
from medallion.storage import delta_tables, records, table_specs
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import TableSpec

NUMBERS = TableSpec({"n": "long"})


@pytest.mark.parametrize(
    ("name", "is_streamed"),
    [
        ("bronze.a", True),  # read by silver
        ("silver.a", True),  # read by gold
        ("quarantine.a", False),
        ("gold.a", False),
        ("ops.files", False),
        ("ops.runs", False),
    ],
)
def test_tables_read_by_streams_keep_their_log(
    tmp_path: Path, name: str, is_streamed: bool
) -> None:
    delta_tables.create_table(
        StoragePath(tmp_path / "t"),
        delta_tables.schema_json({"n": "long"}),
        table_specs.table_spec(name).properties(),
    )
    properties = DeltaTable(tmp_path / "t").metadata().configuration
    assert properties["delta.enableExpiredLogCleanup"] == ("false" if is_streamed else "true")
    assert properties["delta.logRetentionDuration"] == "interval 1 day"
    assert properties["delta.checkpointInterval"] == "10"
    assert ("delta.dataSkippingNumIndexedCols" in properties) == name.startswith("bronze.")


def test_create_table_keeps_a_table(tmp_path: Path) -> None:
    root = StoragePath(tmp_path)
    records.append_records(root, NUMBERS, [{"n": 1}])
    delta_tables.create_table(
        root,
        delta_tables.schema_json({"other": "string"}),
        table_specs.TableSpec().properties(),
    )
    assert delta_tables.table_version(root) == 1
    assert delta_tables.column_names(root) == {"n"}


def test_missing_table_has_no_rows(tmp_path: Path) -> None:
    missing = StoragePath(tmp_path / "none")
    assert (
        delta_tables.column_names(missing),
        delta_tables.select_rows(missing, "count(*)"),
    ) == (
        set(),
        [],
    )
    assert delta_tables.row_count(StoragePath(tmp_path / "none")) == 0
    assert delta_tables.table_version(StoragePath(tmp_path / "none")) == -1
    assert not (tmp_path / "none").exists()


def test_select_rows(tmp_path: Path) -> None:
    root = StoragePath(tmp_path)
    records.append_records(root, NUMBERS, [{"n": 1}, {"n": 2}])
    records.append_records(root, NUMBERS, [{"n": 4}])
    assert delta_tables.select_rows(root, "n", "where n > 1 order by n") == [
        (2,),
        (4,),
    ]


def test_select_added_rows(tmp_path: Path) -> None:
    table = StoragePath(tmp_path / "größe 50% #1, it's {a*?}" / "t")
    records.append_records(table, NUMBERS, [{"n": 1}])
    records.append_records(table, NUMBERS, [{"n": 2}, {"n": 4}])
    assert delta_tables.select_added_rows(table, 2, "sum(n), count(*)") == [(6, 2)]
    joined = "(select n from added) as new join rows on new.n = rows.n"
    files = delta_tables.data_files(table, at=1)
    assert delta_tables.select_rows(table, "count(*)", "", joined, files=files) == [(1,)]
    (first,) = delta_tables.data_files(table, at=1)
    DeltaTable(table).optimize.compact()
    assert delta_tables.select_added_rows(table, 3, "n") == []
    with pytest.raises(FileNotFoundError):
        delta_tables.select_added_rows(table, 4, "n")
    first.local.write_bytes(b"PAR1")
    with pytest.raises(MedallionError, match="cannot be read"):
        delta_tables.select_added_rows(table, 1, "n")


def test_select_rows_matches_columns_by_name(tmp_path: Path) -> None:
    records.append_records(StoragePath(tmp_path / "t"), NUMBERS, [{"n": 1}])
    files = []
    for at, sql in enumerate(("select 1 as n, 'a' as name", "select 'b' as name, 2 as n")):
        files.append(tmp_path / f"{at}.parquet")
        duckdb.sql(f"copy ({sql}) to '{files[at]}' (format parquet)")
    rows = delta_tables.select_rows(
        StoragePath(tmp_path / "t"),
        "n, name",
        "order by n",
        "added",
        files=[*map(StoragePath, files)],
    )
    assert rows == [(1, "a"), (2, "b")]


def test_data_files_with_special_directory_names(tmp_path: Path) -> None:
    table = StoragePath(tmp_path / "größe 50% #1" / "t")
    records.append_records(table, NUMBERS, [{"n": 1}])
    assert [file.local for file in delta_tables.data_files(table)] == list(
        table.local.glob("*.parquet")
    )


def test_rows_written(tmp_path: Path) -> None:
    root = StoragePath(tmp_path)
    for rows in (2, 3, 5):  # versions 1, 2 and 3
        records.append_records(root, NUMBERS, [{"n": n} for n in range(rows)])
    assert delta_tables.rows_written(root, after=0) == 10
    assert delta_tables.rows_written(root, after=1) == 8
    assert delta_tables.rows_written(root, after=1, until=2) == 3
    assert delta_tables.rows_written(root, after=3) == 0
    DeltaTable(tmp_path).optimize.compact()  # adds no rows
    assert delta_tables.rows_written(root, after=0) == 10


def test_open_table_is_cached_until_the_log_changes(tmp_path: Path) -> None:
    table, other = tmp_path / "table", tmp_path / "other"
    records.append_records(StoragePath(table), NUMBERS, [{"n": 1}])
    records.append_records(StoragePath(other), NUMBERS, [{"n": 7}])
    first = delta_tables.open_table(StoragePath(table))
    assert delta_tables.open_table(StoragePath(table)) is first
    records.append_records(StoragePath(table), NUMBERS, [{"n": 2}])
    assert (first.version(), delta_tables.table_version(StoragePath(table))) == (1, 2)
    # Another table at the same path, with as many versions.
    shutil.rmtree(table)
    other.rename(table)
    assert delta_tables.select_rows(StoragePath(table), "n") == [(7,)]
    assert delta_tables.table_id(StoragePath(table)) != str(first.metadata().id)
    (table / "_delta_log/00000000000000000001.json").write_text("{")
    with pytest.raises(MedallionError, match=r"1\.json is corrupt"):
        delta_tables.table_version(StoragePath(table))

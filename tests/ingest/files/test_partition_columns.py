"""Directories such as `day=2026-05-01/hour=10/` as columns of bronze."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import duckdb
import pytest

from medallion.ingest.schema.evolution import TableChange
from medallion.inspect.audit import run_audit
from medallion.layers.bronze.flow import Bronze
from tests.support.lakehouse import Lakehouse, activity_source, ledger_entries, only_rows

DAY, COLUMNS = date(2026, 5, 1), ("Index", "day", "hour", "_rescued_data")
PATH = "day=2026-05-01/hour=05/a b.{}"


def land(home: Lakehouse, file_format: str) -> Path:
    """Land two rows that also have a field `hour`."""
    file = home.land("activity", PATH.format(file_format))
    rows = '(select 1 as "Index", 23 as hour union all select 2, 24)'
    duckdb.execute(f"copy {rows} to '{file}' (format {file_format})")
    return file


@pytest.mark.parametrize("file_format", ["json", "csv", "parquet"])
def test_partition_columns_of_each_format(lakehouse: Lakehouse, file_format: str) -> None:
    settings = {"clean_source": "archive", "partition_columns": ("day", "hour")}
    hints = {"Index": "long"}  # CSV has strings
    home = only_rows(lakehouse, schema=None, hints=hints, format=file_format, **settings)
    land(home, file_format)
    home.fill("bronze")
    bronze = home.pipeline().flow("bronze.activity")
    assert isinstance(bronze, Bronze)
    assert bronze.schema().table_change() is TableChange.NONE
    expected = [(1, DAY, 5, None), (2, DAY, 5, None)]
    assert sorted(home.rows("bronze.activity", *COLUMNS)) == expected
    (entry,) = ledger_entries(home).values()
    assert entry.moved_to == f"archive/activity/{PATH.format(file_format)}"
    assert run_audit(home.config, everything=True).findings == ()


def test_partition_columns_are_not_in_headerless_files() -> None:
    source = activity_source(
        schema={"a": "long", "day": "date", "b": "long"}, partition_columns=("day",)
    )
    assert source.headerless_columns == ("a", "b")


def test_partition_columns_added_later(lakehouse: Lakehouse) -> None:
    """New files have them at once, older rows after a refresh of bronze."""
    home = only_rows(lakehouse, schema=None, hints={})
    home.land("activity", "day=2026-05-01/a.json", '{"Index": 1}')
    home.fill("bronze")
    settings = {"hints": {"day": "date"}, "partition_columns": ("day",)}
    home = only_rows(lakehouse, schema=None, **settings)
    home.land("activity", "day=2026-05-02/b.json", '{"Index": 2}')
    home.land("activity", "c.json", '{"Index": 3, "new": 1}')
    home.land("activity", "day=today/d.json", '{"Index": 4}')
    home.fill("bronze")
    expected = [
        (1, None, None, None),
        (2, date(2026, 5, 2), None, None),
        (3, None, 1, None),
        (4, None, None, '{"day":"today"}'),
    ]
    columns = ("Index", "day", "new", "_rescued_data")
    assert sorted(home.rows("bronze.activity", *columns), key=lambda row: row[0]) == expected
    bronze = home.pipeline().flow("bronze.activity")
    assert isinstance(bronze, Bronze)
    bronze.rewrite_table(bronze.schema(can_rewrite=True))
    expected[0] = (1, DAY, None, None)
    assert sorted(home.rows("bronze.activity", *columns), key=lambda row: row[0]) == expected

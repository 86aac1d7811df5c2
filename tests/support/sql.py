"""Delta tables from SQL, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from deltalake import QueryBuilder, write_deltalake

TEN = datetime(2015, 2, 23, 10, 10, tzinfo=UTC)
TEN_IN_SQL = """arrow_cast('2015-02-23T10:10:00Z', 'Timestamp(Microsecond, Some("UTC"))')"""


def write(root: Path, name: str, rows: str) -> None:
    """Write the rows of a query to the table `layer.table` below a root."""
    path = root / name.replace(".", "/")
    path.mkdir(parents=True)
    write_deltalake(str(path), QueryBuilder().execute(rows).read_all())

"""Counts of change records, without Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from medallion.config.model import SourceConfig
from medallion.config.tables import CdcConfig
from medallion.config.values import Duration
from medallion.inspect.balance import ChangeCounts, count_changes
from medallion.spark.checkpoints import DeltaOffset
from medallion.state import pending_work
from tests.support.lakehouse import Lakehouse, activity_source

CDC = CdcConfig("at", "op = 'd'", None, None, 1, False, Duration.parse("30 days"))
START = datetime(2026, 5, 1, tzinfo=UTC)
# key, sequence, day of ingestion, is_delete
CHANGES = (
    *[(1, 10, 0, False), (1, 20, 0, False), (1, 20, 1, False)],  # the last two are duplicates
    *[(2, 10, 0, False), (2, 30, 1, True), (2, 20, 2, False)],  # deleted; the last one is late
    *[(3, 30, 0, True), (3, 10, 40, False), (3, 5, 41, False)],  # after tombstone retention
    *[(4, 10, 0, False), (4, 10, 1, True)],  # the delete is the later duplicate
)


def counts(tmp_path: Path, rows: Any, **changes: Any) -> ChangeCounts:
    cdc = replace(CDC, **changes)
    source: SourceConfig = activity_source(cdc=cdc, keys=("id",), event_time="")
    config = replace(Lakehouse(None, tmp_path).config, sources={source.name: source})
    names = ("id", "_sequence", "_ingested_at", "_is_delete", "_source_file")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for key, sequence, day, is_delete in rows:
        at = START + timedelta(days=day)
        for name, value in zip(columns, (key, sequence, at, is_delete, f"{day}.json"), strict=True):
            columns[name].append(value)
    write_deltalake(config.layout.table(source.rows_table).local, pa.table(columns), mode="append")
    return count_changes(config, source)


@pytest.fixture(autouse=True)
def mark_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read = DeltaOffset(1, -1)
    monkeypatch.setattr(pending_work, "read_up_to", lambda *_: read)


def test_count_changes_of_the_latest_state(tmp_path: Path) -> None:
    """Current rows: key 1 at sequence 20, and key 3 at 10."""
    assert counts(tmp_path, CHANGES) == ChangeCounts(4, 3, 2, 0)


def test_count_changes_of_a_history(tmp_path: Path) -> None:
    assert counts(tmp_path, CHANGES, stored_as_scd_type=2) == ChangeCounts(0, 3, 2, 0)


def test_count_changes_by_a_struct(tmp_path: Path) -> None:
    rows = [(key, {"ts": 1, "lsn": number}, *rest) for key, number, *rest in CHANGES]
    assert counts(tmp_path, rows) == ChangeCounts(4, 3, 2, 0)


def test_count_changes_by_a_struct_with_a_null_field(tmp_path: Path) -> None:
    """As for Spark, a null is less than any number: the delete is the newer change."""
    rows = [(1, {"ts": 1, "lsn": None}, 0, False), (1, {"ts": 1, "lsn": 5}, 1, True)]
    assert counts(tmp_path, rows) == ChangeCounts(1, 1, 0, 0)


def test_count_changes_before_the_first_batch(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(pending_work, "read_up_to", lambda *_: DeltaOffset(0, -1))
    assert counts(tmp_path, CHANGES) == ChangeCounts(waiting_rows=11)


def test_count_changes_that_wait(tmp_path: Path) -> None:
    """The second commit is not read yet."""
    counts(tmp_path, CHANGES)
    assert counts(tmp_path, [(5, 1, 0, False)] * 3) == ChangeCounts(4, 3, 2, 3)

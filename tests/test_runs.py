"""The record of runs."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable

from medallion.lakehouse.layout import Layout
from medallion.ops import runs


def test_a_long_record_stays_few_files(tmp_path: Path) -> None:
    """Each question opens all of them: a year of nights must not make every night slower."""
    layout = Layout(tmp_path)
    for number in range(60):
        runs.write(layout, [{"query": "bronze.a", "kind": "query", "rows_in": number}])
    assert len(DeltaTable(layout.table("ops.runs")).file_uris()) <= 25
    assert runs.totals(layout)["bronze.a"]["rows_in"] == 59 * 60 // 2


def test_nothing_to_write_is_an_empty_record(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    runs.write(layout, [])
    assert runs.totals(layout) == {}


def test_a_table_whose_making_was_cut_off_is_made_anew(tmp_path: Path) -> None:
    """Its folders are there, and a commit that has not got its name yet."""
    layout = Layout(tmp_path)
    log = layout.table("ops.runs") / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json#1").touch()
    assert runs.totals(layout) == {}
    runs.write(layout, [{"query": "bronze.a", "kind": "query", "rows_in": 7}])
    assert runs.totals(layout)["bronze.a"]["rows_in"] == 7

"""The record of erasures, without their conditions."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from urllib.parse import unquote

import duckdb
from deltalake import DeltaTable

from medallion.state import erasures
from medallion.state.journal import Action, ErasedOrigin, Erasure
from tests.support.home import Home

CONDITION = "name = 'Ada'"
ERASURE = Erasure(
    id="a1",
    table="silver.orders",
    condition=CONDITION,
    purge=True,
    rows={"bronze.orders": 3, "silver.orders": 2},
    undecided=1,
    origins=(ErasedOrigin("landing/o/a.json", 3, Action.REWRITTEN, 1, "archive/o/a.json"),),
    rebuilt=("gold.sums",),
)


def test_record_once_without_the_condition(home: Home) -> None:
    for time in (11, 12):  # the second call repeats the first
        erasures.record(home.layout, ERASURE, time)
    erasures.record(home.layout, replace(ERASURE, id="b2"), 13)
    files = DeltaTable(home.layout.table("ops.erasures")).file_uris()
    record = duckdb.read_parquet([*map(unquote, files)]).filter("erasure = 'a1'").order("item")
    rows = record.project("item, action, rows, condition_sha256").fetchall()
    digest = hashlib.sha256(CONDITION.encode()).hexdigest()
    assert rows == [
        ("bronze.orders", "erased", 3, digest),
        ("gold.sums", "rebuilt", None, digest),
        ("landing/o/a.json", "rewritten", 3, digest),
        ("silver.orders", "erased", 2, digest),
    ]
    assert erasures.erased_rows(home.layout, "orders", "bronze.orders") == 6
    assert erasures.erased_rows(home.layout, "people", "bronze.people") == 0

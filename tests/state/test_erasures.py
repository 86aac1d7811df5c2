"""The plan and the record of an erasure; only the plan has the condition."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from urllib.parse import unquote

import duckdb
import pytest
from deltalake import DeltaTable

from medallion.errors import MedallionError, UsageError
from medallion.state import erasures
from medallion.state.erasures import Action, ErasedOrigin, ErasurePlan
from medallion.storage import locks
from tests.support.home import Home

CONDITION = "name = 'Ada'"
PLAN = ErasurePlan(
    id="a1",
    table="silver.orders",
    condition=CONDITION,
    purge=True,
    started_at=7,
    rows={"bronze.orders": 3, "silver.orders": 2},
    undecided=1,
    origins=(ErasedOrigin("landing/o/a.json", 3, Action.REWRITTEN, 1, "archive/o/a.json"),),
    rebuilt=("gold.sums",),
    done=("files",),
)


def test_write_and_read_plan(home: Home) -> None:
    assert erasures.read_plan(home.layout) is None
    erasures.write_plan(home.layout, PLAN)
    assert erasures.read_plan(home.layout) == PLAN
    erasures.delete_plan(home.layout)
    assert erasures.read_plan(home.layout) is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"origins": [{}]}'])
def test_read_plan_that_is_damaged(home: Home, text: str) -> None:
    home.layout.erasure_plan.write_atomic(text)
    with pytest.raises(MedallionError, match=r"plan.json is damaged.* medallion erase again"):
        erasures.read_plan(home.layout)


def test_record_once_without_the_condition(home: Home) -> None:
    for time in (11, 12):  # the second call repeats the first
        erasures.record(home.layout, PLAN, time)
    erasures.record(home.layout, replace(PLAN, id="b2"), 13)
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


def test_unfinished_erasure_blocks_other_commands(home: Home) -> None:
    erasures.write_plan(home.layout, PLAN)
    with (
        pytest.raises(UsageError, match="interrupted: medallion erase, without arguments"),
        locks.lock_layers(home.layout, ["gold"], "nightly"),
    ):
        pass
    with locks.lock_layers(home.layout, ["gold"], locks.ERASE):
        pass

"""The plan of a refresh on disk, and its pending tables."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from medallion.config.loader import load
from medallion.errors import MedallionError
from medallion.runtime import refresh
from medallion.runtime.pipeline import Pipeline
from medallion.state import refresh_plan
from medallion.state.refresh_plan import RefreshPlan
from medallion.state.runs import RunRecords
from tests.support import PROJECT
from tests.support.home import Home


@pytest.fixture
def home(home: Home) -> Home:
    """Create the directory of a rebuild."""
    home.layout.refresh_plan.parent.local.mkdir(parents=True)
    return home


GOLD = "gold.device_totals"
PARTIAL = RefreshPlan(
    "silver.a", ("silver.a", "quarantine.a"), "q", 1, {"query": "silver.a"}, ("gold.b",)
)


def test_write_plan_until_it_is_done(home: Home) -> None:
    assert refresh_plan.read_plan(home.layout) is None
    refresh_plan.write_plan(home.layout, PARTIAL)
    staging = refresh_plan.StagingLayout(home.layout.root, PARTIAL.built)
    table, checkpoint = staging.table("silver.a"), staging.checkpoint("silver.a")
    table.local.mkdir()
    checkpoint.local.mkdir(parents=True)
    refresh_plan.remove_unfinished(home.layout)
    assert table.local.exists()
    assert checkpoint.local.exists()
    assert checkpoint == home.layout.checkpoint("silver.a", ahead=1)
    assert refresh_plan.read_plan(home.layout) == PARTIAL
    assert PARTIAL.pending == ("silver.a", "gold.b")
    refresh_plan.write_plan(home.layout, RefreshPlan("silver.a", then=("gold.b",)))
    assert RefreshPlan("silver.a", then=("gold.b",)).pending == ("gold.b",)
    refresh_plan.write_plan(home.layout, RefreshPlan("silver.a"))
    assert not home.layout.refresh_plan.parent.local.exists()
    assert not checkpoint.local.exists()


@pytest.mark.parametrize("text", ["", '{"table": "silver.a", "bui', "{}", "[]", "\udcff"])
def test_read_plan_damaged(home: Home, text: str) -> None:
    """It must not be ignored: flows would resume with partly replaced tables."""
    home.layout.refresh_plan.local.write_bytes(text.encode(errors="surrogateescape"))
    for read in (refresh_plan.pending_tables, refresh_plan.read_plan):
        with pytest.raises(MedallionError, match=r"plan\.json is damaged .* medallion refresh for"):
            read(home.layout)
    (home.layout.refresh_plan.parent / "gold.b").local.mkdir()
    refresh_plan.remove_unfinished(home.layout)
    assert (home.layout.refresh_plan.parent / "gold.b").local.is_dir()


def test_is_refreshing_with_a_damaged_plan(home: Home) -> None:
    home.layout.refresh_plan.local.write_text("{")
    pipeline: Any = SimpleNamespace(config=home.config, runs=RunRecords(home.layout))
    bronze: Any = SimpleNamespace(name="bronze.activity", upstream=())
    silver: Any = SimpleNamespace(name="silver.activity", upstream=("bronze.activity",))
    Pipeline._refuse_outdated(pipeline, bronze)
    with pytest.raises(MedallionError, match="is damaged"):
        Pipeline._refuse_outdated(pipeline, silver)


def test_remove_unfinished(home: Home) -> None:
    (home.layout.refresh_plan.parent / "gold.b").local.mkdir()
    refresh_plan.remove_unfinished(home.layout)
    assert not home.layout.refresh_plan.parent.local.exists()


def test_resume_plan_after_a_failed_swap(home: Home) -> None:
    """The rebuild is repeated, fails, and its staged table is gone.

    A holder of gold's lock alone rebuilds neither the table nor its downstream.
    """
    config = replace(home.config, gold={"device_totals": load({}, PROJECT).gold["device_totals"]})
    refresh_plan.write_plan(
        home.layout, RefreshPlan("silver.activity", ("silver.activity",), "q", 1, {}, (GOLD,))
    )
    # Building them fails at once: the flows have no attribute for the tables they write.
    silver = {"name": "silver.activity", "upstream": ("bronze.activity",)}
    gold = {"name": GOLD, "upstream": ("silver.activity",)}
    flows = {flow["name"]: SimpleNamespace(**flow) for flow in (silver, gold)}
    pipeline: Any = SimpleNamespace(
        config=config, report=print, flow=flows.__getitem__, blocking_gates=lambda _: {}
    )
    (error,) = refresh.rebuild_pending(pipeline, "gold")
    assert f"{GOLD} waits for silver.activity, which has to be rebuilt first" in str(error)
    (error,) = refresh.rebuild_pending(pipeline, "silver")
    assert "silver.activity cannot be rebuilt" in str(error)
    assert refresh_plan.read_plan(home.layout) == RefreshPlan(
        "silver.activity", then=("silver.activity", GOLD)
    )


def test_plan_of_unconfigured_tables(home: Home) -> None:
    refresh_plan.write_plan(
        home.layout, RefreshPlan("silver.gone", ("silver.gone",), "q", 1, {}, ("gold.gone",))
    )
    pipeline: Any = SimpleNamespace(config=home.config, report=print)
    for layer in ("silver", "gold"):
        assert refresh.rebuild_pending(pipeline, layer) == []
    assert refresh_plan.read_plan(home.layout) is None

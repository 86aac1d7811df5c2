"""Silver tables that read silver tables: the order of queries, their sources and readers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.config.queries import queries, readers
from medallion.config.tables import ChildTable
from medallion.config.values import Duration
from tests.support import PROJECT

HOUR = Duration.parse("1 hour")
CHILD = ChildTable(
    name="items",
    parent="event",
    explode="items",
    columns={"n": "pos"},
    keys=("n",),
    event_time=None,
    watermark=HOUR,
)
GRANDCHILD = replace(CHILD, name="parts", parent="items")


@pytest.fixture
def config() -> Config:
    """Add a child of silver.event, and a child of that, to the project's configuration."""
    config = load({}, PROJECT)
    counts = replace(config.gold["action_counts"], name="part_counts", tables=("silver.parts",))
    gold = {**config.gold, counts.name: counts}
    return replace(config, gold=gold, silver={"items": CHILD, "parts": GRANDCHILD})


def test_queries_follow_their_upstream(config: Config) -> None:
    silver = [(q.name, q.sources, q.upstream) for q in queries(config, ["silver"])]
    assert silver == [
        ("silver.activity", ("activity",), ("bronze.activity",)),
        ("silver.event", ("event",), ("bronze.event",)),
        ("silver.items", ("event",), ("silver.event",)),
        ("silver.parts", ("event",), ("silver.items",)),
    ]
    last = queries(config, ["gold"])[-1]
    assert (last.name, last.table, last.source) == ("gold.part_counts", "part_counts", "event")


def test_readers_include_indirect_readers(config: Config) -> None:
    names = [query.name for query in readers(config, ["silver.items"])]
    assert names == ["silver.parts", "gold.part_counts"]
    names = [query.name for query in readers(config, ["bronze.event"])]
    assert names[:3] == ["silver.event", "silver.items", "silver.parts"]
    assert {"gold.action_counts", "gold.part_counts"} <= {*names}
    assert "gold.device_counts" not in names

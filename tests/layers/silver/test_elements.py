"""Rows of child tables: elements of arrays and maps, rules and duplicates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from medallion.config.tables import ChildTable
from medallion.config.values import Duration
from medallion.layers.silver import transform
from medallion.layers.silver.child import child_rows, elements
from medallion.layers.silver.transform import DUPLICATE, mark_duplicates

SCHEMA = "id long, items array<string>, tags map<string, long>, key string, _ingested_at timestamp"
ROWS = [(1, ["a", "b", "a"], {"x": 7}, "k", 1), (2, [], {}, "k", 2), (3, None, None, "k", 3)]
TABLE = ChildTable(
    name="parts",
    parent="orders",
    explode="items",
    outer=False,
    columns={"id": "id", "pos": "pos", "part": "item"},
    where=None,
    keys=("id", "part"),
    event_time=None,
    watermark=Duration.parse("1 hour"),
)


@pytest.fixture(scope="module")
def orders(spark: SparkSession) -> DataFrame:
    rows = spark.createDataFrame(ROWS, SCHEMA.replace("timestamp", "long"))
    return rows.withColumn("_ingested_at", rows["_ingested_at"].cast("timestamp"))


def values(rows: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in rows.select(*columns).collect()), key=repr)


def test_elements_of_arrays_and_maps(orders: DataFrame) -> None:
    parts = [(1, 0, "a"), (1, 1, "b"), (1, 2, "a")]
    assert values(elements(orders, TABLE), "id", "pos", "item") == parts
    outer = replace(TABLE, outer=True, where="id < 3")
    assert values(elements(orders, outer), "id", "pos", "item") == [*parts, (2, None, None)]
    tags = replace(TABLE, explode="tags")
    map_elements = elements(orders.drop("key"), tags)
    assert values(map_elements, "id", "pos", "key", "item") == [(1, 0, "x", 7)]
    assert elements(orders, replace(TABLE, explode=None, where="size(items) = 3")).count() == 1
    with pytest.raises(AnalysisException, match=r"posexplode.* requires the .*ARRAY.*MAP"):
        elements(orders, replace(TABLE, explode="id"))
    with pytest.raises(AnalysisException, match="Reference `key` is ambiguous"):
        child_rows(elements(orders, tags), tags, {}, ())


def marked(rows: DataFrame, table: DataFrame) -> DataFrame:
    return mark_duplicates(rows, table, TABLE.keys, ["pos"])


def test_duplicates_of_keys(orders: DataFrame) -> None:
    """Rules come first: a row that breaks one does not occupy its key."""
    rows = child_rows(elements(orders, TABLE), TABLE, {"silver": {"first": "pos = 0"}}, ())
    no_rows, existing = rows.limit(0), orders.selectExpr("id", "'b' as part").where("id = 1")
    actual = values(marked(rows, no_rows), "pos", "_failed_rules", DUPLICATE)
    assert actual == [(0, ["first"], False), (1, [], False), (2, [], False)]
    actual = values(marked(rows, existing), "pos", DUPLICATE)
    assert actual == [(0, False), (1, True), (2, False)]
    rows = child_rows(elements(orders, TABLE), TABLE, {}, ())
    actual = values(marked(rows, no_rows), "pos", DUPLICATE)
    assert actual == [(0, False), (1, False), (2, True)]
    assert values(mark_duplicates(rows, existing, (), ["pos"]), DUPLICATE) == [(False,)] * 3
    columns = ["id", "tags", "key", "_ingested_at", "pos", "item", "_failed_rules"]
    assert transform.quarantine_rows(rows).columns == columns

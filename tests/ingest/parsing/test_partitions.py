"""Partition columns from values in paths."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.ingest.parsing.partitions import infer_partition_types, with_partition_columns

pytestmark = pytest.mark.usefixtures("interpreted")

ROOT = "landing/sales"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["10", "05", "-7"], "long"),
        (["2026-05-01", "2026-12-31"], "date"),
        (["2026-05-01", "2026-02-30"], "string"),
        (["20260501", "today"], "string"),
        (["1234567890123456789"], "string"),
        (["7", "__HIVE_DEFAULT_PARTITION__", ""], "long"),
    ],
)
def test_infer_partition_types(values: list[str], expected: str) -> None:
    paths = [f"{ROOT}/other=1/day={value}/a.json" for value in values] + [f"{ROOT}/b.json"]
    assert infer_partition_types(paths, ["day"]) == {"day": expected}


def test_infer_partition_types_without_a_value() -> None:
    paths = [f"{ROOT}/Day=1/a.json", f"{ROOT}/holiday=1/a.json", f"{ROOT}/day=1"]
    assert infer_partition_types(paths, ["day"]) == {}


def rows_of(spark: SparkSession, types: dict[str, str], *files: tuple[str, str | None]) -> Any:
    """Return partition columns and rescued data of rows that also have fields `hour` and `day`."""
    schema = "_source_file string, _rescued_data string, hour string, day string, x int"
    rows = spark.createDataFrame([(*file, "own", "own", 1) for file in files], schema)
    result = with_partition_columns(rows, types)
    assert result.columns == rows.columns
    return [tuple(row) for row in result.select("day", "hour", "_rescued_data").collect()]


def test_with_partition_columns(spark: SparkSession) -> None:
    types = {"day": "date", "hour": "bigint"}
    files = (
        f"{ROOT}/day=2026-05-01/hour=05/a.json",
        f"{ROOT}/hour=7/day=2026-05-02/day=2026-05-03/a.zip#day=1/x.json",
        f"{ROOT}/day=__HIVE_DEFAULT_PARTITION__/a.json",
        "/data/elsewhere/a.json",
    )
    assert rows_of(spark, types, *((file, None) for file in files)) == [
        (date(2026, 5, 1), 5, None),
        (date(2026, 5, 3), 7, None),
        (None, None, None),
        (None, None, None),
    ]


def test_with_partition_columns_rescues_misfits(spark: SparkSession) -> None:
    types = {"day": "date", "hour": "bigint"}
    path = f"{ROOT}/day=today/hour=7/a.json"
    expected = [
        (None, 7, '{"day":"today"}'),
        (None, 7, '{"day":"today","y":{"z":1}}'),
    ]
    assert rows_of(spark, types, (path, None), (path, '{"y":{"z":1}}')) == expected


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("a%20b", "a b"),
        ("a+b%2Fc", "a+b/c"),
        ("100%", "100%"),
        ("%C3%A4", "ä"),
        ("a%3Db=c", "a=b=c"),
    ],
)
def test_with_partition_columns_decodes(spark: SparkSession, encoded: str, value: str) -> None:
    path = f"{ROOT}/day={encoded}/a.json"
    assert rows_of(spark, {"day": "string"}, (path, None)) == [(value, "own", None)]
    assert infer_partition_types([path], ["day"]) == {"day": "string"}

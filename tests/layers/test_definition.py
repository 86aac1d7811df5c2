"""Errors of SQL in the configuration name the key, its line and the nearest column."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from medallion.config.document import position
from medallion.config.loader import load
from medallion.config.model import Config
from medallion.layers.definition import invalid_sql_error
from medallion.layers.gold.flow import gold_parts
from medallion.layers.silver import rules
from tests.support import PROJECT

CONFIGURATION = """sources:
  orders:
    silver:
      at: time
      id: id
      amount: >-
        cast(amount
        as double)
    event_time: at
    keys: [id, at]
gold:
  revenue:
    source: silver.orders
    group_by: [id]
    measure: { total: sum(amount) }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "conf/pipeline.yaml"
    file.parent.mkdir()
    return file


def configured(file: Path, before: str = "", after: str = "") -> Config:
    file.write_text(CONFIGURATION.replace(before, after) if before else CONFIGURATION)
    return load({"MEDALLION_CONF": str(file.parent)}, PROJECT)


@pytest.fixture(scope="module")
def bronze(spark: SparkSession) -> DataFrame:
    technical = "'f' as _source_file, null as _corrupt_record, now() as _ingested_at"
    user = "named_struct('name', 'x') as user"
    return spark.sql(f"select now() as time, 'a' as id, 1D as amount, {user}, {technical}")


@pytest.mark.parametrize(
    ("before", "after", "location", "problem"),
    [
        (
            "cast(amount",
            "cast(amout",
            "line 7, column 14",
            "no file has had a field amout yet; did you mean amount? The columns are time, id, "
            "amount, user.",
        ),
        ("id: id", "id: user.nme", "line 5, column 16", "there is no field nme. The fields are"),
        ("id: id", "id: lowr(id)", "line 5, column 11", "there is no function lowr."),
        ("id: id", "id: id +", "line 5, column 11", "there is a syntax error at end of input."),
        ("id: id", "id: id + [", "line 5, column 17", "there is a syntax error at '['."),
    ],
)
def test_error_of_a_silver_column(
    file: Path, bronze: DataFrame, before: str, after: str, location: str, problem: str
) -> None:
    config = configured(file, before, after.replace("id + [", "'id + [ 1'"))
    source = config.sources["orders"]
    parts = rules.sql_parts(config, source, bronze, {"bronze": {}, "silver": {}})
    column = "amount" if "am" in after else "id"
    error = invalid_sql_error("silver.orders", parts, AnalysisException("x"))
    start = f"silver.orders.{column} in {file} {location}: {problem}"
    assert str(error)[: len(start)] == start


def test_error_of_a_declared_column(file: Path, bronze: DataFrame) -> None:
    config = configured(file, "id: id", "id: idd")
    source = replace(config.sources["orders"], schema={"id": "string"})
    parts = rules.sql_parts(config, source, bronze, {"bronze": {}, "silver": {}})
    error = invalid_sql_error("silver.orders", parts, AnalysisException("x"))
    assert f"{file} line 5, column 11: there is no column idd; did you mean id? The" in str(error)


def test_error_of_a_rule(file: Path, bronze: DataFrame) -> None:
    config = configured(file)
    wrong = {"bronze": {}, "silver": {"r": "amount > 0", "s": "amont > 0"}}
    parts = rules.sql_parts(config, config.sources["orders"], bronze, wrong)
    error = invalid_sql_error("silver.orders", parts, AnalysisException("x"))
    suite = file.parent / "great_expectations/expectations/silver/orders.json"
    start = f"the rule s of silver.orders in {suite}: there is no column amont; did you mean amount"
    assert str(error).startswith(start)


def test_error_of_a_measure(spark: SparkSession, file: Path, bronze: DataFrame) -> None:
    config = configured(file, "sum(amount)", "sum(amout)")
    silver = bronze.selectExpr("time as at", "id", "amount")
    parts = gold_parts(spark, config, config.gold["revenue"], {"orders": silver})
    error = invalid_sql_error("gold.revenue", parts, AnalysisException("x"))
    start = f"gold.revenue.measure.total in {file} line 15, column 27: there is no column amout"
    assert str(error).startswith(f"{start}; did you mean amount?")


def test_position_of_a_missing_key_is_that_of_the_mapping(file: Path) -> None:
    configured(file)
    assert position(file, "sources.orders.keys") == (10, 5)
    assert position(file, "sources.orders.keys", "at") == (10, 16)
    assert position(file, "sources.orders.watermark") == (2, 3)
    assert position(file.with_name("none.yaml"), "sources") is None

"""Types of columns that nobody declared: only what surely is a time becomes one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.schema.inference import infer

DATED = ["2018-03-02", "2018-03-02T10:02:33Z", "2018-03-02 10:02:33.5", "2018-03-02T10:02:33+01:00"]
# Spark takes these for years, months and times of today.
UNDATED = ["01067", "10115", "2018", "1234-5", "2018-03", "-2018", "+12345", "10:02", "T10:02:33"]


def inferred(spark: SparkSession, *values: Any) -> str | None:
    """The type of a field that has these values, each in a line of its own."""
    return infer(spark, [json.dumps({"f": value}) for value in values]).get("f")


@pytest.mark.parametrize("text", DATED)
def test_a_text_with_a_whole_date_is_a_time(spark: SparkSession, text: str) -> None:
    assert inferred(spark, text, None) == "timestamp"
    assert inferred(spark, {"at": [text, text]}) == "struct<at:array<timestamp>>"


@pytest.mark.parametrize("text", UNDATED)
def test_a_text_without_one_is_none(spark: SparkSession, text: str) -> None:
    assert inferred(spark, text) == "string"
    assert inferred(spark, {"a": [{"in": text}]}) == "struct<a:array<struct<in:string>>>"


def test_one_text_without_a_date_among_times_is_enough(spark: SparkSession) -> None:
    assert inferred(spark, *DATED, "2018") == "string"
    among = [{"in": text} for text in (*DATED, "2018")]
    assert inferred(spark, among, [{"in": DATED[0], "n": 1}]) == "array<struct<in:string,n:long>>"


def test_a_line_that_is_not_json_makes_no_times(spark: SparkSession) -> None:
    """Spark infers from the object that it begins with."""
    assert infer(spark, ['{"f":"10115"} and more']).get("f") in (None, "string")


BEYOND_LONG, BEYOND_DOUBLE = 9223372036854775809, 2**53 + 1


def test_whole_numbers_that_no_double_can_say_are_texts(spark: SparkSession) -> None:
    assert inferred(spark, BEYOND_LONG, BEYOND_LONG + 1) == "string"
    assert inferred(spark, 10**39 + 1) == "string"  # a decimal has 38 digits
    assert inferred(spark, 10**400) == "string"
    assert inferred(spark, BEYOND_DOUBLE, 0.5) == "string"
    assert inferred(spark, {"a": [BEYOND_LONG]}, {"a": [1]}) == "struct<a:array<string>>"


def test_other_numbers_are_numbers(spark: SparkSession) -> None:
    assert inferred(spark, BEYOND_DOUBLE, 1) == "long"
    assert inferred(spark, 2**53, 0.5, 1e300) == "double"
    assert inferred(spark, {"a": [1, 0.5]}) == "struct<a:array<double>>"


def test_fields_that_spark_takes_for_one_make_no_column(spark: SparkSession) -> None:
    """It goes by single letters: i with and without its dot are one, and neither is found."""
    assert inferred(spark, {"i": 1, "\u0131": 2}) is None
    assert inferred(spark, [{"a": {"s": 1, "\u017f": 2}}]) is None
    assert inferred(spark, {"i": 1, "j": 2}) == "struct<i:long,j:long>"

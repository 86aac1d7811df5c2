"""The differences between Spark's SQL and DataFusion's that docs/sql.md lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.errors import UsageError
from medallion.spark.errors import SPARK_ERRORS
from medallion.sql.engine import query

TIME = "timestamp '2026-05-01T12:00:00'"  # a Friday
SORTED = "SELECT n AS v FROM (VALUES (1), (NULL)) AS t(n) ORDER BY n LIMIT 1"
FAILS = "an error"

# The expression or statement, its value in Spark, and its value in DataFusion.
DIFFERENCES: tuple[tuple[str, Any, Any], ...] = (
    ("SELECT A AS v FROM (VALUES (1)) AS t(a)", 1, FAILS),
    ('"open"', "open", FAILS),
    ("CAST(7 / 2 AS double)", 3.5, 3.0),
    ("7 / 2.0", 3.5, 3.5),
    ("9223372036854775807 + 1", FAILS, -(2**63)),
    ("CAST(1.0 AS double) / 0", FAILS, float("inf")),
    (SORTED, None, 1),
    ("concat('a', NULL)", None, "a"),
    ("'a' || NULL", None, None),
    (f"date_format({TIME}, 'yyyy-MM-dd')", "2026-05-01", "yyyy-MM-dd"),
    (f"date_format({TIME}, '%Y-%m-%d')", FAILS, "2026-05-01"),
    ("array(5, 6)[0]", 5, FAILS),
    ("make_array(5, 6)[1]", FAILS, 5),
    ("make_array(5, 6)[0]", FAILS, None),
    ("named_struct('a', 1).a", 1, FAILS),
    ("named_struct('a', 1)['a']", 1, 1),
    ("explode(array(1))", 1, FAILS),
    ("unnest(make_array(1))", FAILS, 1),
    ("'1' + 1", 2, FAILS),
    ("year(date '2026-05-01')", 2026, FAILS),
    ("date_part('year', date '2026-05-01')", 2026, 2026),
    ("dayofweek(date '2026-05-01')", 6, FAILS),
    ("date_part('dow', date '2026-05-01')", 6, 5),
    ("datediff(date '2026-05-02', date '2026-05-01')", 1, FAILS),
    ("if(true, 1, 2)", 1, FAILS),
    ("count_if(true)", 1, FAILS),
    ("count(*) FILTER (WHERE true)", 1, 1),
    ("array_length(make_array(1, 2))", FAILS, 2),
    ("'abc' RLIKE 'b'", True, FAILS),
    ("'abc' ~ 'b'", FAILS, True),
    ("string_to_array('a,b', ',')", FAILS, ["a", "b"]),
    ("split('a,b', ',')", ["a", "b"], FAILS),
)


def statement(sql: str) -> str:
    return sql if sql.startswith("SELECT") else f"SELECT {sql} AS v"


@pytest.mark.parametrize(("sql", "_", "expected"), DIFFERENCES)
def test_dialect_of_datafusion(sql: str, _: Any, expected: Any, tmp_path: Path) -> None:
    try:
        ((value,),) = query(tmp_path, statement(sql)).rows
    except UsageError:
        value = FAILS
    assert value == expected


def test_dialect_of_spark(spark: SparkSession) -> None:
    actual = []
    for sql, _, _ in DIFFERENCES:
        try:
            ((value,),) = spark.sql(statement(sql)).collect()
        except SPARK_ERRORS:
            value = FAILS
        actual.append((sql, value))
    assert actual == [(sql, expected) for sql, expected, _ in DIFFERENCES]

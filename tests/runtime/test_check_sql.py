"""`medallion check --sql`: Spark names each wrong expression, with its key and line."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.inspect.problems import ProblemCode
from medallion.runtime import check_sql
from medallion.runtime.check import CheckResult
from tests.support.home import tree

PIPELINE = """
sources:
  sales:
    silver:
      at: time
      day: date_trunc(time)
      total: amount +
      shop: upper(shop)
    event_time: at
    keys: [at, shop]
gold:
  counts:
    source: silver.sales
    measure:
      total: sum(shop, 1)
  later:
    source: silver.other
    measure: { n: count(*) }
"""


def test_check_sql(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, file = tmp_path / "data/lakehouse", tmp_path / "pipeline.yaml"
    child = "silver:\n  other: {source: silver.sales, columns: {at: at}, keys: [at]}\n"
    file.write_text(PIPELINE + child)
    row = "now() time, 'a' shop, 1.5 amount, 'f' _source_file, now() _ingested_at"
    for table, columns in (("bronze/sales", row), ("silver/sales", "now() at, 'a' shop")):
        spark.sql(f"SELECT {columns}").write.format("delta").save(str(root / table))
    monkeypatch.setattr(check_sql, "session_of_command", lambda *_: nullcontext(spark))
    before, result = tree(tmp_path), CheckResult()
    check_sql.check_sql(load({}, tmp_path), result)
    day, total, measure = result.errors
    assert f"silver.sales.day in {file} line 6, column 7: " in day
    assert "WRONG_NUM_ARGS" in day
    assert ": [PARSE_SYNTAX_ERROR] Syntax error at " in total
    assert f"silver.sales.total in {file} line 7, column " in total
    assert f"in {file} line 15, column " in measure
    (note,) = (each for each in result.problems if each.code is ProblemCode.NOTE)
    assert note.sentence.startswith("Spark has not checked the SQL of gold.later: silver.other has")
    assert tree(tmp_path) == before

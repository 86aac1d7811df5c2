"""Conversions of results to pandas, Polars, Arrow and DuckDB."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import medallion
from medallion.errors import UsageError
from medallion.sql.result import Result
from tests.support.sql import TEN, TEN_IN_SQL


@pytest.fixture
def result(tmp_path: Path) -> Result:
    values = f"({TEN_IN_SQL}, 'a', 1.5), ({TEN_IN_SQL}, NULL, NULL)"
    return medallion.query(tmp_path, f"SELECT * FROM (VALUES {values}) AS t(at, name, n)")


def test_result_rows_are_python_values(result: Result) -> None:
    assert result.columns == ("at", "name", "n")
    assert result.rows == [(TEN, "a", 1.5), (TEN, None, None)]


def test_result_conversions(result: Result) -> None:
    arrow = result.to_arrow()
    assert arrow.column_names == ["at", "name", "n"]
    assert str(arrow.schema.field("at").type) == "timestamp[us, tz=UTC]"
    assert str(arrow.schema.field("name").type) == "string"
    assert result.to_pandas()["n"].sum() == 1.5
    assert result.to_pandas()["at"][0].to_pydatetime() == TEN
    assert result.to_polars().rows()[0] == (TEN, "a", 1.5)
    assert result.to_duckdb().aggregate("count(name), sum(n)").fetchall() == [(1, 1.5)]


def test_result_without_batches_converts() -> None:
    assert Result(("a", "b"), [(1, "x")]).to_pandas().to_dict("records") == [{"a": 1, "b": "x"}]
    assert Result(("a",), []).to_arrow().num_rows == 0


def test_result_is_a_table_in_notebooks(result: Result) -> None:
    assert "<td>a</td>" in result._repr_html_()


def test_result_missing_package(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UsageError, match="polars is not installed: pip install polars"):
        result.to_polars()

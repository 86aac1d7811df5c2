"""Sources written by `medallion add`, and one nightly run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from medallion.cli import main
from medallion.config.loader import load
from tests.support import PROJECT
from tests.support.lakehouse import Lakehouse

SAMPLES = Path(__file__).parents[1] / "discover/samples"
FILES = {
    "sales": "sales-semicolon.csv",
    "trail": "cloudtrail.json.gz",
    "conn": "zeek-conn.json",
}
CONTENTS = {
    "log.txt": "GET /health\n" * 20,
    "shops.csv": "at,shop,amount\n" + "2026-05-01,x,\n2026-05-01,x,1.5\n2026-05-01,x,1.5\n",
    "report.csv": 'Report, "x\n\n,id,at,at\n0,1,2026-05-01,a\n',
}


@pytest.fixture
def added(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lakehouse:
    """Return a lakehouse with a source for each file, which has landed."""
    lakehouse = Lakehouse(spark, tmp_path / "lake")
    conf = lakehouse.copy_of_conf(tmp_path)
    (conf / "pipeline.yaml").write_text(
        "sources:\n  other: {silver: {at: at}, event_time: at, keys: [at]}\n"
    )
    monkeypatch.setenv("MEDALLION_CONF", str(conf))
    monkeypatch.setenv("MEDALLION_HOME", str(lakehouse.root))
    for name, file in FILES.items():
        assert main.main(["add", name, str(SAMPLES / file), "--land"]) == 0
    for name, text in CONTENTS.items():
        path = tmp_path / name
        path.write_text(text)
        assert main.main(["add", path.stem, str(path), "--land"]) == 0
    lakehouse.config = load(None, PROJECT)
    return lakehouse


def check_silver(lakehouse: Lakehouse) -> None:
    for name in lakehouse.config.sources.keys() & FILES:
        assert len(lakehouse.rows(f"silver.{name}")) == 40
        assert lakehouse.rows(f"quarantine.{name}") == []
    sales = lakehouse.rows("silver.sales", "order_id", "datum", "amount", "note")
    assert sales[0][2:] == ("1.234,00", 'line1\nline2 "q"')
    assert str(sales[0][1]).startswith("2026-05-01 10:00")
    # Equal lines are no duplicates. Equal CSV rows are, unless they differ in a null.
    assert len(lakehouse.rows("silver.log")) == 20
    amounts = [amount for (amount,) in lakehouse.rows("silver.shops", "amount")]
    assert sorted(amounts, key=str) == [1.5, None]


def test_added_files_reach_gold(added: Lakehouse) -> None:
    added.keep_only("sales", "trail", "log", "shops", "sales_by_hour")
    added.fill()
    check_silver(added)
    assert sum(rows for (rows,) in added.rows("gold.sales_by_hour", "row_count")) == 40


@pytest.mark.slow
def test_all_added_files_reach_gold(added: Lakehouse) -> None:
    report = added.nightly()
    assert report.is_good, report
    check_silver(added)
    for name in FILES:
        assert sum(rows for (rows,) in added.rows(f"gold.{name}_by_hour", "row_count")) == 40
    assert added.rows("silver.report", "id", "at_3") == [(1, "a")]

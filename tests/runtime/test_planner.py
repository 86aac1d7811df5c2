"""How much there is to do, without Spark; a night with nothing to do: e2e/test_sample."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from medallion.config.loader import load
from medallion.runtime.planner import work_to_do
from medallion.spark.session import Workload
from medallion.storage import records, table_specs
from tests.support import PROJECT
from tests.support.home import Home


def test_few_bytes_wait_or_many(home: Home) -> None:
    assert work_to_do(home.config) == Workload.LITTLE  # a first night of nothing
    home.land("a.json", "{}\n" * 1000)
    home.poll()
    home.land("b.json", "{}\n" * 1000)
    assert work_to_do(home.config) == Workload.LITTLE
    home.land("c.json", " " * 4 * 2**20)
    assert work_to_do(home.config) == Workload.SOME
    home.land("d.json", " " * 60 * 2**20)
    assert work_to_do(home.config) == Workload.MUCH


def test_packed_files_count_as_they_are_unpacked(home: Home) -> None:
    for name, size, work in (("a.json.gz", 5, Workload.SOME), ("b.json.gz", 60, Workload.MUCH)):
        home.land(name)
        (home.landing / name).write_bytes(gzip.compress(b" " * size * 2**20))
        assert work_to_do(home.config) == work


@pytest.mark.parametrize(("table", "name"), [("bronze.activity", "x"), ("gold.device_totals", "n")])
def test_many_rows_wait_or_are_to_be_counted_anew(home: Home, table: str, name: str) -> None:
    """Rows of bronze that silver has not read; a table of gold is written whole."""
    gold = {"device_totals": load({}, PROJECT).gold["device_totals"]}
    config = replace(home.config, gold=gold)
    spec = replace(table_specs.table_spec(table), columns={name: "long"})
    for rows, work in (
        (60_000, Workload.LITTLE),
        (60_000, Workload.SOME),
        (400_000, Workload.MUCH),
    ):
        records.append_records(home.layout.table(table), spec, [{name: n} for n in range(rows)])
        assert work_to_do(config) == work


def test_what_cannot_be_looked_at_is_much(home: Home) -> None:
    log = home.layout.table("bronze.activity") / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("{")
    assert work_to_do(home.config) == Workload.MUCH

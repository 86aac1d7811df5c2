"""How much there is to do, without Spark; a night with nothing to do: e2e/test_sample."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medallion.config.loader import load
from medallion.lakehouse import records, specs
from medallion.pipeline.idle import has_little_to_do
from tests.support import PROJECT
from tests.support.home import Home


def test_few_bytes_wait_or_many(home: Home) -> None:
    assert has_little_to_do(home.config)  # a first night of nothing
    home.land("a.json", "{}\n" * 1000)
    home.poll()
    home.land("b.json", "{}\n" * 1000)
    assert has_little_to_do(home.config)
    home.land("c.json", " " * 4 * 2**20)
    assert not has_little_to_do(home.config)


@pytest.mark.parametrize(("table", "name"), [("bronze.activity", "x"), ("gold.device_totals", "n")])
def test_many_rows_wait_or_are_to_be_counted_anew(home: Home, table: str, name: str) -> None:
    """Rows of bronze that silver has not read; a table of gold is written whole."""
    gold = {"device_totals": load({}, PROJECT).gold["device_totals"]}
    config = replace(home.config, gold=gold)
    spec = replace(specs.of(table), columns={name: "long"})
    for rows, is_little in ((60_000, True), (60_000, False)):
        records.append(home.layout.table(table), spec, [{name: n} for n in range(rows)])
        assert has_little_to_do(config) == is_little


def test_what_cannot_be_looked_at_is_not_little(home: Home) -> None:
    log = home.layout.table("bronze.activity") / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("{")
    assert not has_little_to_do(home.config)

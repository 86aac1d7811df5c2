"""The fields of bronze that the configuration names, wherever it does."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.layers.bronze.named_fields import NamedFields
from medallion.quality.suites import suite_path
from tests.support import PROJECT

SHOP = """
sources:
  orders:
    silver: {id: id, who: customer.person, items: order.items, zip: upper(address.zip)}
    keys: [id]
    cdc: {sequence_by: 'struct(meta.at, id)', apply_as_deletes: gone, apply_as_truncates: op.all}
  people:
    format: debezium
    silver: {id: id, home: home}
    keys: [id]
silver:
  items:
    source: silver.orders
    explode: items
    where: item.is_gift
    columns: {id: id, pos: pos, tax: item.tax, street: who.street}
    keys: [id, pos]
gold:
  plans:
    source: silver.orders
    where: who.plan = 'gold' and zip.code > 0
    group_by: [id]
    measure: {oldest: max(who.age)}
  taxes: {source: silver.items, measure: {rate: max(tax.rate)}}
  homes: {source: silver.people, measure: {n: count(home.zip)}}
"""


def test_fields_that_each_part_names(spark: SparkSession, tmp_path: Path) -> None:
    """Also those that no row has had; an expression that is no plain column has its own fields."""
    (tmp_path / "pipeline.yaml").write_text(SHOP)
    for table, column in {"bronze.orders": "raw.size", "silver.orders": "who.vip"}.items():
        entry = {
            "type": "expect_column_values_to_not_be_null",
            "kwargs": {"column": column},
            "meta": {"name": column, "on_failure": "quarantine"},
        }
        suite = suite_path(tmp_path, table)
        suite.parent.mkdir(parents=True)
        suite.write_text(json.dumps({"name": table, "expectations": [entry]}))
    environment = {"MEDALLION_CONF": str(tmp_path), "MEDALLION_HOME": str(tmp_path / "lakehouse")}
    config = load(environment, PROJECT)
    named = NamedFields(spark, config, config.sources["orders"])({})
    assert {".".join(path) for path in named} == {
        *("id", "customer.person", "order.items", "address.zip", "meta.at", "gone", "op.all"),
        *("order.items.[]", "order.items.[].is_gift", "order.items.[].tax"),
        *("customer.person.street", "customer.person.plan", "customer.person.age"),
        *("order.items.[].tax.rate", "raw.size", "customer.person.vip"),
    }
    columns = {"payload": "struct<after:struct<id:string>,op:string>"}
    named = NamedFields(spark, config, config.sources["people"])(columns)
    row = {".".join(path) for path in named if "after" in path}
    assert row == {"payload.after.id", "payload.after.home", "payload.after.home.zip"}

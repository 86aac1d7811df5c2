"""The document of the rules of a source."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from medallion.config.tables import CdcConfig
from medallion.config.values import Duration
from medallion.layers.silver import rules
from tests.support.lakehouse import activity_source

CDC = CdcConfig("seq", "op = 'd'", None, None, 1, False, Duration.parse("30 days"))
BRONZE = "ID long, seq long, op string, name string, plan string"
FOR_DELETES = ["bad_key", "malformed_line", "null_key", "null_sequence", "order"]
FOR_DELETES += ["rescued_ID", "rescued_seq"]
OWN = {
    "late": "admit",
    "bronze": {"malformed_line": "_corrupt_record is not null", "no_plan": "plan is null"},
    "silver": {"bad_key": "user_id < 0", "order": "_sequence < user_id", "no_name": "name is null"},
}


@pytest.mark.parametrize(("cdc", "deletes"), [(CDC, FOR_DELETES), (None, None)])
def test_rules_for_deletes_are_about_key_and_sequence(
    spark: SparkSession, cdc: CdcConfig | None, deletes: list[str] | None
) -> None:
    columns = {"user_id": "id", "name": "name"}
    source = activity_source(silver=columns, keys=("user_id",), cdc=cdc, event_time="")
    bronze = spark.createDataFrame([], BRONZE).schema
    document = rules.with_rescue_rules(spark, source, OWN, bronze)
    assert document.get("deletes") == deletes

"""Debezium's envelope, unwrapped by the schema of bronze."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from medallion.config.tables import CdcConfig
from medallion.config.values import Duration
from medallion.errors import ConfigError
from medallion.layers.silver.changes import envelope_path, unwrapped
from tests.support.lakehouse import activity_source

CDC = CdcConfig("coalesce(_lsn, _ts_ms)", "_op = 'd'", 1, False, Duration.parse("30 days"))
SOURCE = activity_source(
    silver={"user_id": "ID", "name": "lower(name)"}, keys=("user_id",), cdc=CDC
)
SOURCE = replace(SOURCE, is_debezium=True)


def struct(*strings: str, **nested: T.StructType) -> T.StructType:
    fields = [T.StructField(name, T.StringType()) for name in strings]
    return T.StructType([*fields, *(T.StructField(n, type_) for n, type_ in nested.items())])


PAYLOAD = struct(
    "op",
    "ts_ms",
    before=struct("id"),
    after=struct("id", "name"),
    source=struct("ts_ms", "lsn"),
)


def test_unwrapped_payload(spark: SparkSession) -> None:
    """A delete has only the key in `before`."""
    schema = struct("schema", payload=PAYLOAD)
    bronze = spark.createDataFrame(
        [
            (None, ("c", "7", None, ("1", "ADA"), ("5", "10"))),
            (None, ("u", "8", ("1",), ("1", "Bo"), ("6", None))),
            (None, ("d", "9", ("1",), None, (None, None))),
        ],
        schema,
    )
    source = unwrapped(SOURCE, bronze)
    assert source.cdc is not None
    sql = [*source.silver.values(), source.cdc.sequence_by, source.cdc.apply_as_deletes]
    assert [tuple(row) for row in bronze.selectExpr(*map(str, sql)).collect()] == [
        ("1", "ada", "10", False),
        ("1", "bo", "6", False),
        ("1", None, "9", True),
    ]


def test_unwrapped_without_payload(spark: SparkSession) -> None:
    bronze = spark.createDataFrame(
        [("x", "u", "7", ("1", "Ada"))], struct("before", "op", "ts_ms", after=struct("id", "name"))
    )
    source = unwrapped(SOURCE, bronze)
    assert bronze.selectExpr(*source.silver.values()).collect() == [("1", "ada")]
    assert source.cdc is not None
    assert bronze.selectExpr(source.cdc.sequence_by).collect() == [(7,)]


def test_unwrapped_structs_of_different_types(spark: SparkSession) -> None:
    """A field that comes later is in `after` first; a delete has no struct then."""
    after = struct("id", name=struct("first", "last"))
    bronze = spark.createDataFrame(
        [
            ("u", "7", ("1", ("Ada",)), ("1", ("Ada", "L"))),
            ("d", "8", ("1", ("Ada",)), None),
        ],
        struct("op", "ts_ms", before=struct("id", name=struct("first")), after=after),
    )
    source = unwrapped(replace(SOURCE, silver={"user_id": "id", "name": "name"}), bronze)
    rows = bronze.selectExpr(*source.silver.values()).collect()
    assert rows == [("1", ("Ada", "L")), ("1", None)]


@pytest.mark.parametrize("prefix", [(), ("payload",)])
def test_envelope_path(prefix: tuple[str, ...]) -> None:
    envelope = "before struct<old:string,id:long>, after struct<id:long>, op string, ts_ms long"
    columns = dict(column.split(" ", 1) for column in envelope.split(", "))
    if prefix:
        fields = ",".join(f"{name}:{dtype}" for name, dtype in columns.items())
        columns = {"schema": "string", "payload": f"struct<{fields}>"}
    paths = {
        ("_op",): None,
        ("schema" if prefix else "op",): None,
        ("old",): (*prefix, "before", "old"),
        ("ID",): (*prefix, "after", "ID"),
        ("vip", "since"): (*prefix, "after", "vip", "since"),
    }
    assert {path: envelope_path(path, columns) for path in paths} == paths


def test_unwrapped_position_alone(spark: SparkSession) -> None:
    schema = struct("op", after=struct("id"), source=struct("lsn"))
    bronze = spark.createDataFrame([("u", ("1",), ("5",))], schema)
    cdc = unwrapped(SOURCE, bronze).cdc
    assert cdc is not None
    assert bronze.selectExpr(cdc.sequence_by).collect() == [(5,)]


def test_unwrapped_without_order(spark: SparkSession) -> None:
    """The message names the key and the fields; a sequence of other columns needs none of them."""
    bronze = spark.createDataFrame([], struct("op", after=struct("id", "version")))
    message = r"sources\.\w+\.cdc\.sequence_by is .*source\.lsn, source\.ts_ms or ts_ms"
    with pytest.raises(ConfigError, match=message):
        unwrapped(SOURCE, bronze)
    for sequence in ("version", "coalesce(_ts_ms, payload.source.pos)"):
        unwrapped(replace(SOURCE, cdc=replace(CDC, sequence_by=sequence)), bronze)


def test_unwrapped_columns_named_like_keywords(spark: SparkSession) -> None:
    names = (
        "day",
        "year",
        "month",
        "hour",
        "minute",
        "second",
        "week",
        "quarter",
        "position",
        "desc",
    )
    schema = struct("op", "ts_ms", after=struct(*names))
    bronze = spark.createDataFrame([("c", "1", names)], schema)
    source = replace(SOURCE, silver={f"c_{name}": name for name in names}, keys=("c_day",))
    rows = bronze.selectExpr(*unwrapped(source, bronze).silver.values()).collect()
    assert [tuple(row) for row in rows] == [names]

"""Debezium's envelope, unwrapped by the schema of bronze."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import types as T

from medallion.config.tables import CdcConfig
from medallion.config.values import Duration
from medallion.errors import ConfigError
from medallion.layers.silver.changes import unwrapped
from tests.support.home import activity_source

CDC = CdcConfig("coalesce(_lsn, _ts_ms)", "_op = 'd'", 1, False, Duration.parse("30 days"))
SOURCE = activity_source(
    silver={"user_id": "ID", "name": "lower(name)"}, keys=("user_id",), cdc=CDC
)
SOURCE = replace(SOURCE, is_debezium=True)


def struct(*strings: str, **nested: T.StructType) -> T.StructType:
    fields = [T.StructField(name, T.StringType()) for name in strings]
    return T.StructType([*fields, *(T.StructField(n, type_) for n, type_ in nested.items())])


def test_unwrapped_payload() -> None:
    """A delete has only the key in `before`."""
    row, key = struct("id", "name"), struct("id")
    origin = struct("ts_ms", "lsn")
    payload = struct("op", "ts_ms", before=key, after=row, source=origin)
    bronze = struct("schema", payload=payload)
    source = unwrapped(SOURCE, bronze)
    assert source.silver == {
        "user_id": "if(payload.op = 'd', payload.before.`id`, payload.after.`id`)",
        "name": "lower(if(payload.op = 'd', null, payload.after.`name`))",
    }
    assert source.cdc is not None
    assert source.cdc.sequence_by == (
        "coalesce(payload.source.lsn, coalesce(payload.source.ts_ms, payload.ts_ms))"
    )
    assert source.cdc.apply_as_deletes == "payload.op = 'd'"


def test_unwrapped_without_payload() -> None:
    bronze = struct("before", "op", "ts_ms", after=struct("id"))
    source = unwrapped(SOURCE, bronze)
    assert source.silver["user_id"] == "if(op = 'd', null, after.`id`)"
    assert source.silver["name"] == "lower(name)"  # no row has this field yet
    assert source.cdc is not None
    assert source.cdc.sequence_by == "coalesce(cast(null as bigint), coalesce(ts_ms))"


def test_unwrapped_position_alone() -> None:
    bronze = struct("op", after=struct("id"), source=struct("lsn"))
    cdc = unwrapped(SOURCE, bronze).cdc
    assert cdc is not None
    assert cdc.sequence_by == "coalesce(source.lsn, cast(null as bigint))"


def test_unwrapped_without_order() -> None:
    """The message names the key and the fields; a sequence of other columns needs none of them."""
    bronze = struct("op", after=struct("id", "version"))
    message = r"sources\.\w+\.cdc\.sequence_by is .*source\.lsn, source\.ts_ms or ts_ms"
    with pytest.raises(ConfigError, match=message):
        unwrapped(SOURCE, bronze)
    for sequence in ("version", "coalesce(_ts_ms, payload.source.pos)"):
        unwrapped(replace(SOURCE, cdc=replace(CDC, sequence_by=sequence)), bronze)

"""Debezium's envelope, unwrapped by the schema of bronze."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.model import SourceConfig
from medallion.config.tables import CdcConfig
from medallion.config.values import Duration
from medallion.errors import ConfigError
from medallion.layers.silver.envelope import envelope_path, unwrapped
from medallion.layers.silver.rules import (
    NO_RULES,
    bind_rules,
    built_in_rules,
    with_rescue_rules,
)
from tests.support.lakehouse import activity_source

MONTH = Duration.parse("30 days")
PLACEHOLDER = "__debezium_unavailable_value"
ORDER = "coalesce(_lsn, _ts_ms)"
CDC = CdcConfig(ORDER, "_op = 'd'", "_op = 't'", PLACEHOLDER, 1, False, MONTH)
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


def log_of(source: SourceConfig, bronze: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Return columns of the log of changes that rows of bronze give."""
    technical = {"_source_file": F.lit("f"), "_source_position": F.lit(1)}
    technical["_ingested_at"] = F.lit(None).cast("timestamp")
    rows = bronze.withColumns(technical)
    changes = bind_rules(unwrapped(source, rows), NO_RULES)(rows)
    return [tuple(row) for row in changes.select(*columns).collect()]


LOG = ("user_id", "name", "_sequence", "_is_delete")


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
    assert log_of(SOURCE, bronze, *LOG) == [
        ("1", "ada", "10", False),
        ("1", "bo", "6", False),
        ("1", None, "9", True),
    ]


def test_unwrapped_without_payload(spark: SparkSession) -> None:
    bronze = spark.createDataFrame(
        [("x", "u", "7", ("1", "Ada"))], struct("before", "op", "ts_ms", after=struct("id", "name"))
    )
    assert log_of(SOURCE, bronze, *LOG) == [("1", "ada", 7, False)]


def test_unwrapped_with_and_without_payload(spark: SparkSession) -> None:
    """A writer whose `schemas.enable` was switched: both kinds of messages are changes."""
    row = "struct<id string, name string>"
    envelope = f"op string, ts_ms long, before {row}, after {row}"
    bronze = spark.createDataFrame(
        [
            (("c", 1, None, ("1", "Ada")), None, None, None, None),
            (None, "u", 2, ("1", "Ada"), ("2", "Bo")),
            (("d", 3, ("2", "Bo"), None), None, None, None, None),
            (None, "d", 4, ("3", None), None),
        ],
        f"payload struct<{envelope}>, {envelope}",
    )
    assert log_of(SOURCE, bronze, *LOG, "_old_key.user_id") == [
        ("1", "ada", 1, False, None),
        ("2", "bo", 2, False, "1"),
        ("2", "bo", 3, True, None),
        ("3", None, 4, True, None),
    ]
    types = {
        name: dtype.simpleString() for name, dtype in ((f.name, f.dataType) for f in bronze.schema)
    }
    assert envelope_path(("id",), types) == ("payload", "after", "id")


def test_unwrapped_structs_of_different_types(spark: SparkSession) -> None:
    """A field that comes later is in `after` first; a delete has no struct then, but its key."""
    before = struct(name=struct("first")).add("id", "integer")
    after = struct(name=struct("first", "last")).add("id", "long")
    bronze = spark.createDataFrame(
        [
            ("u", "7", (("Ada",), 1), (("Ada", "L"), 1)),
            ("d", "8", (("Ada",), 1), None),
        ],
        struct("op", "ts_ms", before=before, after=after),
    )
    source = unwrapped(replace(SOURCE, silver={"user_id": "id", "name": "name"}), bronze)
    rows = bronze.selectExpr(*source.silver.values()).collect()
    assert rows == [(1, ("Ada", "L")), (1, None)]


@pytest.mark.parametrize("prefix", [(), ("payload",)])
def test_envelope_path(spark: SparkSession, prefix: tuple[str, ...]) -> None:
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
    source = replace(SOURCE, silver={"user_id": "id"})
    assert log_of(source, bronze, "_sequence") == [(5,)]


def test_columns_of_silver_do_not_hide_the_envelope(spark: SparkSession) -> None:
    bronze = spark.createDataFrame(
        [("d", 7, ("1",), None)], "op string, ts_ms long, before struct<id string>, after string"
    )
    source = replace(SOURCE, silver={"user_id": "id", "op": "upper(_op)", "ts_ms": "0"})
    columns = ("user_id", "op", "_sequence", "_is_delete")
    assert log_of(source, bronze, *columns) == [("1", "D", 7, True)]


ROW = "struct<id: string, name: string, tags: array<string>>"


def test_update_of_a_key_has_the_old_one(spark: SparkSession) -> None:
    changes = [
        ("c", 1, None, ("A", "x", None)),
        ("u", 2, ("A", "x", None), ("A", "y", None)),
        ("u", 3, ("a", None, None), ("B", "y", None)),
        ("u", 4, (None, "y", None), ("B", "z", None)),
        ("d", 5, ("B", "z", None), None),
    ]
    schema = f"op string, ts_ms long, before {ROW}, after {ROW}"
    bronze = spark.createDataFrame(changes, schema)
    source = replace(SOURCE, silver={"user_id": "upper(id)", "name": "name"})
    assert log_of(source, bronze, "_sequence", "user_id", "_old_key.user_id") == [
        (1, "A", None),
        (2, "A", None),
        (3, "B", "A"),
        (4, "B", None),
        (5, "B", None),
    ]


def test_old_key_is_null_without_the_columns(spark: SparkSession) -> None:
    schema = "op string, ts_ms long, after struct<id string>"
    bronze = spark.createDataFrame([("u", 1, ("1",))], schema)
    source = replace(SOURCE, silver={"user_id": "id"})
    assert log_of(source, bronze, "user_id", "_old_key.user_id") == [("1", None)]


def test_truncate_deletes_without_a_key(spark: SparkSession) -> None:
    changes = [("t", 3, None, None), ("c", 4, None, ("A", "x", None))]
    bronze = spark.createDataFrame(changes, f"op string, ts_ms long, before {ROW}, after {ROW}")
    columns = ("user_id", "_sequence", "_is_delete", "_is_truncate")
    assert log_of(SOURCE, bronze, *columns) == [(None, 3, True, True), ("A", 4, False, None)]


def test_truncates_of_other_writers(spark: SparkSession) -> None:
    """A null is no truncate; silver and bronze may have the column."""
    cdc = replace(CDC, sequence_by="seq", apply_as_deletes="op = 'd'", unavailable_value=None)
    cdc = replace(cdc, apply_as_truncates="if(name is null, op = 'all', null)")
    source = replace(SOURCE, is_debezium=False, silver={"user_id": "id", "name": "who"}, cdc=cdc)
    rows = "('1', 'x', 1, 'd'), ('2', null, 2, 'all'), (null, null, 3, 'all'), ('4', null, 4, null)"
    bronze = spark.sql(f"select * from values {rows} as t(id, who, seq, op)")
    assert log_of(source, bronze, "_sequence", "_is_delete", "_is_truncate") == [
        (1, True, None),
        (2, True, True),
        (3, True, True),
        (4, False, None),
    ]


def test_rows_of_an_incremental_snapshot_have_order(spark: SparkSession) -> None:
    """Their `lsn` is null: Debezium 3.6 writes their position in `sequence` alone."""
    origin = "source struct<lsn: long, sequence: string, ts_ms: long>"
    changes = [
        ("r", (None, '["27505632","27505632"]', 1795918733679), ("A",)),
        ("u", (27509464, '["27509464","27509464"]', 1795918738063), ("A",)),
        ("r", (27070584, '[null,"27070584"]', 1795918708911), ("A",)),
        ("r", (None, None, 1795918708911), ("A",)),
    ]
    bronze = spark.createDataFrame(changes, f"op string, {origin}, after struct<id: string>")
    source = replace(SOURCE, silver={"user_id": "id"})
    sequences = [27505632, 27509464, 27070584, 1795918708911]
    assert log_of(source, bronze, "_sequence") == [(each,) for each in sequences]


MYSQL = "file string, pos long, row int, ts_ms long"
POSITIONS = [  # in the order of the log; the time has whole seconds, and the file a number
    ("bin.000009", 4, 0, 5000),
    ("bin.000009", 120, 0, 5000),
    ("bin.000009", 120, 1, 5000),
    ("bin.000009", 4_294_967_295, 70_000, 4000),
    ("bin.000010", 4, None, 5000),
    ("bin.999999", 4, 0, 5000),
    ("copy.1000000", 4, 0, 5000),
]


@pytest.mark.parametrize("prefix", ["", "payload"])
def test_changes_of_mysql_have_the_order_of_its_log(spark: SparkSession, prefix: str) -> None:
    envelope = f"op string, source struct<{MYSQL}>, after struct<id: string>"
    changes: list[Any] = [("u", position, ("A",)) for position in reversed(POSITIONS)]
    ddl = f"payload struct<{envelope}>" if prefix else envelope
    bronze = spark.createDataFrame([(row,) for row in changes] if prefix else changes, ddl)
    source = replace(SOURCE, silver={"user_id": "id"})
    sequences = [row[0] for row in log_of(source, bronze, "_sequence")]
    assert sequences[::-1] == sorted(set(sequences))
    assert sequences[-1] == 9 * 10**20 + 4 * 10**8


def test_position_that_is_no_mysql_log_is_the_time(spark: SparkSession) -> None:
    """Debezium for Cassandra has a `file` and a `pos` for each of several nodes."""
    changes = [("u", ("CommitLog-7-1.log", 9, None, 5000), ("A",))]
    ddl = f"op string, source struct<{MYSQL}>, after struct<id: string>"
    source = replace(SOURCE, silver={"user_id": "id"})
    assert log_of(source, spark.createDataFrame(changes, ddl), "_sequence") == [(5000,)]


def test_placeholders_are_unavailable(spark: SparkSession) -> None:
    """As Debezium 3.6 writes them for PostgreSQL: text, bytes, and arrays of five types."""
    packed = b64encode(PLACEHOLDER.encode()).decode()
    uuid = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
    numbers = [95, 95, 100, 101, 98, 101, 122, 105, 117, 109, 95]
    numbers += [117, 110, 97, 118, 97, 105, 108, 97, 98, 108, 101, 95, 118, 97, 108, 117, 101]
    changes = [
        ("u", 1, None, ("A", PLACEHOLDER, ["t"], [95])),
        ("u", 2, None, ("A", packed, [PLACEHOLDER], numbers)),
        ("u", 3, None, ("A", "a", [packed], None)),
        ("u", 4, None, ("A", "a", [uuid], numbers[1:])),
        ("u", 5, None, ("A", None, None, None)),
        ("c", 6, None, ("A", "a", [PLACEHOLDER], None)),
        ("c", 7, None, ("A", "a", ["t"], None)),
    ]
    row = ROW.replace(">>", ">, marks: array<long>>")
    bronze = spark.createDataFrame(changes, f"op string, ts_ms long, before {row}, after {row}")
    silver = {"user_id": "id", "name": "upper(name)", "tags": "tags", "marks": "marks"}
    assert log_of(replace(SOURCE, silver=silver), bronze, "_unavailable") == [
        (["name"],),
        (["name", "tags", "marks"],),
        (["tags"],),
        (["tags"],),
        (None,),
        (["tags", "user_id"],),  # an insert lacks values if the key has changed
        (None,),
    ]


MESSAGES = [
    ("u", 1, ("A",), None, None),
    ("m", 2, None, None, None),
    (None, 2, None, None, None),
    (None, None, None, "create table t (id int)", None),
    (None, 3, None, None, "BEGIN"),
    ("d", None, ("A",), None, None),
    (None, None, None, None, None),
    ("t", 4, None, None, None),  # a truncate has no key
]


def test_messages_without_a_row_are_named(spark: SparkSession) -> None:
    """A delete that breaks a rule is named, too: its row stays."""
    schema = "op string, ts_ms long, after struct<id string>, ddl string, status string"
    technical = {"_source_file": F.lit("f"), "_source_position": F.lit(1)}
    technical["_ingested_at"] = F.lit(None).cast("timestamp")
    technical["_corrupt_record"] = F.lit(None).cast("string")
    bronze = spark.createDataFrame(MESSAGES, schema).withColumns(technical)
    source = replace(SOURCE, silver={"user_id": "id"})
    own = {"late": "admit", **built_in_rules(source)}
    document = with_rescue_rules(spark, source, own, bronze.schema)
    checked = bind_rules(unwrapped(source, bronze), document)(bronze)
    assert [row._failed_rules for row in checked.collect()] == [
        [],
        ["logical_message"],
        ["heartbeat"],
        ["schema_change"],
        ["transaction"],
        ["null_key", "null_sequence", "delete_not_applied"],
        ["null_key", "null_sequence"],
        [],
    ]


def test_unwrapped_without_order(spark: SparkSession) -> None:
    """The message names the key and the fields; a sequence of other columns needs none of them."""
    bronze = spark.createDataFrame([], struct("op", after=struct("id", "version")))
    message = r"sources\.\w+\.cdc\.sequence_by is .*source\.pos, source\.ts_ms or ts_ms"
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

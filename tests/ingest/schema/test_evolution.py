"""Undeclared fields in each mode of schema_evolution, and inferred schemas."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from medallion.errors import ConfigError
from medallion.ingest.schema import evolution, registry
from medallion.ingest.schema.columns import declared_columns
from medallion.ingest.schema.evolution import Schema, collect_sample
from medallion.inspect.audit import run_audit
from medallion.spark.errors import StreamError
from medallion.state.ledger import State
from tests.support.batches import without_queries
from tests.support.lakehouse import (
    Lakehouse,
    activity_source,
    ledger_counts,
    only_activity,
    only_rows,
)
from tests.support.lines import row

GOOD = {
    "Recorded_At": "2015-02-23T10:18:54Z",
    "Device": "phone",
    "Index": 1,
    "x": 0.1,
    "y": 0.2,
    "z": 9.8,
}
DECLARED = ["Index", "Device", "x"]  # by `only_rows`
TECHNICAL = [
    "_rescued_data",
    "_corrupt_record",
    "_source_file",
    "_source_modified_at",
    "_source_position",
    "_ingested_at",
]


def recording(index: int, **more: Any) -> str:
    return json.dumps({**GOOD, "Index": index, **more})


def columns(home: Lakehouse, table: str) -> list[str]:
    schema = DeltaTable(home.config.layout.table(table)).schema()
    return [field.name for field in schema.fields]


def types(home: Lakehouse) -> Mapping[str, str]:
    return registry.read_versions(home.config.layout.schemas("activity"))[-1].columns


def inferred(home: Lakehouse) -> Mapping[str, str]:
    """Return the columns except those that exist because silver reads them."""
    return {name: dtype for name, dtype in types(home).items() if name not in DECLARED}


def rescued(home: Lakehouse, table: str = "bronze.activity") -> dict[int, Any]:
    """Return the rescued data of each row by its Index."""
    rows = home.rows(table, "Index", "_rescued_data")
    return {index: json.loads(text) for index, text in rows if text}


def hint(home: Lakehouse, **hints: str) -> None:
    """Configure other hints."""
    sources = {"activity": replace(home.config.sources["activity"], hints=hints)}
    home.config = replace(home.config, sources=sources)


def declare(home: Lakehouse, **more: str) -> None:
    """Add columns to the configured schema, or change their types."""
    source = home.config.sources["activity"]
    schema = {**(source.schema or {}), **more}
    home.config = replace(home.config, sources={"activity": replace(source, schema=schema)})


NEW = {"battery": 5, "place": {"lat": 1.5, "tags": ["a"]}}
OTHER = {"battery": "low", "place": {"lat": 2, "alt": 3}}


def test_new_fields_become_columns_in_their_first_batch(lakehouse: Lakehouse) -> None:
    home = only_activity(lakehouse, schema_evolution="addNewColumns")
    bad = {"Device": None}
    home.land("activity", "1.json", recording(1, **NEW), recording(2), recording(9, **NEW, **bad))
    home.fill("bronze")
    home.fill("silver")
    assert types(home)["battery"] == "long"
    assert types(home)["place"] == "struct<lat:double,tags:array<string>>"
    assert rescued(home) == {}
    home.land(
        "activity",
        "2.json",
        recording(3, **NEW),
        recording(4, **OTHER),
        recording(10, **NEW, **bad),
        recording(5, late=True, cell={"volts": [10.0]}),
    )
    home.fill("bronze")
    home.fill("silver")
    rows = {row[0]: row[1:] for row in home.rows("bronze.activity", "Index", "battery", "place")}
    first = {"lat": 1.5, "tags": ["a"], "alt": None}
    assert rows == {
        1: (5, first),
        2: (None, None),
        9: (5, first),
        3: (5, first),
        4: (None, {"lat": 2.0, "tags": None, "alt": 3}),
        10: (5, first),
        5: (None, None),
    }
    # The fourth battery is not a number; a new field of a struct becomes part of its column.
    assert rescued(home) == {4: {"battery": "low"}}
    assert (True, {"volts": [10.0]}) in home.rows("bronze.activity", "late", "cell")
    # Silver continues, and quarantine has bronze's columns.
    silver = home.rows("silver.activity", "user_id")
    assert silver == [(1,), (2,), (3,), (4,), (5,)]
    assert home.rows("quarantine.activity", "Index", "battery") == [(10, 5), (9, 5)]
    assert [v.version for v in registry.read_versions(home.config.layout.schemas("activity"))] == [
        1,
        2,
        3,
    ]
    assert types(home)["late"] == "boolean"
    assert types(home)["cell"] == "struct<volts:array<double>>"
    assert types(home)["place"] == "struct<lat:double,tags:array<string>,alt:long>"
    assert ledger_counts(home) == {
        ("1.json", 1): (State.INGESTED, 0, 3, 0, 0),
        ("2.json", 1): (State.INGESTED, 1, 4, 0, 1),
    }
    assert run_audit(home.config).is_balanced


def test_new_fields_stay_rescued(lakehouse: Lakehouse) -> None:
    home = only_rows(lakehouse, schema_evolution="rescue")
    home.land("activity", "1.json", row(1, **NEW))
    home.fill("bronze")
    only_rows(home, schema_evolution="none")
    home.land("activity", "2.json", row(2, **NEW), row(3))
    home.fill("bronze")
    assert rescued(home) == {1: NEW, 2: NEW}
    assert columns(home, "bronze.activity") == [*DECLARED, *TECHNICAL]
    assert len(registry.read_versions(home.config.layout.schemas("activity"))) == 1
    assert {batch for _, batch, *_ in ledger_counts(home).values()} == {0, 1}


def test_fail_on_new_columns_until_they_are_declared(lakehouse: Lakehouse) -> None:
    home = only_rows(lakehouse, schema_evolution="failOnNewColumns")
    home.land("activity", "1.json", row(1, battery=5, x=0.1), row(2, x="high", Alt=1))
    with pytest.raises(StreamError) as error:
        home.fill("bronze")
    assert "(Alt, battery)" in str(error.value)
    assert "failOnNewColumns" in str(error.value)
    assert home.rows("bronze.activity") == []
    assert ledger_counts(home) == {("1.json", 1): (State.PENDING, None, None, None, None)}
    declare(home, battery="long", Alt="double")
    home.land("activity", "2.json", row(3, battery=6))
    home.fill("bronze")
    rows = home.rows("bronze.activity", "Index", "battery", "Alt", "x")
    assert rows == [(1, 5, None, 0.1), (2, None, 1.0, None), (3, 6, None, None)]
    assert rescued(home) == {2: {"x": "high"}}  # a misfit is not a new field
    assert ledger_counts(home) == {
        ("1.json", 1): (State.INGESTED, 0, 2, 0, 1),
        ("2.json", 1): (State.INGESTED, 1, 1, 0, 0),
    }
    # An older copy of the versions is completed; another spelling of a type adds no version.
    schemas = home.config.layout.schemas("activity")
    (schemas / "2.json").local.unlink()
    declare(home, battery="BIGINT")
    assert Schema(home.config, home.config.sources["activity"]).columns["Alt"] == "double"
    assert [v.why for v in registry.read_versions(schemas)][1:] == ["as bronze's table has it"]
    # Another type for an existing column is rejected before any flow runs.
    declare(home, battery="string")
    with pytest.raises(ConfigError, match=r"schema\.battery is string, but .* has long"):
        home.fill("bronze")


def test_hints_override_the_inferred_schema(lakehouse: Lakehouse) -> None:
    home = only_rows(lakehouse, schema=None, hints={"code": "string", "late": "timestamp"})
    first = {"code": 7, "at": "2015-02-23T10:00:00Z", "n": 1, "f": 1, "ok": True, "mixed": 1}
    nested = {"points": [{"x": 1, "y": "a"}], "empty": None}
    second = {"n": 2, "f": 1.5, "mixed": "two", "points": [{"x": 2.5}]}
    home.land("activity", "1.json", json.dumps({**first, **nested}), json.dumps(second), "{broken")
    home.fill("bronze")
    assert inferred(home) == {
        "code": "string",
        "late": "timestamp",
        "at": "timestamp",
        "f": "double",
        "mixed": "string",
        "n": "long",
        "ok": "boolean",
        "points": "array<struct<x:double,y:string>>",
    }
    assert columns(home, "bronze.activity")[-len(TECHNICAL) :] == TECHNICAL
    rows = home.rows("bronze.activity", "n", "f", "mixed", "at", "_corrupt_record")
    assert rows == [
        (1, 1.0, "1", "2015-02-23 10:00:00", None),
        (2, 1.5, "two", None, None),
        (None, None, None, None, "{broken"),
    ]
    # Without its versions, bronze's columns keep their types.
    before = types(home)
    shutil.rmtree(home.config.layout.schemas("activity"))
    assert home.pipeline().flow("silver.activity").unknown_schema_reason() is None
    # New hints apply to new columns, and are rejected for existing ones.
    hints = dict(home.config.sources["activity"].hints)
    hint(home, **hints, zip="string", n="long")
    home.land("activity", "2.json", json.dumps({"empty": 3, "n": 3, "zip": 7}))
    home.land("activity", "3.json", json.dumps({"n": "x", "mixed": 3}))
    home.fill("bronze")
    assert types(home) == {**before, "empty": "long", "zip": "string"}
    assert ledger_counts(home)["2.json", 1] == (State.INGESTED, 1, 1, 0, 0)
    rows = home.rows("bronze.activity", "n", "mixed", "empty", "zip")
    assert {(3, None, 3, "7"), (None, "3", None, None)} < {*rows}
    hint(home, **hints, n="string")
    with pytest.raises(
        ConfigError, match=r"hints\.n is string, but .* has long: medallion refresh"
    ):
        home.fill("bronze")


def test_schema_is_inferred_from_the_first_file_with_fields(
    lakehouse: Lakehouse,
) -> None:
    home = only_rows(lakehouse, schema=None, hints={})
    files_without_fields = {"broken.json": ["{broken"], "none.json": ["[]", "1"], "empty.json": []}
    for name, lines in files_without_fields.items():
        home.land("activity", name, *lines)
    home.fill("bronze")
    home.land("activity", "2.json", json.dumps({"n": 3}))
    home.fill("bronze")
    first = {
        (n, 1): (State.INGESTED, 0, len(lines), len(lines), 0)
        for n, lines in files_without_fields.items()
    }
    assert ledger_counts(home) == {**first, ("2.json", 1): (State.INGESTED, 1, 1, 0, 0)}
    assert inferred(home) == {"n": "long"}
    assert home.rows("bronze.activity", "n", "_corrupt_record") == [
        (3, None),
        (None, "1"),
        (None, "[]"),
        (None, "{broken"),
    ]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"a\u200bb": "string"}, "schema.a\u200bb: 'a\\u200bb' cannot be"),
        ({"_Rescued_data": "string"}, "schema._Rescued_data: '_Rescued_data' cannot be"),
        ({"at": "struct<lat:>"}, "schema: invalid Spark type"),
        ({"at": "struct<a:array<decimal(39,2)>>"}, "schema: invalid Spark type"),
        ({"at": "array<map<int,double>>"}, "schema.at: keys of JSON are strings"),
        ({"at": "struct<n:tinyint>"}, "schema.at: tinyint is not possible here"),
        (
            {"at": "struct<n:float>"},
            "schema.at: float is not possible here",
        ),  # 16777217 would become 16777216
        ({"at": "array<varchar(3)>"}, "schema.at: varchar(3) is not possible here"),
        (
            {"at": "struct<a:string,b:timestamp_ntz>"},
            "schema.at: timestamp_ntz is not possible here",
        ),
        (
            {"at": "array<struct<Lat:double,lat:double>>"},
            "schema: at.lat has the same column as another field, at.Lat",
        ),
    ],
)
def test_invalid_schema_is_rejected_by_name(
    lakehouse: Lakehouse, schema: dict[str, str], message: str
) -> None:
    home = only_rows(lakehouse, schema=schema)
    home.land("activity", "1.json", "{}")
    with pytest.raises(ConfigError, match=re.escape(f"sources.activity.{message}")):
        home.fill("bronze")
    assert not list(home.config.layout.schemas("activity").local.glob("*"))


def test_typed_formats_allow_more_types(spark: SparkSession) -> None:
    """Their values do not pass through Spark's JSON parser."""
    schema = {"price": "decimal(38,18)", "tags": "map<string,array<float>>", "body": "binary"}
    source = activity_source(format="parquet", schema=schema)
    declared = declared_columns(source)
    assert declared.columns == schema
    with pytest.raises(ConfigError, match=r"schema.at: varchar\(3\) is not possible here"):
        declared_columns(activity_source(format="parquet", schema={"at": "map<string,varchar(3)>"}))


def test_failed_evolution_is_reported_and_its_batch_kept(
    lakehouse: Lakehouse,
) -> None:
    home = only_rows(lakehouse, schema_evolution="addNewColumns", max_files_per_trigger=1)
    home.land("activity", "1.json", row(1, battery=5))
    home.land("activity", "2.json", row(2, place="here"))
    notes = home.config.layout.schemas("activity") / "notes.json"
    messages: list[str] = []

    def report(text: str) -> None:
        messages.append(text)
        if "new columns" in text:  # corrupts the directory of the versions
            notes.local.write_text("{}")

    with without_queries():
        home.pipeline(report).run("bronze")
    assert [text for text in messages if "batch 1" in text and str(notes) in text]
    assert rescued(home) == {2: {"place": "here"}}
    assert {batch for _, batch, *_ in ledger_counts(home).values()} == {0, 1}
    assert home.rows("bronze.activity", "Index", "battery") == [(1, 5), (2, None)]


def test_collect_sample_is_limited_by_bytes(spark: SparkSession) -> None:
    lengths = [1_000, 3_000, 9_000, 4_000, 2_000, 1, 1]
    rows = [(f"{number}" * length,) for number, length in enumerate(lengths)]
    frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 3), "text string")
    sample = [(text[:1], len(text)) for text in collect_sample(frame, "text", 8_500)]
    # The third exceeds the limit alone, the fifth together with the others.
    assert sample == [("0", 1_000), ("1", 3_000), ("3", 4_000)]
    assert collect_sample(frame.limit(0), "text") == []
    assert len(collect_sample(spark.range(20_000).selectExpr("'x' as text"), "text")) == 10_000


def test_evolution_reads_no_more_rows_than_a_task_can_send(
    lakehouse: Lakehouse,
) -> None:
    """Many rows of 15 KB made one task too large to send, and all later runs failed."""
    schema = Schema(lakehouse.config, lakehouse.config.sources["activity"])
    text = json.dumps({"new": 1, "long": "x" * 15_000})
    rows = lakehouse.spark.range(0, 1_000, 1, 4).selectExpr(f"'{text}' as _rescued_data")
    assert len(collect_sample(rows, "_rescued_data")) == 8 * 2**20 // len(text)
    assert sorted(schema.grow(rows, 3).added) == ["long", "new"]


def test_field_that_was_null_becomes_a_column_later(lakehouse: Lakehouse) -> None:
    """In one process, together with a field whose name is invalid."""
    schema = Schema(lakehouse.config, lakehouse.config.sources["activity"])

    def rows(text: str) -> DataFrame:
        return lakehouse.spark.createDataFrame([(text,)], "_rescued_data string")

    assert schema.grow(rows('{"a\u200bb": 1, "later": null}'), 1).added == []
    assert rows('{"a\u200bb": 2}').where(schema.growth_condition()).count() == 0
    assert schema.grow(rows('{"a\u200bb": 1, "later": 5}'), 2).added == ["later"]


def test_each_batch_of_a_run_adds_columns(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from rows beyond the sample, and for a struct with a new field in each batch."""
    home = only_rows(lakehouse, schema_evolution="addNewColumns", max_files_per_trigger=1)
    monkeypatch.setattr(evolution, "collect_sample", partial(collect_sample, max_bytes=8_000))
    invalid_names = [row(n, **{"a\u200bb": "x" * 1_000}) for n in range(9)]
    home.land("activity", "1.json", *invalid_names, row(9, place="here", at={"x": 1}))
    home.land("activity", "2.json", row(10, at={"y": 2}))
    home.fill("bronze")
    rows = {index: rest for index, *rest in home.rows("bronze.activity", "Index", "place", "at")}
    assert {index: rows[index] for index in (9, 10)} == {
        9: ["here", {"x": 1, "y": None}],
        10: [None, {"x": None, "y": 2}],
    }
    assert run_audit(home.config).is_balanced


def infer(home: Lakehouse, lines: list[str], used_columns: set[str]) -> tuple[Schema, list[str]]:
    """Infer a schema from the lines of one file; return it with the reported notes."""
    only_rows(home, schema=None, hints={"code": "string"})
    named = {(name,) for name in used_columns}
    schema = Schema(home.config, home.config.sources["activity"], lambda _: named)
    rows = [(line, "activity/1.json") for line in lines]
    frame = home.spark.createDataFrame(rows, "value string, _source_file string").coalesce(1)
    return schema, schema.infer(frame, "1 file")


ZEEK = '{"ts": 1777629600.605139, "uid": "C0", "id.orig_h": "10.1.1.2", "id.orig_p": 5000}'
SERILOG = '{"@t": "2026-05-01T10:00:00.2234302Z", "@mt": "Handled", "Elapsed": 14.48, "@i": "0"}'
DOCKER = '{"log": "GET\\\\n", "stream": "stdout", "time": "2026-05-01T10:00:00.347712782Z"}'


def test_infer_columns_of_real_systems(lakehouse: Lakehouse) -> None:
    schema, notes = infer(lakehouse, [ZEEK, '{"id.orig_h": "a", "id_orig_h": "b"}'], set())
    assert schema.columns == {
        "code": "string",
        "ts": "double",
        "uid": "string",
        "id_orig_h": "string",
        "id_orig_p": "long",
    }
    assert schema.names == {"id_orig_p": "id.orig_p"}  # id_orig_h belongs to the field of that name
    assert notes == ["id.orig_h stays in _rescued_data: its column id_orig_h has another field"]
    shutil.rmtree(lakehouse.config.layout.schemas("activity"))
    schema, _ = infer(lakehouse, [SERILOG, DOCKER], set())
    assert schema.columns == {
        "code": "string",
        "@t": "string",
        "@mt": "string",
        "Elapsed": "double",
        "@i": "string",
        "log": "string",
        "stream": "string",
        "time": "string",
    }
    assert schema.names == {}


def test_fields_with_other_names_become_columns(lakehouse: Lakehouse) -> None:
    hints = {"sent at": "timestamp_millis", "customer_email": "string"}
    home = only_rows(lakehouse, schema=None, hints=hints)
    home.land("activity", "1.json", '{"id.orig_h": "h", "sent at": 1777629600605}')
    home.fill("bronze")
    home.land("activity", "2.json", '{"id.orig_h": "i", "customer email": "a@x.org"}')
    home.land("activity", "3.json", '{"buyer": {"zip code": "1"}, "id_orig_h": "other"}')
    home.fill("bronze")
    rows = home.rows("bronze.activity", "id_orig_h", "sent_at", "customer_email", "buyer")
    assert rows == [
        ("h", "2026-05-01 10:00:00.605", None, None),
        ("i", None, "a@x.org", None),
        (None, None, None, {"zip_code": "1"}),
    ]
    rescued_data = [text for (text,) in home.rows("bronze.activity", "_rescued_data") if text]
    assert rescued_data == ['{"id_orig_h":"other"}']
    names = registry.read_versions(home.config.layout.schemas("activity"))[-1].names
    assert names == {
        "sent_at": "sent at",
        "id_orig_h": "id.orig_h",
        "customer_email": "customer email",
        "buyer.zip_code": "zip code",
    }
    document = DeltaTable(home.config.layout.table("bronze.activity")).schema().to_json()
    assert '"comment":"id.orig_h"' in document
    assert '"comment":"zip code"' in document
    assert run_audit(home.config).is_balanced


def test_inference_reports_fields_without_columns(lakehouse: Lakehouse) -> None:
    lines = [json.dumps({"at": f"2026-05-0{day}T10:00:00Z", "code": day}) for day in range(1, 6)]
    odd = json.dumps({"at": "N/A", "code": "x", "deep": json.loads("[" * 7 + "]" * 7)})
    schema, notes = infer(lakehouse, [*lines, "{broken", odd], set())
    assert schema.columns == {"code": "string", "at": "timestamp"}
    assert notes == ["deep stays in _rescued_data: it is nested more than 5 levels deep"]


def test_used_fields_of_a_wide_record_become_columns(lakehouse: Lakehouse) -> None:
    """Also if they come after the first 2,000 fields."""
    fields = {f"f{number}": number for number in range(2_300, 0, -1)}
    schema, notes = infer(lakehouse, [json.dumps({**fields, "id": "a", "z": 1})], {"ID"})
    assert list(schema.columns)[:2] == ["code", "f2300"]
    assert list(schema.columns)[-2:] == ["f303", "id"]
    assert len(schema.columns) == 2_000
    assert notes == ["2,302 fields: 2,000 of them became columns, the others stay in _rescued_data"]

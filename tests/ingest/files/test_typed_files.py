"""Parquet, ORC, Avro: every row of a complete file is in bronze, a truncated one is rejected."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

from medallion.ingest.files.typed_files import unreadable_typed_reason
from medallion.ingest.schema import registry
from medallion.state.ledger import State
from tests.support.byte_files import SCHEMA, audit_findings, land, rows_by_file
from tests.support.lakehouse import Lakehouse, ledger_entries, only_rows
from tests.support.typed_files import INDEX, MAKE

ONE = {"Index": "bigint", "Device": "string"}
AT = datetime(2018, 3, 2, 10, 2, 33, 123457, tzinfo=UTC)
_RESCUED_OF_ORC = {
    "days": {"days": "{2018-03-02 -> 1}"},
    "nanos": {"at": "2018-03-02 10:02:33.123457001"},
}
LONG_AGO = datetime(1500, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_orc_and_avro_in_bronze(lakehouse: Lakehouse, file_format: str) -> None:
    make, schema = MAKE[file_format], {**SCHEMA, "at": "timestamp"}
    home = only_rows(lakehouse, format=file_format, schema=schema, schema_evolution="rescue")
    complete = make(INDEX, ({"Index": i} for i in range(1000)))
    good = {
        "one": make(ONE, [{"Index": 1, "Device": "phone"}, {"Index": 2}]),
        "nested": make(
            {"Index": "bigint", "place": "struct<lat:double>"},
            [{"Index": 3, "place": {"lat": 1.5}}],
        ),
        "other": make({"Index": "string"}, [{"Index": "four"}]),
        "nothing": make(INDEX, []),
        "moment": make({"at": "timestamp with local time zone"}, [{"at": AT}]),
        "old": make({"at": "timestamp with local time zone"}, [{"at": LONG_AGO}]),
        "forged": make({"Index": "bigint", "_metadata": "string"}, [{"Index": 5, "_metadata": ""}]),
        # If read together with the others, its column would be matched to theirs by position.
        "unnamed": make({"_col0": "bigint"}, [{"_col0": 42}]),
    }
    bad = {"truncated": complete[:-9], "empty": b"", "text": b"{}\n"}
    if file_format == "orc":
        # JSON has no date keys: the map is rescued as a string.
        good["days"] = make({"days": "map<date,int>"}, [{"days": {AT.date(): 1}}])
        # Truncated to microseconds, they would be equal.
        times = [{"at": (1_519_984_953, nanos)} for nanos in (123_457_000, 123_457_001)]
        good["nanos"] = make({"at": "timestamp"}, times)
    land(home, {f"{name}.{file_format}": data for name, data in {**good, **bad}.items()})
    home.fill("bronze")
    expected: dict[str, list[tuple[object, ...]]] = {
        "one": [(1, "phone", None), (2, None, None)],
        "nested": [(3, None, None)],
        "other": [(None, None, None)],
        "moment": [(None, None, "2018-03-02 10:02:33.123457")],
        "old": [(None, None, "1500-03-01 00:00:00")],  # in the Gregorian calendar, as written
        "forged": [(5, None, None)],
        "unnamed": [(None, None, None)],
    }
    if file_format == "orc":
        expected["days"] = [(None, None, None)]
        expected["nanos"] = [(None, None, "2018-03-02 10:02:33.123457"), (None, None, None)]
    rows = rows_by_file(home, "Index", "Device", "at")
    assert rows == {f"{name}.{file_format}": values for name, values in expected.items()}
    rescued = {
        name: rows_by_file(home, "_rescued_data")[f"{name}.{file_format}"] for name in expected
    }
    assert {name: json.loads(text) for name, ((text,), *_) in rescued.items() if text} == {
        "nested": {"place": {"lat": 1.5}},
        "other": {"Index": "four"},
        "forged": {"_metadata": ""},
        "unnamed": {"_col0": 42},
        **(_RESCUED_OF_ORC if file_format == "orc" else {}),
    }
    entries = {name: entry for (name, _), entry in ledger_entries(home).items()}
    assert {
        name.removesuffix(f".{file_format}"): entry.rows for name, entry in entries.items()
    } == {
        **{name: len(values) for name, values in expected.items()},
        "nothing": 0,
        **dict.fromkeys(bad, None),
    }
    states = {name: entry.state for name, entry in entries.items()}
    assert states == {
        **{f"{name}.{file_format}": State.INGESTED for name in good},
        **{f"{name}.{file_format}": State.REJECTED for name in bad},
    }
    assert all(entries[f"{name}.{file_format}"].why for name in bad)
    assert audit_findings(home) == []


TYPES = {
    "amount": "decimal(38,18)",
    "price": "decimal(10,2)",
    "tags": "map<string,bigint>",
    "body": "binary",
    "day": "date",
    "at": "timestamp with local time zone",
    "n": "bigint",
    "place": "struct<lat:double>",
}
ROW = {
    "amount": Decimal("12345678901234567890.123456789012345678"),
    "price": Decimal("409.93"),
    "tags": {"a": 1, "b": 2},
    "body": b"\x00\xff",
    "day": date(2018, 3, 2),
    "at": AT,
    "n": 7,
    "place": {"lat": 1.5},
}
CHANGED = {
    **TYPES,
    "price": "decimal(12,4)",
    "tags": "string",
    "n": "double",
    "place": "struct<lat:double,lon:double>",
    "tax": "decimal(20,10)",
}
LATER = {
    **ROW,
    "price": Decimal("1.2345"),
    "tags": "a=1",
    "n": 2.5,
    "place": {"lat": 2.5, "lon": 3.5},
    "tax": Decimal("1234567890.0123456789"),
}
FITTING = {**ROW, "price": Decimal("1.2500"), "tags": None, "n": 3.0, "place": {"lat": 4.5}}


@pytest.mark.parametrize("file_format", MAKE)
def test_types_are_kept_and_other_values_rescued(lakehouse: Lakehouse, file_format: str) -> None:
    """Decimals must not become doubles, nor a map a struct of its keys."""
    home = only_rows(lakehouse, format=file_format, schema=None, hints={})
    land(home, {f"1.{file_format}": MAKE[file_format](TYPES, [ROW, {"n": 8}])})
    home.fill("bronze")
    later = [LATER, {**FITTING, "place": {"lat": 4.5, "lon": None}}]
    land(home, {f"2.{file_format}": MAKE[file_format](CHANGED, later)})
    home.fill("bronze")
    versions = registry.read_versions(home.config.layout.schemas("activity"))
    # An intermediate version has the columns that silver reads, and no file.
    first, last = versions[0].columns, versions[-1].columns
    assert first == {
        **{name: column_type.replace("bigint", "long") for name, column_type in TYPES.items()},
        "at": "timestamp",
    }
    assert {name: last[name] for name in (*first, "tax")} == {
        **first,
        "place": "struct<lat:double,lon:double>",
        "tax": "decimal(20,10)",
    }
    rows = rows_by_file(home, *TYPES, "tax", "_rescued_data")
    at_text = "2018-03-02 10:02:33.123457"
    expected = {**ROW, "at": at_text, "place": {"lat": 1.5, "lon": None}, "tax": None}
    no_values = dict.fromkeys(expected)
    assert sorted(rows[f"1.{file_format}"], key=str) == [
        (*expected.values(), None),
        (*{**no_values, "n": 8}.values(), None),
    ]
    rescued_values = {"price": None, "tags": None, "n": None, "place": LATER["place"]}
    fitting_row, later_row = sorted(rows[f"2.{file_format}"], key=str)
    fitting = {**expected, **FITTING, "at": at_text, "place": {"lat": 4.5, "lon": None}}
    assert later_row[:-1] == tuple({**expected, **rescued_values, "tax": LATER["tax"]}.values())
    assert json.loads(later_row[-1], parse_float=Decimal) == {
        "price": Decimal("1.2345"),
        "tags": "a=1",
        "n": Decimal("2.5"),
    }
    assert fitting_row == (*{**fitting, "n": 3}.values(), None)
    assert audit_findings(home) == []


def test_strings_that_are_not_utf8_keep_their_bytes(lakehouse: Lakehouse) -> None:
    """Spark's JSON would make both rows equal, so one would be dropped as a duplicate."""
    home = only_rows(lakehouse, format="parquet", schema=SCHEMA)
    sql_rows = " union all ".join(
        f"select {n} as Index, cast(x'4b{byte}' as string) as Device"
        for n, byte in ((1, "e4"), (2, "f6"))
    )
    folder = home.root.parent / "written"
    home.spark.sql(sql_rows).coalesce(1).write.parquet(str(folder))
    (path,) = folder.glob("*.parquet")
    land(home, {"latin.parquet": path.read_bytes()})
    # Spark writes page checksums, but verifies them only if configured to.
    checksummed = home.spark.sql("select 6 as Index, 'a summed one' as Device").coalesce(1).write
    checksummed.option("compression", "none").parquet(str(home.root.parent / "summed"))
    (complete,) = (home.root.parent / "summed").glob("*.parquet")
    land(home, {"summed.parquet": complete.read_bytes().replace(b"a summed one", b"a summed two")})
    for name, setting in {"base64": "false", "text": "true"}.items():
        file = home.land("activity", f"{name}.parquet")
        sql = (
            """select 3::bigint as "Index", 'phone'::blob as "Device" union all select 4, '\\xFF'"""
        )
        duckdb.execute(f"copy ({sql}) to '{file}' (format parquet)")
        if name == "base64":  # a valid U+FFFD is kept, also next to a binary column
            sql = """select 5::bigint as "Index", 'caf\ufffd' as "Device", '\\xFF'::blob as b"""
            file = home.land("activity", "letter.parquet")
            duckdb.execute(f"copy ({sql}) to '{file}' (format parquet)")
        home.spark.conf.set("spark.sql.parquet.binaryAsString", setting)
        home.fill("bronze")
        home.spark.conf.unset("spark.sql.parquet.binaryAsString")
    rows = rows_by_file(home, "Index", "Device", "_rescued_data")
    values = {
        name: [(*columns, rescued and json.loads(rescued)) for *columns, rescued in file_rows]
        for name, file_rows in rows.items()
    }
    assert values == {
        "latin.parquet": [(1, None, {"Device": "K\xe4"}), (2, None, {"Device": "K\xf6"})],
        # Binary values in a string column, without and with spark.sql.parquet.binaryAsString.
        "base64.parquet": [(3, "cGhvbmU=", None), (4, "/w==", None)],
        "text.parquet": [(3, "phone", None), (4, None, {"Device": "\xff"})],
        "letter.parquet": [(5, "caf\ufffd", None)],
    }
    assert "checksum" in (ledger_entries(home)["summed.parquet", 1].why or "")


SPARK_SCHEMAS: dict[str, tuple[str, str, str | None]] = {
    "identical": ("Index bigint, place struct(lat double)", "Index long, place {lat double}", None),
    "a missing column": ("Index bigint", "Index long, more string", None),
    "an additional column": ("Index bigint, price int", "Index long", "price"),
    "another name": ("Index bigint", "Number long", "Index"),
    "a narrower type": ("Index int", "Index short", "Index"),
    "another sign": ("Index utinyint", "Index byte", "Index"),
    "another scale": ("Index decimal(9,2)", "Index decimal(9,3)", "Index"),
    "the same scale": ("Index decimal(9,2)", "Index decimal(9,2)", None),
    "an additional nested field": (
        "place struct(lat double, lon double)",
        "place {lat double}",
        "place.lon",
    ),
    "a narrower nested type": ("place struct(n int[])", "place {n [short]}", "place.n"),
    "no schema": ("Index int", "", None),
}


def spark_schema(text: str) -> Any:
    """Return columns as in the schema that Spark writes to Parquet metadata."""
    if match := re.fullmatch(r"\{(.*)\}", text):
        return spark_schema(match[1])
    if match := re.fullmatch(r"\[(.*)\]", text):
        return {"type": "array", "elementType": match[1], "containsNull": True}
    if " " not in text:
        return text
    fields = [column.split(" ", 1) for column in text.split(", ")]
    rest = {"nullable": True, "metadata": {}}
    return {
        "type": "struct",
        "fields": [{"name": name, "type": spark_schema(dtype), **rest} for name, dtype in fields],
    }


@pytest.mark.parametrize("name", SPARK_SCHEMAS)
def test_parquet_with_another_spark_schema(tmp_path: Path, name: str) -> None:
    """Spark would read the file by that schema, without columns that another writer added."""
    columns, schema_text, other = SPARK_SCHEMAS[name]
    schema_json = json.dumps(spark_schema(schema_text)) if schema_text else "no JSON"
    metadata = f"kv_metadata {{'org.apache.spark.sql.parquet.row.metadata': '{schema_json}'}}"
    file = tmp_path / "a.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"create table written ({columns})")
        connection.execute(f"copy written to '{file}' (format parquet, {metadata})")
    reason = unreadable_typed_reason(file, "parquet")
    assert (reason or "").partition(" is not as")[0] == (f"its {other}" if other else "")


def test_parquet_with_brotli_is_rejected(tmp_path: Path) -> None:
    table, file = pyarrow.table({"a": [1]}), tmp_path / "a.parquet"
    reasons = {"BROTLI": "Brotli, is not supported: write it with zstd or snappy", "ZSTD": ""}
    for compression, message in reasons.items():
        pyarrow.parquet.write_table(table, file, compression=compression)
        assert message in (unreadable_typed_reason(file, "parquet") or "")


# Keys are names of columns with these types.
UNSUPPORTED_TYPES = {
    "t": "select 7 as \"Index\", time '10:02:33' as t",
    "u": 'select 7 as "Index", uuid() as u',
    "s.i": "select 7 as \"Index\", {'i': interval 1 day} as s",
}


def test_int96_nanoseconds_and_unsupported_types_are_reported(lakehouse: Lakehouse) -> None:
    """Spark reads INT96 in microseconds, so rows a nanosecond apart would be equal."""
    at, nested_at = (f"timestamp'2018-03-02 10:02:33.00000{micros}Z'" for micros in (1, 2))
    last = "timestamp'9999-12-31 23:59:59.999999Z'"  # beyond 64 bits of nanoseconds
    home = only_rows(
        lakehouse, format="parquet", schema={"Index": "long"}, schema_evolution="rescue"
    )
    folder = home.root.parent / "written"
    rows_to_write = home.spark.sql(
        f"select 1L as Index, {at} as at, array({last}, null, {nested_at}) as days"
        f" union all select 2L, {last}, null"
    ).coalesce(1)
    key = "spark.sql.parquet.outputTimestampType"
    previous = home.spark.conf.get(key)
    home.spark.conf.set(key, "INT96")
    try:
        # Without page checksums, since the test changes some bytes.
        plain = {"compression": "none", "parquet.page.write-checksum.enabled": "false"}
        rows_to_write.write.options(**plain).parquet(str(folder))
    finally:
        home.spark.conf.set(key, str(previous))
    (file,) = folder.glob("*.parquet")
    complete = file.read_bytes()
    unusual = "whole\t%.parquet (1) "  # named as by a browser, with a tab and a trailing space
    files = {unusual: complete}
    # INT96 is the nanoseconds of the day, then the day; add 8 nanoseconds.
    for name, micros in {"at": 1, "days": 2}.items():
        clock = (10 * 3600 + 2 * 60 + 33) * 10**9 + micros * 1000
        changed = complete.replace(clock.to_bytes(8, "little"), (clock + 8).to_bytes(8, "little"))
        assert changed != complete
        files[f"{name}.parquet"] = changed
    land(home, files)
    for name, sql in UNSUPPORTED_TYPES.items():
        duckdb.execute(f"copy ({sql}) to '{home.land('activity', name)}' (format parquet)")
    codes = {"half": pa.array([1.5], pa.float16()), "code": pa.array([b"abcd"], pa.binary(4))}
    pa.parquet.write_table(pa.table({"Index": [7], **codes}), home.land("activity", "half"))
    home.fill("bronze")
    reasons = {name: entry.why for (name, _), entry in ledger_entries(home).items() if entry.why}
    unsupported = {*UNSUPPORTED_TYPES, "half"}
    assert rows_by_file(home, "Index") == {name: [(1,), (2,)] for name in (unusual, "days.parquet")}
    assert reasons["at.parquet"].startswith("its column at has")
    assert {
        name: reason.partition(": write that")[0]
        for name, reason in reasons.items()
        if name in unsupported
    } == {name: f"cannot be read: Spark has no type for its {name}" for name in unsupported}
    assert audit_findings(home) == []


def test_parquet_column_without_a_type_takes_that_of_a_later_file(lakehouse: Lakehouse) -> None:
    """As pandas writes a column whose values are all missing."""
    home = only_rows(lakehouse, format="parquet", schema=None, silver={"n": "n", "at": "at"})
    landing = home.layout.landing("activity").local
    landing.mkdir(parents=True, exist_ok=True)
    at = pa.array([datetime(2026, 5, 1, tzinfo=UTC)])
    for number, code in enumerate((pa.nulls(1), pa.array(["X10"]), pa.nulls(1))):
        table = pa.table({"n": [number], "at": at, "code": code})
        pyarrow.parquet.write_table(table, landing / f"{number}.parquet")
        home.fill("bronze")
    assert home.rows("bronze.activity", "n", "code", "_rescued_data") == [
        (0, None, None),
        (1, "X10", None),
        (2, None, None),
    ]

"""Parquet, ORC, Avro: every row of a complete file is in bronze, a truncated one is rejected."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet
import pytest

from medallion.ingest.files.typed import unreadable_typed_reason
from medallion.ingest.schema import registry
from medallion.state.ledger import State
from tests.support.byte_files import SCHEMA, audit_findings, land, rows_by_file
from tests.support.lakehouse import Lakehouse, ledger_entries, only_activity
from tests.support.typed_files import INDEX, MAKE

ONE = {"Index": "bigint", "Device": "string"}
AT = datetime(2018, 3, 2, 10, 2, 33, 123457, tzinfo=UTC)
_RESCUED_OF_ORC = {
    "days": {"days": "{2018-03-02 -> 1}"},
    "nanos": {"at": "2018-03-02 10:02:33.123457001"},
}
LONG_AGO = datetime(1500, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize("kind", ["orc", "avro"])
def test_whole_files_and_torn_ones(lakehouse: Lakehouse, kind: str) -> None:
    make, schema = MAKE[kind], {**SCHEMA, "at": "timestamp"}
    home = only_activity(lakehouse, format=kind, schema=schema, schema_evolution="rescue")
    whole = make(INDEX, ({"Index": i} for i in range(1000)))
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
        # Read with the others, its column would be that of theirs in its place.
        "unnamed": make({"_col0": "bigint"}, [{"_col0": 42}]),
    }
    bad = {"torn": whole[:-9], "empty": b"", "text": b"{}\n"}
    if kind == "orc":
        # JSON has no such keys: the map is rescued as a string.
        good["days"] = make({"days": "map<date,int>"}, [{"days": {AT.date(): 1}}])
        # Cut to microseconds, they would be the same.
        times = [{"at": (1_519_984_953, nanos)} for nanos in (123_457_000, 123_457_001)]
        good["nanos"] = make({"at": "timestamp"}, times)
    land(home, {f"{name}.{kind}": data for name, data in {**good, **bad}.items()})
    home.fill("bronze")
    kept: dict[str, list[tuple[object, ...]]] = {
        "one": [(1, "phone", None), (2, None, None)],
        "nested": [(3, None, None)],
        "other": [(None, None, None)],
        "moment": [(None, None, "2018-03-02 10:02:33.123457")],
        "old": [(None, None, "1500-03-01 00:00:00")],  # by today's calendar, as it was written
        "forged": [(5, None, None)],
        "unnamed": [(None, None, None)],
    }
    if kind == "orc":
        kept["days"] = [(None, None, None)]
        kept["nanos"] = [(None, None, "2018-03-02 10:02:33.123457"), (None, None, None)]
    rows = rows_by_file(home, "Index", "Device", "at")
    assert rows == {f"{name}.{kind}": values for name, values in kept.items()}
    rescued = {name: rows_by_file(home, "_rescued_data")[f"{name}.{kind}"] for name in kept}
    assert {name: json.loads(text) for name, ((text,), *_) in rescued.items() if text} == {
        "nested": {"place": {"lat": 1.5}},
        "other": {"Index": "four"},
        "forged": {"_metadata": ""},
        "unnamed": {"_col0": 42},
        **(_RESCUED_OF_ORC if kind == "orc" else {}),
    }
    taken = {name: entry for (name, _), entry in ledger_entries(home).items()}
    assert {name.removesuffix(f".{kind}"): entry.rows for name, entry in taken.items()} == {
        **{name: len(values) for name, values in kept.items()},
        "nothing": 0,
        **dict.fromkeys(bad, None),
    }
    states = {name: entry.state for name, entry in taken.items()}
    assert states == {
        **{f"{name}.{kind}": State.INGESTED for name in good},
        **{f"{name}.{kind}": State.REJECTED for name in bad},
    }
    assert all(taken[f"{name}.{kind}"].why for name in bad)
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


@pytest.mark.parametrize("kind", MAKE)
def test_types_are_kept_and_what_does_not_fit_is_rescued(lakehouse: Lakehouse, kind: str) -> None:
    """Decimals once became doubles, and a map a struct of the first file's keys."""
    home = only_activity(lakehouse, format=kind, schema=None, hints={})
    land(home, {f"1.{kind}": MAKE[kind](TYPES, [ROW, {"n": 8}])})
    home.fill("bronze")
    later = [LATER, {**FITTING, "place": {"lat": 4.5, "lon": None}}]
    land(home, {f"2.{kind}": MAKE[kind](CHANGED, later)})
    home.fill("bronze")
    versions = registry.read_versions(home.config.layout.schemas("activity"))
    # The version between them has the columns that silver reads, and no file.
    first, last = versions[0].columns, versions[-1].columns
    assert first == {
        **{name: each.replace("bigint", "long") for name, each in TYPES.items()},
        "at": "timestamp",
    }
    assert {name: last[name] for name in (*first, "tax")} == {
        **first,
        "place": "struct<lat:double,lon:double>",
        "tax": "decimal(20,10)",
    }
    rows = rows_by_file(home, *TYPES, "tax", "_rescued_data")
    shown = "2018-03-02 10:02:33.123457"
    kept = {**ROW, "at": shown, "place": {"lat": 1.5, "lon": None}, "tax": None}
    nothing = dict.fromkeys(kept)
    assert sorted(rows[f"1.{kind}"], key=str) == [
        (*kept.values(), None),
        (*{**nothing, "n": 8}.values(), None),
    ]
    lost = {"price": None, "tags": None, "n": None, "place": LATER["place"]}
    two, one = sorted(rows[f"2.{kind}"], key=str)
    fitting = {**kept, **FITTING, "at": shown, "place": {"lat": 4.5, "lon": None}}
    assert one[:-1] == tuple({**kept, **lost, "tax": LATER["tax"]}.values())
    assert json.loads(one[-1], parse_float=Decimal) == {
        "price": Decimal("1.2345"),
        "tags": "a=1",
        "n": Decimal("2.5"),
    }
    assert two == (*{**fitting, "n": 3}.values(), None)
    assert audit_findings(home) == []


def test_text_that_is_not_utf8_stays_what_it_is(lakehouse: Lakehouse) -> None:
    """By Spark's own JSON both rows would be the same, and one of them a duplicate."""
    home = only_activity(lakehouse, format="parquet", schema=SCHEMA)
    texts = " union all ".join(
        f"select {n} as Index, cast(x'4b{byte}' as string) as Device"
        for n, byte in ((1, "e4"), (2, "f6"))
    )
    folder = home.root.parent / "written"
    home.spark.sql(texts).coalesce(1).write.parquet(str(folder))
    (written,) = folder.glob("*.parquet")
    land(home, {"latin.parquet": written.read_bytes()})
    # Spark puts down a checksum of each page, which it does not look at unless it is told to.
    summed = home.spark.sql("select 6 as Index, 'a summed one' as Device").coalesce(1).write
    summed.option("compression", "none").parquet(str(home.root.parent / "summed"))
    (whole,) = (home.root.parent / "summed").glob("*.parquet")
    land(home, {"summed.parquet": whole.read_bytes().replace(b"a summed one", b"a summed two")})
    for name, setting in {"base64": "false", "text": "true"}.items():
        file = home.land("activity", f"{name}.parquet")
        some = (
            """select 3::bigint as "Index", 'phone'::blob as "Device" union all select 4, '\\xFF'"""
        )
        duckdb.execute(f"copy ({some}) to '{file}' (format parquet)")
        if name == "base64":  # a text that has this letter is as good as any, beside bytes too
            some = """select 5::bigint as "Index", 'caf\ufffd' as "Device", '\\xFF'::blob as b"""
            file = home.land("activity", "letter.parquet")
            duckdb.execute(f"copy ({some}) to '{file}' (format parquet)")
        home.spark.conf.set("spark.sql.parquet.binaryAsString", setting)
        home.fill("bronze")
        home.spark.conf.unset("spark.sql.parquet.binaryAsString")
    rows = rows_by_file(home, "Index", "Device", "_rescued_data")
    values = {
        name: [(*kept, rescued and json.loads(rescued)) for *kept, rescued in some]
        for name, some in rows.items()
    }
    assert values == {
        "latin.parquet": [(1, None, {"Device": "K\xe4"}), (2, None, {"Device": "K\xf6"})],
        # Bytes in a column declared as string, and where Spark is told that they are one.
        "base64.parquet": [(3, "cGhvbmU=", None), (4, "/w==", None)],
        "text.parquet": [(3, "phone", None), (4, None, {"Device": "\xff"})],
        "letter.parquet": [(5, "caf\ufffd", None)],
    }
    assert "checksum" in (ledger_entries(home)["summed.parquet", 1].why or "")


NOTED: dict[str, tuple[str, str, str | None]] = {
    "as it is": ("Index bigint, place struct(lat double)", "Index long, place {lat double}", None),
    "one is null": ("Index bigint", "Index long, more string", None),
    "one more": ("Index bigint, price int", "Index long", "price"),
    "another name": ("Index bigint", "Number long", "Index"),
    "less room": ("Index int", "Index short", "Index"),
    "another sign": ("Index utinyint", "Index byte", "Index"),
    "other digits": ("Index decimal(9,2)", "Index decimal(9,3)", "Index"),
    "the same digits": ("Index decimal(9,2)", "Index decimal(9,2)", None),
    "one more within": ("place struct(lat double, lon double)", "place {lat double}", "place.lon"),
    "less room within": ("place struct(n int[])", "place {n [short]}", "place.n"),
    "nothing": ("Index int", "", None),
}


def as_noted(text: str) -> Any:
    """Columns as Spark's note has them."""
    if rows_by_file := re.fullmatch(r"\{(.*)\}", text):
        return as_noted(rows_by_file[1])
    if rows_by_file := re.fullmatch(r"\[(.*)\]", text):
        return {"type": "array", "elementType": rows_by_file[1], "containsNull": True}
    if " " not in text:
        return text
    fields = [column.split(" ", 1) for column in text.split(", ")]
    rest = {"nullable": True, "metadata": {}}
    return {
        "type": "struct",
        "fields": [{"name": name, "type": as_noted(kind), **rest} for name, kind in fields],
    }


@pytest.mark.parametrize("name", NOTED)
def test_what_spark_noted_of_other_columns_is_told(tmp_path: Path, name: str) -> None:
    """By it Spark reads the file: without a column that another writer has added, say."""
    columns, noted, other = NOTED[name]
    note = json.dumps(as_noted(noted)) if noted else "no JSON"
    of_spark = f"kv_metadata {{'org.apache.spark.sql.parquet.row.metadata': '{note}'}}"
    file = tmp_path / "a.parquet"
    with duckdb.connect() as base:
        base.execute(f"create table made ({columns})")
        base.execute(f"copy made to '{file}' (format parquet, {of_spark})")
    why = unreadable_typed_reason(file, "parquet")
    assert (why or "").partition(" is not as")[0] == (f"its {other}" if other else "")


def test_brotli_is_refused_by_name(tmp_path: Path) -> None:
    table, file = pyarrow.table({"a": [1]}), tmp_path / "a.parquet"
    reasons = {"BROTLI": "Brotli, is not supported: write it with zstd or snappy", "ZSTD": ""}
    for compression, problem in reasons.items():
        pyarrow.parquet.write_table(table, file, compression=compression)
        assert problem in (unreadable_typed_reason(file, "parquet") or "")


# By the column that is of one.
NO_TYPES = {
    "t": "select 7 as \"Index\", time '10:02:33' as t",
    "u": 'select 7 as "Index", uuid() as u',
    "s": "select 7 as \"Index\", {'i': interval 1 day} as s",
}


def test_columns_that_spark_would_cut_or_has_no_type_for_are_told(lakehouse: Lakehouse) -> None:
    """Two rows whose INT96 is a nanosecond apart would be one to Spark, which has microseconds."""
    at, within = (f"timestamp'2018-03-02 10:02:33.00000{micros}Z'" for micros in (1, 2))
    last = "timestamp'9999-12-31 23:59:59.999999Z'"  # beyond 64 bits of nanoseconds
    home = only_activity(
        lakehouse, format="parquet", schema={"Index": "long"}, schema_evolution="rescue"
    )
    folder = home.root.parent / "written"
    written = home.spark.sql(
        f"select 1L as Index, {at} as at, array({last}, null, {within}) as days"
        f" union all select 2L, {last}, null"
    ).coalesce(1)
    key = "spark.sql.parquet.outputTimestampType"
    before = home.spark.conf.get(key)
    home.spark.conf.set(key, "INT96")
    try:
        # Without checksums of pages, for the test changes some bytes.
        plain = {"compression": "none", "parquet.page.write-checksum.enabled": "false"}
        written.write.options(**plain).parquet(str(folder))
    finally:
        home.spark.conf.set(key, str(before))
    (file,) = folder.glob("*.parquet")
    whole = file.read_bytes()
    odd = "whole\t%.parquet (1) "  # as browsers name them, and worse
    files = {odd: whole}
    for name, micros in {"at": 1, "days": 2}.items():  # the nanoseconds of the day, and the day
        clock = (10 * 3600 + 2 * 60 + 33) * 10**9 + micros * 1000
        finer = whole.replace(clock.to_bytes(8, "little"), (clock + 8).to_bytes(8, "little"))
        assert finer != whole
        files[f"{name}.parquet"] = finer
    land(home, files)
    for name, sql in NO_TYPES.items():
        duckdb.execute(f"copy ({sql}) to '{home.land('activity', name)}' (format parquet)")
    home.fill("bronze")
    whys = {name: entry.why for (name, _), entry in ledger_entries(home).items() if entry.why}
    assert rows_by_file(home, "Index") == {name: [(1,), (2,)] for name in (odd, "days.parquet")}
    assert whys["at.parquet"].startswith("its column at has")
    assert {
        name: why.partition(": write that")[0] for name, why in whys.items() if name in NO_TYPES
    } == {name: f"cannot be read: Spark has no type for its {name}" for name in NO_TYPES}
    assert audit_findings(home) == []

"""Files of every format become rows, and a second count by plain Python agrees."""

from __future__ import annotations

import bz2
import codecs
import gzip
import json
from typing import Any

import duckdb
import pytest
from ingesting import book, counts, only
from support import Lakehouse

from medallion.audit import audit
from medallion.ingest.ledger import INGESTED, REJECTED

SCHEMA = {"Index": "long", "Device": "string"}


def land(home: Lakehouse, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        home.land("activity", name).write_bytes(data)


def found(home: Lakehouse, *columns: str) -> dict[str, list[tuple[Any, ...]]]:
    """Rows by the name of their file, in order."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for path, *values in home.rows("bronze.activity", "_source_file", *columns):
        rows.setdefault(path.removeprefix("landing/activity/"), []).append(tuple(values))
    return rows


def recounted(home: Lakehouse) -> list[str]:
    return list(audit(home.config, everything=True).findings)


CSV = {
    "1.csv": b'Index,Device\n1,phone\n2,"two\nlines"\n',
    "2.csv": b"Device,Index\nwatch,3\n",
    "3.csv": b"Index,Device\n4,a,extra\n",
    "4.csv": b"",
    "5.csv": b"Index,Device\n",
    "6.csv": b"\xef\xbb\xbfIndex,Device\r\n6,bom\r\n\r\n7,007\r\n",
    "7.csv.gz": gzip.compress(b'Index,Battery\n8,"55"\nhigh,56\n'),
    "8.csv": b'Index,Device\n9,"say ""hi"", twice"\n',
}


def test_csv(lakehouse: Lakehouse) -> None:
    home = only(lakehouse, format="csv", schema=SCHEMA, schema_evolution="rescue")
    land(home, CSV)
    home.pipeline().run("bronze")
    assert found(home, "Index", "Device", "_corrupt_record") == {
        "1.csv": [(1, "phone", None), (2, "two\nlines", None)],
        "2.csv": [(3, "watch", None)],
        "3.csv": [(None, None, "4,a,extra")],
        "6.csv": [(6, "bom", None), (7, "007", None)],
        "7.csv.gz": [(8, None, None), (None, None, None)],
        "8.csv": [(9, 'say "hi", twice', None)],
    }
    texts = [text for (text,) in found(home, "_rescued_data")["7.csv.gz"]]
    battery, both = ({"Battery": "55"}, {"Battery": "56", "Index": "high"})
    assert [json.loads(text) for text in sorted(texts, key=len)] == [battery, both]
    rows = {"1.csv": 2, "2.csv": 1, "3.csv": 1, "4.csv": 0, "5.csv": 0, "6.csv": 2}
    rows |= {"7.csv.gz": 2, "8.csv": 1}
    assert {name: entry.rows for (name, _), entry in book(home).items()} == rows
    assert recounted(home) == []
    land(home, {"9.csv": b""})  # and nothing else in its batch
    home.pipeline().run("bronze")
    assert counts(home)["9.csv", 1] == (INGESTED, 1, 0, 0, 0)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"Index,Device\n,\n1,a\n"),
        pytest.param(b'Index,Device\n"",""\n'),
        b"Index\n \n1\n",
    ],
    ids=["only a comma", "only quotes", "only a blank"],
)
def test_rows_of_csv_without_a_value(lakehouse: Lakehouse, data: bytes) -> None:
    """Two engines have to agree whether there is a row."""
    home = only(lakehouse, format="csv", schema=SCHEMA)
    land(home, {"1.csv": data})
    home.pipeline().run("bronze")
    assert recounted(home) == []


def land_parquet(home: Lakehouse, **files: str) -> None:
    """Files written by DuckDB, each from a query of its own."""
    for name, sql in files.items():
        file = home.land("activity", f"{name}.parquet")
        duckdb.execute(f"copy ({sql}) to '{file}' (format parquet)")


ONE = "select 1::bigint as \"Index\", 'phone' as Device union all select 2, null"
NESTED = "select 3::bigint as \"Index\", {'lat': 1.5} as place"
OTHER_TYPE = "select 'four' as \"Index\", 'other' as Device"
NOTHING = 'select 5::bigint as "Index" limit 0'


def test_parquet(lakehouse: Lakehouse) -> None:
    home = only(lakehouse, format="parquet", schema=SCHEMA, schema_evolution="rescue")
    land_parquet(home, one=ONE, nested=NESTED, nothing=NOTHING)
    home.pipeline().run("bronze")
    rows = {"one.parquet": [(1, "phone"), (2, None)], "nested.parquet": [(3, None)]}
    assert found(home, "Index", "Device") == rows
    ((text,),) = found(home, "_rescued_data")["nested.parquet"]
    assert json.loads(text) == {"place": {"lat": 1.5}}
    assert {name: entry.rows for (name, _), entry in book(home).items()} == {
        "one.parquet": 2,
        "nested.parquet": 1,
        "nothing.parquet": 0,
    }
    assert recounted(home) == []


def test_parquet_files_of_different_types(lakehouse: Lakehouse) -> None:
    home = only(lakehouse, format="parquet", schema=SCHEMA, schema_evolution="rescue")
    land_parquet(home, one=ONE, other=OTHER_TYPE, nested=NESTED)
    home.pipeline().run("bronze")
    assert found(home, "Index", "Device") == {
        "one.parquet": [(1, "phone"), (2, None)],
        "other.parquet": [(None, "other")],
        "nested.parquet": [(3, None)],
    }
    ((text,),) = found(home, "_rescued_data")["other.parquet"]
    assert json.loads(text) == {"Index": "four"}


def test_parquet_that_cannot_be_read_among_good_files(lakehouse: Lakehouse) -> None:
    home = only(lakehouse, format="parquet", schema=SCHEMA)
    land_parquet(home, one=ONE, torn=ONE)
    whole = (home.config.layout.landing("activity") / "torn.parquet").read_bytes()
    land(home, {"torn.parquet": whole[:-40], "x.parquet": b"{}\n"})
    land(home, {"rotten.parquet": whole[:4] + bytes(60) + whole[64:]})  # its footer is as it was
    home.pipeline().run("bronze")
    assert list(found(home, "Index")) == ["one.parquet"]
    assert {name: entry.state for (name, _), entry in book(home).items()} == {
        "one.parquet": INGESTED,
        "rotten.parquet": REJECTED,
        "torn.parquet": REJECTED,
        "x.parquet": REJECTED,
    }
    assert recounted(home) == []


def test_text(lakehouse: Lakehouse) -> None:
    home = only(lakehouse, format="text", schema={"value": "string"})
    land(home, {"1.log": b'one\r\n\n{"two": 2}\n', "2.log.bz2": bz2.compress("drei ä\n".encode())})
    home.pipeline().run("bronze")
    assert found(home, "value", "_corrupt_record", "_rescued_data") == {
        "1.log": [("one", None, None), ('{"two": 2}', None, None)],
        "2.log.bz2": [("drei ä", None, None)],
    }
    assert recounted(home) == []


def test_json_documents(lakehouse: Lakehouse) -> None:
    home = only(lakehouse, multi_line=True, schema=SCHEMA)
    broken = b'[{"Index": 6},\n {"Index":'
    two = b'{"Index": 7}\n{"Index": 8}\n'
    not_json = {"quotes.json": b"[{'Index': 1}, {'Index': 2}]", "nan.json": b'[{"x": NaN}, {}]'}
    land(
        home,
        {
            "array.json": b'[\n {"Index": 1},\n {"Index": 2, "Device": "a\\nb"}\n]\n',
            "object.json": b'{\n "Index": 3,\n "Device": "phone"\n}\n',
            "packed.json.gz": gzip.compress(b'[{"Index": 4}, {"Index": 5}]'),
            "broken.json": broken,
            "two.json": two,
            "empty.json": b" \n",
            "none.json": b"[]",
            "mixed.json": b'[{"Index": 9}, 10, null]',
            "bom.json": codecs.BOM_UTF8 + b'[{"Index": 11}, {"Index": 12}]',
            **not_json,
        },
    )
    home.pipeline().run("bronze")
    rows = found(home, "Index", "Device", "_corrupt_record")
    assert rows == {
        "array.json": [(1, None, None), (2, "a\nb", None)],
        "object.json": [(3, "phone", None)],
        "packed.json.gz": [(4, None, None), (5, None, None)],
        "broken.json": [(None, None, broken.decode())],
        "two.json": [(None, None, two.decode())],
        "mixed.json": [(9, None, None), (None, None, "10"), (None, None, "null")],
        "bom.json": [(11, None, None), (12, None, None)],
        **{name: [(None, None, data.decode())] for name, data in not_json.items()},
    }
    assert {name: entry.rows for (name, _), entry in book(home).items()} == {
        **{name: len(listed) for name, listed in rows.items()},
        "empty.json": 0,
        "none.json": 0,
    }
    assert recounted(home) == []

"""CSV files become rows, none is lost or bent, and a second count by plain Python agrees."""

from __future__ import annotations

import gzip
import json
from datetime import date

import duckdb
import pytest

from medallion.ops.ledger import INGESTED, REJECTED
from medallion.sources.files import reader
from tests.support.byte_files import SCHEMA, found, land, recounted
from tests.support.lakehouse import Lakehouse, book, counts, only

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
    home.fill("bronze")
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
    home.fill("bronze")
    assert counts(home)["9.csv", 1] == (INGESTED, 1, 0, 0, 0)


def test_rows_of_csv_without_a_value(lakehouse: Lakehouse) -> None:
    """Two engines have to agree whether there is a row: of one column, a blank is one."""
    home = only(lakehouse, format="csv", schema=SCHEMA)
    files = {
        "comma.csv": b"Index,Device\n,\n1,a\n",
        "quotes.csv": b'Index,Device\n"",""\n',
        "blank.csv": b"Index\n \n1\n",
    }
    land(home, files)
    home.fill("bronze")
    assert found(home, "Index", "Device") == {
        "comma.csv": [(1, "a"), (None, None)],
        "quotes.csv": [(None, None)],
        "blank.csv": [(1, None), (None, None)],
    }
    assert recounted(home) == []


BLANK_FIRST = {
    "lf.csv": b"\nIndex,Device\n1,a\n",
    "crlf.csv": b"\r\n\r\nIndex,Device\r\n2,b\r\n",
    "bom.csv": b"\xef\xbb\xbf\nIndex,Device\n3,c\n",
    "bom_crlf.csv": b"\xef\xbb\xbf\r\nIndex,Device\r\n4,d\r\n",
    "bom_quoted.csv": b'\xef\xbb\xbf"Ind\nex",Device\n5,e\n',
    "cr.csv": b"\rIndex,Device\r6,f\r",
    "blank_in_between.csv": b"\n\nIndex,Device\r\n7,g\r\n",
}


def test_blank_lines_before_the_header(lakehouse: Lakehouse) -> None:
    home = only(lakehouse, format="csv", schema=SCHEMA, schema_evolution="rescue")
    land(home, BLANK_FIRST)
    home.fill("bronze")
    assert found(home, "Index", "Device", "_corrupt_record") == {
        "lf.csv": [(1, "a", None)],
        "crlf.csv": [(2, "b", None)],
        "bom.csv": [(3, "c", None)],
        "bom_crlf.csv": [(4, "d", None)],
        "bom_quoted.csv": [(None, "e", None)],
        "cr.csv": [(6, "f", None)],
        "blank_in_between.csv": [(7, "g", None)],
    }
    ((text,),) = found(home, "_rescued_data")["bom_quoted.csv"]
    assert json.loads(text) == {"Ind\nex": "5"}
    assert recounted(home) == []


KINDS = {
    "Index": "long",
    "x": "double",
    "on": "boolean",
    "at": "timestamp",
    "day": "date",
    "place": "struct<lat:double>",
    "tags": "array<long>",
}
# A column, a field of it as CSV, and what the column then holds.
FITTING = [
    ("Index", "12", 12),
    ("Index", "-7", -7),
    ("Index", " 8 ", 8),
    ("x", "1.5e3", 1500.0),
    ("x", "3", 3.0),
    ("on", "true", True),
    ("on", "false", False),
    ("at", "2018-03-02T10:02:33.123456", "2018-03-02 10:02:33.123456"),
    ("at", "2018-03-02 10:02:33", "2018-03-02 10:02:33"),
    ("day", "2018-03-02", date(2018, 3, 2)),
    ("place", '"{""lat"":1.5}"', {"lat": 1.5}),
    ("tags", '"[1, 2]"', [1, 2]),
]
# A column, and a text that it cannot hold: all of it is rescued.
ASTRAY = [
    ("Index", "1 000"),
    ("Index", "null"),
    ("Index", "null and void"),
    ("Index", "007"),
    ("Index", "1,5"),
    ("Index", "12\n"),
    ("x", "5 kg"),
    ("x", "5. 3"),
    ("x", "+1"),
    ("x", "NaN"),
    ("on", "true story"),
    ("on", "null"),
    ("at", "12 Mar 2018 10:00"),
    ("at", "1 2 3"),
    ("day", "12 Mar 2018"),
    ("place", '{"lat":1} x'),
    ("place", '{"lat":1},"x":2'),
    ("place", "null"),
    ("tags", "[1] [2]"),
    ("tags", "[1],[2"),
    ("tags", "1 2"),
]


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def test_csv_fields_that_are_not_of_their_column_are_kept_whole(lakehouse: Lakehouse) -> None:
    home = only(lakehouse, format="csv", schema=KINDS, schema_evolution="rescue")
    fit = {f"fit{i}.csv": f"{c}\n{v}\n".encode() for i, (c, v, _) in enumerate(FITTING)}
    off = {f"off{i}.csv": f"{c}\n{quoted(v)}\n".encode() for i, (c, v) in enumerate(ASTRAY)}
    land(home, fit | off)
    home.fill("bronze")
    rows = found(home, *KINDS, "_rescued_data", "_corrupt_record")
    for i, (column, _, value) in enumerate(FITTING):
        expected = [value if c == column else None for c in KINDS]
        assert rows[f"fit{i}.csv"] == [(*expected, None, None)], FITTING[i]
    for i, (column, text) in enumerate(ASTRAY):
        ((*values, rescued, corrupt),) = rows[f"off{i}.csv"]
        assert (values, corrupt) == ([None] * len(KINDS), None), ASTRAY[i]
        assert json.loads(rescued) == {column: text}
    assert recounted(home) == []


def test_bare_digits_are_no_time(lakehouse: Lakehouse) -> None:
    """Neither seconds since 1970 nor a day number: the text goes on to the parser as it stands."""
    kinds = {"at": "timestamp", "day": "date"}
    config = only(lakehouse, format="csv", schema=kinds).config
    land(lakehouse, {"1.csv": b"at,day\n20180302,1001\n2018,17\n1519984953,5\n"})
    read = reader.rows(
        lakehouse.spark, config, config.sources["activity"], ["landing/activity/1.csv"], kinds
    )
    assert [json.loads(row.value) for row in read.collect()] == [
        {"at": "20180302", "day": "1001"},
        {"at": "2018", "day": "17"},
        {"at": "1519984953", "day": "5"},
    ]


def test_numbers_of_csv_keep_their_digits(lakehouse: Lakehouse) -> None:
    home = only(lakehouse, format="csv", schema=KINDS, schema_evolution="rescue")
    long = "0.1234567890123456789012345678901234567890123"
    land(home, {"1.csv": f"x,on\n1e400,\n{long},{long}\n".encode()})
    home.fill("bronze")
    rows = found(home, "x", "on", "_rescued_data")["1.csv"]
    assert (None, None, '{"x":1e400}') in rows
    ((x, on, rescued),) = [row for row in rows if row[0] is not None]
    assert (x, on) == (float(long), None)
    assert rescued is not None


def test_two_columns_of_one_name(lakehouse: Lakehouse) -> None:
    home = only(lakehouse, format="csv", schema=SCHEMA, schema_evolution="rescue")
    land(home, {"1.csv": b'Index,Index,"a ""b"""\n1,2,c\n'})
    home.fill("bronze")
    ((rescued,),) = found(home, "_rescued_data")["1.csv"]
    assert rescued == '{"Index":1,"Index":2,"a \\"b\\"":"c"}'
    assert recounted(home) == []


def test_csv_whose_names_are_patterns_to_spark(lakehouse: Lakehouse) -> None:
    home = only(lakehouse, format="csv", schema=SCHEMA)
    names = ["sales [2024-05].csv", "{a,b}.csv", "a*.csv", "a?.csv", "a\\b.csv", "plain.csv"]
    land(home, {name: f"Device,Index\n{i},{i}\n".encode() for i, name in enumerate(names)})
    home.fill("bronze")
    rows = {name: [(i, str(i))] for i, name in enumerate(names)}
    assert found(home, "Index", "Device") == rows
    assert recounted(home) == []


def test_csv_of_rare_codecs(lakehouse: Lakehouse) -> None:
    home = only(lakehouse, format="csv", schema=SCHEMA)
    land(home, {"plain.csv": b"Device,Index\nplain,1\n", "text.csv.zst": b"Device,Index\nc,4\n"})
    good = home.config.layout.landing("activity") / "a.csv.zst"
    text = '"De\nvice",Index\nb,2\nä,3'
    duckdb.execute(
        f"copy (select '{text}') to '{good}' "
        "(format csv, header false, quote '', escape '', delimiter '\x01', compression zstd)"
    )
    home.fill("bronze")
    assert found(home, "Index", "_rescued_data") == {
        "plain.csv": [(1, None)],
        "a.csv.zst": [(2, '{"De\\nvice":"b"}'), (3, '{"De\\nvice":"ä"}')],
    }
    entry = book(home)["text.csv.zst", 1]
    assert entry.state == REJECTED
    assert entry.why
    assert entry.why.startswith("cannot be read")
    assert recounted(home) == []


@pytest.mark.parametrize("columns", [120, pytest.param(1000, marks=pytest.mark.slow)])
def test_csv_of_many_columns(lakehouse: Lakehouse, columns: int) -> None:
    home = only(lakehouse, format="csv", schema=SCHEMA, schema_evolution="rescue")
    names = ["Index", *(f"c{number}" for number in range(1, columns))]
    rows = "\n".join(",".join([str(index)] * columns) for index in range(3))
    land(home, {"a.csv": f"{','.join(names)}\n{rows}\n".encode()})
    home.pipeline().run("bronze")
    assert found(home, "Index") == {"a.csv": [(0,), (1,), (2,)]}

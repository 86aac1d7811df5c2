"""CSV files become rows, none is lost or bent, and a second count by plain Python agrees."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable
from datetime import date
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from medallion.config.model import ReaderOptions
from medallion.ingest.files import reader
from medallion.state.ledger import INGESTED, REJECTED
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
WITHOUT_A_VALUE = {
    "comma.csv": b"Index,Device\n,\n1,a\n",
    "quotes.csv": b'Index,Device\n"",""\n',
    "blank.csv": b"Index\n \n1\n",
}
BLANK_FIRST = {
    "lf.csv": b"\nIndex,Device\n1,a\n",
    "crlf.csv": b"\r\n\r\nIndex,Device\r\n2,b\r\n",
    "bom.csv": b"\xef\xbb\xbf\nIndex,Device\n3,c\n",
    "bom_crlf.csv": b"\xef\xbb\xbf\r\nIndex,Device\r\n4,d\r\n",
    "bom_quoted.csv": b'\xef\xbb\xbf"Ind\nex",Device\n5,e\n',
    "cr.csv": b"\rIndex,Device\r6,f\r",
    "blank_in_between.csv": b"\n\nIndex,Device\r\n7,g\r\n",
}
PATTERNS = ["sales [2024-05].csv", "{a,b}.csv", "a*.csv", "a?.csv", "a\\b.csv", "plain.csv"]
TRAILING = {
    "rows.csv": b'Index,Device\n1,a,\n,,\n3,"c,",\n',
    "rows_crlf.csv.gz": gzip.compress(b"Index,Device\r\n1,a,\r\n\r\n2,,\r\n"),
    "rows_mixed.csv": b"Index,Device\n1,a,\r\n2,b,\n",
    "both.csv": b"Index,Device,\n1,a,\n2,b,\n",
    "only_some.csv": b"Index,Device\n1,a,\n2,b\n3,c,x\n",
    "latin.csv": b"Index,Device\n1,caf\xe9,\n2,b,\n",
    "quoted_blank.csv": b'Index,Device\n1,a,"x"\n2,b,\n',
}
MORE = {
    "twice.csv": b'Index,Index,"a ""b"""\n1,2,c\n',
    "text.csv.zst": b"Device,Index\nc,4\n",
    "case.csv": b"INDEX,device\n10,007\n",
    "case_twice.csv": b"index,Index,device\n1,11,d\n",
    "wider.csv": b",".join([b"c"] * 2001) + b"\n1\n",
}


def wide(columns: int) -> bytes:
    """Three rows, each of its number again and again."""
    names = ["Index", *(f"c{number}" for number in range(1, columns))]
    rows = "\n".join(",".join([str(index)] * columns) for index in range(3))
    return f"{','.join(names)}\n{rows}\n".encode()


@pytest.fixture(scope="module")
def taken(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """After one run over all files of one schema, and another over one file alone."""
    home = Lakehouse(spark, tmp_path_factory.mktemp("csv") / "lakehouse")
    only(home, format="csv", schema=SCHEMA, schema_evolution="rescue")
    land(home, {**CSV, **WITHOUT_A_VALUE, **BLANK_FIRST, **TRAILING, **MORE, "wide.csv": wide(120)})
    land(home, {name: f"Device,Index\n{i},{i}\n".encode() for i, name in enumerate(PATTERNS)})
    good = home.config.layout.landing("activity") / "a.csv.zst"
    text = '"De\nvice",Index\nb,2\nä,3'
    duckdb.execute(
        f"copy (select '{text}') to '{good}' "
        "(format csv, header false, quote '', escape '', delimiter '\x01', compression zstd)"
    )
    home.fill("bronze")
    land(home, {"alone.csv": b""})
    home.fill("bronze")
    return home


def rows_of(home: Lakehouse, files: Iterable[str], *columns: str) -> dict[str, list[Any]]:
    """The rows of each of these files that has some."""
    rows = found(home, *columns)
    return {name: rows[name] for name in files if name in rows}


def test_a_second_count_agrees(taken: Lakehouse) -> None:
    assert recounted(taken) == []


def test_csv(taken: Lakehouse) -> None:
    assert rows_of(taken, CSV, "Index", "Device", "_corrupt_record") == {
        "1.csv": [(1, "phone", None), (2, "two\nlines", None)],
        "2.csv": [(3, "watch", None)],
        "3.csv": [(None, None, "4,a,extra")],
        "6.csv": [(6, "bom", None), (7, "007", None)],
        "7.csv.gz": [(8, None, None), (None, None, None)],
        "8.csv": [(9, 'say "hi", twice', None)],
    }
    texts = [text for (text,) in found(taken, "_rescued_data")["7.csv.gz"]]
    battery, both = ({"Battery": "55"}, {"Battery": "56", "Index": "high"})
    assert [json.loads(text) for text in sorted(texts, key=len)] == [battery, both]
    rows = {"1.csv": 2, "2.csv": 1, "3.csv": 1, "4.csv": 0, "5.csv": 0, "6.csv": 2}
    rows |= {"7.csv.gz": 2, "8.csv": 1}
    assert {name: book(taken)[name, 1].rows for name in CSV} == rows
    assert counts(taken)["alone.csv", 1] == (INGESTED, 1, 0, 0, 0)


def test_rows_of_csv_without_a_value(taken: Lakehouse) -> None:
    """Two engines have to agree whether there is a row: of one column, a blank is one."""
    assert rows_of(taken, WITHOUT_A_VALUE, "Index", "Device") == {
        "comma.csv": [(1, "a"), (None, None)],
        "quotes.csv": [(None, None)],
        "blank.csv": [(1, None), (None, None)],
    }


def test_blank_lines_before_the_header(taken: Lakehouse) -> None:
    assert rows_of(taken, BLANK_FIRST, "Index", "Device", "_corrupt_record") == {
        "lf.csv": [(1, "a", None)],
        "crlf.csv": [(2, "b", None)],
        "bom.csv": [(3, "c", None)],
        "bom_crlf.csv": [(4, "d", None)],
        "bom_quoted.csv": [(None, "e", None)],
        "cr.csv": [(6, "f", None)],
        "blank_in_between.csv": [(7, "g", None)],
    }
    ((text,),) = found(taken, "_rescued_data")["bom_quoted.csv"]
    assert json.loads(text) == {"Ind\nex": "5"}


def test_rows_that_end_with_a_comma(taken: Lakehouse) -> None:
    """The field behind the last comma is none, where each row of a file has it and it is empty."""
    assert rows_of(taken, TRAILING, "Index", "Device", "_corrupt_record", "_rescued_data") == {
        "rows.csv": [(1, "a", None, None), (3, "c,", None, None), (None, None, None, None)],
        "rows_crlf.csv.gz": [(1, "a", None, None), (2, None, None, None)],
        "rows_mixed.csv": [(1, "a", None, None), (2, "b", None, None)],
        "both.csv": [(1, "a", None, None), (2, "b", None, None)],
        "only_some.csv": [
            (2, "b", None, None),
            (None, None, "1,a,", None),
            (None, None, "3,c,x", None),
        ],
        "latin.csv": [(2, "b", None, None), (None, None, "1,caf\xe9,", None)],
        "quoted_blank.csv": [(None, None, '1,a,"x"', None), (None, None, "2,b,", None)],
    }


def test_two_columns_of_one_name(taken: Lakehouse) -> None:
    ((rescued,),) = found(taken, "_rescued_data")["twice.csv"]
    assert rescued == '{"Index":1,"Index":2,"a \\"b\\"":"c"}'


def test_names_of_a_header_that_differ_only_in_case(taken: Lakehouse) -> None:
    rows = found(taken, "Index", "Device", "_rescued_data")
    assert rows["case.csv"] == [(10, "007", None)]
    assert rows["case_twice.csv"] == [(11, "d", '{"index":"1"}')]


def test_csv_whose_names_are_patterns_to_spark(taken: Lakehouse) -> None:
    rows = {name: [(i, str(i))] for i, name in enumerate(PATTERNS)}
    assert rows_of(taken, PATTERNS, "Index", "Device") == rows


def test_csv_of_rare_codecs(taken: Lakehouse) -> None:
    rescued = found(taken, "Index", "_rescued_data")
    assert rescued["a.csv.zst"] == [(2, '{"De\\nvice":"b"}'), (3, '{"De\\nvice":"ä"}')]
    entry = book(taken)["text.csv.zst", 1]
    assert entry.state == REJECTED
    assert (entry.why or "").startswith("cannot be read")
    assert "text.csv.zst" not in rescued


def test_csv_of_many_columns(taken: Lakehouse) -> None:
    assert found(taken, "Index")["wide.csv"] == [(0,), (1,), (2,)]
    entry = book(taken)["wider.csv", 1]
    assert entry.state == REJECTED
    assert (entry.why or "").startswith("its header has 2,001 fields, and 2,000 is the most")


@pytest.mark.slow
def test_csv_of_very_many_columns(lakehouse: Lakehouse) -> None:
    home = only(lakehouse, format="csv", schema=SCHEMA)
    land(home, {"a.csv": wide(1000)})
    home.pipeline().run("bronze")
    assert found(home, "Index") == {"a.csv": [(0,), (1,), (2,)]}


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


def test_csv_fields_that_do_not_fit_are_kept_whole(lakehouse: Lakehouse) -> None:
    home = only(lakehouse, format="csv", schema=KINDS, schema_evolution="rescue")
    fit = {f"fit{i}.csv": f"{c}\n{v}\n".encode() for i, (c, v, _) in enumerate(FITTING)}
    off = {f"off{i}.csv": f"{c}\n{quoted(v)}\n".encode() for i, (c, v) in enumerate(ASTRAY)}
    long = "0.1234567890123456789012345678901234567890123"
    digits = {"digits.csv": f"x,on\n1e400,\n{long},{long}\n".encode()}
    land(home, fit | off | digits)
    home.fill("bronze")
    rows = found(home, *KINDS, "_rescued_data", "_corrupt_record")
    for i, (column, _, value) in enumerate(FITTING):
        expected = [value if c == column else None for c in KINDS]
        assert rows[f"fit{i}.csv"] == [(*expected, None, None)], FITTING[i]
    for i, (column, text) in enumerate(ASTRAY):
        ((*values, rescued, corrupt),) = rows[f"off{i}.csv"]
        assert (values, corrupt) == ([None] * len(KINDS), None), ASTRAY[i]
        assert json.loads(rescued) == {column: text}
    # Numbers keep their digits.
    numbers = found(home, "x", "on", "_rescued_data")["digits.csv"]
    assert (None, None, '{"x":1e400}') in numbers
    ((x, on, kept),) = [row for row in numbers if row[0] is not None]
    assert (x, on) == (float(long), None)
    assert kept is not None
    assert recounted(home) == []


def test_bare_digits_are_no_time(lakehouse: Lakehouse) -> None:
    """Neither seconds since 1970 nor a day number: the text goes on to the parser as it stands."""
    kinds = {"at": "timestamp", "day": "date"}
    config = only(lakehouse, format="csv", schema=kinds).config
    land(lakehouse, {"1.csv": b"at,day\n20180302,1001\n2018,17\n1519984953,5\n"})
    read = reader.read_rows(
        lakehouse.spark, config, config.sources["activity"], ["landing/activity/1.csv"], kinds
    )
    assert [json.loads(row.value) for row in read.collect()] == [
        {"at": "20180302", "day": "1001"},
        {"at": "2018", "day": "17"},
        {"at": "1519984953", "day": "5"},
    ]


WITHOUT_HEADER = {
    "plain.csv": b'1;phone\n2;"two;\nlines"\n\n3;\n',
    "bom.csv": b"\xef\xbb\xbf4;\xc3\xa4\r\n5;b\r\n",
    "bom_quoted.csv": b'\xef\xbb\xbf"6";b\n',
    "blank_first.csv.gz": gzip.compress(b"\r\n7;c\r\n\r\n8;d\r\n"),
    "fields.csv": b'9;d;x\n10\n11;"e;e"\n',
    "trailing.csv": b"12;f;\n13;;\n",
    "returns.csv": b"14;g\r15;h\r",
    "latin.csv": b'16;caf\xe9\n17;"i"""\n',
    "empty.csv": b"",
}


def test_files_without_a_header(lakehouse: Lakehouse) -> None:
    """Their columns are those of the schema, and a reader of Python's own finds the same rows."""
    options = ReaderOptions(header=False, delimiter=";")
    home = only(lakehouse, format="csv", schema=SCHEMA, schema_evolution="rescue", options=options)
    land(home, WITHOUT_HEADER)
    home.fill("bronze")
    assert recounted(home) == []
    rows = found(home, "Index", "Device", "_corrupt_record", "_rescued_data")
    corrupt = {"fields.csv": {"9;d;x", "10"}, "latin.csv": {"16;caf\xe9"}}
    for name, data in WITHOUT_HEADER.items():
        text = (gzip.decompress(data) if name.endswith(".gz") else data).decode("latin-1")
        lines = csv.reader(
            io.StringIO(text.removeprefix("\xef\xbb\xbf"), newline=""), delimiter=";"
        )
        expected = [
            (int(row[0]), row[1].encode("latin-1").decode() or None, None, None)
            for row in lines
            if row and not corrupt.get(name, set()) & {";".join(row)}
        ]
        good = [row for row in rows.get(name, []) if row[2] is None]
        assert sorted(good) == sorted(expected), name
        assert {row[2] for row in rows.get(name, []) if row[2]} == corrupt.get(name, set())

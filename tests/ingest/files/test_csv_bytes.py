"""Line ends of every kind in CSV files, and bytes that are not UTF-8."""

from __future__ import annotations

import gzip

import pytest
from pyspark.sql import SparkSession

from medallion.state.ledger import REJECTED
from tests.support.byte_files import SCHEMA, found, land, recounted
from tests.support.lakehouse import Lakehouse, book, only

UMLAUTS = "äöü ß 😀 \u2028\u0085 é"


BYTES = {
    "some.csv": f"Index,Device\n1,{UMLAUTS}\n".encode() + b'2,caf\xe9\n,"a, ""\xff"\n3,ok',
    "broken.csv": b"Index,Device\n1,caf\xe9,x\n" + "2,ä,x\n".encode(),
    "halves.csv": b"Index,Device\n\xc3,\xa4\n",  # together they would be a letter
    "crlf.csv": b"Index,Device\r\n1,\xe4\r\n2,\xc3\xa4\r\n",
    "crcrlf_latin.csv": b"Index,Device\r\r\n1,\xe4\r\r\n2,b,x\r\r\n3,\xc3\xa4\r\r\n",
    "commas.csv": b"Index\n\r,,x\n\r\n1\r\n",
    "bom.csv": f"\ufeffIndex,Device\n1,{UMLAUTS}\n".encode() + b"2,caf\xe9\n",
    "bom_quote.csv": b'\xef\xbb\xbf"Index",Device\n1,a\n2,caf\xe9\n',
    "header.csv": b"caf\xe9,Device\n1,ok\n",
    "umlaut.csv": '"Gerät",Device\n1,ok\n'.encode(),
    "blanks.csv": b"Index,Device\n 1 ,\t\xe9 \n",
    # Rows of another length that are JSON as they stand, of bytes that are UTF-8 or not.
    "json.csv": b'Index,Device\n{"Index":7}\n{"Index":8,"Device":"a","x":1}\n',
    "json_latin.csv": b'Index\n{"Index":9,"Device":"\xe9"}\n{"Device":"\xe9"}\n',
}
ENDS: dict[str, tuple[bytes, list[tuple[int | None, str | None]]]] = {
    "quoted.csv": (b'Index,Device\r\n1,"a\r\nb"\r\n2,"a\nb"\r\n', [(1, "a\r\nb"), (2, "a\nb")]),
    "only_header.csv": (b"Index,Device\r\n1,a\n2,b\n", [(1, "a"), (2, "b")]),
    "all_but_header.csv": (b"Index,Device\n1,a\r\n2,b\r\n\r\n", [(1, "a"), (2, "b")]),
    "late.csv": (b"Index,Device\r\n1,a\r\n\r\n2,b\n\n3,c", [(1, "a"), (2, "b"), (3, "c")]),
    "numbers.csv": (b"Device,Index\r\na,1\r\n,2\n", [(1, "a"), (2, None)]),
    "empty.csv": (b"Index,Device\r\n1,\r\n2,a\r\n", [(1, None), (2, "a")]),
    "in_a_field.csv": (b"Index,Device\n1,a\n2,c\rd\n", [(1, "a"), (2, "c\rd")]),
    "quoted_cr.csv": (b'Index,Device\n1,"a\r"\n2,"\r\n"\n', [(1, "a\r"), (2, "\r\n")]),
    "cr.csv": (b'Index,Device\r1,a\r\r2,"b\rc"\r', [(1, "a"), (2, "b\rc")]),
    "one.csv": (b"Index\r\n1\r\n\r\n2\n3\r\n", [(1, None), (2, None), (3, None)]),
    "first_cr.csv": (b'Device,Index\r\n"\r",\r\nb,2\n', [(2, "b"), (None, "\r")]),
    "one_cr.csv": (b'Device\n"\r"\n', [(None, "\r")]),
    "nul.csv": (b'Index,Device\r\n1,"a\0b"\r\n', [(1, "a\0b")]),
    "nul_lf.csv": (b'Index,Device\n1,"say ""x""\0z"\n2,"\0"""\n', [(1, 'say "x"\0z'), (2, '\0"')]),
    "odd_quotes.csv": (b'Index,Device\n1,a"\n2,"a"b\n3,"c"\n', [(1, 'a"'), (2, '"a"b'), (3, "c")]),
    # What Python writes on Windows to a file that is open without newline="".
    "crcrlf.csv": (
        b'Index,Device\r\r\n1,a\r\r\n\r\r\n2,\r\r\n3,"b\r\r\nc"\r\r\n',
        [(1, "a"), (2, None), (3, "b\r\r\nc")],
    ),
    "crcrlf_last.csv": (b"Device,Index\r\r\na,1\r\r\n,2", [(1, "a"), (2, None)]),
    "crcrlf_later.csv": (
        b"Index,Device\n1,a\n2,b\r\r\n\r\r\n3,c\r\n\r\n4,\r\r\n",
        [(1, "a"), (2, "b"), (3, "c"), (4, None)],
    ),
    # unix.csv and windows.csv one after the other
    "crlf_later.csv": (
        b"Index,Device\n1,a\n2,\n3,c\r\n4,\r\n5,d\n",
        [(1, "a"), (2, None), (3, "c"), (4, None), (5, "d")],
    ),
    "crlf_far.csv": (
        b"Index,Device\n" + b"1,a\n" * 9_000 + b"2,\r\n",
        [*[(1, "a")] * 9_000, (2, None)],
    ),
    "crlf_later_quoted.csv": (
        b'Index,Device\n1,"a\nb"\n2,"c\r\nd"\r\n"3","e"\r\n4,\r\n',
        [(1, "a\nb"), (2, "c\r\nd"), (3, "e"), (4, None)],
    ),
    "crlf_within.csv": (b'Index,Device\n1,"a\r\nb"\n2,c\r', [(1, "a\r\nb"), (2, "c\r")]),
    "cr_and_crlf.csv": (b'Index,Device\r\n1,"a\r"\r\n2,b\r\n', [(1, "a\r"), (2, "b")]),
    "blank_first.csv": (b"\nIndex,Device\r\n1,a\r\n2,b\n", [(1, "a"), (2, "b")]),
}
OPEN = (
    "its quote is never closed, so the rows after it would be one field: close it, or double the "
    "quotes within a text"
)
NOT_UTF8 = (
    "not UTF-8, and its byte-order mark says that it is: write it as UTF-8, or take the mark out"
)
BLANK = "a blank line before its header does not end as the rows do: take it out"
IN_QUOTES = (
    "its last field ends with a \\r in quotes, which cannot be told from those before a \\n: end "
    "all rows alike, with \\n or \\r\\n"
)
SET_ASIDE: dict[str, tuple[bytes, str]] = {
    "open.csv": (b'Index,Device\n1,"a\n2,b\n3,c\n', f"line 2: {OPEN}"),
    "open_crlf.csv": (b'Index,Device\r\n1,a\r\n2,"b\r\n3,c\r\n', f"line 3: {OPEN}"),
    "open_cr.csv": (b'Index,Device\r1,a\nb\r2,"b\r3,c\r', f"line 3: {OPEN}"),
    "open_crcrlf.csv": (b'Index,Device\r\r\n1,"\r\r\n2,b\r\r\n', f"line 2: {OPEN}"),
    "open_last.csv": (b'Index,Device\n1,"a\n\nb"\n2,"c""', f"line 5: {OPEN}"),
    "open_header.csv": (b'Index,"Device\n1,a\n', f"line 1: {OPEN}"),
    "open_bom.csv": (b'\xef\xbb\xbf"Index,Device\n1,a\n', f"line 1: {OPEN}"),
    "open_packed.csv.gz": (gzip.compress(b'Index,Device\n1,"a\n2,b\n'), f"line 2: {OPEN}"),
    "bom_late.csv": (
        b'\xef\xbb\xbf"Ind\nex",Device\n1,caf\xc3\xa9\n2,caf\xe9\n',
        f"line 4: {NOT_UTF8}",
    ),
    "blank_crlf.csv": (b"\r\nIndex,Device\n1,a\n", BLANK),
    "blank_lf.csv": (b"\n\rIndex,Device\r1,a\r", BLANK),
    "in_quotes.csv": (b'Index,Device\n1,"a\r"\n2,b\r\n', f"line 2: {IN_QUOTES}"),
}


@pytest.fixture(scope="module")
def taken(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """After one run over all of them."""
    home = Lakehouse(spark, tmp_path_factory.mktemp("bytes") / "lakehouse")
    only(home, format="csv", schema=SCHEMA, schema_evolution="rescue")
    land(home, BYTES)
    land(home, {name: data for name, (data, _) in ENDS.items()})
    land(home, {name: data for name, (data, _) in SET_ASIDE.items()})
    home.fill("bronze")
    assert recounted(home) == []
    return home


def test_csv_that_is_not_utf8(taken: Lakehouse) -> None:
    """Such a row is corrupt, and no byte of it is lost: Latin-1 has a character for each."""
    rows = found(taken, "Index", "Device", "_corrupt_record")
    assert {name: rows[name] for name in BYTES} == {
        "some.csv": [
            (1, UMLAUTS, None),
            (3, "ok", None),
            (None, None, ',"a, ""\xff"'),
            (None, None, "2,caf\xe9"),
        ],
        "broken.csv": [(None, None, "1,caf\xe9,x"), (None, None, "2,ä,x")],
        "halves.csv": [(None, None, "\xc3,\xa4")],
        "crlf.csv": [(2, "ä", None), (None, None, "1,\xe4")],
        "crcrlf_latin.csv": [(3, "ä", None), (None, None, "1,\xe4"), (None, None, "2,b,x")],
        "commas.csv": [(1, None, None), (None, None, "\r,,x")],
        "bom.csv": [(1, UMLAUTS, None), (None, None, "2,caf\xe9")],
        "bom_quote.csv": [(1, "a", None), (None, None, "2,caf\xe9")],
        "header.csv": [(None, "ok", None)],
        "umlaut.csv": [(None, "ok", None)],
        "blanks.csv": [(None, None, " 1 ,\t\xe9 ")],
        "json.csv": [
            (None, None, '{"Index":7}'),
            (None, None, '{"Index":8,"Device":"a","x":1}'),
        ],
        "json_latin.csv": [
            (None, None, '"{""Device"":""\xe9""}"'),
            (None, None, '{"Index":9,"Device":"\xe9"}'),
        ],
    }
    rescued = found(taken, "_rescued_data")
    assert rescued["header.csv"] == [('{"café":"1"}',)]
    assert rescued["umlaut.csv"] == [('{"Gerät":"1"}',)]


def test_line_ends_of_csv(taken: Lakehouse) -> None:
    aside = {key[0]: entry for key, entry in book(taken).items() if entry.state == REJECTED}
    assert {name: entry.why for name, entry in aside.items()} == {
        name: why for name, (_, why) in SET_ASIDE.items()
    }
    for name, (data, _) in SET_ASIDE.items():
        assert (taken.root / str(aside[name].moved_to)).read_bytes() == data
    rows = found(taken, "Index", "Device", "_corrupt_record", "_rescued_data")
    assert rows.keys() == {*ENDS, *BYTES}
    for name, (_, expected) in ENDS.items():
        assert rows[name] == [(*row, None, None) for row in expected]

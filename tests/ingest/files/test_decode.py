"""Text files decoded in Python; expected values are written by hand."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medallion.config.model import ReaderOptions
from medallion.ingest.files import decode
from medallion.ingest.files.content import ContentError, not_text_reason
from medallion.ingest.files.decode import decode_file, unreadable_reason
from tests.support.lakehouse import activity_source

WORLD = Path(__file__).parents[2] / "data" / "world"
BOM = b"\xef\xbb\xbf"
NON_ASCII = "äöü ß 😀 \u2028\u0085 é"
COLUMNS = {"Index": "long", "Device": "string"}


def decoded(
    path: Path, data: bytes, columns: dict[str, str] = COLUMNS, **settings: Any
) -> tuple[list[Any], list[str]]:
    """Return a file's valid rows, parsed from JSON, and its corrupt rows."""
    path.write_bytes(data)
    source = activity_source(**{"format": "csv", **settings})
    batches = list(decode_file(path, source, columns))
    rows = [json.loads(value) for batch in batches for value in batch.values]
    corrupt = [text for batch in batches for text in batch.corrupt]
    return rows, corrupt


def index_and_device(rows: list[Any]) -> list[tuple[Any, Any]]:
    return [(row.pop("Index", None), row.pop("Device", None), *row.items()) for row in rows]


CSV: dict[str, tuple[bytes, list[tuple[Any, ...]], list[str]]] = {
    "nothing": (b"", [], []),
    "a header": (b"Index,Device\n", [], []),
    "no line end": (b"Index,Device", [], []),
    "quotes": (
        b'Index,Device\n1,a\n2,"say ""hi"", twice"\n',
        [(1, "a"), (2, 'say "hi", twice')],
        [],
    ),
    "line breaks": (
        b'Index,Device\r\n1,"a\r\nb"\r\n2,"a\n\nb"\r\n',
        [(1, "a\r\nb"), (2, "a\n\nb")],
        [],
    ),
    "other order": (b"Device,Index\nwatch,3\n", [(3, "watch")], []),
    "too many and too few fields": (b"Index,Device\n4,a,x\n5\n6,b\n", [(6, "b")], ["4,a,x", "5"]),
    "a corrupt row of two lines": (b'Index,Device\n4,"a\nb",x\n', [], ['4,"a\nb",x']),
    "a quote in the middle": (
        b'Index,Device\n1,a"\n2,"a"b\n3,c\n',
        [(1, 'a"'), (3, "c")],
        ['2,"a"b'],
    ),
    "no value": (b'Index,Device\n,\n"",""\n', [(None, None), (None, None)], []),
    "blank lines": (b"\n\nIndex,Device\n\n1,a\n\n", [(1, "a")], []),
    "CRLF": (b"Index,Device\r\n1,\r\n\r\n2,a\r\n", [(1, None), (2, "a")], []),
    "CR": (b'Index,Device\r1,a\r\r2,"b\rc"\r', [(1, "a"), (2, "b\rc")], []),
    "CRCRLF": (b"Index,Device\r\r\n1,a\r\r\n\r\r\n2,\r\r\n", [(1, "a"), (2, None)], []),
    "a CR ends a row, too": (b"Index,Device\n2,c\rd\n", [(2, "c")], ["d"]),
    "LF, then CRLF": (b"Index,Device\n1,a\n2,\r\n3,b\n", [(1, "a"), (2, None), (3, "b")], []),
    "NUL": (b'Index,Device\n1,"a\0b"\n', [(1, "a\0b")], []),
    "a BOM": (BOM + b"Index,Device\n6,bom\n", [(6, "bom")], []),
    "a BOM and a quote": (BOM + b'"Index",Device\n6,bom\n', [(6, "bom")], []),
    "files one after the other": (
        (BOM + b"Index,Device\n1,a\n") * 2 + BOM + b"2,b\n",
        [(1, "a"), (1, "a"), (2, "b")],
        [],
    ),
    "a repeated header": (
        b"Index,Device\n1,a\nIndex,Device\n2,b\n",
        [(1, "a"), (2, "b")],
        [],
    ),
    "a repeated header in another order": (
        b"Index,Device\n1,a\nDevice,Index\nb,2\nc,3\nIndex,Device\n4,d\n",
        [(1, "a"), (2, "b"), (3, "c"), (4, "d")],
        [],
    ),
    "blanks in the header": (b" Index , Device\n1, a \n", [(1, " a ")], []),
    "unicode": (f"Index,Device\n1,{NON_ASCII}\n".encode(), [(1, NON_ASCII)], []),
    "not UTF-8": (
        b'Index,Device\n1,caf\xe9\n,"a, ""\xff"\n3,ok',
        [(3, "ok")],
        ["1,café", ',"a, ""ÿ"'],
    ),
    "characters split between fields": (b"Index,Device\n\xc3,\xa4\n", [], ["Ã,¤"]),
    "a header that is not UTF-8": (b"caf\xe9,Device\n1,a\n", [(None, "a", ("café", "1"))], []),
    "a delimiter at each end": (
        b'Index,Device\n1,a,\n,,\n3,"c,",\n',
        [(1, "a"), (None, None), (3, "c,")],
        [],
    ),
    "a delimiter also at the header's end": (b"Index,Device,\n1,a,\n", [(1, "a")], []),
    "two columns of one name": (
        b"Device,Index,Device\nx,1,y\n",
        [(1, "x", ("Device_2", "y"))],
        [],
    ),
    "a column without a name": (b"Index,,\n1,2,3\n", [(1, None, ("_1", "2"), ("_2", "3"))], []),
    "objects with commas": (
        b'Index,Device\n{"Index":7}\n{"a":8,"b":9,"c":1}\n',
        [],
        ['{"Index":7}', '{"a":8,"b":9,"c":1}'],
    ),
}


@pytest.mark.parametrize("name", CSV)
def test_csv(tmp_path: Path, name: str) -> None:
    data, expected, corrupt_rows = CSV[name]
    for suffix, packed in (("", data), (".gz", gzip.compress(data)), (".xz", lzma.compress(data))):
        rows, corrupt = decoded(tmp_path / f"a.csv{suffix}", packed)
        assert (index_and_device(rows), corrupt) == (expected, corrupt_rows)


VALUES = [
    # A column's type, a field, and the field in JSON.
    *[("long", text, int(text)) for text in ("12", "-7", " 8 ")],
    *[("double", text, float(text)) for text in ("1.5e3", "3", "-0.5")],
    ("boolean", "true", True),
    ("struct<lat:double>", '{"lat":1.5}', {"lat": 1.5}),
    ("array<long>", "[1, 2]", [1, 2]),
    *[("long", text, text) for text in ("1 000", "null", "007", "1,5", "12\n", "1\n2", "+1", "1.")],
    *[("double", text, text) for text in ("5 kg", "NaN", ".5")],
    *[("timestamp", text, text) for text in ("20180302", "2018", "2018-03-02 10:02:33")],
    ("date", "17", "17"),
    ("string", "12", "12"),
    *[("array<long>", text, text) for text in ("[1] [2]", "[1],[2", "1 2", "[NaN]", "null")],
]


@pytest.mark.parametrize(("column_type", "field", "value"), VALUES)
def test_csv_values(tmp_path: Path, column_type: str, field: str, value: object) -> None:
    """A field becomes JSON if its column has a JSON type; anything else is a string."""
    quoted = '"' + field.replace('"', '""') + '"'
    rows, _ = decoded(tmp_path / "a.csv", f"v,w\n{quoted},x\n".encode(), {"v": column_type})
    assert rows == [{"v": value, "w": "x"}]
    with_second_row = f"v,w\n{quoted},x\n1,x\n".encode()
    assert decoded(tmp_path / "a.csv", with_second_row, {"v": column_type})[0][0] == rows[0]


OPTIONS = [
    (ReaderOptions(";"), b'Index;Device\n1;a,b\n2;"c;d"\n', [(1, "a,b"), (2, "c;d")]),
    (ReaderOptions("\t"), b"Index\tDevice\n1\ta b\n", [(1, "a b")]),
    (ReaderOptions(quote="'"), b"Index,Device\n1,'a,''b'''\n2,\"\n", [(1, "a,'b'"), (2, '"')]),
    (ReaderOptions(quote=""), b'Index,Device\n1,"a\n2,b"\n', [(1, '"a'), (2, 'b"')]),
    (ReaderOptions(escape="\\"), b'Index,Device\n1,"a \\"b\\""\n', [(1, 'a "b"')]),
    (ReaderOptions(comment="#"), b'# a,b,c\nIndex,Device\n#1,"x\n2,"a\n#b"\n', [(2, "a\n#b")]),
    (
        ReaderOptions(null_value="NULL"),
        b'Index,Device\nNULL,a\n2,"NULL"\n',
        [(None, "a"), (2, None)],
    ),
    (ReaderOptions(skip_rows=2), b'Report "x\n\nIndex,Device\n1,a\n', [(1, "a")]),
    (ReaderOptions(encoding="latin-1"), b"Index,Device\n1,caf\xe9\n", [(1, "café")]),
    (ReaderOptions(encoding="cp1252"), b"Index,Device\n1,\x80 5\n", [(1, "€ 5")]),
    (ReaderOptions(encoding="utf-16"), "Index,Device\n1,😀é\n".encode("utf-16"), [(1, "😀é")]),
    (ReaderOptions(encoding="utf-16-be"), "Index,Device\n1,é\n".encode("utf-16-be"), [(1, "é")]),
]


@pytest.mark.parametrize(("options", "data", "expected"), OPTIONS)
def test_csv_options(
    tmp_path: Path, options: ReaderOptions, data: bytes, expected: list[tuple[int, str]]
) -> None:
    rows, corrupt = decoded(tmp_path / "a.csv", data, options=options)
    assert (index_and_device(rows), corrupt) == (expected, [])


def test_rows_have_the_numbers_of_their_lines(tmp_path: Path) -> None:
    """Also records of several lines, after blank ones, and lines that repeat the header."""
    path = tmp_path / "a.csv"
    path.write_bytes(b'Index,Device\n1,a\n\n2,"b\nc"\nbad\nDevice,Index\nd,3\nDevice,Index\n')
    batches = list(decode_file(path, activity_source(format="csv"), COLUMNS))
    lines = [(batch.values, batch.corrupt, batch.lines) for batch in batches]
    first, second = '{"Index":1,"Device":"a"}', '{"Index":2,"Device":"b\\nc"}'
    assert lines == [
        ([first, second], [], [2, 4]),
        (['{"Device":"d","Index":3}'], ["bad"], [8, 6]),
    ]
    path.write_bytes(b"Device\na\nDevice\n")  # one value, which may be the name of its column
    (batch,) = decode_file(path, activity_source(format="csv"), COLUMNS)
    assert batch.values == ['{"Device":"a"}', '{"Device":"Device"}']


def test_csv_without_header(tmp_path: Path) -> None:
    options = ReaderOptions(";", header=False)
    data = BOM + b'1;phone\n2;"two;\nlines"\n\n3;\n4;b;x\n5\n6;f;\n'
    rows, corrupt = decoded(tmp_path / "a.csv", data, options=options, schema=COLUMNS)
    assert index_and_device(rows) == [(1, "phone"), (2, "two;\nlines"), (3, None), (6, "f")]
    assert corrupt == ["4;b;x", "5"]


def test_csv_bytes_outside_the_encoding(tmp_path: Path) -> None:
    """cp1252 has no character 0x81; invalid UTF-16 rejects the file."""
    data = b"Index,Device\n1,\x81\n2,\x80\n"
    options = ReaderOptions(encoding="cp1252")
    rows, corrupt = decoded(tmp_path / "a.csv", data, options=options)
    assert (index_and_device(rows), corrupt) == ([(2, "€")], ["1,\x81"])
    for text in (b"\xff\xfea\0\n", "a,b\n1,2\n".encode("utf-16-le")):  # the second has no mark
        with pytest.raises(ContentError, match="not utf-16 text"):
            decoded(tmp_path / "a.csv", text, options=ReaderOptions(encoding="utf-16"))


def test_csv_with_fewer_lines_than_are_skipped(tmp_path: Path) -> None:
    options = ReaderOptions(skip_rows=3)
    with pytest.raises(ContentError, match=r"fewer lines than options\.skipRows, 3"):
        decoded(tmp_path / "a.csv", b"Index,Device\n1,a\n", options=options)
    for empty in (b"", b"Report\nof\nnothing\n"):
        assert decoded(tmp_path / "a.csv", empty, options=options) == ([], [])


def test_csv_whose_last_value_ends_with_an_escaped_delimiter(tmp_path: Path) -> None:
    """Such a row has one value more than the header, and not an empty one."""
    data = b"Index,Device\n1,a,b\\,\n2,c,\n"
    rows, corrupt = decoded(tmp_path / "a.csv", data, options=ReaderOptions(escape="\\"))
    assert (index_and_device(rows), corrupt) == ([(2, "c")], ["1,a,b\\,"])


INVALID = {
    "an unclosed quote": (b'Index,Device\n1,"a\n2,b\n3,c\n', "line 2: its quote is never closed"),
    "an unclosed quote at the end": (b'Index\n1\n\n"c""', "line 4: its quote is never closed"),
    "an unclosed header": (b'Index,"Device\n1,a\n', "line 1: its quote is never closed"),
    "an invalid header": (b'Index,"De"vice\n1,a\n', "line 1: its header is not valid CSV"),
    "a wide header": (b",".join([b"c"] * 2001) + b"\n1\n", "line 1: its header has 2,001 fields"),
    "a long row": (b'Index\n1\n"' + b"x\n" * 60 + b'"\n', "line 3: longer than 100 bytes"),
}


@pytest.mark.parametrize("name", INVALID)
def test_csv_that_is_invalid(tmp_path: Path, name: str) -> None:
    data, start = INVALID[name]
    limit = 1 << 20 if "header" in name else 100
    source = activity_source(format="csv", max_line_bytes=limit)
    (tmp_path / "a.csv").write_bytes(data)
    assert (unreadable_reason(tmp_path / "a.csv", source) or "").startswith(start)


def test_csv_in_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_ROWS", 3)
    data = b"Index\n" + b"".join(b"%d\n" % n for n in range(10))
    rows, _ = decoded(tmp_path / "a.csv", data)
    assert rows == [{"Index": n} for n in range(10)]


FIELDS = st.text("ab1 \"';|,\t\\#é\n\r", max_size=4)
DIALECTS = st.builds(
    ReaderOptions,
    delimiter=st.sampled_from(",;|\t"),
    quote=st.sampled_from("\"'"),
    escape=st.sampled_from([None, "\\"]),
    skip_rows=st.integers(0, 2),
    encoding=st.sampled_from(["utf-8", "latin-1", "cp1252", "utf-16", "utf-16-le"]),
)


@settings(max_examples=200)
@given(
    options=DIALECTS,
    rows=st.lists(st.tuples(FIELDS, FIELDS, FIELDS), min_size=1, max_size=9),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    suffix=st.sampled_from(["", ".gz", ".zip"]),
)
def test_csv_written_by_python(
    tmp_path_factory: pytest.TempPathFactory,
    options: ReaderOptions,
    rows: list[Any],
    end: str,
    suffix: str,
) -> None:
    """Every record is read once, for any delimiter, quote, encoding and compression."""
    text = io.StringIO(newline="")
    text.write(f'Report, "é{end}' * options.skip_rows)
    for row in ("abc", *rows):
        has_line_end = any(character in field for character in "\r\n" for field in row)
        csv.writer(
            text,
            delimiter=options.delimiter,
            quotechar=options.quote,
            doublequote=not options.escape,
            escapechar=options.escape,
            lineterminator=end,
            quoting=csv.QUOTE_ALL if has_line_end else csv.QUOTE_MINIMAL,
        ).writerow(row)
    path = tmp_path_factory.getbasetemp() / f"written.csv{suffix}"
    data = text.getvalue().encode(options.encoding)
    members = {"a.csv": data, "b/ä #.csv": data} if suffix == ".zip" else {}
    if suffix:
        data = zipped(path, members).read_bytes() if members else gzip.compress(data)
    decoded_rows, corrupt = decoded(path, data, {}, options=options)
    expected = [dict(zip("abc", row, strict=True)) for row in rows] * (len(members) or 1)
    assert decoded_rows == [{k: v for k, v in row.items() if v} for row in expected]
    assert corrupt == []


PIECES = ["a", "1", '"', '""', ",", ",,", "\n", "\r\n", "\r", "é", "\\", "#", " ", "\ufeff", "\0"]
BYTES = st.lists(
    st.sampled_from([*(piece.encode() for piece in PIECES), b"\xff", b"\xc3"]), max_size=60
).map(b"".join)


@settings(max_examples=30 * settings().max_examples)
@given(data=BYTES)
def test_csv_of_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """No byte is lost or repeated: with 99 columns, every record is corrupt and kept as it is."""
    path, options = tmp_path_factory.getbasetemp() / "any.csv", ReaderOptions(header=False)
    schema = {f"c{n}": "string" for n in range(99)}
    try:
        _, corrupt = decoded(path, data, schema, schema=schema, options=options)
    except ContentError:  # an unclosed quote
        return
    joined = b"".join(
        # Bytes that are not UTF-8 are decoded as Latin-1.
        text.encode("latin-1" if {"ÿ", "Ã"} & set(text) else "utf-8")
        for text in corrupt
    )
    blanks = re.compile(b"[\r\n]|\xef\xbb\xbf")
    assert blanks.sub(b"", joined) == blanks.sub(b"", data)


def test_text_and_json_in_an_encoding(tmp_path: Path) -> None:
    latin = ReaderOptions(encoding="latin-1")
    for file_format, data, expected in (
        ("text", b"caf\xe9\r\n\n \t\nb", [{"value": "café"}, {"value": "b"}]),
        ("json", b'{"a":"\xe9"}\n\n{"b":1}\n', [{"a": "é"}, {"b": 1}]),
    ):
        assert decoded(tmp_path / "a", data, format=file_format, options=latin) == (expected, [])
    wide, wide_le = ReaderOptions(encoding="utf-16"), "utf-16-le"
    data = '[{"a":1},\n{"a":"é"}]'.encode("utf-16")
    documents = decoded(tmp_path / "a", data, format="json", multi_line=True, options=wide)
    assert documents == ([{"a": 1}, {"a": "é"}], [])
    assert not_text_reason(tmp_path / "a", "utf-16") is None
    (tmp_path / "b").write_bytes(b"a,b\n1,2\n3,4\n")
    assert "no utf-16-le, as it has no zero byte" in str(not_text_reason(tmp_path / "b", wide_le))
    (tmp_path / "b").write_bytes(b"\xff\xfe")
    assert not_text_reason(tmp_path / "b", wide_le) is None
    assert "set options.encoding to utf-16" in str(not_text_reason(tmp_path / "a"))


def zipped(path: Path, members: dict[str, bytes], **settings: Any) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def test_zip(tmp_path: Path) -> None:
    members = {
        "a/": b"",
        "a/1.csv": b"Index\n1\n",
        "2.csv": BOM + b"Device\nb\n,,\n",
        "__MACOSX/x": b"\0",
    }
    path = zipped(tmp_path / "a.ZIP", members)
    source = activity_source(format="csv")
    batches = [(b.member, b.values, b.corrupt) for b in decode_file(path, source, COLUMNS)]
    assert batches == [("a/1.csv", ['{"Index":1}'], []), ("2.csv", ['{"Device":"b"}'], [",,"])]
    assert not_text_reason(path) is None


def test_zip_unsupported(tmp_path: Path) -> None:
    source = activity_source(format="csv")

    def reason(members: dict[str, bytes]) -> str:
        path = zipped(tmp_path / "a.zip", members)
        assert unreadable_reason(path, source) == not_text_reason(path)
        return not_text_reason(path) or ""

    assert reason({"a.csv": b"Index\n1\n"}) == ""
    assert reason({"a.csv": b"", "b.zip": b""}).startswith("a zip archive with a packed file in it")
    path = zipped(tmp_path / "b.zip", {"a.csv": b"\x89PNG\0"})
    assert not_text_reason(path) == "not text, once it is unpacked: a PNG picture (a.csv)"
    data = bytearray(zipped(tmp_path / "c.zip", {"a.csv": b"Index\n1\n"}).read_bytes())
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1  # set the encryption flags
    (tmp_path / "c.zip").write_bytes(data)
    assert "password" in str(not_text_reason(tmp_path / "c.zip"))
    archive = zipped(tmp_path / "d.zip", {"a.csv": b"Index\n" + b"1\n" * 999}).read_bytes()
    (tmp_path / "d.zip").write_bytes(archive[:-40])
    assert str(unreadable_reason(tmp_path / "d.zip", source)).startswith(
        "cannot be read: its bytes"
    )
    (tmp_path / "d.zip").write_bytes(archive[:45] + b"xx" + archive[47:])
    assert str(unreadable_reason(tmp_path / "d.zip", source)).startswith(
        "cannot be read: its bytes"
    )


RECORDS: dict[str, tuple[str, list[Any], list[str]]] = {
    "nothing": ("", [], []),
    "one line": (
        '{"d":{"items":[{"a":1},{"a":2}]},"at":"x"}\n',
        [{"at": "x", "a": 1}, {"at": "x", "a": 2}],
        [],
    ),
    "many lines": (
        '{\n "at": [1, {}],\n "d": {"items": [\n  {"a": "}{["},\n{}\n]}}\n',
        [{"at": [1, {}], "a": "}{["}, {"at": [1, {}]}],
        [],
    ),
    "a document a line": (
        '{"d":{"items":[{"a":1}]}}\n\n{"d":{"items":[]}}\n{"d":{"items":[{"a":2}]}}',
        [{"a": 1}, {"a": 2}],
        [],
    ),
    "two on one line": (
        '{"d":{"items":[{"a":1}]}}{"d":{"items":[{"a":2}]}}',
        [{"a": 1}, {"a": 2}],
        [],
    ),
    "a nested field": ('{"m":{"r":7},"d":{"items":[{"a":1}]}}', [{"m.r": 7, "a": 1}], []),
    "no path": ('{"d":{"other":[]}}\n', [], ['{"d":{"other":[]}}']),
    "null": ('{"d":{"items":null}}\n', [], ['{"d":{"items":null}}']),
    "no array": ('{"d":{"items":{"a":1}}}\n[]\n5\n', [], ['{"d":{"items":{"a":1}}}', "[]", "5"]),
    "truncated, then good": (
        '{"d":{"items":[{"a":\n{"d":{"items":[{"a":1}]}}\n',
        [{"a": 1}],
        ['{"d":{"items":[{"a":'],
    ),
    "truncated": ('{"d":{"items":[{"a":1},\n{"a"', [], ['{"d":{"items":[{"a":1},\n{"a"']),
    "NaN": ('{"d":{"items":[NaN]}}', [], ['{"d":{"items":[NaN]}}']),
    "elements of all types": (
        '{"at":1,"d":{"items":[1.50,"a",null,[2]]}}',
        [1.5, "a", None, [2]],
        [],
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_record_path(tmp_path: Path, name: str) -> None:
    text, expected, corrupt_rows = RECORDS[name]
    settings: dict[str, Any] = {"record_path": "d.items", "record_fields": ("at", "m.r")}
    for data in (text.encode(), BOM + text.encode()):
        assert decoded(tmp_path / "a.json", data, format="json", **settings) == (
            expected,
            corrupt_rows,
        )


def test_record_path_keeps_digits_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"Records": [{"a":1.50, "b":12345678901234567890.10}, {"c":"\xe9"}]}')
    (batch,) = decode_file(path, activity_source(format="json", record_path="Records"))
    assert batch.values == ['{"a":1.50, "b":12345678901234567890.10}']
    assert batch.corrupt == ['{"c":"\xe9"}']


def test_record_path_of_a_long_document(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"Records": [\n' + '{"a": 1},\n' * 99)
    source = activity_source(format="json", record_path="Records", max_line_bytes=500)
    reason = unreadable_reason(tmp_path / "a.json", source) or ""
    assert reason.startswith("line 1: longer than 500 bytes")


def test_samples_of_real_systems(tmp_path: Path) -> None:
    """Forty rows each: a German export, column names with spaces, and nested events."""
    sales = (WORLD / "sales-semicolon.csv").read_bytes()
    rows, corrupt = decoded(tmp_path / "a.csv", sales, options=ReaderOptions(";"))
    note = 'line1\nline2 "q"'
    assert (len(rows), corrupt) == (40, [])
    assert list(rows[0].values()) == ["1000", "01.05.2026 10:00", "1.234,00", note]
    assert rows[39]["Amount"] == "1.234,39"
    orders = (WORLD / "orders-spaces.csv").read_bytes()
    rows, corrupt = decoded(tmp_path / "a.csv", orders, {"amount": "double"})
    assert (len(rows), corrupt) == (40, [])
    assert (rows[39]["amount"], rows[39]["customer email"]) == (39.5, "a39@x.org")
    trail = (WORLD / "cloudtrail.json.gz").read_bytes()
    rows, corrupt = decoded(tmp_path / "a.json.gz", trail, format="json", record_path="Records")
    assert (len(rows), corrupt) == (40, [])
    assert rows[1]["eventTime"] == "2026-05-01T10:00:37Z"

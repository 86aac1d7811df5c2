"""Files of every format become rows, and an independent count in Python agrees."""

from __future__ import annotations

import bz2
import codecs
import gzip
import json

import duckdb
import pytest
from pyspark.sql import SparkSession

from medallion.config.model import FORMATS
from medallion.errors import MedallionError
from medallion.ingest.formats import SOURCE_TYPES
from medallion.state.ledger import State
from tests.support.byte_files import SCHEMA, audit_findings, land, rows_by_file
from tests.support.lakehouse import Lakehouse, ledger_entries, only_rows


def test_readers_cover_every_configurable_format() -> None:
    assert SOURCE_TYPES.keys() == set(FORMATS)


def test_csv_fields_of_an_inferred_schema_stay_strings(lakehouse: Lakehouse) -> None:
    """Spark would infer a year from four digits."""
    home = only_rows(lakehouse, format="csv", schema=None, hints={})
    land(home, {"1.csv": b"order_id,zip,at\n1001,01067,2018-03-02\n1002,10115,2018-03-03\n"})
    home.fill("bronze")
    rows = [("1001", "01067", "2018-03-02 00:00:00"), ("1002", "10115", "2018-03-03 00:00:00")]
    assert rows_by_file(home, "order_id", "zip", "at", "_rescued_data") == {
        "1.csv": [(*row, None) for row in rows]
    }


def land_parquet(home: Lakehouse, **files: str) -> None:
    """Write Parquet files with DuckDB, each from a query."""
    for name, sql in files.items():
        file = home.land("activity", f"{name}.parquet")
        duckdb.execute(f"copy ({sql}) to '{file}' (format parquet)")


ONE = "select 1::bigint as \"Index\", 'phone' as Device union all select 2, null"
NESTED = "select 3::bigint as \"Index\", {'lat': 1.5} as place"
UPPER_CASE = 'select 6::bigint as "INDEX", \'loud\' as "Device"'
OTHER_TYPE = "select 'four' as \"Index\", 'other' as Device"
NO_ROWS = 'select 5::bigint as "Index" limit 0'


PLAIN = {
    "one": ONE,
    "nested": NESTED,
    "no_rows": NO_ROWS,
    "other": OTHER_TYPE,
    "upper_case": UPPER_CASE,
}
ODD_NAMES = {
    "a": 'select 1::bigint as "Index", 2 as "a`b", 3 as "c.d"',
    "forged": """select 2::bigint as "Index", {'file_path': 'file:///etc/passwd',
        'file_modification_time': timestamp '1999-01-01'} as _metadata""",
    "text": """select 3::bigint as "Index", 'mine' as _METADATA, 'x' as _file""",
}


@pytest.fixture(scope="module")
def ingested(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """Ingest Parquet files with different schemas, then good and unreadable ones."""
    home = Lakehouse(spark, tmp_path_factory.mktemp("parquet") / "lakehouse")
    only_rows(home, format="parquet", schema=SCHEMA, schema_evolution="rescue")
    land_parquet(home, **PLAIN, **ODD_NAMES)
    home.fill("bronze")
    land_parquet(home, good=ONE, truncated=ONE)
    complete = (home.config.layout.landing("activity") / "truncated.parquet").local.read_bytes()
    land(home, {"truncated.parquet": complete[:-40], "x.parquet": b"{}\n"})
    land(home, {"corrupt.parquet": complete[:4] + bytes(60) + complete[64:]})  # a valid footer
    home.fill("bronze")
    return home


def test_parquet(ingested: Lakehouse) -> None:
    """Files with different types and spellings of names do not affect each other."""
    rows = rows_by_file(ingested, "Index", "Device")
    assert {name: rows.get(f"{name}.parquet") for name in PLAIN} == {
        "one": [(1, "phone"), (2, None)],
        "nested": [(3, None)],
        "no_rows": None,
        "other": [(None, "other")],
        "upper_case": [(6, "loud")],  # column names are case-insensitive
    }
    rescued = rows_by_file(ingested, "_rescued_data")
    assert rescued["one.parquet"] == [(None,), (None,)]
    assert rescued["upper_case.parquet"] == [(None,)]
    files = ("nested", "other")
    assert {name: json.loads(rescued[f"{name}.parquet"][0][0]) for name in files} == {
        "nested": {"place": {"lat": 1.5}},
        "other": {"Index": "four"},
    }


def test_parquet_unreadable_among_good_files(ingested: Lakehouse) -> None:
    rows = {"one": 2, "nested": 1, "no_rows": 0, "other": 1, "upper_case": 1, "good": 2}
    rows |= dict.fromkeys(ODD_NAMES, 1)
    entries = {
        name.removesuffix(".parquet"): entry
        for (name, _), entry in ledger_entries(ingested).items()
    }
    assert {name: (entry.state, entry.rows) for name, entry in entries.items()} == {
        **{name: (State.INGESTED, count) for name, count in rows.items()},
        **dict.fromkeys(("corrupt", "truncated", "x"), (State.REJECTED, None)),
    }
    assert audit_findings(ingested) == []


def test_parquet_with_unusual_column_names(ingested: Lakehouse) -> None:
    rows = rows_by_file(ingested, "Index", "_rescued_data")
    rescued = {name: rows[f"{name}.parquet"] for name in ODD_NAMES}
    assert {
        name: [(i, json.loads(text)) for i, text in values] for name, values in rescued.items()
    } == {
        "a": [(1, {"a`b": 2, "c.d": 3})],
        "forged": [
            (
                2,
                {
                    "_metadata": {
                        "file_path": "file:///etc/passwd",
                        "file_modification_time": "1999-01-01T00:00:00.000000",
                    }
                },
            )
        ],
        "text": [(3, {"_METADATA": "mine", "_file": "x"})],
    }


def test_parquet_keeps_microseconds(lakehouse: Lakehouse) -> None:
    schema = {"at": "timestamp", "local": "timestamp", "place": "struct<at:timestamp>"}
    home = only_rows(lakehouse, format="parquet", schema=schema, schema_evolution="rescue")
    moment = "2018-03-02 10:02:33.{}"
    times = [
        f"select timestamptz '{at}+00' as at, timestamp '{at}' as local,"
        f" {{'at': timestamptz '{at}+00'}} as place"
        for at in map(moment.format, ("123456", "123457", "000000"))
    ]
    land_parquet(home, a=" union all ".join(times))
    home.fill("bronze")
    columns = ("at", "local", "_rescued_data")
    assert rows_by_file(home, *columns)["a.parquet"] == [
        (moment.format(micros).removesuffix(".000000"),) * 2 + (None,)
        for micros in ("000000", "123456", "123457")
    ]
    nested = [place["at"].microsecond for (place,) in rows_by_file(home, "place")["a.parquet"]]
    assert sorted(nested) == [0, 123456, 123457]


def test_text(lakehouse: Lakehouse) -> None:
    home = only_rows(lakehouse, format="text", schema={"value": "string"})
    land(home, {"1.log": b'one\r\n\n{"two": 2}\n', "2.log.bz2": bz2.compress("drei ä\n".encode())})
    land(home, {"3.log": b"drei \xe4\n\xef\xbb\xbfvier \xf0\x9f\x98\x80\n"})
    home.fill("bronze")
    assert rows_by_file(home, "value", "_corrupt_record", "_rescued_data") == {
        "1.log": [("one", None, None), ('{"two": 2}', None, None)],
        "2.log.bz2": [("drei ä", None, None)],
        "3.log": [("vier 😀", None, None), (None, "drei \xe4", None)],
    }
    assert audit_findings(home) == []
    only_rows(home, format="csv", schema={"value": "string"})
    with pytest.raises(MedallionError, match="files that were ingested as text, not as csv"):
        home.fill("bronze")


def test_json_documents(lakehouse: Lakehouse) -> None:
    home = only_rows(lakehouse, multi_line=True, schema=SCHEMA)
    very_deep = b"[" * 100_000 + b"]" * 100_000  # Python 3.13 reads 5,000 levels
    # One level beyond the limit for splitting the objects of a line.
    beyond_limit = b"[%b, {}]" % (b"[" * 101 + b"]" * 101)
    broken = b'[{"Index": 6},\n {"Index":'
    two = b'{"Index": 7}{"Index": 8}\n{"Index": ['
    strings = [
        r'"{\"Index\":16}"',
        '"{}"',
        '"10"',
        '"null"',
        '""',
        '"[\\n"',
        r'"a,\\"',
        '["{}",""]',
    ]
    strings.append(r'{"Index": 16, "Device": "{\"Index\":17}", "more": ["{}", ",", "\\", 1]}')
    not_json = {"quotes.json": b"[{'Index': 1}, {'Index': 2}]", "nan.json": b'[{"x": NaN}, {}]'}
    land(
        home,
        {
            "array.json": b'[\n {"Index": 1},\n {\n  "Index" : 2,\n"Device": "a\\nb"\n}\n]\n',
            "object.json": b'{\n "Index": 3,\n "Device": "phone"\n}\n',
            "packed.json.gz": gzip.compress(b'[{"Index": 4}, {"Index": 5}]'),
            "broken.json": broken,
            "two.json": two,
            "empty.json": b" \n",
            "none.json": b"[]",
            "mixed.json": b'[{"Index": 9}, 10, null]',
            "strings.json": f'[{{"Index": 15}}, {", ".join(strings)}, 10]'.encode(),
            "bom.json": codecs.BOM_UTF8 + b'[{"Index": 11}, {"Index": 12}]',
            "bom_alone.json": codecs.BOM_UTF8,
            "two_boms.json": 2 * codecs.BOM_UTF8 + b'[{"Index": 1}]',
            "blank_first.json": b'\n\t\r\n [{"Index": 13}, {"Index": 14}]',
            "deep.json": very_deep,
            "deeper.json": beyond_limit,
            **not_json,
        },
    )
    home.fill("bronze")
    rows = rows_by_file(home, "Index", "Device", "_corrupt_record")
    assert rows == {
        "array.json": [(1, None, None), (2, "a\nb", None)],
        "object.json": [(3, "phone", None)],
        "packed.json.gz": [(4, None, None), (5, None, None)],
        "broken.json": [(None, None, broken.decode())],
        "two.json": [(7, None, None), (8, None, None), (None, None, '\n{"Index": [')],
        "mixed.json": [(9, None, None), (None, None, "10"), (None, None, "null")],
        # A quoted item is a string, even if it looks like an object; objects may contain such
        # strings.
        "strings.json": sorted(
            [(15, None, None), (16, '{"Index":17}', None), (None, None, "10")]
            + [(None, None, text) for text in strings[:-1]],
            key=repr,
        ),
        "bom.json": [(11, None, None), (12, None, None)],
        "two_boms.json": [(1, None, None)],
        "blank_first.json": [(13, None, None), (14, None, None)],
        "deep.json": [(None, None, very_deep.decode())],
        "deeper.json": [(None, None, beyond_limit[1:203].decode()), (None, None, None)],
        **{name: [(None, None, data.decode())] for name, data in not_json.items()},
    }
    assert {name: entry.rows for (name, _), entry in ledger_entries(home).items()} == {
        **{name: len(listed) for name, listed in rows.items()},
        "empty.json": 0,
        "none.json": 0,
        "bom_alone.json": 0,
    }
    assert audit_findings(home) == []

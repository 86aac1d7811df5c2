"""CSV files, zip archives and nested records in bronze; an independent count agrees."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.config.model import ReaderOptions
from medallion.state.ledger import State
from tests.support.byte_files import SCHEMA, audit_findings, land, rows_by_file
from tests.support.lakehouse import Lakehouse, ledger_counts, ledger_entries, only_rows

PATTERNS = ["sales [2024-05].csv", "{a,b}.csv", "a*.csv", "a?.csv", "a\\b%.csv", "a b+c#d.csv"]
CSV = {
    "1.csv": b'Index,Device\n1,phone\n2,"two\nlines"\n',
    "2.csv": b"Device,INDEX\nwatch,3\n",
    "3.csv": b"Index,Device\n4,a,extra\n5,caf\xe9\n6,b\n",
    "4.csv": b"",
    "5.csv": b"Index,Device\n",
    "6.csv.gz": gzip.compress(b'Index,Battery\n8,"55"\nhigh,56\n'),
    "7.csv": b"index,Index,device\n1,11,d\n",
    "open_quote.csv": b'Index,Device\n1,"a\n2,b\n',
    "truncated.csv.gz": gzip.compress(b"Index,Device\n1,a\n")[:-9],
}


def zip_archive(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.csv", data)


@pytest.fixture(scope="module")
def ingested(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """Run bronze once."""
    home = Lakehouse(spark, tmp_path_factory.mktemp("csv") / "lakehouse")
    only_rows(home, format="csv", schema=SCHEMA, schema_evolution="rescue")
    land(home, CSV)
    land(home, {name: f"Device,Index\n{i},{i}\n".encode() for i, name in enumerate(PATTERNS)})
    two = {"one": b"Index,Device\n20,x\n21,y,z\n", "two": b"Device\nm\n"}
    zip_archive((home.config.layout.landing("activity") / "a.zip").local, **two)
    home.fill("bronze")
    return home


def test_csv_rows_in_bronze(ingested: Lakehouse) -> None:
    rows = rows_by_file(ingested, "Index", "Device", "_corrupt_record", "_rescued_data")
    assert {name: rows[name] for name in CSV if name in rows and name != "6.csv.gz"} == {
        "1.csv": [(1, "phone", None, None), (2, "two\nlines", None, None)],
        "2.csv": [(3, "watch", None, None)],
        "3.csv": [
            (6, "b", None, None),
            (None, None, "4,a,extra", None),
            (None, None, "5,café", None),
        ],
        "7.csv": [(11, "d", None, '{"index":"1"}')],
    }
    rescued = [json.loads(row[3]) for row in sorted(rows["6.csv.gz"], key=str)]
    assert rescued == [{"Battery": "55"}, {"Index": "high", "Battery": "56"}]
    assert {name: rows[name] for name in PATTERNS} == {
        name: [(i, str(i), None, None)] for i, name in enumerate(PATTERNS)
    }
    states = {name: ledger_entries(ingested)[name, 1].state for name in CSV}
    assert {name for name, state in states.items() if state == State.REJECTED} == {
        "open_quote.csv",
        "truncated.csv.gz",
    }


def test_zip_in_bronze(ingested: Lakehouse) -> None:
    """Each row names its member; the ledger has one entry for the archive."""
    rows = rows_by_file(ingested, "Index", "Device", "_corrupt_record")
    assert rows["a.zip#one.csv"] == [(20, "x", None), (None, None, "21,y,z")]
    assert rows["a.zip#two.csv"] == [(None, "m", None)]
    assert ledger_counts(ingested)["a.zip", 1] == (State.INGESTED, 0, 3, 1, 0)
    assert audit_findings(ingested) == []


def test_encoding_of_json(lakehouse: Lakehouse) -> None:
    """A line may have several objects in any encoding."""
    latin = ReaderOptions(encoding="latin-1")
    home = only_rows(lakehouse, schema=SCHEMA, options=latin)
    land(home, {"a.json": b'{"Index":1,"Device":"\xe9"}{"Index":2}\n{"Index":\n'})
    home.fill("bronze")
    rows = [(1, "é", None), (2, None, None), (None, None, '{"Index":')]
    assert rows_by_file(home, "Index", "Device", "_corrupt_record") == {"a.json": rows}
    assert audit_findings(home) == []


def test_record_path_in_bronze(lakehouse: Lakehouse) -> None:
    settings: dict[str, Any] = {"record_path": "Records", "record_fields": ("Device",)}
    home = only_rows(lakehouse, schema=SCHEMA, **settings)
    document = {"Device": "d", "Records": [{"Index": 1}, {"Index": 2}, 3]}
    land(home, {"a.json.gz": gzip.compress(json.dumps(document, indent=1).encode())})
    land(home, {"b.json": b'{"Device": "e"}\n'})
    home.fill("bronze")
    assert rows_by_file(home, "Index", "Device", "_corrupt_record") == {
        "a.json.gz": [(1, "d", None), (2, "d", None), (None, None, "3")],
        "b.json": [(None, None, '{"Device": "e"}')],
    }
    assert audit_findings(home) == []

"""Files that cannot be read are rejected, whichever step detects it, and no others are."""

from __future__ import annotations

import bz2
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.ingest.files import batch, content
from medallion.ingest.schema.evolution import Schema
from medallion.inspect.audit import run_audit
from medallion.layers.bronze import writer
from medallion.spark.errors import StreamError
from medallion.state.ledger import State
from medallion.storage.files import FileInfo
from medallion.storage.paths import StoragePath
from tests.support.lakehouse import Lakehouse, indexes, ledger_entries, only_rows
from tests.support.lines import row

SCHEMA = {"Index": "long", "Device": "string"}
ROWS = "".join(json.dumps({"Index": n, "Device": f"{n * 7919:x}"}) + "\n" for n in range(1, 200))
GZIPPED = gzip.compress(ROWS.encode())


def states(home: Lakehouse) -> dict[str, str]:
    entries = ledger_entries(home).items()
    return {name: entry.state for (name, _), entry in entries if entry.source == "activity"}


def rejected(home: Lakehouse) -> list[str]:
    files = home.config.layout.rejected("activity").local.rglob("*")
    return sorted(file.name for file in files if not file.name.endswith(".reason.txt"))


def test_error_without_any_file_rejects_none(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example an error in the parser, or a setting that fails for every file."""
    home = only_rows(lakehouse)
    for index in (1, 2):
        home.land("activity", f"{index}.json", row(index))

    def broken(lines: DataFrame, *_: Any) -> DataFrame:
        return lines.withColumn("more", F.expr("no_such_column"))

    with monkeypatch.context() as patch:
        for module in (batch, writer):
            patch.setattr(module, "parse_lines", broken)
        with pytest.raises(StreamError, match="no_such_column"):
            home.fill("bronze")
    assert states(home) == dict.fromkeys(("1.json", "2.json"), State.PENDING)
    assert rejected(home) == []
    home.fill("bronze")
    assert indexes(home) == [1, 2]


def test_unreadable_headers(lakehouse: Lakehouse) -> None:
    home = only_rows(lakehouse, format="csv", schema=SCHEMA)
    compressed = gzip.compress(b"Index,Device\n1,phone\n")
    files = {
        "truncated.csv.gz": compressed[:-9],
        "head.csv.gz": compressed[:4],
        "text.csv.gz": b"Index,Device\n1,phone\n",
        "corrupt.csv.gz": compressed[:10] + b"\xff" * 8 + compressed[18:],
    }
    for name, data in files.items():
        home.land("activity", name).write_bytes(data)
    home.land("activity", "good.csv", "Index,Device", "2,phone")
    home.land("activity", "good.csv.gz").write_bytes(gzip.compress(b"Index,Device\n3,phone\n"))
    home.fill("bronze")
    assert indexes(home) == [2, 3]
    assert states(home) == {
        **dict.fromkeys(files, State.REJECTED),
        **dict.fromkeys(("good.csv", "good.csv.gz"), State.INGESTED),
    }
    assert rejected(home) == sorted(files)
    assert run_audit(home.config, everything=True).findings == ()


def test_files_that_spark_reads_partly(lakehouse: Lakehouse) -> None:
    """A flipped bit in a block's magic, a corrupt second stream, a missing end, trailing bytes."""
    home = only_rows(lakehouse)
    lines = b"".join(b'{"Index": %d, "Device": "%x"}\n' % (n, n * 7919) for n in range(9_000))
    packed, one_row = bz2.compress(lines, 1), bz2.compress(f"{row(1)}\n".encode())
    framed = home.land("activity", "frames.json.zst")
    write_truncated_zstd(framed)
    frame = framed.with_name(".frame")
    sql = f"""copy (select 1 as "Index") to '{frame}' (format json, compression zstd)"""
    duckdb.execute(sql)
    files = {
        "mark.json.bz2": packed[:4] + bytes([packed[4] ^ 1]) + packed[5:],
        "second.json.bz2": one_row + b"BZx" + packed[3:],
        "end.json.bz2": one_row + packed[:-5],
        "more.json.bz2": one_row + bytes(9),
        "frames.json.zst": frame.read_bytes() + framed.read_bytes(),
    }
    frame.unlink()
    for name, data in files.items():
        home.land("activity", name).write_bytes(data)
    # A Hadoop checksum file left by an older file of this name.
    home.land("activity", "summed.json", row(4))
    home.land("activity", ".summed.json.crc").write_bytes(b"crc\0\0\0\2\0" + b"\1\2\3\4")
    home.land("activity", "good.json.bz2").write_bytes(one_row + bz2.compress(row(2).encode()))
    home.fill("bronze")
    assert indexes(home) == [1, 2]
    summed = ledger_entries(home)["summed.json", 1].why or ""
    assert summed.startswith("cannot be read: .summed.json.crc is of another file")
    rejected_states = dict.fromkeys((*files, "summed.json"), State.REJECTED)
    assert states(home) == {**rejected_states, "good.json.bz2": State.INGESTED}
    reasons = {
        name: entry.why or "" for (name, _), entry in ledger_entries(home).items() if name in files
    }
    truncated = {name for name, reason in reasons.items() if reason.startswith("truncated: its ")}
    corrupt = {name for name, reason in reasons.items() if reason.endswith("compress it again")}
    assert (truncated, truncated | corrupt) == ({"end.json.bz2", "frames.json.zst"}, set(files))


def write_truncated_zstd(file: Path) -> None:
    """Write a truncated .zst file."""
    complete = file.with_name(".whole")
    sql = f"copy (select unnest(range(9999)) * 7919 as i) to '{complete}'"
    duckdb.execute(f"{sql} (format json, compression zstd)")
    data = complete.read_bytes()
    complete.unlink()
    file.write_bytes(data[: len(data) // 2])


def write_corrupt_parquet(file: Path) -> None:
    """Write Parquet with corrupt data and a valid footer."""
    duckdb.execute(f"copy (select 1 as n, 'phone' as d) to '{file}' (format parquet)")
    data = file.read_bytes()
    file.write_bytes(data[:4] + bytes(40) + data[44:])


UNREADABLE = {
    "truncated.json.gz": lambda file: file.write_bytes(GZIPPED[: len(GZIPPED) // 2]),
    "text.json.gz": lambda file: file.write_text(ROWS),
    "truncated.json.zst": write_truncated_zstd,
    "empty.parquet": lambda file: file.write_bytes(b""),
    "corrupt.parquet": write_corrupt_parquet,
}


def inferred_source(lakehouse: Lakehouse, file_format: str = "json") -> Lakehouse:
    """Configure one source whose schema is inferred."""
    return only_rows(lakehouse, schema=None, hints={}, format=file_format)


@pytest.mark.parametrize("file_format", ["json", "parquet"])
def test_unreadable_files_before_inference(lakehouse: Lakehouse, file_format: str) -> None:
    home = inferred_source(lakehouse, file_format)
    unreadable = [n for n in UNREADABLE if n.endswith(".parquet") == (file_format == "parquet")]
    for name in unreadable:
        UNREADABLE[name](home.land("activity", name))
    if file_format == "parquet":
        good = home.land("activity", "good.parquet")
        duckdb.execute(f"""copy (select 7 as "Index") to '{good}' (format parquet)""")
    else:
        home.land("activity", "good.json", row(7))
    home.fill("bronze")
    assert indexes(home) == [7]
    assert rejected(home) == sorted(unreadable)
    assert {ledger_entries(home)[name, 1].state for name in unreadable} == {State.REJECTED}
    assert run_audit(home.config, everything=True).findings == ()


def test_files_that_vanish_during_checks(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One vanishes during its own check, one during a later file's check."""
    home = inferred_source(lakehouse)
    files = [home.land("activity", name, row(1)) for name in ("a.json", "b.json")]
    home.land("activity", "c.json", row(2))
    vanishes_with = dict(zip(("a.json", "c.json"), files, strict=True))
    not_text_reason = content.not_text_reason

    def check_and_delete(path: Path, encoding: str) -> str | None:
        if path.name in vanishes_with:
            vanishes_with[path.name].unlink(missing_ok=True)
        return not_text_reason(path, encoding)

    monkeypatch.setattr(content, "not_text_reason", check_and_delete)
    home.fill("bronze")
    assert indexes(home) == [2]
    assert states(home) == {
        "a.json": State.VANISHED,
        "b.json": State.VANISHED,
        "c.json": State.INGESTED,
    }


def test_file_that_cannot_be_inspected_is_ingested_later(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = only_rows(lakehouse)
    for number, name in enumerate(("a.json", "b.json")):
        home.land("activity", name, row(number))
    info = StoragePath.info

    def fail_for_one(path: StoragePath) -> FileInfo | None:
        if path.name == "a.json":
            raise OSError(116, "Stale file handle")
        return info(path)

    with monkeypatch.context() as patch:
        patch.setattr(StoragePath, "info", fail_for_one)
        home.fill("bronze")
    assert states(home) == {"a.json": State.PENDING, "b.json": State.INGESTED}
    home.fill("bronze")
    assert indexes(home) == [0, 1]


def test_inference_error_stops_one_source(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = lakehouse.config.sources["event"]
    home = inferred_source(lakehouse)
    home.config = replace(home.config, sources={**home.config.sources, "event": events})
    home.land("activity", "a.json", row(1))
    home.land("event", "e.json", '{"action": "open", "ts": "2018-03-02T10:02:33"}')

    def fail_infer(*_: Any) -> None:
        raise Py4JError("unknown reason")

    with monkeypatch.context() as patch:
        patch.setattr(Schema, "infer", fail_infer)
        with pytest.raises(StreamError, match=r"bronze\.activity.*unknown reason"):
            home.fill("bronze")
    assert states(home) == {"a.json": State.PENDING}
    assert rejected(home) == []
    assert home.rows("bronze.event", "action") == [("open",)]
    home.fill("bronze")
    assert indexes(home) == [1]

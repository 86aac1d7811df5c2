"""Rows whose times differ only beyond the microsecond, as Docker and .NET write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.inspect.audit import run_audit
from medallion.layers.silver import keys
from medallion.spark import delta
from medallion.storage import delta_log, delta_tables
from medallion.storage.paths import StoragePath
from tests.support.lakehouse import Lakehouse

SOURCE: dict[str, Any] = {
    "silver": {"event_at": "time", "stream": "stream", "log": "trim(log)"},
    "event_time": "event_at",
    "keys": ["event_at", "stream", "log"],
    "clean_source": "off",
}
# Ten lines of Docker's json-file log driver.
DOCKER = [
    '{"log": "GET /x/0 200\\n", "stream": "stdout", "time": "2024-05-01T10:00:00.347712782Z"}',
    '{"log": "GET /x/1 200\\n", "stream": "stdout", "time": "2024-05-01T10:00:37.161973069Z"}',
    '{"log": "GET /x/2 200\\n", "stream": "stdout", "time": "2024-05-01T10:01:14.423938499Z"}',
    '{"log": "GET /x/3 200\\n", "stream": "stdout", "time": "2024-05-01T10:01:51.698935572Z"}',
    '{"log": "GET /x/4 200\\n", "stream": "stdout", "time": "2024-05-01T10:02:28.051847156Z"}',
    '{"log": "GET /x/5 200\\n", "stream": "stdout", "time": "2024-05-01T10:03:05.077777868Z"}',
    '{"log": "GET /x/6 200\\n", "stream": "stdout", "time": "2024-05-01T10:03:42.881836553Z"}',
    '{"log": "GET /x/7 200\\n", "stream": "stdout", "time": "2024-05-01T10:04:19.575398922Z"}',
    '{"log": "GET /x/8 200\\n", "stream": "stdout", "time": "2024-05-01T10:04:56.101071364Z"}',
    '{"log": "GET /x/9 200\\n", "stream": "stdout", "time": "2024-05-01T10:05:33.392655486Z"}',
]


def line(time: str) -> str:
    """Return a log line with this time of 1 May 2024."""
    fields = {"log": "same\n", "stream": "stdout", "time": f"2024-05-01T{time}Z"}
    return json.dumps(fields)


def test_nanoseconds_are_strings_that_can_be_keys(lakehouse: Lakehouse, tmp_path: Path) -> None:
    """A timestamp ends at the microsecond; the string beside it tells the rows apart."""
    source = {**SOURCE, "silver": {**SOURCE["silver"], "time": "time"}}
    by_text = {**source, "keys": [*SOURCE["keys"], "time"]}
    sources = {"docker": source, "exact": by_text}
    lakehouse.configure(tmp_path, {"sources": sources, "gold": {}})
    nanoseconds = [line(f"10:03:00.{digits}") for digits in ("12345671", "12345672", "12345671")]
    for name in sources:
        lakehouse.land(name, "1.json", *DOCKER, *nanoseconds)
    lakehouse.fill("bronze", "silver")
    written = sorted(json.loads(text)["time"] for text in (*DOCKER, *nanoseconds))
    balances = run_audit(lakehouse.config).balances
    for name, rows in (("docker", 11), ("exact", 12)):
        bronze = lakehouse.rows(f"bronze.{name}", "time", "_rescued_data")
        assert bronze == [(time, None) for time in written]
        balance = balances[name]
        assert (balance.silver_rows, balance.duplicate_rows) == (rows, 13 - rows)
    silver = lakehouse.rows("silver.exact", "event_at", "time")
    assert silver == [(f"{t[:10]} {t[11:26]}", t) for t in sorted({*written})]


KEYS = ("at", "copies")  # a column may have the name of a count
# Delta's statistics of the first file end at .999, truncated from the last row's time.
FIRST = [("10:00:00", "p"), ("10:00:00", None), ("10:59:59.999999", "p"), ("09:00:00", "q")]


def append_and_select(
    spark: SparkSession, table: Path, *rows: tuple[str, str | None]
) -> list[tuple[Any, Any]]:
    """Append one version, and return the rows that are validated for it."""
    frame = spark.createDataFrame(list(rows), "at string, copies string")
    frame = frame.selectExpr("cast('2020-01-01 ' || at as timestamp) as at", "copies")
    frame.coalesce(1).write.format("delta").mode("append").save(str(table))
    last = delta_tables.table_version(StoragePath(table))
    files = delta_log.added_files(StoragePath(table), last, last)
    new = delta.rows_of(spark, StoragePath(table), files)
    all_rows = spark.read.format("delta").load(str(table))
    are_unique = keys.has_unique_keys(StoragePath(table), KEYS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(keys, "_MOST_KEYS", 0)
        assert not keys.has_unique_keys(StoragePath(table), KEYS), "a large table is not tested"
    validated = new if are_unique else keys.with_rows_of_same_key(new, all_rows, KEYS)
    return sorted((f"{row['at']}"[11:], f"{row.copies}") for row in validated.collect())


def test_gate_validates_older_rows_with_equal_keys(spark: SparkSession, tmp_path: Path) -> None:
    append_and_select(spark, tmp_path, *FIRST)
    new = [("10:00:00", "q"), ("10:00:00", None), ("10:30:00", "p")]  # none of these keys exists
    assert append_and_select(spark, tmp_path, *new) == sorted(
        (at, f"{device}") for at, device in new
    )
    # The last row of the first file, and a row with a null key.
    repeated = ("10:59:59.999999", "p")
    validated = append_and_select(spark, tmp_path, repeated, ("10:59:58", None))
    assert validated == [("10:59:58", "None"), repeated, repeated]
    # The statistics of the new file's only time are truncated as well.
    assert append_and_select(spark, tmp_path, repeated) == [repeated] * 3
    # Twice in one file.
    same_key = ("11:00:00", "p")
    assert append_and_select(spark, tmp_path, same_key, same_key, ("11:00:00", None))[1:] == [
        same_key,
        same_key,
    ]


def test_key_range(spark: SparkSession) -> None:
    """The range covers the minimum and maximum of each ordered key, also for extreme dates."""
    sql = "select * from values (timestamp'0001-01-01', 'b', 2.5, binary('x')),"
    sql += " (timestamp'2020-01-01 00:00:00.000001', 'it''s', 1.5, binary('y')) as t(a, b, c, d)"
    rows = spark.sql(sql)
    names = ["a", "b", "c", "d"]
    assert rows.where(keys.key_range(rows, names)).count() == 2
    first = rows.where("b = 'b'")
    within = rows.where(keys.key_range(first, names)).select("b")
    assert [row.b for row in within.collect()] == ["b"]
    assert rows.where(keys.key_range(rows.limit(0), names)).count() == 0

"""Rows whose times differ only beyond the microsecond, as Docker and .NET write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from medallion.ingest.schema import registry
from medallion.inspect.audit import run_audit
from medallion.layers.silver import keys
from medallion.layers.silver.keys import with_time_digits
from medallion.runtime.refresh import refresh_table
from medallion.spark import delta_reads
from medallion.storage import delta_tables
from medallion.storage.paths import StoragePath
from tests.support.lakehouse import Lakehouse, activity_source

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
DIGITS = ["069", "156", "364", "486", "499", "553", "572", "782", "868", "922"]


def line(time: str) -> str:
    """Return a log line with this time of 1 May 2024."""
    fields = {"log": "same\n", "stream": "stdout", "time": f"2024-05-01T{time}Z"}
    return json.dumps(fields)


def configure(lakehouse: Lakehouse, folder: Path, **more: Any) -> None:
    lakehouse.configure(folder, {"sources": {"docker": {**SOURCE, **more}}, "gold": {}})


def learn_full_times(lakehouse: Lakehouse) -> None:
    """Add `_full_times` to the schema, as a batch with such times does."""
    folder = lakehouse.config.layout.schemas("docker")
    registry.add_version(folder, {"_full_times": "string"}, "of a test")


@pytest.mark.usefixtures("production_streams")
def test_time_digits_distinguish_rows(lakehouse: Lakehouse, tmp_path: Path) -> None:
    """Both rows are in silver; exact repeats are duplicates, also late or in later runs."""
    configure(lakehouse, tmp_path)
    nanoseconds = [line("10:03:00.12345671"), line("10:03:00.12345672"), line("10:03:00.123456710")]
    on_time = [line("14:00:00"), line("14:00:00.000000000")]
    lakehouse.land("docker", "1.json", *DOCKER, *nanoseconds, *on_time)
    lakehouse.fill("bronze", "silver")  # this moves the watermark to 13:00
    balance = run_audit(lakehouse.config).balances["docker"]
    assert (balance.bronze_rows, balance.silver_rows, balance.duplicate_rows) == (15, 13, 2)
    assert balance.quarantined_rows == 0
    bronze = lakehouse.rows("bronze.docker", "time", "_full_times", "_rescued_data")
    times = [json.loads(text)["time"] for text in (*DOCKER, *nanoseconds)]
    expected = [(f"{t[:10]} {t[11:26]}", json.dumps({"time": t}).replace(" ", "")) for t in times]
    plain = [("2024-05-01 14:00:00", None)] * 2
    assert bronze == sorted(((*row, None) for row in (*expected, *plain)), key=repr)
    silver = dict(lakehouse.rows("silver.docker", "_time_digits", "event_at"))
    assert sorted(silver) == sorted([*DIGITS, "71", "72", ""])
    assert silver["71"] == silver["72"] == "2024-05-01 10:03:00.123456"
    # A suite names the configured keys only.
    flow = lakehouse.pipeline().flow("silver.docker")
    assert flow.validation_input(None).key == SOURCE["keys"]

    second_file = [
        nanoseconds[0],
        line("10:03:00.12345674"),
        line("10:03:00.123456740"),
        on_time[0],
        line("14:00:00.0000001"),
    ]
    lakehouse.land("docker", "2.json", *second_file)
    lakehouse.fill("bronze", "silver")
    assert [digits for digits, _ in lakehouse.rows("silver.docker", "_time_digits", "log")] == (
        sorted([*DIGITS, "71", "72", "74", "", "1"])
    )
    audit = run_audit(lakehouse.config, everything=True)
    assert (audit.findings, audit.notes) == ((), ())
    balance = audit.balances["docker"]
    assert (balance.silver_rows, balance.late_rows, balance.duplicate_rows) == (15, 1, 5)


def test_time_digits_are_quarantined_without_the_key(lakehouse: Lakehouse, tmp_path: Path) -> None:
    """A refresh ingests them; without quarantine they would be duplicates of each other."""
    configure(lakehouse, tmp_path)
    lakehouse.land("docker", "1.json", line("10:00:00.123456"), line("10:00:01"))
    lakehouse.fill("bronze", "silver")
    learn_full_times(lakehouse)
    rows = [line(f"10:00:00.{digits}") for digits in ("1234567", "1234568", "1234568", "5")]
    lakehouse.land("docker", "2.json", *rows)
    messages: list[str] = []
    pipeline = lakehouse.pipeline(messages.append)
    pipeline.run("bronze")
    pipeline.run("silver")
    assert len(lakehouse.rows("silver.docker")) == 3
    quarantined = lakehouse.rows("quarantine.docker", "time", "_failed_rules")
    assert quarantined == [("2024-05-01 10:00:00.123456", ["time_digits"])] * 3
    assert [text for text in messages if "medallion refresh silver.docker" in text] == [
        "  silver.docker: rows whose times differ only beyond the microsecond go to quarantine "
        "(time_digits); medallion refresh silver.docker ingests them"
    ]
    assert run_audit(lakehouse.config).is_balanced

    refresh_table(pipeline, "silver.docker")
    assert lakehouse.rows("silver.docker", "event_at", "_time_digits") == [
        ("2024-05-01 10:00:00.123456", ""),
        ("2024-05-01 10:00:00.123456", "7"),
        ("2024-05-01 10:00:00.123456", "8"),
        ("2024-05-01 10:00:00.5", ""),
        ("2024-05-01 10:00:01", ""),
    ]
    assert lakehouse.rows("quarantine.docker") == []


def test_time_digits_key_is_added_to_an_empty_table(lakehouse: Lakehouse, tmp_path: Path) -> None:
    """The table is created before the first file if the columns are declared."""
    configure(
        lakehouse, tmp_path, schema={"time": "timestamp", "stream": "string", "log": "string"}
    )
    lakehouse.fill("bronze", "silver")
    assert lakehouse.rows("silver.docker") == []
    learn_full_times(lakehouse)
    lakehouse.land("docker", "1.json", *DOCKER)
    lakehouse.fill("bronze", "silver")
    assert [row[0] for row in lakehouse.rows("silver.docker", "_time_digits")] == DIGITS
    assert run_audit(lakehouse.config).is_balanced


@pytest.mark.parametrize(
    ("keys", "digits"),
    [
        ({"event_at": "coalesce(ts, Time)", "id": "id"}, ["8", "8,7", ",7", ""]),
        ({"event_at": "time"}, ["8", "8", ""]),
        ({"event_at": "date_trunc('second', time)", "other": "md5(concat(id, ts))"}, ["7", ""]),
        ({"event_at": "date_trunc('second', time)", "day": "cast(ts as date)"}, None),
        ({"event_at": "to_timestamp(id)"}, None),
    ],
)
def test_time_digits_cover_times_in_keys(
    spark: SparkSession, lakehouse: Lakehouse, keys: dict[str, str], digits: list[str] | None
) -> None:
    full_times = ['{"time":"00.1234568"}', '{"ts":"00.123456700","time":"01.12345680Z"}', None]
    full_times.append('{"ts":"00.1234567"}')
    bronze = spark.createDataFrame(
        [(None, None, "a", text) for text in full_times],
        "ts timestamp, time timestamp, id string, _full_times string",
    )
    source = activity_source(silver=keys, keys=tuple(keys), event_time="event_at")
    extended, rule = with_time_digits(lakehouse.config, source, bronze)
    assert rule == {}
    if digits is None:
        assert extended == source
        return
    assert extended.keys == (*keys, "_time_digits")
    rows = bronze.select(F.expr(extended.silver["_time_digits"]).alias("digits")).distinct()
    assert sorted(row.digits for row in rows.collect()) == sorted(set(digits))
    bronze_without_digits = bronze.drop("_full_times")
    assert with_time_digits(lakehouse.config, source, bronze_without_digits) == (source, {})


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
    new = delta_reads.added_rows(spark, StoragePath(table), last, last)
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

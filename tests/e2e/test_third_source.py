"""A new source, added by configuration only: CSV with an inferred schema."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from medallion.ingest.schema import registry
from medallion.inspect.audit import run_audit
from medallion.storage import delta_tables
from tests.support.command import Cli
from tests.support.lakehouse import Lakehouse
from tests.support.runs import ends_idle

SOURCE: dict[str, Any] = {
    "format": "csv",
    "pattern": "*.csv*",
    "schema": "infer",
    "hints": {"celsius": "double"},
    "silver": {"measured_at": "taken_at", "sensor": "sensor", "celsius": "celsius", "note": "note"},
    "event_time": "measured_at",
    "keys": ["sensor", "measured_at"],
    "clean_source": "off",
}
RULES: list[tuple[str, str, dict[str, Any]]] = [
    ("too_hot", "expect_column_values_to_be_between", {"column": "celsius", "max_value": 60}),
]
FIRST = """sensor,taken_at,celsius,note
s1,2024-01-01T10:00:00Z,20,"fine, ""so far""
and on"
s1,2024-01-01T10:00:00Z,20,again
s2,2024-01-01T10:00:01Z,61.5,
s2,2024-01-01T10:00:02Z,warm,
s3,2024-01-01T10:00:03Z,21,one,field too many
"""
# The same columns in another order, and one more.
SECOND = """celsius,sensor,battery,taken_at,note
19.5,s1,80,2024-01-01T10:00:05Z,
"""


@pytest.fixture
def lakehouse(spark: Any, tmp_path: Path) -> Lakehouse:
    lakehouse = Lakehouse(spark, tmp_path / "lakehouse")
    warmth = {
        "source": "silver.sensor",
        "window": "1 hour",
        "group_by": ["sensor"],
        "measure": {"mean_celsius": "avg(celsius)"},
    }
    lakehouse.configure(tmp_path, {"sources": {"sensor": SOURCE}, "gold": {"warmth": warmth}})
    for name, type_, kwargs in RULES:
        lakehouse.expect("silver.sensor", name, type_, "quarantine", **kwargs)
    return lakehouse


def test_new_source_reaches_gold(lakehouse: Lakehouse) -> None:
    report = lakehouse.run_without_gates()  # no file defines the schema yet
    assert report.is_good, report
    assert ends_idle(lakehouse.config, print), "waiting needs no Spark"
    landing = lakehouse.config.layout.landing("sensor")
    (landing / "1.csv").local.write_text(FIRST)
    report = lakehouse.run_without_gates()
    assert report.is_good, report
    balance = report.snapshot.balances["sensor"]
    # A quoted line break starts no new row.
    assert (balance.bronze_rows, balance.silver_rows, balance.duplicate_rows) == (5, 1, 1)
    rules = lakehouse.rows("quarantine.sensor", "sensor", "_failed_rules")
    assert rules == [
        ("s2", ["rescued_celsius"]),
        ("s2", ["too_hot"]),
        (None, ["malformed_line", "missing_event_time"]),
    ]
    rows = lakehouse.rows("bronze.sensor", "sensor", "celsius", "note", "_rescued_data")
    assert ("s1", 20.0, 'fine, "so far"\nand on', None) in rows
    assert ("s2", None, None, '{"celsius":"warm"}') in rows
    (malformed,) = (row for row in lakehouse.rows("bronze.sensor", "_corrupt_record") if row[0])
    assert malformed == ("s3,2024-01-01T10:00:03Z,21,one,field too many",)

    (landing / "2.csv").local.write_text(SECOND)
    (landing / "3.csv").local.write_text(SECOND.replace("05Z", "06Z"))
    lakehouse.fill()
    rows = lakehouse.rows("bronze.sensor", "_source_file", "battery", "celsius", "_rescued_data")
    assert ("landing/sensor/2.csv", "80", 19.5, None) in rows
    assert ("landing/sensor/3.csv", "80", 19.5, None) in rows
    types = registry.read_versions(lakehouse.config.layout.schemas("sensor"))[-1].columns
    assert list(types) == ["celsius", "sensor", "taken_at", "note", "battery"]
    assert types["taken_at"] == "timestamp"
    # 20, 19.5 and 19.5 of s1; both rows of s2 are in quarantine.
    means = lakehouse.rows("gold.warmth", "sensor", "mean_celsius")
    assert means == [("s1", (20 + 19.5 + 19.5) / 3)]
    assert sorted(f.name for f in landing.local.iterdir()) == ["1.csv", "2.csv", "3.csv"]
    assert run_audit(lakehouse.config).is_balanced


@pytest.mark.slow
def test_stream_starts_a_source_once_it_has_a_schema(lakehouse: Lakehouse, tmp_path: Path) -> None:
    """Its first file lands long after the stream has started; silver and gold follow."""
    process = Cli(lakehouse).start("stream", "--trigger", "1 seconds")
    try:
        assert process.stdout
        while "on: bronze" not in (line := process.stdout.readline()):
            assert line, process.communicate()
        landing = lakehouse.config.layout.landing("sensor")
        (landing / ".first.csv").local.write_text(FIRST)
        (landing / ".first.csv").local.rename(landing / "first.csv")
        deadline = time.monotonic() + 300
        while delta_tables.row_count(lakehouse.config.layout.table("gold.warmth")) < 1:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.5)
        process.terminate()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    finally:
        process.kill()
        process.communicate()
    assert run_audit(lakehouse.config, everything=True).is_balanced

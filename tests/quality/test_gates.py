"""Gates with the project's own suites, over tables that meet them and tables that do not."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.errors import ConfigError
from medallion.quality.gates import Gates
from medallion.quality.suites import Failure, Verdict, suite_path
from tests.support import PROJECT

CONF = PROJECT / "conf"

ACTIVITY = """
    SELECT timestamp_millis(1424686734958 + id * 4) recorded_at, 'nexus4_2' device, id user_id,
        'nexus4' model, 'g' user, 'stand' gt, 0.1D x, 0.2D y, 9.8D z,
        'file' _source_file, timestamp'2026-01-01' _ingested_at
    FROM range({rows})
"""


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return modification time and content of every file below a directory."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the project's suites in a read-only directory."""
    conf = tmp_path_factory.mktemp("conf")
    shutil.copytree(CONF / "great_expectations", conf / "great_expectations")
    for folder in (*conf.rglob("*"), conf):
        folder.chmod(folder.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    yield conf
    for folder in (conf, *conf.rglob("*")):
        folder.chmod(folder.stat().st_mode | stat.S_IWUSR)


@pytest.fixture(scope="module")
def gates(conf: Path) -> Gates:
    return Gates(conf)


def validate(gates: Gates, table: str, batch: DataFrame) -> Verdict:
    verdict = gates.validate(table, batch)
    assert verdict is not None
    return verdict


def failure_of(verdict: Verdict, name: str) -> Failure:
    (failure,) = (f for f in verdict.failures if f.expectation == name)
    return failure


def stops(verdict: Verdict) -> bool:
    """Return whether a nightly run would stop."""
    return any(failure.on_failure == "stop" for failure in verdict.failures)


def test_gate_passes_a_valid_table(spark: SparkSession, gates: Gates) -> None:
    verdict = validate(gates, "silver.activity", spark.sql(ACTIVITY.format(rows=10)))
    assert verdict == Verdict("silver.activity", 10, ())
    assert not stops(verdict)


@pytest.mark.parametrize("layer", ["bronze", "silver", "gold"])
def test_gate_passes_an_empty_table(spark: SparkSession, gates: Gates, layer: str) -> None:
    frames = {
        "bronze.activity": "_corrupt_record string",
        "silver.activity": "recorded_at timestamp, device string, user_id long, x double, y double,"
        " z double, _ingested_at timestamp",
        "gold.device_totals": "device string, total_recordings long",
    }
    ((table, schema),) = ((t, s) for t, s in frames.items() if t.startswith(layer))
    verdict = validate(gates, table, spark.createDataFrame([], schema))
    assert (verdict.rows, verdict.failures) == (0, ())


def test_gate_stops_duplicates_and_unquarantined_rows(spark: SparkSession, gates: Gates) -> None:
    valid_rows = spark.sql(ACTIVITY.format(rows=20))
    without_x = valid_rows.where("user_id >= 13").selectExpr(
        "* EXCEPT (x)", "cast(null as double) AS x"
    )
    without_x = without_x.withColumn("user_id", F.col("user_id") + 100).select(valid_rows.columns)
    batch = valid_rows.union(valid_rows.limit(2)).union(without_x)
    verdict = validate(gates, "silver.activity", batch)
    assert (verdict.rows, stops(verdict)) == (29, True)
    assert {f.expectation for f in verdict.failures} == {"unique_recordings", "missing_x"}

    duplicates = failure_of(verdict, "unique_recordings")
    assert (duplicates.on_failure, duplicates.unexpected_count, duplicates.element_count) == (
        "stop",
        4,
        29,
    )
    assert len(set(duplicates.examples)) == 2  # each key is there twice
    assert all("device=nexus4_2" in example for example in duplicates.examples)

    missing = failure_of(verdict, "missing_x")
    assert (missing.on_failure, missing.unexpected_count) == ("stop", 7)
    assert len(missing.examples) == 5
    assert "disagree" in missing.detail


def test_gate_warns_with_examples(spark: SparkSession, gates: Gates) -> None:
    batch = spark.sql(ACTIVITY.format(rows=3)).selectExpr(
        "* EXCEPT (x)", "CASE user_id WHEN 1 THEN 161D WHEN 2 THEN 160D END AS x"
    )
    verdict = validate(gates, "silver.activity", batch.where("user_id > 0"))
    assert not stops(verdict)
    (failure,) = verdict.failures
    assert failure.expectation == "implausible_x"
    assert failure.on_failure == "warn"
    assert (failure.unexpected_count, failure.element_count) == (1, 2)
    assert failure.examples[0].startswith("x=161.0, ")
    assert len(failure.examples[0]) <= 200


def test_gate_counts_rows_that_python_cannot_show(spark: SparkSession, gates: Gates) -> None:
    """Epoch milliseconds read as seconds are in the year 47116; the failure stays a warning."""
    far_future = "timestamp_seconds(1424686734958) AS recorded_at"
    valid_rows = spark.sql(ACTIVITY.format(rows=3))
    batch = valid_rows.selectExpr("* EXCEPT (x, recorded_at)", "999D AS x", far_future).select(
        valid_rows.columns
    )
    verdict = validate(gates, "silver.activity", batch)
    implausible = failure_of(verdict, "implausible_x")
    assert (implausible.on_failure, implausible.unexpected_count) == ("warn", 3)
    assert implausible.examples[0].startswith("x=999.0, ")
    assert "recorded_at=+47116-" in implausible.examples[0]
    assert "could not be evaluated" not in implausible.detail


@pytest.mark.parametrize(
    ("malformed", "names"), [(5, ["malformed_line"]), (6, ["malformed_line", "malformed_share"])]
)
def test_gate_reports_malformed_lines(
    spark: SparkSession, gates: Gates, malformed: int, names: list[str]
) -> None:
    batch = spark.sql(
        f"SELECT CASE WHEN id < {malformed} THEN '{{bad' END _corrupt_record FROM range(100)"
    )
    verdict = validate(gates, "bronze.event", batch)
    assert [f.expectation for f in verdict.failures] == names
    assert [f.on_failure for f in verdict.failures] == ["quarantine", "warn"][: len(names)]
    assert verdict.failures[0].unexpected_count == malformed
    assert {f.examples for f in verdict.failures} == {("_corrupt_record={bad",) * 5}
    assert not stops(verdict)


def test_gate_ignores_rows_without_a_key(spark: SparkSession, gates: Gates) -> None:
    event = (
        "SELECT timestamp'2018-03-02' event_at, {} device, 'open' action,"
        " timestamp'2026-01-01' _ingested_at"
    )
    without_key = spark.sql(f"{event} UNION ALL {event}".format("NULL", "NULL"))
    duplicates = spark.sql(f"{event} UNION ALL {event}".format("'p'", "'p'"))
    assert validate(gates, "silver.event", without_key).failures == ()
    (failure,) = validate(gates, "silver.event", duplicates).failures
    assert (failure.expectation, failure.unexpected_count) == ("unique_events", 2)


@pytest.mark.parametrize(
    ("key", "changed", "passes"),
    [
        (["event_at", "device"], {}, True),
        (["event_at", "device", "action"], {}, True),
        ((), {}, False),
        # This column may be what makes the rows different.
        (["event_at", "_ingested_at"], {}, False),
        (["event_at"], {"ignore_row_if": "never"}, False),  # rows without a key may be equal
        (["event_at"], {"column_list": ["event_at", "nothing"]}, False),
    ],
)
def test_gate_skips_known_unique_keys(
    spark: SparkSession,
    tmp_path: Path,
    key: Sequence[str],
    changed: dict[str, Any],
    passes: bool,
) -> None:
    """The known key is false here, so a gate that checks uniqueness would fail."""
    columns = {"column_list": ["event_at", "device", "action"]}
    kwargs = columns | {"ignore_row_if": "any_value_is_missing"} | changed
    type_ = "expect_compound_columns_to_be_unique"
    meta = {"name": "u", "on_failure": "stop"}
    path = suite_path(tmp_path, "t")
    shutil.copytree(CONF / "great_expectations", tmp_path / "great_expectations")
    suite = {"name": "t", "expectations": [{"type": type_, "kwargs": kwargs, "meta": meta}]}
    path.write_text(json.dumps(suite))
    twice = spark.sql("SELECT 1 event_at, 2 device, 3 action, 4 _ingested_at").unionAll
    batch = twice(spark.sql("SELECT 1, 2, 3, 5"))
    verdict = Gates(tmp_path).validate("t", batch, key)
    assert verdict is not None
    assert (verdict.rows, verdict.failures == ()) == (2, passes)


def test_gate_of_gold(spark: SparkSession, gates: Gates) -> None:
    batch = spark.sql("""
        SELECT * FROM VALUES
            (timestamp'2018-03-02 10:00', timestamp'2018-03-02 10:10', 'open', 3L),
            (timestamp'2018-03-02 10:00', timestamp'2018-03-02 10:10', 'open', 0L),
            (timestamp'2018-03-02 10:10', timestamp'2018-03-02 10:10', 'close', 1L)
        AS v(window_start, window_end, action, total_events)
    """)
    for table in ("gold.action_counts", "gold.user_activity"):
        verdict = validate(gates, table, batch)
        assert {f.expectation: f.unexpected_count for f in verdict.failures} == {
            "window_ends_after_start": 1,
            "positive_total": 1,
            "unique_groups": 1,
        }
        assert stops(verdict)


def test_gate_stops_if_an_expectation_cannot_run(spark: SparkSession, gates: Gates) -> None:
    batch = spark.sql(ACTIVITY.format(rows=2)).drop("x")
    verdict = validate(gates, "silver.activity", batch)
    assert {f.expectation: f.on_failure for f in verdict.failures} == dict.fromkeys(
        ["missing_x", "implausible_x"], "stop"
    )
    assert "x" in failure_of(verdict, "missing_x").detail


def test_gate_without_a_suite_is_none(spark: SparkSession, gates: Gates) -> None:
    assert gates.validate("ops.files", spark.range(1)) is None


def test_gate_refuses_unknown_expectations(spark: SparkSession, tmp_path: Path) -> None:
    shutil.copytree(CONF / "great_expectations", tmp_path / "great_expectations")
    path = suite_path(tmp_path, "gold.device_totals")
    path.write_text(path.read_text().replace("expect_column_values_to_be_between", "expect_magic"))
    gates = Gates(tmp_path)
    with pytest.raises(ConfigError, match="expect_magic"):
        gates.validate("gold.device_totals", spark.range(1))


ABOVE = "SELECT * FROM {batch} WHERE id > 2"
OTHERS = "SELECT * FROM {batch} EXCEPT SELECT id FROM range(3)"
LARGEST = "SELECT id, id FROM {batch} WHERE id = (SELECT max(id) FROM {batch})"
# A query over single rows, which is counted without Great Expectations.
ROW_QUERY = ("unexpected_rows_expectation", {"unexpected_rows_query": ABOVE})


# Expectations about a table of one column `id`, and whether it meets them.
OF_TABLE: list[tuple[str, dict[str, Any], bool]] = [
    ("expect_table_column_count_to_equal", {"value": 1}, True),
    ("expect_table_column_count_to_equal", {"value": 2}, False),
    ("expect_table_column_count_to_be_between", {"min_value": 2, "max_value": 9}, False),
    ("expect_table_columns_to_match_set", {"column_set": ["id"]}, True),
    ("expect_table_columns_to_match_ordered_list", {"column_list": ["id"]}, True),
    ("unexpected_rows_expectation", {"unexpected_rows_query": OTHERS}, True),
    ("unexpected_rows_expectation", {"unexpected_rows_query": LARGEST}, False),
    ("unexpected_rows_expectation", {"unexpected_rows_query": "SELECT no FROM {batch}"}, False),
]


def test_gate_of_table_expectations(spark: SparkSession, tmp_path: Path) -> None:
    shutil.copytree(CONF / "great_expectations", tmp_path / "great_expectations")
    by_name = {f"case {n}": (type_, kwargs) for n, (type_, kwargs, _) in enumerate(OF_TABLE)}
    expectations = [
        {"type": type_, "kwargs": kwargs, "meta": {"name": name, "on_failure": "stop"}}
        for name, (type_, kwargs) in {"small": ROW_QUERY, **by_name}.items()
    ]
    suite = {"name": "gold.t", "expectations": expectations, "meta": {}}
    suite_path(tmp_path, "gold.t").write_text(json.dumps(suite))
    verdict = validate(Gates(tmp_path), "gold.t", spark.range(3))
    failed = [name for name, (*_, passes) in zip(by_name, OF_TABLE, strict=True) if not passes]
    assert [failure.expectation for failure in verdict.failures] == failed


def test_gate_writes_to_no_directory(conf: Path, tmp_path: Path) -> None:
    """Run in a separate process: Great Expectations looks up the home directory on import."""
    original = tree(conf)
    script = tmp_path / "script.py"  # PySpark takes `python -c` for a doctest
    script.write_text(f"""
from pathlib import Path
from medallion.quality.gates import Gates
assert Gates(Path({str(conf)!r}))._context
""")
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.run(
        [sys.executable, str(script)], env=environment, cwd=home, capture_output=True, text=True
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")
    assert tree(home) == {}
    assert tree(conf) == original == tree_of_copy(original)


def tree_of_copy(original: dict[str, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
    project = tree(CONF / "great_expectations")
    return {
        name: (modified_at, project[name.removeprefix("great_expectations/")][1])
        for name, (modified_at, _) in original.items()
    }

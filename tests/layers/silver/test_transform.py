"""Silver and gold on plain DataFrames: no stream, no files."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.config.model import Aggregate
from medallion.config.values import Duration
from medallion.errors import ConfigError
from medallion.layers.gold import transform as gold
from medallion.layers.silver import rules
from medallion.layers.silver import transform as silver
from medallion.layers.silver.rules import refuse_string_event_time
from medallion.quality.rules import Rule
from medallion.quality.suites import suite_path
from medallion.storage.paths import Layout
from tests.support import PROJECT

COLUMNS = {"at": "ts", "device": "lower(id)"}
KEYS = ("at", "device")


def frame(spark: SparkSession, *rows: tuple[str | None, str | None]):  # type: ignore[no-untyped-def]
    """Rows of (ts, id) with technical columns."""
    text = spark.createDataFrame(list(rows), "ts string, id string")
    return text.selectExpr(
        "cast(ts as timestamp) as ts", "id", "'f' as _source_file", "now() as _ingested_at"
    )


def test_rows_are_typed_checked_and_parted(spark: SparkSession) -> None:
    bronze = frame(spark, ("2020-01-01 00:00:00", "A"), (None, "B"), ("2020-01-01 00:00:00", None))
    rows = silver.apply_rules(
        bronze,
        COLUMNS,
        [Rule("lower_case", "coalesce(id = 'B', false)")],
        [Rule("missing", "at is null")],
        ["_source_file"],
    )
    identified, others = silver.split_by_identity(rows, KEYS)
    assert [r.device for r in identified.collect()] == ["a"]
    bad = silver.quarantine_rows(others).collect()
    assert [(r.id, r._failed_rules) for r in bad] == [("B", ["lower_case", "missing"])]
    assert silver.quarantine_rows(others).columns == [*bronze.columns, "_failed_rules"]
    good = silver.silver_rows(others, [*COLUMNS, "_source_file"])
    assert good.columns == ["at", "device", "_source_file", "_ingested_at"]
    assert [r.device for r in good.collect()] == [None]


def test_a_rule_that_cannot_tell_loses_no_row(spark: SparkSession) -> None:
    bronze = frame(spark, ("2020-01-01 00:00:00", None), ("2020-01-01 00:00:00", "A"))
    rules = [Rule("named_b", "id = 'B'")]  # null where there is no name
    rows = silver.apply_rules(bronze, COLUMNS, rules, rules[:0], ["_source_file"])
    identified, others = silver.split_by_identity(rows, KEYS)
    assert [r.device for r in identified.collect()] == ["a"]
    assert [(r.device, r._failed_rules) for r in others.collect()] == [(None, [])]


def test_windows_that_overlap_count_a_row_twice(spark: SparkSession) -> None:
    rows = frame(spark, ("2020-01-01 12:07:00", "A"), ("2020-01-01 12:01:00", "A"))
    windows = (Duration.parse("10 minutes"), Duration.parse("5 minutes"))
    counted = gold.aggregated(rows, "ts", Aggregate((), {"n": "count(*)"}, *windows))
    found = {str(r.window_start)[11:16]: (str(r.window_end)[11:16], r.n) for r in counted.collect()}
    assert found == {"11:55": ("12:05", 1), "12:00": ("12:10", 2), "12:05": ("12:15", 1)}


def test_an_event_time_that_is_a_string(spark: SparkSession, tmp_path: Path) -> None:
    """The required rule was blamed, and the value not named."""
    config = replace(load({}, PROJECT), layout=Layout(tmp_path))
    source = replace(config.sources["event"], event_time="at", silver={"at": "TIME", "id": "id"})
    bronze = spark.sql("select * from values ('2026-05-01', 'a'), ('N/A', 'b') as t(time, id)")
    bronze.write.format("delta").save(str(config.layout.table("bronze.event")))
    rows = bronze.selectExpr("time as at", "id")
    with pytest.raises(ConfigError) as refused:
        refuse_string_event_time(config, source, bronze, rows)
    assert str(refused.value) == (
        "The event time at of silver.event is a string, because the column time of bronze.event is "
        'one, with values such as "N/A". Set hints: {time: timestamp} for the source, and run '
        "medallion refresh bronze.event."
    )
    source = replace(source, silver={"at": "substr(time, 1)", "id": "id"})
    with pytest.raises(ConfigError, match=r"make it a timestamp in sources\.event\.silver\.at"):
        refuse_string_event_time(config, source, bronze, rows)
    refuse_string_event_time(
        config, source, bronze, rows.selectExpr("try_cast(at as timestamp) as at")
    )


@pytest.mark.parametrize(("layer", "taken"), [("bronze", "late"), ("silver", "time_digits")])
def test_a_rule_by_the_name_of_a_built_in_rule(tmp_path: Path, layer: str, taken: str) -> None:
    """The audit takes the key of such a row for taken."""
    shutil.copytree(PROJECT / "conf", tmp_path / "conf")
    config = replace(load({}, PROJECT), conf_dir=tmp_path / "conf")
    suite = suite_path(config.conf_dir, f"{layer}.event")
    name = '"malformed_line"' if layer == "bronze" else '"missing_action"'
    assert rules.load_rule_document(config, config.sources["event"])[layer]
    suite.write_text(suite.read_text().replace(name, f'"{taken}"'))
    with pytest.raises(ConfigError, match=f"the name of the built-in rule {taken}"):
        rules.load_rule_document(config, config.sources["event"])


def test_a_guard_looks_at_the_event_time(tmp_path: Path) -> None:
    """A suite may be a copy of another source's, whose event time is another column."""
    shutil.copytree(PROJECT / "conf", tmp_path / "conf")
    config = replace(load({}, PROJECT), conf_dir=tmp_path / "conf")
    suite = suite_path(config.conf_dir, "silver.event")
    suite.write_text(
        suite.read_text().replace("event_at > _ingested_at", "ended_at > _ingested_at")
    )
    with pytest.raises(ConfigError, match=r"expectation future_event_time that checks event_at"):
        rules.load_rule_document(config, config.sources["event"])
    suite.unlink()
    with pytest.raises(ConfigError, match=r"silver/event\.json needs .*missing_event_time and"):
        rules.load_rule_document(config, config.sources["event"])


def test_a_rule_is_of_a_reference_where_it_names_a_column_of_it() -> None:
    """And not where a literal or a function is called as one is: it would be judged too late."""
    alone = {
        "a": "coalesce((`at` < date'2010-01-01'), false)",
        "b": "length(`device`) > double('3.0')",
        "c": "device NOT IN ('phone', \"date\")",
    }
    named = {"d": "`length` > 3", "e": "device = 'x' AND phone IS NULL", "f": "at > date"}
    columns = ("date", "length", "phone", "double")
    found = rules.split_lookup_rules(alone | named, columns)
    assert [[rule.name for rule in some] for some in found] == [list(alone), list(named)]

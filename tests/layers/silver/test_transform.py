"""Silver and gold on static DataFrames, without streams or files."""

from __future__ import annotations

import json
import re
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
from medallion.quality.rules import Rule
from medallion.quality.suites import suite_path
from tests.support import PROJECT
from tests.support.lakehouse import Lakehouse, activity_source

COLUMNS = {"at": "ts", "device": "lower(id)"}
KEYS = ("at", "device")


def frame(spark: SparkSession, *rows: tuple[str | None, str | None]):  # type: ignore[no-untyped-def]
    """Return rows of (ts, id) with technical columns."""
    text = spark.createDataFrame(list(rows), "ts string, id string")
    return text.selectExpr(
        "cast(ts as timestamp) as ts", "id", "'f' as _source_file", "now() as _ingested_at"
    )


def test_apply_rules_splits_rows(spark: SparkSession) -> None:
    bronze = frame(spark, ("2020-01-01 00:00:00", "A"), (None, "B"), ("2020-01-01 00:00:00", None))
    rows = silver.apply_rules(
        bronze,
        COLUMNS,
        "at",
        [Rule("lower_case", "coalesce(id = 'B', false)")],
        [Rule("missing", "at is null")],
        ["_source_file"],
    )
    identified, others = silver.split_by_identity(rows, KEYS)
    assert [r.device for r in identified.collect()] == ["a"]
    quarantined = silver.quarantine_rows(others).collect()
    assert [(r.id, r._failed_rules) for r in quarantined] == [("B", ["lower_case", "missing"])]
    assert silver.quarantine_rows(others).columns == [*bronze.columns, "_failed_rules"]
    kept = silver.silver_rows(others, [*COLUMNS, "_source_file"])
    assert kept.columns == ["at", "device", "_source_file", "_ingested_at"]
    assert [r.device for r in kept.collect()] == [None]


def test_apply_rules_with_a_null_condition_keeps_the_row(spark: SparkSession) -> None:
    bronze = frame(spark, ("2020-01-01 00:00:00", None), ("2020-01-01 00:00:00", "A"))
    rules = [Rule("named_b", "id = 'B'")]  # null if there is no name
    rows = silver.apply_rules(bronze, COLUMNS, "at", rules, rules[:0], ["_source_file"])
    identified, others = silver.split_by_identity(rows, KEYS)
    assert [r.device for r in identified.collect()] == ["a"]
    assert [(r.device, r._failed_rules) for r in others.collect()] == [(None, [])]


def test_apply_rules_to_deletes_without_values(spark: SparkSession) -> None:
    """A delete breaks the rules about its key alone; another change breaks all."""
    rows = spark.sql(
        """
        select k, v, op, 'f' as _source_file, now() as _ingested_at
        from values
            (1, null, 'd'), (null, 'x', 'd'), (null, null, 'd'), (2, null, 'u'), (3, 'y', 'u')
            as t(k, v, op)
        """
    )
    checked = silver.apply_rules(
        rows,
        {"k": "k", "v": "v"},
        "",
        [Rule("operation", "op = 'd' and v is null")],
        [Rule("no_key", "k is null"), Rule("no_value", "v is null")],
        ["_source_file"],
        derived={"_is_delete": "op = 'd'"},
        broken="if(_is_delete, filter(_failed, r -> r = 'no_key'), _failed)",
    )
    failed = {(r.k, r.v): r._failed_rules for r in checked.collect()}
    assert failed == {
        (1, None): [],
        (None, "x"): ["no_key"],
        (None, None): ["no_key"],
        (2, None): ["no_value"],
        (3, "y"): [],
    }
    good, others = silver.split_by_identity(checked, ["_source_file"])
    assert sorted(r.k for r in good.collect()) == [1, 3]
    assert others.count() == 3


def test_overlapping_windows_count_a_row_twice(spark: SparkSession) -> None:
    rows = frame(spark, ("2020-01-01 12:07:00", "A"), ("2020-01-01 12:01:00", "A"))
    windows = (Duration.parse("10 minutes"), Duration.parse("5 minutes"))
    counted = gold.aggregated(rows, "ts", Aggregate((), {"n": "count(*)"}, *windows))
    actual = {
        str(r.window_start)[11:16]: (str(r.window_end)[11:16], r.n) for r in counted.collect()
    }
    assert actual == {"11:55": ("12:05", 1), "12:00": ("12:10", 2), "12:05": ("12:15", 1)}


def test_string_event_time_is_cast(spark: SparkSession, tmp_path: Path) -> None:
    """A string that is no time is quarantined, unless no string is a time."""
    config = Lakehouse(None, tmp_path).config
    source = replace(config.sources["event"], event_time="at", silver={"at": "TIME", "id": "id"})
    source = replace(source, keys=("at", "id"))
    technical = (
        "'f' as _source_file, timestamp'2026-05-01' as _ingested_at, null as _corrupt_record"
    )
    values = "values ('2026-05-01', 'a'), ('N/A', 'b'), ('2026-05-03', 'c') as t(time, id)"
    bronze = spark.sql(f"select *, {technical} from {values}")
    bronze.write.format("delta").save(str(config.layout.table("bronze.event")))
    rules.refuse_unusable_event_time(config, source, bronze)
    document = {**rules.built_in_rules(source), "late": "admit"}
    rows = rules.bind_rules(source, document)(bronze)
    assert [
        (row.id, str(row["at"]), row._failed_rules) for row in rows.orderBy("id").collect()
    ] == [
        ("a", "2026-05-01 00:00:00", []),
        ("b", "None", ["missing_event_time"]),
        ("c", "2026-05-03 00:00:00", ["future_event_time"]),
    ]


def test_past_event_time_is_quarantined(spark: SparkSession) -> None:
    """The limit itself passes; without `max_past` any time does."""
    limit = "timestamp'2026-04-29 10:00:00'"
    times = (limit, f"{limit} - interval 1 second", "timestamp_millis(1777629600)")
    values = ", ".join(f"({time}, timestamp'2026-05-01 10:00:00', null)" for time in times)
    columns = "at, _ingested_at, _corrupt_record"
    bronze = spark.sql(f"select *, 'f' as _source_file from values {values} as ({columns})")
    source = activity_source(event_time="at", silver={"at": "at"}, keys=("at",))
    for max_past, failed in ((None, []), (Duration.parse("2 days"), ["past_event_time"])):
        checked = replace(source, max_past=max_past)
        document = {**rules.built_in_rules(checked), "late": "admit"}
        rows = rules.bind_rules(checked, document)(bronze).collect()
        assert [row._failed_rules for row in rows] == [[], failed, failed]


@pytest.mark.parametrize(
    ("value", "sql", "message"),
    [
        (
            "'01.05.2026 10:00'",
            "time",
            'at of silver.event is string such as "01.05.2026 10:00". Convert it to a timestamp in '
            "sources.event.silver.at, with a function such as try_to_timestamp or "
            "timestamp_millis; or set hints for its field, such as timestamp_millis or timestamp "
            "'dd.MM.yyyy HH:mm', and run medallion refresh bronze.event.",
        ),
        ("'1777629600000'", "`time`", 'is string such as "1777629600000". Convert it'),
        ("'10:05:00'", "time", 'is string such as "10:05:00". Convert it'),  # today, for Spark
        ("1777629600000L", "time + 1", "at of silver.event is bigint. Convert it"),
    ],
)
def test_event_time_of_another_type_is_refused(
    spark: SparkSession, tmp_path: Path, value: str, sql: str, message: str
) -> None:
    config = Lakehouse(None, tmp_path).config
    source = replace(config.sources["event"], event_time="at", silver={"at": sql}, schema=None)
    bronze = spark.sql(f"select {value} as time")
    bronze.write.format("delta").save(str(config.layout.table("bronze.event")))
    with pytest.raises(ConfigError, match=re.escape(message)):
        rules.refuse_unusable_event_time(config, source, bronze)


@pytest.mark.parametrize(("layer", "reserved"), [("bronze", "late"), ("silver", "late")])
def test_reserved_rule_names_are_refused(tmp_path: Path, layer: str, reserved: str) -> None:
    """The audit treats the keys of such quarantined rows as occupied."""
    shutil.copytree(PROJECT / "conf", tmp_path / "conf")
    config = replace(load({}, PROJECT), conf_dir=tmp_path / "conf")
    suite = suite_path(config.conf_dir, f"{layer}.event")
    name = '"malformed_line"' if layer == "bronze" else '"missing_action"'
    assert rules.load_rule_document(config, config.sources["event"])[layer]
    suite.write_text(suite.read_text().replace(name, f'"{reserved}"'))
    with pytest.raises(ConfigError, match=f"the name of the built-in rule {reserved}"):
        rules.load_rule_document(config, config.sources["event"])


def test_rule_of_a_suite_replaces_the_built_in_rule(tmp_path: Path) -> None:
    config = replace(load({}, PROJECT), conf_dir=tmp_path)
    source = replace(config.sources["event"], max_future=Duration.parse("2 hours"))
    latest = "_ingested_at + INTERVAL '7200' SECOND"
    guards = {
        "missing_event_time": "`event_at` IS NULL",
        "future_event_time": f"coalesce(`event_at` > {latest}, false)",
    }
    assert rules.load_rule_document(config, source) == {
        "late": "admit",
        "bronze": {"malformed_line": "_corrupt_record IS NOT NULL"},
        "silver": guards,
    }
    expectation = {
        "type": "unexpected_rows_expectation",
        "kwargs": {"unexpected_rows_query": "SELECT * FROM {batch} WHERE event_at > now"},
        "meta": {"name": "future_event_time", "on_failure": "quarantine"},
    }
    suite = suite_path(tmp_path, "silver.event")
    suite.parent.mkdir(parents=True)
    suite.write_text(json.dumps({"expectations": [expectation]}))
    document = rules.load_rule_document(config, source)
    changed = {"future_event_time": "coalesce((event_at > now), false)"}
    assert document["silver"] == guards | changed


def test_split_lookup_rules_by_column_name() -> None:
    """A literal or a function of the same name does not count."""
    plain = {
        "a": "coalesce((`at` < date'2010-01-01'), false)",
        "b": "length(`device`) > double('3.0')",
        "c": "device NOT IN ('phone', \"date\")",
    }
    with_lookup_columns = {
        "d": "`length` > 3",
        "e": "device = 'x' AND phone IS NULL",
        "f": "at > date",
    }
    columns = ("date", "length", "phone", "double")
    split = rules.split_lookup_rules(plain | with_lookup_columns, columns)
    assert [[rule.name for rule in part] for part in split] == [
        list(plain),
        list(with_lookup_columns),
    ]


def test_split_lookup_rules_of_unknown_syntax() -> None:
    """Such a rule may name any column of the lookup table, but there has to be one."""
    of_spark = {"a": "at mod 2 = 0"}
    assert rules.split_lookup_rules(of_spark, ["date"]) == ([], [Rule("a", "at mod 2 = 0")])
    assert rules.split_lookup_rules(of_spark, []) == ([Rule("a", "at mod 2 = 0")], [])


def test_mark_duplicates(spark: SparkSession) -> None:
    """Keep the first row of a new key; broken rows and null keys are never duplicates."""
    values = "values (1, 'a', 2, ''), (2, 'a', 1, ''), (3, 'b', 1, ''), (4, null, 1, ''),"
    values += " (5, null, 1, ''), (6, 'c', 1, 'rule'), (7, 'c', 2, ''), (8, 'd', 1, '')"
    rows = spark.sql(f"select * from {values} as t(row, id, at, rule)").selectExpr(
        "row", "id", "at", "filter(array(rule), r -> r <> '') as _failed_rules"
    )
    existing = spark.sql("select * from values ('b', 0), ('b', 1), ('e', 2) as t(id, at)")
    marked = silver.mark_duplicates(rows, existing, ["id"], ["at", "row"])
    assert sorted((row.row, row._is_duplicate) for row in marked.collect()) == [
        (1, True), (2, False), (3, True), (4, False),
        (5, False), (6, False), (7, False), (8, False),
    ]  # fmt: skip

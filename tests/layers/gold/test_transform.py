"""Gold SQL that a stream cannot run is refused, with a message that names an alternative."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.config.model import GoldTable, Join, OutputMode, Statement
from medallion.config.values import Duration
from medallion.errors import ConfigError
from medallion.layers.definition import refuse_nondeterministic
from medallion.layers.gold import transform
from medallion.layers.gold.transform import gold_rows
from tests.support import PROJECT

EVENT, OTHER = "silver_event", "silver_activity"
COUNTS = f"select device, count(*) as n from {EVENT} group by device"


def columns(spark: SparkSession, sql: str, mode: OutputMode = "complete") -> list[str]:
    stream = spark.readStream.format("rate").load()
    rows = {
        "silver.event": stream.selectExpr(
            "timestamp as event_at", "cast(value as string) as device"
        ),
        "silver.activity": stream.selectExpr(
            "timestamp as recorded_at", "cast(value as string) device"
        ),
    }
    table = GoldTable("t", ("silver.event", "silver.activity"), Statement(Path("x.sql"), sql), mode)
    statement = Statement(Path("x.sql"), sql)
    return transform.statement_rows(spark, table, statement, rows).columns


def test_statement_rows_supported(spark: SparkSession) -> None:
    assert columns(spark, COUNTS) == ["device", "n"]
    assert columns(spark, f"with c as ({COUNTS}) select n from c where n > 1") == ["n"]
    windows = (
        f"select window.start as at, count(*) as n from {EVENT} group by window(event_at, '1 hour')"
    )
    assert columns(spark, windows) == ["at", "n"]
    union = f"select device from {EVENT} union all select device from {OTHER}"
    assert columns(spark, union, "append") == ["device"]
    assert columns(spark, f"select count(*) as n from ({union})") == ["n"]
    names = f"select name from values ('a', 'b') as t(id, name) join {EVENT} on device = id"
    assert columns(spark, names, "append") == ["name"]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (f"{COUNTS} order by n", "use ORDER BY when you query"),
        (f"{COUNTS} limit 1", "use LIMIT when you query"),
        (f"select device from {EVENT} tablesample (50 percent)", "(TABLESAMPLE)"),
        (f"{COUNTS} offset 1", "use OFFSET when you query"),
        (f"select distinct device from {EVENT}", "uses DISTINCT: use GROUP BY"),
        (f"select max(n) as n from ({COUNTS})", "aggregates twice"),
        (f"select device, row_number() over (order by event_at) as n from {EVENT}", "OVER"),
        (f"select device from {EVENT} except select device from {OTHER}", "EXCEPT"),
        (f"select device from {EVENT} intersect select device from {OTHER}", "INTERSECT"),
        (f"{COUNTS} union all select device, 1 as n from {OTHER}", "make one table of each"),
        (f"{COUNTS} union all {COUNTS}", "make one table of each"),
        (
            f"with c as ({COUNTS}) select * from c union all select device, 1 from {OTHER}",
            "one table of each",
        ),
        (
            f"select e.device from {EVENT} e join {OTHER} a on e.device = a.device",
            "configure join instead",
        ),
        (
            f"select device from {EVENT} where device in (select device from {OTHER})",
            "subquery",
        ),
        (f"select device, (select max(device) from {OTHER}) as m from {EVENT}", "subquery"),
        (f"select e.device from {EVENT} e join range(3) r on e.device = r.id", "append"),
        (f"select device from {EVENT}", "set output_mode: append in pipeline.yaml"),
        (f"select count(*) from {EVENT}", "'count(1)': give it a snake_case name"),
        (f"select device, max(event_at) as device from {EVENT} group by 1", "device twice"),
        (f"select null as nothing, count(*) as n from {EVENT}", "nothing without a type"),
        (f"select devise from {EVENT}", "devise"),
        (f"drop view {EVENT}", "Syntax error"),
        (f"insert into t {COUNTS}", "Syntax error"),
        ("", "Syntax error"),
    ],
)
def test_statement_rows_unsupported(spark: SparkSession, sql: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        columns(spark, sql)
    assert str(error.value).startswith("x.sql: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


DETERMINISTIC = (
    "event_at > timestamp'2018-03-02'",
    "event_at > '2018-03-02'",
)


@pytest.mark.parametrize(
    "condition",
    [
        "event_at > current_timestamp() - interval 1 day",
        "rand() < 0.5",
        "event_at > timestamp'now'",
        "exists(values (1))",
    ],
)
def test_refuse_nondeterministic(spark: SparkSession, condition: str) -> None:
    stream = spark.readStream.format("rate").load()
    stream = stream.selectExpr("timestamp as event_at", "string(value) as device")
    for deterministic in DETERMINISTIC:
        refuse_nondeterministic("gold.t", stream.where(deterministic), {"where": deterministic})
    with pytest.raises(ConfigError, match=r"gold\.t depends on the current time, randomness"):
        refuse_nondeterministic(
            "gold.t", stream.where(condition).groupBy().count(), {"where": condition}
        )


def test_gold_rows_refuses_join_keys_of_different_types(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().withColumnRenamed("timestamp", "at")
    config = load({}, PROJECT)
    join = Join("inner", {"one": "other"}, Duration.parse("1 hour"), None, None, {"one": "one"})
    table = GoldTable("pairs", ("silver.event", "silver.activity"), join, "append")

    def joined(left: str, right: str) -> list[str]:
        event = stream.selectExpr("at as event_at", f"{left} as one")
        activity = stream.selectExpr("at as recorded_at", f"{right} as other")
        rows = dict(zip(table.tables, (event, activity), strict=True))
        return gold_rows(spark, config, table, rows).columns

    assert joined("value", "value") == joined("value", "int(value)") == ["one"]
    for left, right, message in (
        ("string(value)", "value", r"event\.one \(string\) with activity\.other \(bigint\)"),
        ("value", "double(value)", r"\(bigint\) with .* \(double\)"),
    ):
        with pytest.raises(
            ConfigError, match=rf"pipeline\.yaml: gold\.pairs\.join\.on .*{message}"
        ):
            joined(left, right)


def test_statement_rows_groups_need_complete_mode(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="output_mode: complete"):
        columns(spark, COUNTS, "append")


def test_statement_rows_refuses_other_inputs(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1).write.parquet(str(tmp_path / "rows"))
    with pytest.raises(ConfigError, match="silver and gold tables only"):
        columns(spark, f"select id from parquet.`{tmp_path / 'rows'}`", "append")


def test_statement_rows_of_a_batch_query(spark: SparkSession, tmp_path: Path) -> None:
    """A query over all rows may use what a stream cannot, if it is deterministic."""
    paths = {name: str(tmp_path / name) for name in ("silver.event", "gold.counts", "other")}
    for path in paths.values():
        spark.range(1).selectExpr("id", "'a' as device").write.parquet(path)
    names = ("silver.event", "gold.counts")
    rows = {name: spark.read.parquet(paths[name]) for name in names}
    table = GoldTable("t", names, Statement(Path("x.sql"), ""), "complete", follows_changes=True)

    def columns(sql: str) -> list[str]:
        statement = Statement(Path("x.sql"), sql)
        result = transform.statement_rows(spark, table, statement, rows)
        refuse_nondeterministic("gold.t", result, sql, can_read_tables=True)
        return result.columns

    supported = (
        "select distinct id from silver_event",
        "select max(n) as id from (select count(*) as n from gold_counts group by device)",
        "select e.id from silver_event e join gold_counts c on e.id = c.id",
        "select a.id from gold_counts a join gold_counts b on a.id = b.id",
        "with c as (select id from gold_counts) select id from c union all select id + 1 from c",
        "select id from silver_event where id = (select max(id) from gold_counts)",
        "select rank() over (order by device) as id from gold_counts",
    )
    assert [columns(sql) for sql in supported] == [["id"]] * len(supported)
    unlisted = f"parquet.`{paths['other']}`"
    for sql, message in (
        ("select id from gold_counts order by id", "use ORDER BY when you query"),
        ("select id from silver_event where id in (select id from gold_counts limit 1)", "LIMIT"),
        (f"select id from {unlisted}", "silver and gold tables only"),
        (f"select id from gold_counts where id in (select id from {unlisted})", "gold tables only"),
        ("select id, rand() as n from gold_counts", "randomness"),
        ("select count(*) from gold_counts", "give it a snake_case name"),
    ):
        with pytest.raises(ConfigError, match=message):
            columns(sql)

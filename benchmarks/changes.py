"""Change records merged into a table of a million rows, beside a bare Delta MERGE of the same.

    .venv/bin/python -m benchmarks.changes [--short] [--debezium] [--rows N] [--runs N]

Both merge the same changes of random keys into the same rows in one session, in turn; the plain
side has neither a log, nor deletes that outlive their rows, nor a change data feed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession

from benchmarks.measure import Figure, configured, cpu_seconds, family_of, say, show
from medallion.config.model import Config, SourceConfig
from medallion.config.tables import CdcConfig
from medallion.config.values import Duration
from medallion.layers.silver.scd import ChangeMerge, table_rows
from medallion.spark.session import spark_session
from medallion.storage import delta_tables

ROWS, BATCHES, RUNS = 1_000_000, (1_000, 100_000), 3
TARGET = 2.0
TRANSACTION = [f"spark.databricks.delta.write.{name}" for name in ("txnAppId", "txnVersion")]
CDC = CdcConfig("at", "op = 'd'", None, None, 1, False, Duration.parse("30 days"))
DEBEZIUM = replace(CDC, apply_as_truncates="op = 't'", unavailable_value="?")
# The log of a Debezium source has these, too.
OF_DEBEZIUM = (
    "cast(null as boolean) as _is_truncate",
    "cast(null as struct<id: bigint>) as _old_key",
    "cast(null as array<string>) as _unavailable",
)


def main() -> int:
    """Measure, and print it as one table."""
    parser = argparse.ArgumentParser(description="change records")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the table")
    parser.add_argument("--runs", type=int, default=RUNS, help="batches of each size")
    parser.add_argument("--short", action="store_true", help="one batch of each size")
    parser.add_argument("--debezium", action="store_true", help="the log of a Debezium source")
    options = parser.parse_args()
    runs = 1 if options.short else options.runs
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start", flush=True)
    with tempfile.TemporaryDirectory(prefix="medallion-bench-") as name:
        config = orders(configured(Path(name)), options.debezium)
        spark = spark_session(config, "bench changes")
        figures = list(measure(spark, config, options.rows, runs))
    show(figures, "medians of seconds")
    return 0


def orders(config: Config, is_debezium: bool) -> Config:
    """One source of change records."""
    cdc = DEBEZIUM if is_debezium else CDC
    source: SourceConfig = next(iter(config.sources.values()))
    source = replace(source, name="orders", keys=("id",), event_time="", cdc=cdc)
    source = replace(source, is_debezium=is_debezium)
    return replace(config, sources={"orders": source}, gold={})


def changes(spark: SparkSession, first: int, count: int, rows: int, day: int) -> DataFrame:
    """So many changes of random keys, one in a hundred of them a delete."""
    return spark.range(first, first + count).selectExpr(
        f"pmod(xxhash64(id), {rows}L) as id" if day else "id",
        "concat('status ', id % 7) as status",
        "id % 1000 / 7 as amount",
        f"'{day}.json' as _source_file",
        f"timestamp_micros(1777600000000000 + id) + interval {day} day as _sequence",
        f"{bool(day)} and id % 100 = 0 as _is_delete",
        f"timestamp'2026-05-01' + interval {day} day as _ingested_at",
    )


def measure(spark: SparkSession, config: Config, rows: int, runs: int) -> Iterator[Figure]:
    """Fill both tables, and merge batches into both."""
    source = config.sources["orders"]
    log, table = (config.layout.table(name) for name in (source.rows_table, "silver.orders"))
    plain = config.layout.table("silver.plain")
    checkpoint = config.layout.checkpoint("silver.orders")
    checkpoint.local.mkdir(parents=True)
    (checkpoint / "metadata").local.write_text(json.dumps({"id": "bench"}))
    added = OF_DEBEZIUM if source.is_debezium else ()
    first = changes(spark, 0, rows, rows, 0).selectExpr("*", *added)
    first.write.format("delta").save(str(log))
    current = table_rows(first, source)
    properties = config.properties("silver.orders")
    delta_tables.create_table(table, current.schema.json(), properties)
    for path in (table, plain):
        current.write.format("delta").mode("append").save(str(path))
    merge, at, number = ChangeMerge(config, source, say), rows, 0
    for size in BATCHES:
        taken: dict[str, list[tuple[float, float]]] = {"medallion": [], "plain": []}
        for run in range(runs + 1):
            number += 1
            batch = changes(spark, at, size, rows, number).selectExpr("*", *added)
            batch.write.format("delta").mode("append").save(str(log))
            batch = (
                spark.read.format("delta").load(str(log)).where(f"_source_file = '{number}.json'")
            )
            at += size
            sides: dict[str, Callable[[], object]] = {
                "medallion": partial(merge, batch, number),
                "plain": partial(plain_merge, spark, plain.local, batch),
            }
            for side in sorted(sides, reverse=run % 2 == 1):
                with clock() as seconds:
                    sides[side]()
                if run:
                    taken[side].append((seconds[0], seconds[1]))
                    say(f"{size:>7} changes {side:<10} {seconds[0]:6.2f} s {seconds[1]:6.1f} CPU s")
        ours, beside = (
            [statistics.median(column) for column in zip(*taken[side], strict=True)]
            for side in ("medallion", "plain")
        )
        note = f" {rows:,} rows"
        yield Figure(f"{size:,} changes | MERGE", ours[0], beside[0], TARGET, note)
        yield Figure(f"{size:,} changes | MERGE, CPU", ours[1], beside[1], None, note)
    assert_equal(spark, table.local, plain.local)


def plain_merge(spark: SparkSession, table: Path, batch: DataFrame) -> None:
    """What a user would write: the newest change of each key, merged."""
    for name in TRANSACTION:  # which the other side has set, and would make Delta skip this commit
        spark.conf.unset(name)
    newest = batch.selectExpr("*", "row_number() over (partition by id order by _sequence desc) n")
    newest = newest.where("n = 1").drop("n")
    names = [name.split(" as ")[-1] for name in ("_is_delete", *OF_DEBEZIUM)]
    names = [name for name in newest.columns if name not in names]
    values: dict[str, str | Column] = {name: f"new.{name}" for name in names}
    (
        DeltaTable.forPath(spark, str(table))
        .alias("old")
        .merge(newest.alias("new"), "old.id = new.id")
        .whenMatchedDelete("new._is_delete and new._sequence > old._sequence")
        .whenMatchedUpdate("new._sequence > old._sequence", values)
        .whenNotMatchedInsert("not new._is_delete", values)
        .execute()
    )


def assert_equal(spark: SparkSession, *tables: Path) -> None:
    """Raise AssertionError unless both tables have the same rows."""
    one, other = (spark.read.format("delta").load(str(table)) for table in tables)
    assert one.count() == other.count(), "the tables have different numbers of rows"
    assert one.select(other.columns).exceptAll(other).isEmpty(), "the tables have different rows"


@contextmanager
def clock() -> Iterator[list[float]]:
    """Yield a list that gets the seconds, and all processes' CPU seconds, at the end."""
    family, result = family_of(os.getpid()), list[float]()
    started, cpu = time.monotonic(), cpu_seconds(family)
    yield result
    result += [time.monotonic() - started, cpu_seconds(family) - cpu]


if __name__ == "__main__":
    sys.exit(main())

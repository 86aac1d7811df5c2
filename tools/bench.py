"""The first night of a large landing: `medallion nightly` beside the same tables in plain Spark.

    .venv/bin/python tools/bench.py [--short]

Both are whole processes, run alternately on roots of their own with the same files and the same
settings of Spark. The plain one has the three layers as one would write them without medallion: no
gates, no quarantine, no rescue, no record of runs, and no event source.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from measure import NIGHTLY, PROJECT, plain_bronze, timed, write
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from medallion.config.loader import load
from medallion.factory import DataFactory
from medallion.spark.session import spark_session
from medallion.sql import engine

SOURCE = "activity"
GOLD = ("device_counts", "device_totals")
FULL = (1_560_000, 20, 2)  # rows, files, runs of each
SHORT = (78_000, 2, 1)


def main() -> int:
    """Run the comparison, or with `--plain` the one side of it."""
    parser = argparse.ArgumentParser(description="medallion nightly beside plain Spark")
    parser.add_argument("--short", action="store_true", help="a small landing, once each")
    parser.add_argument("--plain", metavar="ROOT", help="write ROOT's tables in plain Spark")
    options = parser.parse_args()
    if options.plain:
        plain(Path(options.plain))
        return 0
    with tempfile.TemporaryDirectory(prefix="medallion-bench-") as folder:
        return compare(Path(folder), *(SHORT if options.short else FULL))


def compare(folder: Path, rows: int, files: int, runs: int) -> int:
    """Time both sides alternately; 1 where their tables differ."""
    landing = folder / "landing"
    DataFactory(landing).land(rows=rows, files=files, source=SOURCE)
    size = sum(file.stat().st_size for file in (landing / SOURCE).iterdir()) / 2**20
    print(f"{rows:,} rows, {files} files, {size:,.0f} MiB, {os.cpu_count()} cores", flush=True)
    commands: dict[str, Callable[[Path], list[str]]] = {
        "plain": lambda root: [__file__, "--plain", str(root)],
        "medallion": lambda root: [*NIGHTLY],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    totals = {}
    for number in range(1, runs + 1):
        for name, command in commands.items():
            root = folder / name
            shutil.copytree(landing, root / "landing", copy_function=os.link)
            taken, peak = timed(command(root), root)
            seconds[name].append(taken)
            print(f"{name:<10} run {number}  {taken:6.1f} s  {peak / 2**20:5.1f} GiB", flush=True)
            totals[f"{name} run {number}"] = counted(root)
            shutil.rmtree(root)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    for name, median in medians.items():
        print(f"{name:<10} median {median:6.1f} s")
    print(f"medallion takes {medians['medallion'] / medians['plain']:.2f} times as long as plain")
    if any(found != dict.fromkeys(GOLD, rows) for found in totals.values()):
        print(f"the totals of gold are not {rows:,}: {totals}", file=sys.stderr)
        return 1
    print(f"both tables of gold count {rows:,} rows in every run")
    return 0


def counted(root: Path) -> dict[str, int]:
    """The sum of the counts of each gold table."""
    return {
        table: int(
            engine.query(str(root), f"select sum(total_recordings) from gold.{table}").rows[0][0]
        )
        for table in GOLD
    }


def plain(root: Path) -> None:
    """Three layers without medallion: the declared schema, one watermark, two counts."""
    config = load({"MEDALLION_HOME": str(root)}, PROJECT)
    source, layout = config.sources[SOURCE], config.layout
    spark = spark_session(config, "plain")

    def stream(table: str) -> DataFrame:
        return spark.readStream.format("delta").load(str(layout.table(table)))

    def finish(*queries: StreamingQuery) -> None:
        for query in queries:
            query.awaitTermination()

    finish(plain_bronze(spark, config, SOURCE))

    columns = [F.expr(sql).alias(name) for name, sql in source.silver.items()]
    typed = stream(f"bronze.{SOURCE}").select(*columns, "_source_file", "_ingested_at")
    once = typed.withWatermark(source.event_time, source.watermark.text)
    finish(write(config, once.dropDuplicates(list(source.keys)), f"silver.{SOURCE}"))

    silver = stream(f"silver.{SOURCE}")
    count = F.count(F.lit(1)).alias("total_recordings")
    window = F.window(source.event_time, "10 minutes")
    by_window = silver.groupBy(window, "device").agg(count)
    by_window = by_window.select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        "device",
        "total_recordings",
    )
    finish(
        write(config, by_window, "gold.device_counts", "complete"),
        write(config, silver.groupBy("device").agg(count), "gold.device_totals", "complete"),
    )
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())

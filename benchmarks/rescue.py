"""What it costs that bronze keeps what does not fit the schema, beside Spark's own JSON source."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from benchmarks.measure import (
    Figure,
    bronze,
    clocked,
    configured,
    expect,
    plain,
    say,
    sparks_own,
    timed,
)
from medallion.config.model import Config
from medallion.factory import DataFactory
from medallion.lakehouse import specs, tables
from medallion.lakehouse.columns import INGESTED_AT, SOURCE_FILE, bronze_columns
from medallion.parsing.parse import parse
from medallion.sources.files import reader
from medallion.spark.session import spark_session

Side = Callable[[SparkSession, Config], float]


def rescue(spark: SparkSession, folder: Path, rows: int, files: int, runs: int) -> list[Figure]:
    """Rows of a large landing to bronze, by what writes them, in turn."""
    seconds: dict[str, list[float]] = {}
    for name, count, parts in (("warm", 20_000, 2), ("large", rows, files)):
        DataFactory(folder / name / "landing").land(rows=count, files=parts, source="activity")
        shutil.copytree(folder / name, folder / f"{name} odd")
        for file in (folder / f"{name} odd" / "landing/activity").iterdir():
            text = file.read_text()
            file.write_text(text.replace("}\n", ', "more": 1}\n'))
    root = folder / "root"
    for number in range(runs + 1):
        for side in (*_SIDES, *(_PROCESSES if number else ())):
            landing = ("large" if number else "warm") + (" odd" if side.endswith("odd") else "")
            shutil.copytree(folder / landing, root, copy_function=os.link)
            if side in _SIDES:
                taken = _SIDES[side](spark, configured(root))
            else:
                taken = timed(["-m", "benchmarks.rescue", _PROCESSES[side]], root).seconds
            if number:
                expect(root, "activity", rows)
                seconds.setdefault(side, []).append(taken)
                say(f"rescue    run {number}: {side:<15} {taken:6.2f} s")
            shutil.rmtree(root)
    found = {side: statistics.median(taken) for side, taken in seconds.items()}
    note = f"{rows:,} rows, {files} files"
    return [
        Figure(
            "rescue | JSON source, whole processes",
            found["rescue process"],
            found["source process"],
            1.5,
            note,
        ),
        Figure("the same in a warm session", found["rescue"], found["source"], 1.5, note),
        Figure(
            "the same, warm, a field unknown in each line",
            found["rescue odd"],
            found["source odd"],
            None,
            "which the JSON source drops",
        ),
        Figure(
            "bronze | JSON stream, whole queries, warm",
            found["bronze"],
            found["stream"],
            None,
            "bronze with its ledger and archive",
        ),
    ]


def _rescue(spark: SparkSession, config: Config) -> float:
    """Seconds of what bronze does with lines, and no more."""
    source = config.sources["activity"]
    columns, table = dict(source.schema or {}), config.layout.table("bronze.activity")
    schema = T.StructType.fromDDL(_ddl(bronze_columns(columns, source.origin)))
    tables.create(table, schema.json(), specs.BRONZE.properties())
    paths = [config.layout.relative(f) for f in config.layout.landing("activity").iterdir()]

    def work() -> None:
        lines = reader.rows(spark, config, source, paths, columns)
        parse(lines, columns).write.format("delta").mode("append").save(str(table))

    return clocked(work)


def _source(spark: SparkSession, config: Config) -> float:
    """Seconds of Spark's own JSON source, by Spark's own defaults."""
    declared = _ddl(config.sources["activity"].schema or {})

    def work() -> None:
        rows = spark.read.schema(declared).json(str(config.layout.landing("activity")))
        rows = rows.withColumn(SOURCE_FILE, F.col("_metadata.file_path"))
        rows = rows.withColumn(INGESTED_AT, F.current_timestamp())
        rows.write.format("delta").save(str(config.layout.table("bronze.activity")))

    with sparks_own(spark):
        return clocked(work)


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


_SIDES: dict[str, Side] = {
    "source": _source,
    "rescue": _rescue,
    "source odd": _source,
    "rescue odd": _rescue,
    "stream": lambda spark, config: plain(spark, config, "activity"),
    "bronze": lambda spark, config: bronze(spark, config, "activity"),
}
_PROCESSES = {"source process": "source", "rescue process": "rescue"}


def main() -> None:
    """One side as a process: `python -m benchmarks.rescue SIDE`, on the root of MEDALLION_HOME."""
    config = configured(Path(os.environ["MEDALLION_HOME"]))
    spark = spark_session(config, "bench rescue")
    _SIDES[sys.argv[1]](spark, config)
    spark.stop()


if __name__ == "__main__":
    main()

"""What it costs that bronze keeps what does not fit the schema, beside Spark's own JSON source."""

from __future__ import annotations

import itertools
import os
import re
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
from medallion.ingest.files import reader
from medallion.ingest.files.batch import first_lines
from medallion.ingest.parsing.fast_path import LineLayout
from medallion.ingest.parsing.parse import parse_lines
from medallion.spark.session import spark_session
from medallion.storage import delta_tables, table_specs
from medallion.storage.table_specs import INGESTED_AT, SOURCE_FILE, bronze_columns

Side = Callable[[SparkSession, Config], float]


def rescue(spark: SparkSession, folder: Path, rows: int, files: int, runs: int) -> list[Figure]:
    """Rows of a large landing to bronze, by what writes them, in turn."""
    seconds: dict[str, list[float]] = {}
    for name, count, parts in (("warm", 20_000, 2), ("large", rows, files)):
        DataFactory(folder / name / "landing").land(rows=count, files=parts, source="activity")
        shutil.copytree(folder / name, folder / f"{name} odd")
        for file in (folder / f"{name} odd" / "landing/activity").iterdir():
            file.write_text(as_published(file.read_text()))
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
            "warm, two fields unknown in each line | none",
            found["rescue odd"],
            found["rescue"],
            1.3,
            f"the JSON source, which drops them: {found['source odd']:.1f} s",
        ),
        Figure(
            "bronze | JSON stream, whole queries, warm",
            found["bronze"],
            found["stream"],
            None,
            "bronze with its ledger and archive",
        ),
    ]


def as_published(lines: str) -> str:
    """Recordings with two fields before the others that the schema does not know."""
    numbers = itertools.count(1_424_686_733_176)
    return re.sub(
        "(?m)^{",
        lambda _: f'{{"Arrival_Time": {(n := next(numbers))}, "Creation_Time": {n * 1_000_000}, ',
        lines,
    )


def _rescue(spark: SparkSession, config: Config) -> float:
    """Seconds of what bronze does with lines, and no more."""
    source = config.sources["activity"]
    columns, table = dict(source.schema or {}), config.layout.table("bronze.activity")
    schema = T.StructType.fromDDL(_ddl(bronze_columns(columns, source.origin_columns)))
    delta_tables.create_table(table, schema.json(), table_specs.BRONZE.properties())
    paths = [config.layout.relative(f) for f in config.layout.landing("activity").local.iterdir()]

    def work() -> None:
        lines = reader.read_rows(spark, config, source, paths, columns)
        layout = LineLayout.from_lines(
            first_lines([config.layout.root.local / path for path in paths]), columns
        )
        parsed = parse_lines(lines, columns, layout)
        parsed.write.format("delta").mode("append").save(str(table))

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

"""Bronze: one query a source, from landing files to `bronze.<source>`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion import schemas, tables
from medallion.config import Config, Source
from medallion.streams import Run
from medallion.transforms.bronze import parsed

# What Python's bytes.strip takes away: a line of nothing else is blank, and no row.
_BLANK = " \t\r\n\v\f"


def start(spark: SparkSession, config: Config, source: Source, trigger: dict[str, Any]) -> Run:
    """Start the query; its observed metric `landed.rows` counts the non-blank lines read."""
    name = f"bronze.{source.name}"
    landing = config.layout.landing(source.name)
    landing.mkdir(parents=True, exist_ok=True)
    table = config.layout.table(name)
    tables.create(table, tables.schema_json(schemas.bronze(source.schema)))
    lines = (
        spark.readStream.format("text")
        .option("recursiveFileLookup", "true")
        # By default a file a week older than the newest one is skipped without a word.
        .option("maxFileAge", "36500d")
        .option("maxFilesPerTrigger", files_per_trigger(landing, source))
        .load(str(landing))
        .where(~_is_blank())
        .observe("landed", F.count(F.lit(1)).alias("rows"))
    )
    query = (
        parsed(_with_file(lines), source.schema)
        .writeStream.queryName(name)
        .format("delta")
        .outputMode("append")
        .option("checkpointLocation", str(config.layout.checkpoint(name)))
        .trigger(**trigger)
        .start(str(table))
    )
    return Run(name, query)


def files_per_trigger(landing: Path, source: Source) -> int:
    """How many files a batch may take, so that it stays within the source's files and its bytes.

    Spark takes a limit of files or one of bytes, not both. Of the files that are there, any so
    many are within the bytes, if the largest ones are.
    """
    sizes = sorted(
        (
            entry.stat().st_size
            for folder, _, names in os.walk(landing)
            for entry in (Path(folder, name) for name in names)
            if entry.is_file()
        ),
        reverse=True,
    )
    total = 0
    for count, size in enumerate(sizes[: source.max_files_per_trigger]):
        total += size
        if total > source.max_bytes_per_trigger:
            return max(count, 1)
    return source.max_files_per_trigger


def lines_of_batch(spark: SparkSession, config: Config, source: Source, batch: int) -> int:
    """Count again the non-blank lines of the files of one batch, by the checkpoint's file log."""
    log = config.layout.checkpoint(f"bronze.{source.name}") / "sources" / "0"
    files = {
        entry["path"]
        for part in log.iterdir()
        # Every tenth file is compact: it has the entries of the batches before it as well.
        if part.name.split(".")[0].isdigit() and int(part.name.split(".")[0]) >= batch
        for line in part.read_text(encoding="utf-8").splitlines()[1:]
        if (entry := json.loads(line))["batchId"] == batch
    }
    return spark.read.text(sorted(files)).where(~_is_blank()).count() if files else 0


def recorded(run: Run, batch: int) -> int | None:
    """The lines that the engine counted in a batch; None where its record is lost."""
    known = run.batches.get(batch)
    return int(known.observed["landed"]["rows"]) if known else None


def _is_blank() -> Column:
    return F.length(F.btrim("value", F.lit(_BLANK))) == 0


def _with_file(lines: DataFrame) -> DataFrame:
    return lines.select(
        "value",
        F.col("_metadata.file_path").alias(schemas.SOURCE_FILE),
        F.col("_metadata.file_modification_time").alias(schemas.SOURCE_MODIFIED_AT),
    )

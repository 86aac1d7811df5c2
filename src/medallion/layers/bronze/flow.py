"""Bronze: one query a source, from landing files to `bronze.<source>`.

The query streams the paths that `Discovery` hands over, and reads the files batch by batch. So one
file that cannot be read holds up no other, and the schema may be another one from batch to batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from medallion.config.loader import Config, Source
from medallion.ops.ledger import Ledger
from medallion.schema.evolution import Schema
from medallion.sources.files import handover, reader
from medallion.sources.files.listing import stat
from medallion.sources.files.source import Batches, Say
from medallion.spark import checkpoints
from medallion.spark.query import Run


def start(
    spark: SparkSession, config: Config, source: Source, trigger: dict[str, Any], say: Say
) -> Run:
    """List the source's folders, and start the query that takes the files in.

    Raises:
        ConfigError: the declared schema is none, or not that of the table.
    """
    name = f"bronze.{source.name}"
    config.layout.landing(source.name).mkdir(parents=True, exist_ok=True)
    handed = config.layout.intake(source.name)
    handover.prepare(handed)
    batches = Batches(spark, config, source, say)
    batches.prepare()
    checkpoint = config.layout.checkpoint(name)
    before = checkpoints.last_committed(checkpoint)
    query = (
        spark.readStream.format("delta")
        .option("startingVersion", "0")
        .option("maxFilesPerTrigger", "1")  # one commit is what one batch may take
        .load(str(handed))
        .writeStream.queryName(name)
        .foreachBatch(batches.take_in)
        .option("checkpointLocation", str(checkpoint))
        .trigger(**trigger)
        .start()
    )
    return Run(name, query, before, intake=batches)


def lines_of_batch(spark: SparkSession, config: Config, source: Source, batch: int) -> int:
    """Count again the rows in the files of one batch, as the ledger lists them."""
    there: list[str] = []
    lines = 0
    for entry in Ledger(config.layout, source.name).of_batch(batch):
        place = entry.moved_to or entry.path
        if stat(config.layout, place) == replace(entry.file, path=place):
            there.append(place)
        else:  # gone or overwritten since: what was counted of it stands
            lines += entry.rows or 0
    if there:
        schema = Schema(spark, config, source)
        lines += reader.rows(spark, config, source, there, schema.columns).count()
    return lines


def recorded(run: Run, batch: int) -> int | None:
    """The lines that the engine counted in a batch; None where its record is lost."""
    return run.intake.lines.get(batch) if run.intake else None
